//! Undo after crashes and edits.

use super::support::{RUNTIME, TestSystem, refusal};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use synconce_setup::journal::Journal;
use synconce_setup::undo::Edits;
use synconce_setup::{Engine, apply, diff, plan, undo};

const CONFIG: &str = "/etc/docker/daemon.json";
const UNIT: &str = "/lib/systemd/system/docker.service";
const DROP_IN: &str = "/etc/systemd/system/docker.service.d/synconce.conf";
const JOURNAL: &str = "/var/lib/synconce/setup/docker/journal.json";
const SAVED: &str = "/var/lib/synconce/setup/docker/saved-";
const OLD: &str = "Docker version 20.10.24, build 0";
const NEW: &str = "Docker version 28.3.0, build 0";

fn tree() -> TestSystem {
    let unit = "[Service]\nExecStart=/usr/bin/dockerd\n";
    let tree = TestSystem::new().program("/usr/bin/dockerd").with(UNIT, unit);
    tree.with(CONFIG, "{\n  \"debug\": true\n}\n")
}

#[test]
fn a_crash_after_the_journal_leaves_nothing_that_cannot_be_undone_or_gone_on_with() {
    let journal_only = || {
        let tree = tree();
        let before = tree.snapshot();
        let host = tree.host(OLD);
        let plan = plan(Engine::Docker, &host).unwrap();
        let journal = Journal::make(&plan, None, &host, Engine::Docker).unwrap();
        journal.write(&host, Engine::Docker).unwrap();
        (tree, before)
    };
    let (tree, before) = journal_only();
    assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(0));
    assert_eq!(before, tree.snapshot());

    let (tree, before) = journal_only();
    assert!(tree.set_up(Engine::Docker, OLD).unwrap() > 0);
    assert!(tree.read(CONFIG).contains(RUNTIME));
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(before, tree.snapshot());
}

#[test]
fn a_crash_between_any_two_changes_is_undone_to_the_byte() {
    let count = plan(Engine::Docker, &tree().host(OLD)).unwrap().changes.len();
    assert_eq!(count, 3);
    for done in 0..count {
        let tree = tree();
        let before = tree.snapshot();
        let host = tree.host(OLD);
        let mut plan = plan(Engine::Docker, &host).unwrap();
        let journal = Journal::make(&plan, None, &host, Engine::Docker).unwrap();
        journal.write(&host, Engine::Docker).unwrap();
        plan.changes.truncate(done);
        apply::apply(&plan, &host, Engine::Docker).unwrap();
        // The leftover of an interrupted replacement.
        tree.write("/etc/docker/.daemon.json.synconce-new", "{\n  \"de");
        assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(done), "after {done}");
        assert_eq!(before, tree.snapshot(), "after {done}");
    }
}

#[test]
fn a_crash_in_the_middle_of_undoing_is_gone_on_with() {
    let tree = tree();
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, OLD).unwrap();
    fs::remove_file(tree.real(DROP_IN)).unwrap();
    assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(2));
    assert_eq!(before, tree.snapshot());
}

#[test]
fn an_edit_of_what_synconce_wrote_is_undone_only_by_force() {
    let tree = tree();
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, OLD).unwrap();
    // The program of the runtime has an argument now.
    let edited = tree.read(CONFIG).replace(
        &format!("\"path\": \"{RUNTIME}\""),
        &format!("\"path\": \"{RUNTIME}\", \"runtimeArgs\": [\"--debug\"]"),
    );
    tree.write(CONFIG, &edited);
    let after = tree.snapshot();

    let printed = refusal(tree.undo(Engine::Docker, Edits::Refuse));
    assert!(printed.contains("daemon.json: was edited since"), "{printed}");
    assert!(printed.contains(&format!("\n-      \"path\": \"{RUNTIME}\"")), "{printed}");
    assert!(printed.contains("\"runtimeArgs\": [\"--debug\"]"), "{printed}");
    assert_eq!(after, tree.snapshot(), "the other files stay as well");

    // An earlier forced undo saved an edit under this name.
    tree.write(&format!("{SAVED}1-daemon.json"), "earlier");
    tree.undo(Engine::Docker, Edits::Overwrite).unwrap();
    let saved = ["2", "3"].map(|n| tree.real(&format!("{SAVED}{n}-daemon.json")));
    let saved = saved.iter().find(|path| path.exists()).unwrap();
    assert_eq!(fs::read_to_string(saved).unwrap(), edited);
    assert_eq!(fs::metadata(saved).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_dir_all(tree.real("/var")).unwrap();
    assert_eq!(before, tree.snapshot());
}

