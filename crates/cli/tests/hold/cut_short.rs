//! Recoveries that a kill or a mount cuts short.

use crate::crashes::{crash, crash_at, unmount_below};
use crate::losses::{lose_data, on_a_late_disk, traced};
use crate::lost_before_restore::{AT_FIRST_JOURNAL, end_of_way, killed, lose_container};
use crate::support::{HoldOnRig, configure, sh};
use std::fs;
use synconce_testkit::harness::isolated_alone;
use synconce_testkit::rig::Rig;

#[test]
fn a_wipe_that_is_cut_short_with_its_container_leaves_the_marks_until_its_renames_are_done() {
    isolated_alone(|place| {
        let fixture = HoldOnRig::new(place, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        unmount_below(&fixture);
        killed(traced(place, &AT_FIRST_JOURNAL, &["recover"]));
        lose_container(&fixture);
        fixture.fails("start", &["its marker is lost"]);
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        // Between the two renames.
        let kill = ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=SIGKILL:when=2"];
        let point = fixture.rig.path().display().to_string();
        killed(traced(place, &[&kill[..], &["-P", &point]].concat(), &["recover"]));
        assert!(!fixture.directory().exists() && fixture.file().exists());
        lose_container(&fixture);
        fixture.fails("start", &["its marker is lost"]);
        let missing =
            "is missing: its file system may not be mounted, or an earlier recovery set it aside";
        fixture.fails("recover", &[missing]);
        fixture.ok("recover --wipe");
        fixture.ok("start");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_recovery_that_is_killed_before_it_removes_the_marker_is_repeated() {
    isolated_alone(|place| {
        for verb in ["--keep", "--wipe"] {
            let fixture = HoldOnRig::new(place, "");
            fixture.ok("start");
            let data = fixture.directory().join("data");
            fs::write(&data, "old").unwrap();
            crash(&fixture);
            let kill =
                ["-e", "trace=unlinkat", "-e", "inject=unlinkat:signal=SIGKILL", "-P", "t.json"];
            killed(traced(place, &kill, &["recover", verb]));
            assert!(!fixture.rig.path().join(".synconce-hold").exists());
            assert_eq!(fixture.state(), "interrupted");
            fixture.fails("start", &[]);
            fixture.ok(&format!("recover {verb}"));
            assert_eq!(data.exists(), verb == "--keep");
            if verb == "--wipe" {
                fixture.ok("restore");
            }
            assert_eq!(fs::read_to_string(&data).unwrap(), "old");
            fixture.ok("start");
            fixture.ok("stop");
            end_of_way(fixture);
        }
    });
}

#[test]
fn a_recovery_from_a_damaged_marker_keeps_it() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        for loses in [false, true] {
            let damage = format!("damage {loses}");
            fixture.ok("start");
            crash(&fixture);
            place.write("state/holds/t.json", &damage);
            if loses {
                lose_data(&fixture);
                fixture.fails("recover --keep", &["Input/output error"]);
                fixture.rig.disk().recover().unwrap();
            } else {
                let end = ["-e", "trace=unlinkat", "-P", "t.json"];
                let kill = ["-e", "inject=unlinkat:signal=SIGKILL"];
                killed(traced(place, &[&end[..], &kill].concat(), &["recover", "--keep"]));
                assert_eq!(place.read("state/holds/t.json"), damage);
            }
            fixture.ok("recover --keep");
            assert_eq!(place.read("state/holds/t.json.damaged"), damage);
            assert!(!place.path("state/holds/t.json.new").exists());
            assert_eq!(fixture.state(), "off");
        }
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_mount_in_the_directory_of_an_overlay_keeps_no_wipe_from_its_renames() {
    isolated_alone(|place| {
        let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig { place, rig };
        let above = fixture.rig.path().join("above");
        configure(place, "t", &format!("set_aside = [{above:?}]"), &above.join("databases"));
        fixture.ok("start");
        fs::write(above.join("databases/data"), "old").unwrap();
        crash_at(place, &[above.join("databases")]);
        // A killed start leaves such a mount.
        let point = above.join(".synconce-hold/databases/lower");
        sh(place, &format!("mount -t tmpfs -o mode=700 left {}", point.display()));
        fixture.ok("recover --wipe");
        assert!(!above.exists());
        fixture.ok("restore");
        assert_eq!(fs::read_to_string(above.join("databases/data")).unwrap(), "old");
        assert_eq!(fixture.state(), "off", "no mark came back");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_wipe_that_a_mount_keeps_from_its_renames_leaves_the_marks_beside_the_files() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        unmount_below(&fixture);
        let inside = fixture.directory().join("inside");
        sh(place, &format!("mkdir {0}; mount -t tmpfs inside {0}", inside.display()));
        let umount = format!("umount {}", inside.display());
        let hint = format!("hint: {umount}\n");
        fixture.fails("recover --wipe", &["a file system is mounted on ", &hint]);
        sh(place, &umount);
        lose_container(&fixture);
        fixture.fails("start", &["its marker is lost"]);
        fixture.ok("recover --wipe");
        fixture.rig.down().unwrap();
    });
}
