//! Every check of the judge fails where it must.

use super::*;
use crate::tree::store::{Listed, Said};

fn content(paths: &[&str]) -> Arc<Manifest> {
    let entry = r#"{"kind": "file", "mode": 420, "uid": 0, "gid": 0}"#;
    let entries = paths.iter().map(|path| format!("\"{path}\": {entry}"));
    let text = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    Arc::new(serde_json::from_str(&text).expect("a manifest"))
}

fn trees(all: &[(&str, &[&str])]) -> Trees {
    all.iter().map(|(name, paths)| ((*name).to_owned(), content(paths))).collect()
}

/// Returns the states around a commit: `a` is open; the interrupted verb commits `a` as its
/// second generation.
fn commit() -> [State; 2] {
    let before = State {
        store: true,
        durable: trees(&[("a", &["one"]), ("b", &["one"])]),
        open: trees(&[("a", &["one", "two"])]),
    };
    let durable = trees(&[("a", &["one", "two"]), ("b", &["one"])]);
    let after = State { store: true, durable, open: Trees::new() };
    [before, after]
}

fn seen(trees: &Trees) -> Seen {
    let listed = |name: &String| Listed { name: name.clone(), state: "committed".to_owned() };
    Seen {
        store: true,
        listed: trees.keys().map(listed).collect(),
        trees: trees.iter().map(|(name, tree)| (name.clone(), Ok(Arc::clone(tree)))).collect(),
        ..Seen::default()
    }
}

/// Returns the kind of defect that `seen` shows after a power cut during a commit.
fn power(seen: &Seen) -> Option<&'static str> {
    judged(Kill::Power, Effect::Commits("a"), &commit(), seen)
}

fn judged(blow: Kill, hit: Effect, states: &[State; 2], seen: &Seen) -> Option<&'static str> {
    let [before, after] = states;
    let moment = Moment { blow, before, after, hit, forgiven: BTreeMap::new() };
    judge(&moment, seen).map(|(kind, _)| kind)
}

/// Returns what is seen on a disk from before the commit, with the loss of the tree reported.
fn before() -> Seen {
    let first = Said { interrupted: Vec::new(), lost: vec!["a".to_owned()] };
    Seen { first, noted: vec!["a".to_owned()], ..seen(&commit()[0].durable) }
}

fn after() -> Seen {
    seen(&commit()[1].durable)
}

#[test]
fn before_and_after_are_both_well() {
    assert_eq!(power(&before()), None);
    assert_eq!(power(&after()), None);
}

#[test]
fn a_tree_that_is_neither_before_nor_after_is_found() {
    let with = |all: &[(&str, &[&str])]| Seen { first: before().first, ..seen(&trees(all)) };
    assert_eq!(power(&with(&[("a", &["one"])])), Some("lost"));
    assert_eq!(
        power(&with(&[("a", &["one"]), ("b", &["one"]), ("c", &["one"])])),
        Some("came back")
    );
    assert_eq!(power(&with(&[("a", &["two"]), ("b", &["one"])])), Some("altered"));
    assert_eq!(power(&with(&[("a", &["one"]), ("b", &["one", "two"])])), Some("altered"));
}

#[test]
fn two_trees_that_are_not_of_one_moment_are_found() {
    let [before, _] = commit();
    let durable = trees(&[("a", &["one", "two"]), ("b", &["two"])]);
    let both = [before, State { store: true, durable, open: Trees::new() }];
    let mixed = seen(&trees(&[("a", &["one"]), ("b", &["two"])]));
    assert_eq!(judged(Kill::Power, Effect::Nothing, &both, &mixed), Some("half"));
}

#[test]
fn a_removed_tree_that_is_there_again_is_found() {
    let [_, after] = commit();
    let mut gone = after.clone();
    gone.durable.remove("b");
    let again = seen(&after.durable);
    let states = [gone.clone(), gone];
    assert_eq!(judged(Kill::Power, Effect::Nothing, &states, &again), Some("came back"));
}

#[test]
fn a_store_that_is_gone_is_found_and_one_that_was_never_made_is_not() {
    let none = Seen::default();
    assert_eq!(power(&none), Some("lost"));
    let states = [State::default(), State { store: true, ..State::default() }];
    assert_eq!(judged(Kill::Power, Effect::Makes, &states, &none), None);
    let stuck = Seen { stuck: Some("no".to_owned()), ..none };
    assert_eq!(judged(Kill::Power, Effect::Makes, &states, &stuck), Some("does not work on"));
}

