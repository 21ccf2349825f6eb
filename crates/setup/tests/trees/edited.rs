//! Files that others edited or rewrote after a set-up, such as Ansible, Puppet or nvidia-ctk.

use super::support::{RUNTIME, TestSystem, refusal};
use std::fs;
use std::path::Path;
use synconce_setup::journal::Journal;
use synconce_setup::undo::{self, Edits};
use synconce_setup::{Engine, HeldDaemon, plan};

const CONFIG: &str = "/etc/docker/daemon.json";
const BUILDKIT: &str = "/etc/buildkit/buildkitd.toml";
const CONTAINERD: &str = "/etc/containerd/config.toml";
const JOURNAL: &str = "/var/lib/synconce/setup/docker/journal.json";
const ORIGINAL: &str = "{\n  \"debug\": true\n}\n";
/// As nvidia-ctk writes it.
const REWRITTEN: &str = "{\n    \"debug\": false,\n    \"runtimes\": {\n        \"nvidia\": {\n            \
                         \"args\": [],\n            \"path\": \"nvidia-container-runtime\"\n        }\n    \
                         }\n}\n";

fn tree(config: Option<&str>) -> TestSystem {
    let tree = TestSystem::new().program("/usr/bin/dockerd");
    let unit = "[Service]\nExecStart=/usr/bin/dockerd\n";
    let tree = tree.with("/lib/systemd/system/docker.service", unit);
    match config {
        Some(config) => tree.with(CONFIG, config),
        None => tree,
    }
}

fn set_up(config: Option<&str>) -> TestSystem {
    let tree = tree(config);
    tree.set_up(Engine::Docker, "").unwrap();
    tree
}

#[test]
fn an_undo_leaves_a_file_alone_that_was_rewritten_without_synconce() {
    for original in [Some(ORIGINAL), None] {
        for rewritten in [REWRITTEN, "{}\n", "not JSON\n"] {
            let tree = set_up(original);
            tree.write(CONFIG, rewritten);
            let host = tree.host("");
            let undo = undo::plan(&host, Engine::Docker, Edits::Refuse).unwrap().unwrap();
            assert_eq!(undo.kept, [Path::new(CONFIG)]);
            assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(2));
            assert_eq!(tree.read(CONFIG), rewritten);
            assert!(!tree.real(JOURNAL).exists());
            assert!(!tree.real("/etc/systemd/system/docker.service.d").exists());
        }
    }
}

#[test]
fn a_set_up_over_a_rewritten_file_is_undone_to_the_rewritten_file() {
    for original in [Some(ORIGINAL), None] {
        let tree = set_up(original);
        tree.write(CONFIG, REWRITTEN);
        // Only this file is written: the others are as set up.
        assert_eq!(tree.set_up(Engine::Docker, "").unwrap(), 1);
        let edited = tree.read(CONFIG);
        assert!(edited.contains("nvidia") && edited.contains(RUNTIME), "{edited}");
        assert_eq!(tree.set_up(Engine::Docker, "").unwrap(), 0);
        assert_eq!(tree.undo(Engine::Docker, Edits::Refuse).unwrap(), Some(3));
        assert_eq!(tree.read(CONFIG), REWRITTEN);
    }
}

#[test]
fn edits_beside_the_keys_of_synconce_stay_when_those_are_taken_out() {
    let runc = "{\n  \"default-runtime\": \"runc\",\n  \"runtimes\": {}\n}\n";
    let nvidia = "{\n  \"runtimes\": {\"nvidia\": {\"path\": \"nvidia\"}}\n}\n";
    for original in [Some(ORIGINAL), None, Some(""), Some(runc), Some(nvidia)] {
        let tree = set_up(original);
        let mut json: serde_json::Value = serde_json::from_str(&tree.read(CONFIG)).unwrap();
        json["log-level"] = "warn".into();
        json["runtimes"]["kata"] = serde_json::json!({"path": "kata"});
        tree.write(CONFIG, &serde_json::to_string_pretty(&json).unwrap());
        let before = original.filter(|text| !text.is_empty()).unwrap_or("{}");
        let mut wanted: serde_json::Value = serde_json::from_str(before).unwrap();
        wanted["log-level"] = "warn".into();
        wanted["runtimes"]["kata"] = serde_json::json!({"path": "kata"});
        tree.undo(Engine::Docker, Edits::Refuse).unwrap();
        let left: serde_json::Value = serde_json::from_str(&tree.read(CONFIG)).unwrap();
        assert_eq!(left, wanted, "{original:?}");
        assert!(!tree.real(JOURNAL).exists());
    }
}