/// Simulates a set-up that was killed after its journal was durable and `done` files were
/// written.
fn cut_short(tree: &TestSystem, done: usize) {
    let host = tree.host(OLD);
    let plan = plan(Engine::Docker, &host).unwrap();
    let journal = Journal::make(&plan, None, &host, Engine::Docker).unwrap();
    let mut part = plan;
    part.changes.truncate(done);
    apply::apply(&part, &host, Engine::Docker).unwrap();
    journal.write(&host, Engine::Docker).unwrap();
}

#[test]
fn an_edit_of_a_file_that_a_killed_set_up_never_came_to_is_left_alone() {
    for edits in [Edits::Refuse, Edits::Overwrite] {
        let tree = tree();
        cut_short(&tree, 0);
        let journal = fs::read(tree.real(JOURNAL)).unwrap();
        tree.write(CONFIG, "{\n  \"debug\": false\n}\n");
        fs::remove_dir_all(tree.real("/var")).unwrap();
        let before = tree.snapshot();
        tree.write(JOURNAL, &String::from_utf8(journal).unwrap());
        assert_eq!(tree.undo(Engine::Docker, edits).unwrap(), Some(0));
        assert!(!tree.real(JOURNAL).exists());
        assert_eq!(before[CONFIG.trim_start_matches('/')].3, tree.read(CONFIG));
    }
}

#[test]
fn a_comment_that_names_synconce_is_no_edit_by_synconce() {
    let own = "# in place of `synconce setup`\n[Service]\nEnvironment=A=1 # synconce\n";
    let buildkit = "/etc/buildkit/buildkitd.toml";
    for (engine, path) in [(Engine::Docker, DROP_IN), (Engine::Buildkit, buildkit)] {
        let tree = tree();
        let host = tree.host(OLD);
        let plan = plan(engine, &host).unwrap();
        // Killed before the file was changed.
        Journal::make(&plan, None, &host, engine).unwrap().write(&host, engine).unwrap();
        tree.write(path, own);
        assert_eq!(tree.undo(engine, Edits::Refuse).unwrap(), Some(0));
        assert_eq!(tree.read(path), own);
    }
}

#[test]
fn a_set_up_after_a_killed_one_takes_the_edits_since_for_what_was_before() {
    for edited in [Some("{\n  \"debug\": false\n}\n"), None] {
        let tree = tree();
        cut_short(&tree, 0);
        match edited {
            Some(edited) => tree.write(CONFIG, edited),
            None => fs::remove_file(tree.real(CONFIG)).unwrap(),
        }
        assert_eq!(tree.set_up(Engine::Docker, OLD).unwrap(), 3);
        assert!(tree.read(CONFIG).contains(RUNTIME));
        assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(3));
        assert_eq!(fs::read_to_string(tree.real(CONFIG)).ok().as_deref(), edited);
    }
}

#[test]
fn an_edit_of_a_file_that_a_killed_set_up_wrote_stays() {
    let tree = tree();
    cut_short(&tree, 1);
    let edited = tree.read(CONFIG).replace("\"debug\": true", "\"debug\": false");
    tree.write(CONFIG, &edited);
    assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(1));
    assert_eq!(tree.read(CONFIG), "{\n  \"debug\": false\n}\n");
}

#[test]
fn an_edit_of_a_file_that_a_killed_undo_had_put_back_is_left_alone() {
    let tree = tree();
    tree.set_up(Engine::Docker, OLD).unwrap();
    // The last step of the undo fails, because the file was changed after the undo was
    // planned.
    let host = tree.host(OLD);
    let undo = undo::plan(&host, Engine::Docker, Edits::Refuse).unwrap().unwrap();
    let config = tree.read(CONFIG);
    tree.write(CONFIG, "{}\n");
    assert!(undo::carry_out(&undo, &host, Engine::Docker).is_err());
    tree.write(CONFIG, &config);
    tree.write(DROP_IN, "[Service]\nEnvironment=A=1\n");
    assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(1));
    assert_eq!(tree.read(DROP_IN), "[Service]\nEnvironment=A=1\n");
    assert_eq!(tree.read(CONFIG), "{\n  \"debug\": true\n}\n");
}

