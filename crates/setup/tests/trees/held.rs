//! Holds of daemons: the three files, and what is held and set aside.

mod buildkit;
mod containerd;
mod docker;

use super::support::{SYNCONCE, TestSystem, refusal, there_and_back};
use std::fs;
use synconce_setup::undo::Edits;
use synconce_setup::{Engine, HeldDaemon};
use toml_edit::DocumentMut;

const CONTAINERD: Engine = Engine::Held(HeldDaemon::Containerd);
const DOCKER: Engine = Engine::Held(HeldDaemon::Docker);
const BUILDKIT: Engine = Engine::Held(HeldDaemon::Buildkit);

/// A daemon, its unit and its configuration.
struct DaemonCase {
    engine: Engine,
    name: &'static str,
    unit: &'static str,
    program: &'static str,
    config: &'static str,
    contents: &'static [&'static str],
    broken: &'static str,
}

const KINDS: [DaemonCase; 3] = [
    DaemonCase {
        engine: CONTAINERD,
        name: "containerd",
        unit: "containerd",
        program: "containerd",
        config: "/etc/containerd/config.toml",
        contents: &["", "version = 3\n", "disabled_plugins = [\"cri\"]\n", "version = 1\r\n"],
        broken: "version = 2\n\n[plugins\n",
    },
    DaemonCase {
        engine: DOCKER,
        name: "docker",
        unit: "docker",
        program: "dockerd",
        config: "/etc/docker/daemon.json",
        contents: &["", "{}", "{\"data-root\": \"/var/lib/docker\", \"userns-remap\": \"\"}\r\n"],
        broken: "{\n  \"debug\": true,\n  // no comments\n  \"x\": 1\n}\n",
    },
    DaemonCase {
        engine: BUILDKIT,
        name: "buildkit",
        unit: "buildkitd",
        program: "buildkitd",
        config: "/etc/buildkit/buildkitd.toml",
        contents: &["", "debug = true", "root = \"\"\r\n[worker.oci]\r\n"],
        broken: "debug = true\n\n[worker.oci\n",
    },
];

impl DaemonCase {
    fn tree(&self) -> TestSystem {
        let unit = format!("/lib/systemd/system/{}.service", self.unit);
        let program = format!("/usr/bin/{}", self.program);
        let text = format!("[Service]\nExecStart={program}\n");
        TestSystem::new().program(&program).with(&unit, &text)
    }

    fn description(&self) -> String {
        format!("/etc/synconce/hold.d/{}.toml", self.name)
    }
}

fn document(tree: &TestSystem, name: &str) -> DocumentMut {
    tree.read(&format!("/etc/synconce/hold.d/{name}.toml")).parse().unwrap()
}

/// Returns the held paths.
fn held(tree: &TestSystem, name: &str) -> Vec<String> {
    let document = document(tree, name);
    let holds = document["hold"].as_array_of_tables().unwrap().iter();
    holds
        .map(|hold| {
            assert_eq!(hold["kind"].as_str(), Some("bolt"));
            hold["path"].as_str().unwrap().to_owned()
        })
        .collect()
}