#[test]
fn the_bytes_of_an_edit_stay_as_they_are() {
    let tree = set_up(Some(ORIGINAL));
    let edited = tree.read(CONFIG).replace("true", "false").replacen('{', "{\n\t\"b\" : 2,", 1);
    tree.write(CONFIG, &edited);
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(tree.read(CONFIG), "{\n\t\"b\" : 2,\n  \"debug\": false\n}\n");
}

#[test]
fn a_set_up_after_synconce_lost_the_default_keeps_the_default_of_the_edit() {
    let tree = set_up(Some(ORIGINAL));
    let edited = tree
        .read(CONFIG)
        .replace("\"default-runtime\": \"synconce\"", "\"default-runtime\": \"runc\"");
    tree.write(CONFIG, &edited);
    assert_eq!(tree.set_up(Engine::Docker, "").unwrap(), 1);
    assert!(tree.read(CONFIG).contains("\"default-runtime\": \"synconce\""));
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    let left: serde_json::Value = serde_json::from_str(&tree.read(CONFIG)).unwrap();
    assert_eq!(left, serde_json::json!({"debug": true, "default-runtime": "runc"}));
}

#[test]
fn a_runtime_of_synconce_under_another_name_is_refused() {
    for original in [Some(ORIGINAL), None] {
        for path in [RUNTIME, "/usr/local/lib/synconce/docker/runc"] {
            let tree = set_up(original);
            let renamed = tree.read(CONFIG).replace("\"synconce\"", "\"hold\"");
            tree.write(CONFIG, &renamed.replace(RUNTIME, path));
            let before = tree.snapshot();
            let printed = refusal(tree.undo(Engine::Docker, Edits::Refuse));
            assert!(printed.contains("was edited since"), "{printed}");
            assert_eq!(before, tree.snapshot());
        }
    }
    // The user's own, of before.
    let tree =
        set_up(Some(&format!("{{\"runtimes\": {{\"hold\": {{\"path\": \"{RUNTIME}\"}}}}}}")));
    tree.write(CONFIG, &tree.read(CONFIG).replacen('{', "{\"debug\": true, ", 1));
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    let left: serde_json::Value = serde_json::from_str(&tree.read(CONFIG)).unwrap();
    assert_eq!(left["runtimes"], serde_json::json!({"hold": {"path": RUNTIME}}));
}

#[test]
fn force_drops_the_edit_and_saves_it() {
    for edited in [REWRITTEN.to_owned(), set_up(Some(ORIGINAL)).read(CONFIG) + "\n"] {
        let tree = set_up(Some(ORIGINAL));
        tree.write(CONFIG, &edited);
        tree.undo(Engine::Docker, Edits::Overwrite).unwrap();
        assert_eq!(tree.read(CONFIG), ORIGINAL);
        let saved: Vec<_> = fs::read_dir(tree.real(JOURNAL).parent().unwrap()).unwrap().collect();
        assert_eq!(saved.len(), 1);
        let saved = saved.into_iter().next().unwrap().unwrap().path();
        assert_eq!(fs::read_to_string(saved).unwrap(), edited);
    }
}

#[test]
fn a_file_that_is_no_longer_there_is_put_back_by_force_alone() {
    let tree = set_up(Some(ORIGINAL));
    fs::remove_file(tree.real(CONFIG)).unwrap();
    let printed = refusal(tree.undo(Engine::Docker, Edits::Refuse));
    assert!(printed.contains("was edited since"), "{printed}");
    let printed = refusal(tree.set_up(Engine::Docker, ""));
    assert!(printed.contains("was edited since"), "{printed}");
    tree.undo(Engine::Docker, Edits::Overwrite).unwrap();
    assert_eq!(tree.read(CONFIG), ORIGINAL);
}

#[test]
fn a_killed_set_up_over_a_rewritten_file_loses_nothing() {
    let tree = set_up(Some(ORIGINAL));
    tree.write(CONFIG, REWRITTEN);
    let host = tree.host("");
    let plan = plan(Engine::Docker, &host).unwrap();
    let earlier: Journal = serde_json::from_slice(&fs::read(tree.real(JOURNAL)).unwrap()).unwrap();
    let journal = Journal::make(&plan, Some(&earlier), &host, Engine::Docker);
    journal.unwrap().write(&host, Engine::Docker).unwrap();
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(tree.read(CONFIG), REWRITTEN);
}

