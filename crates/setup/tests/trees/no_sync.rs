//! containerd's own option.

use super::support::{Tree, refusal, there_and_back};
use synconce_setup::{Daemon, Engine};
use toml_edit::DocumentMut;

const CONFIG: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/synconce-no-sync.toml";
const METADATA: &str = "io.containerd.metadata.v1.bolt";
const NEW: &str = "containerd github.com/containerd/containerd/v2 v2.1.0 061792f0";

fn tree() -> Tree {
    let unit = "[Service]\nExecStart=/usr/bin/containerd\n";
    Tree::new().program("/usr/bin/containerd").with("/lib/systemd/system/containerd.service", unit)
}

fn no_sync(text: &str) -> Option<bool> {
    let document: DocumentMut = text.parse().unwrap();
    document["plugins"][METADATA]["no_sync"].as_bool()
}

#[test]
fn the_option_is_set_and_the_hold_only_keeps_the_marker() {
    for content in [
        "",
        "version = 2\n",
        "version = 3\r\n[grpc]\r\n  uid = 0\r\n",
        "version = 3\n[plugins.'io.containerd.metadata.v1.bolt']\nno_sync = false # why\n",
        "version = 2\nimports = [\"/etc/other.toml\"]\n",
    ] {
        let tree = tree().with(CONFIG, content);
        there_and_back(&tree, Engine::NoSync, NEW);
        assert_eq!(tree.set_up(Engine::NoSync, NEW).unwrap(), 4, "{content}");
        assert_eq!(no_sync(&tree.read(CONFIG)), Some(true), "{content}");
        let hold: DocumentMut = tree.read("/etc/synconce/hold.d/containerd.toml").parse().unwrap();
        assert_eq!(hold["own_option"].as_bool(), Some(true));
        let held = hold["hold"].as_array_of_tables().unwrap();
        let path = held.get(0).unwrap()["path"].as_str();
        assert_eq!(path, Some("/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"));
        assert_eq!(held.len(), 1);
        // A wipe of the metadata has to take everything that agrees with it.
        let aside = hold["set_aside"].to_string();
        assert!(aside.contains("snapshotter.v1.overlayfs") && aside.contains("content"), "{aside}");
    }
}

#[test]
fn a_new_file_is_of_version_3() {
    let tree = tree();
    there_and_back(&tree, Engine::NoSync, NEW);
    tree.set_up(Engine::NoSync, NEW).unwrap();
    let expected = format!("version = 3\n\n[plugins.\"{METADATA}\"]\nno_sync = true\n");
    assert_eq!(tree.read(CONFIG), expected);
}

#[test]
fn a_directory_that_is_imported_gets_a_file_unless_a_section_is_there() {
    let content = "version = 3\nimports = [\"conf.d/*.toml\"]\n";
    let alone = tree().with(CONFIG, content).with("/etc/containerd/conf.d/a.toml", "version = 3\n");
    there_and_back(&alone, Engine::NoSync, NEW);
    alone.set_up(Engine::NoSync, NEW).unwrap();
    assert_eq!(alone.read(CONFIG), content);
    assert_eq!(no_sync(&alone.read(DROP_IN)), Some(true));
    assert!(alone.read(DROP_IN).contains("\nversion = 3\n"));

    let section =
        format!("version = 3\n[plugins.'{METADATA}']\ncontent_sharing_policy = 'isolated'\n");
    let with = tree().with(CONFIG, content).with("/etc/containerd/conf.d/a.toml", &section);
    there_and_back(&with, Engine::NoSync, NEW);
    with.set_up(Engine::NoSync, NEW).unwrap();
    let text = with.read("/etc/containerd/conf.d/a.toml");
    assert!(text.starts_with(&section) && no_sync(&text) == Some(true), "{text}");
    assert!(!with.real(DROP_IN).exists());
}

#[test]
fn an_option_that_is_set_is_left_and_gets_the_recovery() {
    let content = format!("version = 2\n[plugins.\"{METADATA}\"]\n  no_sync = true\n");
    let tree = tree().with(CONFIG, &content);
    there_and_back(&tree, Engine::NoSync, NEW);
    assert_eq!(tree.set_up(Engine::NoSync, NEW).unwrap(), 3);
    assert_eq!(tree.read(CONFIG), content);
}

#[test]
fn a_containerd_without_the_option_is_refused_and_nothing_is_written() {
    for (printed, part) in [
        ("containerd github.com/containerd/containerd/v2 v2.0.5 fb4c30d4", "is containerd 2.0: "),
        ("containerd containerd.io 1.7.27 05044ec0a9a7", "is containerd 1.7: "),
        ("", "prints no version: "),
    ] {
        let tree = tree();
        let before = tree.snapshot();
        let said = refusal(tree.set_up(Engine::NoSync, printed));
        assert!(said.contains(part) && said.contains("only since 2.1"), "{said}");
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn a_file_of_another_version_is_refused_with_its_line() {
    for (content, part) in [
        ("root = \"/x\"\n", "is of version 1"),
        ("root = \"/x\"\nversion = 1\n", "line 2: is of version 1"),
        ("version = 5\n", "line 1: is of a version that is not known"),
        ("version = 3\n[plugins]\n'io.containerd.metadata.v1.bolt' = 1\n", "is no table"),
    ] {
        let said = refusal(tree().with(CONFIG, content).set_up(Engine::NoSync, NEW));
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn the_option_and_the_hold_exclude_each_other() {
    let hold = Engine::Held(Daemon::Containerd);
    for (first, second, undo) in [
        (hold, Engine::NoSync, "containerd --hold"),
        (Engine::NoSync, hold, "containerd --no-sync"),
    ] {
        let tree = tree();
        tree.set_up(first, NEW).unwrap();
        let before = tree.snapshot();
        let error = tree.set_up(second, NEW).unwrap_err();
        let undo = tree.undo_command(undo);
        assert!(error.remedy().unwrap().ends_with(&undo), "{error}");
        assert_eq!(before, tree.snapshot());
        tree.undo(first, false).unwrap().unwrap();
        assert!(tree.set_up(second, NEW).unwrap() > 0);
    }
}

#[test]
fn a_later_set_up_of_the_same_file_is_undone_first() {
    let tree = tree().with(CONFIG, "version = 3\n");
    let before = tree.snapshot();
    for (first, second, undo) in [
        (Engine::NoSync, Engine::Containerd, "containerd"),
        (Engine::Containerd, Engine::NoSync, "containerd --no-sync"),
    ] {
        tree.set_up(first, NEW).unwrap();
        tree.set_up(second, NEW).unwrap();
        let error = tree.undo(first, false).unwrap_err();
        let undo = tree.undo_command(undo);
        assert_eq!(error.remedy(), Some(format!("first undo the later set-up: {undo}").as_str()));
        tree.undo(second, false).unwrap().unwrap();
        tree.undo(first, false).unwrap().unwrap();
        assert_eq!(before, tree.snapshot());
    }
}
