//! Every check fails where it must.

use super::*;
use crate::tree::store::{Listed, Reported};

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
fn commit() -> [StoreState; 2] {
    let before = StoreState {
        store: true,
        durable: trees(&[("a", &["one"]), ("b", &["one"])]),
        open: trees(&[("a", &["one", "two"])]),
        ..StoreState::default()
    };
    let durable = trees(&[("a", &["one", "two"]), ("b", &["one"])]);
    let after = StoreState { store: true, durable, ..StoreState::default() };
    [before, after]
}

fn seen(trees: &Trees) -> SeenStore {
    let listed = |name: &String| Listed {
        name: name.clone(),
        state: "committed".to_owned(),
        protected: false,
        kept: 0,
    };
    SeenStore {
        store: true,
        listed: trees.keys().map(listed).collect(),
        trees: trees.iter().map(|(name, tree)| (name.clone(), Ok(Arc::clone(tree)))).collect(),
        ..SeenStore::default()
    }
}

/// Returns the kind of defect that `seen` shows after a power cut during a commit.
fn power(seen: &SeenStore) -> Option<&'static str> {
    found(Interruption::PowerCut, Effect::Commits("a"), &commit(), seen)
}

fn found(
    by: Interruption,
    interrupted: Effect,
    states: &[StoreState; 2],
    seen: &SeenStore,
) -> Option<&'static str> {
    let [before, after] = states;
    let moment = TreeMoment { by, before, after, interrupted, accepted: BTreeMap::new() };
    check(&moment, seen).map(|(kind, _)| kind)
}

/// Returns what is seen on a disk from before the commit, with the loss of the tree reported.
fn before() -> SeenStore {
    let first = Reported { interrupted: Vec::new(), lost: vec!["a".to_owned()] };
    SeenStore { first, noted: vec!["a".to_owned()], ..seen(&commit()[0].durable) }
}

fn after() -> SeenStore {
    seen(&commit()[1].durable)
}

#[test]
fn the_states_before_and_after_are_both_accepted() {
    assert_eq!(power(&before()), None);
    assert_eq!(power(&after()), None);
}

#[test]
fn a_tree_in_neither_state_is_found() {
    let with = |all: &[(&str, &[&str])]| SeenStore { first: before().first, ..seen(&trees(all)) };
    assert_eq!(power(&with(&[("a", &["one"])])), Some("lost"));
    assert_eq!(
        power(&with(&[("a", &["one"]), ("b", &["one"]), ("c", &["one"])])),
        Some("reappeared")
    );
    assert_eq!(power(&with(&[("a", &["two"]), ("b", &["one"])])), Some("altered"));
    assert_eq!(power(&with(&[("a", &["one"]), ("b", &["one", "two"])])), Some("altered"));
}

#[test]
fn two_trees_of_different_moments_are_found() {
    let [before, _] = commit();
    let durable = trees(&[("a", &["one", "two"]), ("b", &["two"])]);
    let both = [before, StoreState { store: true, durable, ..StoreState::default() }];
    let mixed = seen(&trees(&[("a", &["one"]), ("b", &["two"])]));
    assert_eq!(found(Interruption::PowerCut, Effect::Nothing, &both, &mixed), Some("mixed"));
}

#[test]
fn a_removed_tree_that_reappears_is_found() {
    let [_, after] = commit();
    let mut gone = after.clone();
    gone.durable.remove("b");
    let again = seen(&after.durable);
    let states = [gone.clone(), gone];
    assert_eq!(found(Interruption::PowerCut, Effect::Nothing, &states, &again), Some("reappeared"));
}

#[test]
fn a_lost_store_is_found_and_a_store_that_was_never_made_is_accepted() {
    let none = SeenStore::default();
    assert_eq!(power(&none), Some("lost"));
    let states = [StoreState::default(), StoreState { store: true, ..StoreState::default() }];
    assert_eq!(found(Interruption::PowerCut, Effect::Makes, &states, &none), None);
    let unusable = SeenStore { unusable: Some("no".to_owned()), ..none };
    assert_eq!(found(Interruption::PowerCut, Effect::Makes, &states, &unusable), Some("unusable"));
}