#[test]
fn a_rewritten_toml_stays_and_one_with_lines_of_synconce_is_refused() {
    let theirs = "[registry.\"docker.io\"]\nmirrors = [\"m\"]\n";
    let tree = TestSystem::new().with(BUILDKIT, "debug = true\n");
    tree.set_up(Engine::Buildkit, "").unwrap();
    let ours = tree.read(BUILDKIT);
    tree.write(BUILDKIT, &format!("{theirs}{ours}"));
    let before = tree.snapshot();
    assert!(refusal(tree.undo(Engine::Buildkit, Edits::Refuse)).contains("was edited since"));
    assert_eq!(before, tree.snapshot());
    tree.write(BUILDKIT, theirs);
    assert_eq!(tree.undo(Engine::Buildkit, Edits::Refuse).unwrap(), Some(0));
    assert_eq!(tree.read(BUILDKIT), theirs);
}

#[test]
fn an_edit_stays_after_the_line_of_synconce_is_taken_out() {
    const DROP_IN: &str = "/etc/systemd/system/docker.service.d/synconce.conf";
    let more = "max-parallelism = 4\n";
    let tree = TestSystem::new();
    tree.set_up(Engine::Buildkit, "").unwrap();
    without_lines_of_synconce(&tree, BUILDKIT, more, Engine::Buildkit);
    let tree = set_up(Some(ORIGINAL));
    without_lines_of_synconce(&tree, DROP_IN, "LimitNOFILE=9\n", Engine::Docker);
}

/// Adds `more` to the file of a set-up, takes the lines with a path of synconce out, and undoes.
fn without_lines_of_synconce(tree: &TestSystem, path: &str, more: &str, engine: Engine) {
    let ours = tree.read(path);
    tree.write(path, &format!("{ours}{more}"));
    assert!(refusal(tree.undo(engine, Edits::Refuse)).contains("was edited since"));
    let is_theirs = |line: &&str| line.starts_with('#') || !line.contains("synconce");
    let theirs: Vec<_> = ours.lines().filter(is_theirs).collect();
    let theirs = format!("{}\n{more}", theirs.join("\n"));
    tree.write(path, &theirs);
    tree.undo(engine, Edits::Refuse).unwrap();
    assert_eq!(tree.read(path), theirs);
}

#[test]
fn the_default_file_of_containerd_has_lines_that_a_set_up_writes_and_stays() {
    let printed = "containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da";
    let made = || {
        let tree = TestSystem::new().program("/usr/bin/containerd");
        tree.set_up(Engine::Containerd, printed).unwrap();
        tree
    };
    let theirs = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
                  runtime_type = \"io.containerd.runc.v2\"\n";
    let tree = made();
    let ours = tree.read(CONTAINERD);
    assert!(theirs.lines().any(|line| ours.contains(line)), "{ours}");
    tree.write(CONTAINERD, theirs);
    assert_eq!(tree.set_up(Engine::Containerd, printed).unwrap(), 1);
    tree.undo(Engine::Containerd, Edits::Refuse).unwrap();
    assert_eq!(tree.read(CONTAINERD), theirs);
    let tree = made();
    tree.write(CONTAINERD, theirs);
    tree.undo(Engine::Containerd, Edits::Refuse).unwrap();
    assert_eq!(tree.read(CONTAINERD), theirs);
}

#[test]
fn a_rewritten_file_of_containerd_imports_the_file_of_synconce_again() {
    let theirs = "version = 2\noom_score = -1\n";
    let tree = TestSystem::new().program("/usr/bin/containerd").with(CONTAINERD, "version = 2\n");
    tree.set_up(Engine::Containerd, "containerd v2.0.0").unwrap();
    let after = tree.snapshot();
    let edited = tree.read(CONTAINERD);
    assert!(edited.contains("synconce"), "{edited}");
    tree.write(CONTAINERD, theirs);
    assert_eq!(tree.set_up(Engine::Containerd, "containerd v2.0.0").unwrap(), 1);
    assert_eq!(tree.snapshot().len(), after.len());
    assert!(tree.read(CONTAINERD).contains("oom_score"));
    tree.undo(Engine::Containerd, Edits::Refuse).unwrap();
    assert_eq!(tree.read(CONTAINERD), theirs);
    assert!(!tree.real("/var").exists());
}

#[test]
fn a_file_of_synconce_itself_that_was_edited_is_never_left_behind_silently() {
    let hold = "/etc/synconce/hold.d/containerd.toml";
    let engine = Engine::Held(HeldDaemon::Containerd);
    let tree = TestSystem::new().program("/usr/bin/containerd");
    tree.set_up(engine, "").unwrap();
    let edited = tree.read(hold).replace("\"wipe\"", "\"refuse\"");
    tree.write(hold, &edited);
    assert!(refusal(tree.undo(engine, Edits::Refuse)).contains("was edited since"));
}
