//! The messages of holds, and their units as systemd reads them.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use std::fs;
use std::process::Command;

/// Makes a system with synconce, containerd and its unit.
fn place(name: &str) -> TestRoot {
    let place = TestRoot::new(name);
    place.program("usr/bin/synconce");
    place.program("usr/bin/containerd");
    let unit = "[Service]\nExecStart=/usr/bin/containerd\n";
    place.write("lib/systemd/system/containerd.service", unit);
    place
}

const DESCRIPTION: &str = "etc/synconce/hold.d/containerd.toml";
const UNIT: &str = "etc/systemd/system/synconce-hold-containerd.service";

#[test]
fn a_hold_is_set_up_checked_and_undone_with_words_for_each() {
    let place = place("held");
    let before = place.snapshot();
    let check = ["containerd", "--hold", "--check"];
    let missing = place.setup(&check);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stdout.contains("+after_crash = \"wipe\"\n"), "{missing:?}");
    let root = place.root.display();
    let command = format!("it would be by synconce setup containerd --hold --root {root}\n");
    assert!(missing.stderr.contains("containerd --hold is not set up"), "{missing:?}");
    assert!(missing.stderr.contains(&command), "{missing:?}");
    assert_eq!(before, place.snapshot());

    let ended = place.setup(&["containerd", "--hold"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    let restart = format!(
        "synconce: containerd in {} reads the changed files at its next start: if it is running, \
         restart it there\n",
        place.root.display()
    );
    for part in ["wrote ", "after a crash of the machine: ", &restart] {
        assert_eq!(ended.stderr.matches(part).count().min(1), 1, "{part}: {}", ended.stderr);
    }
    assert!(place.read(UNIT).contains("ExecStart=/usr/bin/synconce hold start containerd\n"));
    let after = place.snapshot();
    let there = place.setup(&check);
    let message = "synconce: containerd --hold is set up\n";
    assert_eq!((there.code, there.stderr.as_str()), (Some(0), message));
    // The set-up of the runtime is another one.
    assert_eq!(place.setup(&["containerd", "--check"]).code, Some(1));
    assert_eq!(after, place.snapshot());

    let undone = place.setup(&["containerd", "--hold", "--undo"]);
    assert!(undone.code == Some(0) && undone.stderr.contains("removed "), "{undone:?}");
    assert!(undone.stderr.contains(&restart) && !undone.stderr.contains("keep synconce-oci"));
    assert_eq!(before, place.snapshot());
}

#[test]
fn a_check_counts_databases_that_are_new() {
    let place = place("held-new");
    let setup = ["containerd", "--hold"];
    assert_eq!(place.setup(&setup).code, Some(0));
    let check = || place.setup(&["containerd", "--hold", "--check"]);
    assert_eq!(check().code, Some(0));
    for (name, count) in [("native", "1 database is"), ("btrfs", "2 databases are")] {
        let directory = format!("var/lib/containerd/io.containerd.snapshotter.v1.{name}");
        fs::create_dir_all(place.root.join(directory)).unwrap();
        let ended = check();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let said = format!(
            "synconce: containerd --hold is set up; {count} new: synconce setup containerd --hold \
             --root {} takes",
            place.root.display()
        );
        assert!(ended.stderr.contains(&said), "{ended:?}");
        assert!(!ended.stderr.contains("is not set up"), "{ended:?}");
    }
    assert_eq!(place.setup(&setup).code, Some(0));
    assert_eq!(check().code, Some(0), "they are taken in");
}

#[test]
fn a_check_names_what_was_edited_and_is_exit_code_1() {
    let place = place("held-edited");
    assert_eq!(place.setup(&["containerd", "--hold"]).code, Some(0));
    let edited = place.read(DESCRIPTION).replace("\"wipe\"", "\"refuse\"");
    place.write(DESCRIPTION, &edited);
    let before = place.snapshot();
    let ended = place.setup(&["containerd", "--hold", "--check"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let change = "\n-after_crash = \"refuse\"\n+after_crash = \"wipe\"\n";
    assert!(ended.stdout.contains(change), "{}", ended.stdout);
    // A set-up would refuse the file, too.
    let setup = format!("synconce setup containerd --hold --root {}", place.root.display());
    let said = format!(
        "synconce: containerd --hold is not set up: {}: was edited since synconce edited it; \
         `{setup} --undo --dry-run` shows the edits\n",
        place.root.join(DESCRIPTION).display()
    );
    assert_eq!(ended.stderr, said);
    let shown = place.setup(&["containerd", "--hold", "--undo", "--dry-run"]);
    assert!(shown.stderr.contains("+after_crash = \"refuse\""), "{shown:?}");
    let json = place.setup(&["containerd", "--hold", "--check", "--json"]);
    assert_eq!(json.code, Some(1), "{json:?}");
    assert!(json.stdout.contains("\"set_up\": false") && json.stdout.contains("\"dry_run\": true"));
    assert_eq!(before, place.snapshot());
}

#[test]
fn a_hold_in_force_is_not_undone_by_force_either() {
    let place = place("held-in-force");
    assert_eq!(place.setup(&["containerd", "--hold"]).code, Some(0));
    place.write("var/lib/synconce/holds/containerd.json", "{}");
    let before = place.snapshot();
    for words in
        [&["containerd", "--hold", "--undo"][..], &["containerd", "--hold", "--undo", "-f"]]
    {
        let ended = place.setup(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(125), ""), "{ended:?}");
        let hint = "hint: start that system, and there: systemctl stop containerd.service \
                    synconce-hold-containerd.service; synconce hold stop containerd";
        assert!(ended.stderr.contains(hint), "{}", ended.stderr);
    }
    assert_eq!(before, place.snapshot());
    fs::remove_file(place.root.join("var/lib/synconce/holds/containerd.json")).unwrap();
    assert_eq!(place.setup(&["containerd", "--hold", "--undo"]).code, Some(0));
}

#[test]
fn in_the_running_system_the_commands_are_for_it() {
    let place = place("held-running");
    // By a process of its own: a descriptor for writing that a child of another test inherits
    // would make the execution fail with ETXTBSY.
    let copied =
        EndedCommand::run(Command::new("cp").arg(SYNCONCE).arg(place.root.join("usr/bin")));
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let setup = |words: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(&place.root).args(["/usr/bin/synconce", "setup", "containerd"]);
        EndedCommand::run(command.args(words))
    };
    let without_systemd = setup(&["--hold"]);
    assert_eq!(without_systemd.code, Some(0), "{without_systemd:?}");
    let run = "use `synconce hold run containerd -- containerd`\n";
    assert!(without_systemd.stderr.contains(run), "{without_systemd:?}");
    assert!(without_systemd.stderr.ends_with("synconce: restart containerd\n"));
    assert_eq!(setup(&["--hold", "--undo"]).code, Some(0));
    fs::create_dir_all(place.root.join("run/systemd/system")).unwrap();
    let ended = setup(&["--hold"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let restart = "restart containerd: systemctl daemon-reload && systemctl restart \
                   containerd.service\n";
    assert!(ended.stderr.contains(restart), "{ended:?}");
    // Without the boot's id, as after another boot.
    place.write("var/lib/synconce/holds/containerd.json", "{}");
    let refused = setup(&["--hold", "--undo"]);
    let hint = "hint: systemctl stop containerd.service synconce-hold-containerd.service; \
                synconce hold recover containerd; then undo again\n";
    assert!(refused.code == Some(125) && refused.stderr.contains(hint), "{refused:?}");
}

#[test]
fn an_undo_of_a_daemon_with_nothing_but_a_hold_names_the_undo_of_the_hold() {
    let place = place("held-alone");
    let root = place.root.display();
    for daemon in ["docker", "containerd"] {
        let nothing =
            format!("synconce: {daemon} was not set up by synconce: there is nothing to undo");
        let undo = || {
            let ended = place.setup(&[daemon, "--undo"]);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            ended.stderr
        };
        assert_eq!(undo(), format!("{nothing}\n"));
        assert_eq!(place.setup(&[daemon, "--hold"]).code, Some(0));
        let hold = format!("synconce setup {daemon} --hold --root {root} --undo");
        assert_eq!(undo(), format!("{nothing}; for the hold of its databases: {hold}\n"));
    }
}

#[test]
fn what_has_no_databases_or_no_option_is_refused_with_a_hint() {
    let place = place("held-other");
    let before = place.snapshot();
    for (words, part) in [
        (&["podman", "--hold"][..], "cannot hold the databases of podman"),
        (&["kubernetes", "--hold"], "cannot hold the databases of kubernetes"),
        (&["kubernetes", "--check"], "cannot check kubernetes"),
    ] {
        let ended = place.setup(words);
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(ended.stderr.contains(part) && ended.stderr.contains("hint: "), "{ended:?}");
    }
    for words in [
        &["containerd", "--hold", "--runtime", "/x"][..],
        &["containerd", "--check", "--undo"],
        &["containerd", "--check", "--dry-run"],
    ] {
        let ended = place.setup(words);
        assert!(
            ended.code == Some(125) && ended.stderr.contains("cannot be used with"),
            "{ended:?}"
        );
    }
    assert_eq!(before, place.snapshot());
}

#[test]
fn containerds_own_option_no_sync_gets_a_hint_to_the_hold() {
    let place = place("held-no-sync");
    let before = place.snapshot();
    let hint = "synconce: hint: synconce setup containerd --hold; unlike no_sync, it recovers after \
                a crash\n";
    for words in [["containerd", "--no-sync"], ["--no_sync", "containerd"]] {
        let ended = place.setup(&words);
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert_eq!(ended.stderr.matches("hint: ").count(), 1, "{ended:?}");
        assert!(ended.stderr.ends_with(hint), "{ended:?}");
    }
    // Podman has no such option.
    let other = place.setup(&["podman", "--no-sync"]);
    assert!(other.code == Some(125) && !other.stderr.contains("hint: "), "{other:?}");
    assert_eq!(before, place.snapshot());
}

#[test]
fn systemd_reads_the_units_and_orders_the_hold_before_the_daemon() {
    let place = place("held-units");
    let target = "[Unit]\nDescription=A target\n";
    for name in ["sysinit", "basic", "shutdown", "multi-user", "local-fs"] {
        place.write(&format!("lib/systemd/system/{name}.target"), target);
    }
    for daemon in ["docker", "containerd"] {
        assert_eq!(place.setup(&[daemon, "--hold"]).code, Some(0));
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", "--root"]).arg(&place.root);
        let units = [format!("{daemon}.service"), format!("synconce-hold-{daemon}.service")];
        let ended = EndedCommand::run(command.args(units));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    }
    // A wrong line is seen.
    place.write(UNIT, &place.read(UNIT).replace("oneshot", "onesot"));
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--root"]).arg(&place.root);
    let ended = EndedCommand::run(command.arg("synconce-hold-containerd.service"));
    assert!(ended.stderr.contains("onesot"), "{ended:?}");
}
