//! Sandboxes in which /proc does not say which boot it is, such as ProcSubset=pid of systemd.

use crate::crashes::{crash, edit};
use crate::support::{HoldOnRig, failed, with_hold};
use std::fs;
use synconce_testkit::harness::{binary, finish};
use synconce_testkit::process::Finished;

/// Runs the verb where /proc shows processes only (proc(5), subset=pid), and no other procfs can be
/// made.
fn sandboxed(fixture: &HoldOnRig<'_>, verb: &str) -> Finished {
    in_sandbox(fixture, "strace -f -qq -o calls -e trace=fsopen -e inject=fsopen:error=EPERM", verb)
}

/// Runs the verb by the program `by` where /proc shows processes only.
fn in_sandbox(fixture: &HoldOnRig<'_>, by: &str, verb: &str) -> Finished {
    let script =
        format!("mount -t proc -o subset=pid none /proc; exec {by} \"$0\" hold $1 ./t.toml");
    let words = ["--mount", "sh", "-ec", &script, binary(), verb];
    finish(fixture.place.command("unshare").args(words))
}

#[test]
fn a_verb_that_cannot_read_the_boot_changes_nothing_and_names_the_setting() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        let at_first = fixture.everything();
        let said = "cannot read /proc/sys/kernel/random/boot_id: No such file or directory";
        let says = |verb| failed(sandboxed(fixture, verb), &[said, "ProcSubset=all"]);
        says("start");
        assert_eq!(fixture.everything(), at_first);
        assert!(!place.path("state/holds/t.json").exists());
        fixture.ok("start");
        for verb in ["start", "stop", "recover", "recover --wipe", "restore"] {
            says(verb);
        }
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
    });
}

#[test]
fn a_verb_that_compares_no_boot_needs_none() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        let succeeds = |verb| {
            let finished = sandboxed(fixture, verb);
            assert_eq!(finished.status.code(), Some(0), "{verb}: {}", finished.stderr);
        };
        succeeds("recover");
        succeeds("restore");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(fixture);
        fixture.ok("recover");
        succeeds("recover");
        // A restore may have to note a loss, with the boot.
        failed(sandboxed(fixture, "restore"), &["boot_id", "ProcSubset=all"]);
        fixture.ok("restore");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
    });
}

#[test]
fn without_the_capability_a_verb_does_not_make_a_call_that_a_filter_answers_by_a_kill() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let by = "setpriv --bounding-set=-sys_admin strace -f -qq -o calls -e trace=fsopen
                  -e inject=fsopen:signal=SIGKILL";
        let by = by.split_whitespace().collect::<Vec<_>>().join(" ");
        let status = in_sandbox(fixture, &by, "status");
        assert_eq!(status.status.code(), Some(0), "{status:?}");
        assert!(status.stdout.contains("held"), "{status:?}");
        fixture.ok("stop");
    });
}

#[test]
fn a_container_whose_boot_id_covers_that_of_the_kernel_is_told_what_helps() {
    with_hold("", |_, fixture| {
        let cover = "mount --bind /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id
             exec setpriv --bounding-set=-sys_admin \"$0\" hold start ./t.toml";
        let container = |options: &[&str], said| {
            let words = [&["--mount"], options, &["sh", "-ec", cover, binary()]].concat();
            let started = finish(fixture.place.command("unshare").args(words));
            let reason = "cannot mount a procfs to read /proc/sys/kernel/random/boot_id: \
                          Operation not permitted";
            failed(started, &[reason, said]);
        };
        container(
            &[],
            "hint: on the host, type the command behind nsenter --mount --pid --target PID, ",
        );
        let own_users = ["--user", "--map-root-user"];
        container(&own_users, "hint: start the container without a user namespace");
    });
}

#[test]
fn a_verb_looks_for_the_boot_in_a_procfs_of_its_own() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        fixture.ok("start");
        let recovered = in_sandbox(fixture, "", "recover");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        assert_eq!(fixture.state(), "held");
        crash(fixture);
        let recovered = in_sandbox(fixture, "", "recover");
        assert_eq!(recovered.status.code(), Some(0), "{recovered:?}");
        assert!(recovered.stderr.contains("the machine stopped"), "{recovered:?}");
    });
}

#[test]
fn a_marker_without_a_boot_is_no_reason_to_wipe_without_asking() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(fixture);
        // An older version wrote such a marker in such a sandbox.
        edit(place, |record| record["boot"] = "".into());
        let decide = ["hold recover t --keep", "hold recover t --wipe"];
        fixture.fails("recover", &[&["it is unknown whether"], &decide[..]].concat());
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        fixture.ok("recover --keep");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fixture.state(), "off");
    });
}