fn set_aside(tree: &TestSystem, name: &str) -> Vec<String> {
    let document = document(tree, name);
    let paths = document["set_aside"].as_array().unwrap().iter();
    paths.map(|path| path.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_hold_goes_there_once_and_back_to_the_byte() {
    for kind in KINDS {
        there_and_back(&kind.tree(), kind.engine, "");
        for content in kind.contents {
            there_and_back(&kind.tree().with(kind.config, content), kind.engine, "");
        }
    }
}

#[test]
fn the_configuration_of_the_daemon_is_not_changed() {
    for kind in KINDS {
        let content = kind.contents.last().unwrap();
        let tree = kind.tree().with(kind.config, content);
        tree.set_up(kind.engine, "").unwrap();
        assert_eq!(tree.read(kind.config), *content);
    }
}

#[test]
fn a_configuration_that_cannot_be_read_is_refused_and_nothing_is_written() {
    for kind in KINDS {
        let tree = kind.tree().with(kind.config, kind.broken);
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(kind.engine, ""));
        assert!(printed.contains(kind.config) && printed.contains(", line 3: "), "{printed}");
        fs::write(tree.real(kind.config), b"# a\n# \xff\n").unwrap();
        let printed = refusal(tree.set_up(kind.engine, ""));
        assert!(printed.contains("line 2: is not UTF-8"), "{printed}");
        tree.write(kind.config, kind.broken);
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn the_units_start_the_hold_before_the_daemon_and_the_daemon_requires_it() {
    for kind in KINDS {
        let tree = kind.tree();
        tree.set_up(kind.engine, "").unwrap();
        let (name, unit) = (kind.name, format!("{}.service", kind.unit));
        let own = format!("synconce-hold-{name}.service");
        let service = tree.read(&format!("/etc/systemd/system/{own}"));
        for line in [
            format!("Before={unit} synconce-report.service"),
            format!("RequiresMountsFor=/var/lib/{name} /var/lib/synconce"),
            format!("ExecStartPre={SYNCONCE} hold recover {name}"),
            format!("ExecStart={SYNCONCE} hold start {name}"),
            format!("ExecStop={SYNCONCE} hold stop {name}"),
        ] {
            assert!(service.lines().any(|own| own == line), "{line}:\n{service}");
        }
        let drop_in = tree.read(&format!("/etc/systemd/system/{unit}.d/50-synconce-hold.conf"));
        for line in [
            format!("Requires={own}"),
            format!("After={own}"),
            format!("ExecStartPost=-{SYNCONCE} hold settle {name}"),
        ] {
            assert!(drop_in.lines().any(|own| own == line), "{line}:\n{drop_in}");
        }
        let document = document(&tree, name);
        assert_eq!(document["unit"].as_str(), Some(unit.as_str()));
        assert_eq!(document["after_crash"].as_str(), Some("wipe"));
        assert!(document["cost"].as_str().is_some_and(|cost| !cost.is_empty()));
    }
}

#[test]
fn a_daemon_without_a_unit_gets_the_description_and_the_command() {
    for kind in KINDS {
        let tree = TestSystem::new();
        let plan = tree.plan(kind.engine, "").unwrap();
        assert_eq!(plan.changes.len(), 1);
        let command = format!("synconce hold run {} -- {}", kind.name, kind.program);
        assert!(plan.notes.iter().any(|note| note.contains(&command)), "{:?}", plan.notes);
        there_and_back(&tree, kind.engine, "");
        tree.set_up(kind.engine, "").unwrap();
        assert!(!tree.read(&kind.description()).contains("unit ="));
    }
}

#[test]
fn without_synconce_nothing_is_set_up() {
    for kind in KINDS {
        let tree = kind.tree();
        fs::remove_file(tree.real(SYNCONCE)).unwrap();
        let printed = refusal(tree.set_up(kind.engine, ""));
        assert!(printed.contains("synconce: is no executable file"), "{printed}");
    }
}

#[test]
fn a_hold_and_the_runtime_are_undone_apart_in_either_order() {
    for (hold, runtime) in
        [(CONTAINERD, Engine::Containerd), (DOCKER, Engine::Docker), (BUILDKIT, Engine::Buildkit)]
    {
        let kind = KINDS.iter().find(|kind| kind.engine == hold).unwrap();
        let tree = kind.tree();
        let before = tree.snapshot();
        for order in [[hold, runtime], [runtime, hold]] {
            tree.set_up(hold, "").unwrap();
            tree.set_up(runtime, "").unwrap();
            tree.undo(order[0], Edits::Refuse).unwrap().unwrap();
            assert_eq!(tree.real(&kind.description()).exists(), order[0] != hold);
            tree.undo(order[1], Edits::Refuse).unwrap().unwrap();
            assert_eq!(before, tree.snapshot());
        }
    }
}

#[test]
fn a_hold_in_force_is_not_undone_and_the_commands_that_stop_it_are_named() {
    for (kind, stop) in KINDS.iter().zip([
        "systemctl stop containerd.service synconce-hold-containerd.service; ",
        "systemctl stop docker.socket docker.service synconce-hold-docker.service; ",
        "systemctl stop buildkitd.service synconce-hold-buildkit.service; ",
    ]) {
        let marker = format!("/var/lib/synconce/holds/{}.json", kind.name);
        let tree = kind.tree().with("/lib/systemd/system/docker.socket", "[Socket]\n");
        tree.set_up(kind.engine, "").unwrap();
        let host = tree.host("");
        assert!(synconce_setup::in_force(kind.engine, &host).unwrap().is_none());
        tree.write(&marker, "{}");
        let error = synconce_setup::in_force(kind.engine, &host).unwrap().unwrap();
        assert!(error.to_string().contains(&marker), "{error}");
        let there = "start that system, and there: ";
        let expected = format!("{there}{stop}synconce hold stop {}; then undo again", kind.name);
        assert_eq!(error.remedy(), Some(expected.as_str()));
    }
}