#[test]
fn faults_leftovers_unreadable_trees_and_an_unusable_store_are_found() {
    let faults = vec!["fsck: exit status: 1".to_owned()];
    assert_eq!(power(&SeenStore { faults, ..after() }), Some("faults"));
    let leftovers = vec!["layers/1".to_owned()];
    assert_eq!(power(&SeenStore { leftovers, ..after() }), Some("leftovers"));
    assert_eq!(power(&SeenStore { unusable: Some("no".to_owned()), ..after() }), Some("unusable"));
    let mut unreadable = after();
    unreadable.trees.insert("a".to_owned(), Err("no".to_owned()));
    assert_eq!(power(&unreadable), Some("unreadable tree"));
}

#[test]
fn an_open_tree_after_a_cut_is_found() {
    let mut wrong = before();
    wrong.listed[0].state = "open".to_owned();
    assert_eq!(power(&wrong), Some("wrong state"));
    wrong.listed[0].state = "in use".to_owned();
    assert_eq!(found(Interruption::Kill, Effect::Nothing, &commit(), &wrong), Some("altered"));
}

#[test]
fn an_unreported_loss_is_found_if_a_note_reached_the_disk() {
    let silent = SeenStore { first: Reported::default(), ..before() };
    assert_eq!(power(&silent), Some("loss not reported"));
    assert_eq!(power(&SeenStore { noted: Vec::new(), ..silent }), None);
}

#[test]
fn a_report_without_a_loss_is_a_false_alarm() {
    let first = Reported { interrupted: Vec::new(), lost: vec!["a".to_owned()] };
    assert_eq!(power(&SeenStore { first, ..after() }), Some("false alarm"));
    let first = Reported { interrupted: Vec::new(), lost: vec!["b".to_owned()] };
    assert_eq!(power(&SeenStore { first, ..before() }), Some("false alarm"));
}

#[test]
fn an_interrupted_session_must_be_reported_once_and_no_other_session() {
    let reported = Reported { interrupted: vec!["b".to_owned()], lost: Vec::new() };
    let [_, state] = commit();
    let states = [state.clone(), state];
    let one = SeenStore { sessions: 1, first: reported.clone(), ..after() };
    let run = |seen: &SeenStore| found(Interruption::PowerCut, Effect::Runs("b", 1), &states, seen);
    assert_eq!(run(&one), None);
    assert_eq!(
        run(&SeenStore { first: Reported::default(), ..one.clone() }),
        Some("interruption not reported")
    );
    assert_eq!(run(&SeenStore { second: reported, ..one.clone() }), Some("reported twice"));
    let nothing = found(Interruption::PowerCut, Effect::Nothing, &states, &one);
    assert_eq!(nothing, Some("false alarm"));
    let twice = Reported { interrupted: vec!["b".to_owned(), "b".to_owned()], lost: Vec::new() };
    assert_eq!(run(&SeenStore { first: twice, ..one }), Some("false alarm"));
}

#[test]
fn a_durable_commit_must_not_be_reported_as_interrupted() {
    let [_, state] = commit();
    let mut made = state.clone();
    made.durable.insert("c".to_owned(), content(&["three"]));
    let states = [state, made.clone()];
    let first = Reported { interrupted: vec!["b".to_owned()], lost: Vec::new() };
    let becomes = Effect::Becomes("b", "c", 1);
    let early = SeenStore { first, ..seen(&made.durable) };
    assert_eq!(found(Interruption::PowerCut, becomes, &states, &early), Some("false alarm"));
    assert_eq!(found(Interruption::Kill, becomes, &states, &early), Some("false alarm"));
}

#[test]
fn a_kill_loses_no_open_work() {
    let [state, after] = commit();
    let mut live = seen(&state.live());
    live.listed[0].state = "open".to_owned();
    let kill = |seen: &SeenStore| found(Interruption::Kill, Effect::Commits("a"), &commit(), seen);
    assert_eq!(kill(&live), None);
    assert_eq!(kill(&seen(&after.durable)), None);
    assert_eq!(kill(&seen(&state.durable)), Some("altered"));
    live.first.lost.push("a".to_owned());
    assert_eq!(kill(&live), Some("false alarm"));
}