#[test]
fn faults_leftovers_unreadable_trees_and_a_store_that_is_stuck_are_found() {
    let faults = vec!["fsck: exit status: 1".to_owned()];
    assert_eq!(power(&Seen { faults, ..after() }), Some("faults"));
    let leftovers = vec!["layers/1".to_owned()];
    assert_eq!(power(&Seen { leftovers, ..after() }), Some("leftovers"));
    assert_eq!(power(&Seen { stuck: Some("no".to_owned()), ..after() }), Some("does not work on"));
    let mut unreadable = after();
    unreadable.trees.insert("a".to_owned(), Err("no".to_owned()));
    assert_eq!(power(&unreadable), Some("unreadable tree"));
}

#[test]
fn open_work_that_is_believed_after_a_cut_is_found() {
    let mut believed = before();
    believed.listed[0].state = "open".to_owned();
    assert_eq!(power(&believed), Some("believed"));
    believed.listed[0].state = "in use".to_owned();
    assert_eq!(judged(Kill::Kill, Effect::Nothing, &commit(), &believed), Some("altered"));
}

#[test]
fn a_loss_that_is_not_said_is_found_as_far_as_the_disk_knows_of_it() {
    let silent = Seen { first: Said::default(), ..before() };
    assert_eq!(power(&silent), Some("unsaid"));
    assert_eq!(power(&Seen { noted: Vec::new(), ..silent }), None);
}

#[test]
fn a_loss_that_is_none_is_a_false_alarm() {
    let first = Said { interrupted: Vec::new(), lost: vec!["a".to_owned()] };
    assert_eq!(power(&Seen { first, ..after() }), Some("false alarm"));
    let first = Said { interrupted: Vec::new(), lost: vec!["b".to_owned()] };
    assert_eq!(power(&Seen { first, ..before() }), Some("false alarm"));
}

#[test]
fn what_was_cut_short_is_said_once_and_nothing_else_is() {
    let said = Said { interrupted: vec!["b".to_owned()], lost: Vec::new() };
    let [_, state] = commit();
    let states = [state.clone(), state];
    let one = Seen { sessions: 1, first: said.clone(), ..after() };
    let run = |seen: &Seen| judged(Kill::Power, Effect::Runs("b", 1), &states, seen);
    assert_eq!(run(&one), None);
    assert_eq!(run(&Seen { first: Said::default(), ..one.clone() }), Some("forgotten"));
    assert_eq!(run(&Seen { second: said, ..one.clone() }), Some("said twice"));
    let nothing = judged(Kill::Power, Effect::Nothing, &states, &one);
    assert_eq!(nothing, Some("false alarm"));
    let twice = Said { interrupted: vec!["b".to_owned(), "b".to_owned()], lost: Vec::new() };
    assert_eq!(run(&Seen { first: twice, ..one }), Some("false alarm"));
}

#[test]
fn a_commit_that_is_durable_is_not_said_to_have_been_interrupted() {
    let [_, state] = commit();
    let mut made = state.clone();
    made.durable.insert("c".to_owned(), content(&["three"]));
    let states = [state, made.clone()];
    let first = Said { interrupted: vec!["b".to_owned()], lost: Vec::new() };
    let becomes = Effect::Becomes("b", "c", 1);
    let told = Seen { first, ..seen(&made.durable) };
    assert_eq!(judged(Kill::Power, becomes, &states, &told), Some("false alarm"));
    assert_eq!(judged(Kill::Kill, becomes, &states, &told), Some("false alarm"));
}

#[test]
fn a_kill_loses_no_open_work() {
    let [state, after] = commit();
    let mut live = seen(&state.live());
    live.listed[0].state = "open".to_owned();
    let kill = |seen: &Seen| judged(Kill::Kill, Effect::Commits("a"), &commit(), seen);
    assert_eq!(kill(&live), None);
    assert_eq!(kill(&seen(&after.durable)), None);
    assert_eq!(kill(&seen(&state.durable)), Some("altered"));
    live.first.lost.push("a".to_owned());
    assert_eq!(kill(&live), Some("false alarm"));
}
