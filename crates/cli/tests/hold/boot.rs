//! Sandboxes in which /proc does not say which boot it is, such as ProcSubset=pid of systemd.

use crate::crashes::{crash, edit};
use crate::support::{HoldOnRig, failed, with_hold};
use std::fs;
use synconce_testkit::harness::{binary, finish};
use synconce_testkit::process::Finished;

/// Runs the verb where /proc shows processes only (proc(5), subset=pid).
fn sandboxed(fixture: &HoldOnRig<'_>, verb: &str) -> Finished {
    let script = "mount -t proc -o subset=pid none /proc; exec \"$0\" hold \"$1\" ./t.toml";
    let words = ["--mount", "sh", "-ec", script, binary(), verb];
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
        says("start");
        says("stop");
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
    });
}

#[test]
fn an_unknown_boot_is_no_reason_to_wipe_without_asking() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        let asks = |finished: Finished| {
            let decide = ["hold recover t --keep", "hold recover t --wipe"];
            failed(finished, &[&["it is unknown whether"], &decide[..]].concat());
            assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        };
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        asks(sandboxed(fixture, "recover"));
        crash(fixture);
        // As an older version wrote it in such a sandbox.
        edit(place, |record| record["boot"] = "".into());
        asks(fixture.hold("recover"));
        fixture.ok("recover --keep");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fixture.state(), "off");
    });
}
