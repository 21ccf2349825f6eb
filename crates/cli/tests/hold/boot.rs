//! Sandboxes in which /proc does not say which boot it is, such as ProcSubset=pid of systemd.

use crate::support::Fixture;
use std::fs;
use synconce_testkit::harness::{binary, finish, isolated};
use synconce_testkit::process::Finished;

/// Runs the verb where /proc shows processes only (proc(5), subset=pid).
fn sandboxed(fixture: &Fixture<'_>, verb: &str) -> Finished {
    let script = "mount -t proc -o subset=pid none /proc; exec \"$0\" hold \"$1\" ./t.toml";
    let words = ["--mount", "sh", "-ec", script, binary(), verb];
    let finished = finish(fixture.place.command("unshare").args(words));
    assert_eq!(finished.status.code(), Some(125), "{verb}: {}", finished.stderr);
    finished
}

#[test]
fn a_verb_that_cannot_read_the_boot_changes_nothing_and_names_the_setting() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        let at_first = fixture.everything();
        let says = |finished: &Finished| {
            let said = "cannot read /proc/sys/kernel/random/boot_id: No such file or directory";
            assert!(finished.stderr.contains(said), "{}", finished.stderr);
            assert!(finished.stderr.contains("ProcSubset=all"), "{}", finished.stderr);
        };
        says(&sandboxed(&fixture, "start"));
        assert_eq!(fixture.everything(), at_first);
        assert!(!place.path("state/holds/t.json").exists());
        fixture.ok("start");
        says(&sandboxed(&fixture, "start"));
        says(&sandboxed(&fixture, "stop"));
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn an_unknown_boot_is_no_reason_to_wipe_without_asking() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        let asks = |finished: &Finished| {
            for said in ["it is unknown whether", "hold recover t --keep", "hold recover t --wipe"]
            {
                assert!(finished.stderr.contains(said), "{said}: {}", finished.stderr);
            }
            assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        };
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        asks(&sandboxed(&fixture, "recover"));
        for path in [fixture.file(), fixture.directory()] {
            place.bare(&["umount", &path.display().to_string()]);
        }
        place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]);
        // As an older version wrote it in such a sandbox.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let marker = place.read("state/holds/t.json").replace(boot.trim(), "");
        place.write("state/holds/t.json", &marker);
        let refused = fixture.hold("recover");
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        asks(&refused);
        let keep = ["hold", "recover", "./t.toml", "--keep"];
        assert_eq!(finish(&mut place.synconce(&keep)).status.code(), Some(0));
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}