#[test]
fn an_edit_that_was_taken_out_again_does_not_stand_in_the_way() {
    let tree = tree();
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, OLD).unwrap();
    // Restored by hand: undo has nothing to do.
    tree.write(CONFIG, "{\n  \"debug\": true\n}\n");
    assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(2));
    assert_eq!(before, tree.snapshot());
}

#[test]
fn a_file_that_was_taken_away_since_is_put_back_only_by_force() {
    let tree = tree().mode(CONFIG, 0o600);
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, OLD).unwrap();
    fs::remove_dir_all(tree.real("/etc/docker")).unwrap();
    assert!(refusal(tree.undo(Engine::Docker, Edits::Refuse)).contains("/dev/null"));
    tree.undo(Engine::Docker, Edits::Overwrite).unwrap();
    assert_eq!(before, tree.snapshot());
}

#[test]
fn a_later_set_up_adds_to_the_journal_and_one_undo_goes_back_to_the_start() {
    let tree = tree();
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, OLD).unwrap();
    assert!(tree.read(DROP_IN).contains("Environment=PATH="));
    // dockerd was upgraded.
    assert_eq!(tree.set_up(Engine::Docker, NEW).unwrap(), 1);
    assert!(tree.read(DROP_IN).contains("DOCKER_BUILDKIT_RUNC_COMMAND"));
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(before, tree.snapshot());
}

#[test]
fn a_file_of_another_author_with_the_name_of_a_new_file_is_not_changed() {
    for path in [DROP_IN, "/usr/local/lib/synconce/docker/runc"] {
        let tree = tree().with(path, "mine\n");
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(Engine::Docker, OLD));
        assert!(printed.contains(path) && printed.contains("not by synconce"), "{printed}");
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn a_directory_made_by_set_up_stays_if_it_is_not_empty() {
    let tree = TestSystem::new();
    tree.set_up(Engine::Docker, OLD).unwrap();
    tree.write("/etc/docker/key.json", "{}");
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert!(tree.real("/etc/docker/key.json").exists());
    assert!(!tree.real(CONFIG).exists());
    assert!(!tree.real("/etc/systemd").exists());
}

#[test]
fn a_journal_that_is_not_understood_is_refused() {
    for content in ["", "{", "{\"version\": 2, \"files\": [], \"directories\": [], \"levels\": 0}"]
    {
        let tree = tree().with(JOURNAL, content);
        let before = tree.snapshot();
        assert!(refusal(tree.undo(Engine::Docker, Edits::Refuse)).contains("journal.json"));
        assert!(refusal(tree.set_up(Engine::Docker, OLD)).contains("journal.json"));
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn the_journal_is_readable_by_its_owner_only() {
    let tree = tree();
    tree.set_up(Engine::Docker, OLD).unwrap();
    let (mode, ..) = tree.snapshot()[JOURNAL.trim_start_matches('/')].clone();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn an_image_that_was_moved_is_undone_where_it_is() {
    let tree = tree();
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, OLD).unwrap();
    let moved = TestSystem::new();
    fs::remove_dir_all(moved.real("/usr")).unwrap();
    for name in ["etc", "lib", "usr", "var"] {
        fs::rename(tree.real(name), moved.real(name)).unwrap();
    }
    moved.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(before, moved.snapshot());
}

#[test]
fn what_would_be_undone_is_shown_as_the_way_back() {
    let tree = tree();
    let host = tree.host(NEW);
    let forth = diff::of_plan(&plan(Engine::Docker, &host).unwrap(), &host);
    tree.set_up(Engine::Docker, NEW).unwrap();
    let undo = undo::plan(&host, Engine::Docker, Edits::Refuse).unwrap().unwrap();
    let back = undo.diff(&host);
    let lines = |text: &str, sign: char| {
        let is_line =
            |line: &&str| line.starts_with(sign) && !line.starts_with(&format!("{sign}{sign}"));
        let mut lines: Vec<_> =
            text.lines().filter(is_line).map(|line| line[1..].to_owned()).collect();
        lines.sort();
        lines
    };
    assert!(forth.contains(&format!("+++ {}", Path::new(&tree.real(CONFIG)).display())), "{forth}");
    assert_eq!(lines(&forth, '+'), lines(&back, '-'), "{forth}{back}");
    assert_eq!(lines(&forth, '-'), lines(&back, '+'), "{forth}{back}");
}
