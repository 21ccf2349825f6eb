//! Writes that the disk loses before files are restored: memory still shows what the disk does not
//! have, until the disk is mounted anew.

use crate::crashes::{crash, crash_at, take_away, unmount_below};
use crate::losses::{lose_data, on_a_late_disk, stop_that_fails, traced};
use crate::support::{HoldOnRig, configure, sh};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use synconce_testkit::harness::{Place, finish, isolated_alone};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

pub const LOST: &[&str] = &["a disk of the hold lost writes", "was not mounted again since"];

/// Loses data of a hold, which `meet` finds. After `then`, sets the files aside and restores them:
/// that fails until the disk is mounted anew, also in a container that is made anew meanwhile.
fn lose_before_a_restore(
    place: &Place,
    interrupt: impl FnOnce(&HoldOnRig<'_>),
    meet: impl FnOnce(&HoldOnRig<'_>),
    then: impl FnOnce(&HoldOnRig<'_>),
) {
    let fixture = lose_before_a_wipe(place, interrupt, meet);
    then(&fixture);
    wipe_and_restore(&fixture);
    fixture.rig.down().unwrap();
}

pub fn wipe_and_restore(fixture: &HoldOnRig<'_>) {
    fixture.ok("recover --wipe");
    fixture.fails("restore", LOST);
    lose_memory(fixture);
    fixture.fails("restore", LOST);
    mount_anew(fixture);
    fixture.ok("restore");
}

pub fn lose_before_a_wipe(
    place: &Place,
    interrupt: impl FnOnce(&HoldOnRig<'_>),
    meet: impl FnOnce(&HoldOnRig<'_>),
) -> HoldOnRig<'_> {
    let fixture = on_a_late_disk(place);
    fixture.ok("start");
    interrupt(&fixture);
    lose_data(&fixture);
    meet(&fixture);
    fixture.rig.disk().recover().unwrap();
    fixture
}

fn keep_that_fails(fixture: &HoldOnRig<'_>) {
    fixture.fails("recover --keep", &["cannot sync", "Input/output error"]);
}

pub fn mount_anew(fixture: &HoldOnRig<'_>) {
    fixture.rig.unmount().unwrap();
    fixture.rig.mount().unwrap();
}

pub fn damage_marker(fixture: &HoldOnRig<'_>) {
    fixture.place.write("state/holds/t.json", "nonsense");
}

pub fn killed(traced: Finished) {
    assert_eq!(traced.status.signal(), Some(Signal::KILL.as_raw()), "{traced:?}");
}

/// Removes the marker and what is in memory. The next container has the disk, in the same boot.
pub fn lose_container(fixture: &HoldOnRig<'_>) {
    sh(fixture.place, "rm -r state runtime");
}

/// Removes what is in memory. The next container has the disk and the markers, in the same boot.
pub fn lose_memory(fixture: &HoldOnRig<'_>) {
    sh(fixture.place, "rm -r runtime");
}

#[test]
fn a_loss_during_the_hold_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| lose_before_a_restore(place, |_| {}, stop_that_fails, |_| {}));
}

#[test]
fn a_loss_during_the_hold_is_not_forgotten_by_a_restore_if_the_marker_is_damaged() {
    isolated_alone(|place| lose_before_a_restore(place, |_| {}, stop_that_fails, damage_marker));
}

#[test]
fn a_loss_during_the_hold_is_not_forgotten_by_a_restore_if_the_marker_is_lost() {
    isolated_alone(|place| lose_before_a_restore(place, |_| {}, stop_that_fails, lose_container));
}

#[test]
fn a_loss_that_a_recovery_meets_after_another_boot_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| {
        let interrupt = |fixture: &HoldOnRig<'_>| {
            crash(fixture);
            mount_anew(fixture);
        };
        lose_before_a_restore(place, interrupt, keep_that_fails, |_| {});
    });
}

#[test]
fn a_loss_that_a_recovery_meets_after_another_mount_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| lose_before_a_restore(place, unmount_below, keep_that_fails, |_| {}));
}

#[test]
fn a_loss_that_a_recovery_with_a_damaged_marker_meets_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| {
        let interrupt = |fixture: &HoldOnRig<'_>| {
            unmount_below(fixture);
            damage_marker(fixture);
        };
        lose_before_a_restore(place, interrupt, keep_that_fails, |_| {});
    });
}

#[test]
fn a_loss_that_a_recovery_meets_is_not_forgotten_by_a_restore_if_the_marker_is_lost_later() {
    isolated_alone(|place| {
        lose_before_a_restore(place, unmount_below, keep_that_fails, lose_container);
    });
}

/// Loses data of a hold. After `then`, the files can be set aside and restored.
fn restores_after(place: &Place, then: impl FnOnce(&HoldOnRig<'_>)) {
    let fixture = lose_before_a_wipe(place, |_| {}, stop_that_fails);
    then(&fixture);
    fixture.ok("recover --wipe");
    fixture.ok("restore");
    fixture.rig.down().unwrap();
}

#[test]
fn a_loss_before_the_disk_was_mounted_anew_refuses_no_restore() {
    isolated_alone(|place| restores_after(place, mount_anew));
}

#[test]
fn a_loss_before_the_disk_was_mounted_anew_refuses_no_restore_if_the_marker_is_damaged() {
    isolated_alone(|place| {
        restores_after(place, |fixture| {
            mount_anew(fixture);
            damage_marker(fixture);
        });
    });
}

#[test]
fn a_loss_before_the_disk_was_mounted_anew_refuses_no_restore_if_the_marker_is_lost() {
    isolated_alone(|place| {
        restores_after(place, |fixture| {
            mount_anew(fixture);
            lose_container(fixture);
        });
    });
}

#[test]
fn a_loss_in_an_earlier_boot_refuses_no_restore_if_the_marker_is_lost() {
    isolated_alone(|place| {
        restores_after(place, |fixture| {
            lose_container(fixture);
            // The super block of another boot can have the same number.
            let root = fixture.rig.path().display();
            let change = "set -e; boot=$(cat /proc/sys/kernel/random/boot_id)
                 notes=$(find ROOT -name started); [ -n \"$notes\" ]
                 for note in $notes; do
                     text=$(readlink $note); rm $note
                     ln -s \"$(echo \"$text\" | sed s/$boot/another/)\" $note
                     readlink $note | grep -q 'failed .* another '
                 done";
            sh(place, &change.replace("ROOT", &root.to_string()));
        });
    });
}

#[test]
fn a_loss_of_a_hold_in_another_state_directory_refuses_no_restore() {
    isolated_alone(|place| {
        let fixture = lose_before_a_wipe(place, |_| {}, stop_that_fails);
        fixture.ok("recover --wipe");
        sh(place, "mkdir elsewhere");
        configure(place, "elsewhere/t", "", &fixture.rig.path().join("other"));
        let other = |verb: &str, options: &[&str]| {
            let mut other = place.synconce(&["hold", verb, "./elsewhere/t.toml"]);
            other.env("SYNCONCE_STATE_DIR", place.path("elsewhere"));
            let finished = finish(other.args(options));
            assert_eq!(finished.status.code(), Some(0), "{verb}: {}", finished.stderr);
        };
        other("start", &[]);
        sh(place, &format!("umount {}", fixture.rig.path().join("other").display()));
        sh(place, "sed -i 's/\"boot\": \"[^\"]*\"/\"boot\": \"another\"/' elsewhere/holds/t.json");
        other("recover", &["--wipe"]);
        other("restore", &[]);
        fixture.fails("restore", LOST);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_is_not_forgotten_by_a_restore_if_the_wipe_is_cut_short_with_its_container() {
    isolated_alone(|place| {
        let fixture = lose_before_a_wipe(place, |_| {}, stop_that_fails);
        lose_container(&fixture);
        // The first rename makes the marker anew, the second one the journal.
        let kill = ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=SIGKILL:when=2"];
        killed(traced(place, &kill, &["recover", "--wipe"]));
        assert!(!place.path("state/holds/t.aside.json").exists());
        lose_memory(&fixture);
        wipe_and_restore(&fixture);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_is_not_forgotten_by_a_settle_between_a_wipe_that_is_cut_short_and_the_next() {
    isolated_alone(|place| {
        let fixture = lose_before_a_wipe(place, |_| {}, stop_that_fails);
        lose_container(&fixture);
        // The first such call is for the marker; the second one for the journal with the set.
        let kill = ["-e", "trace=renameat", "-e", "inject=renameat:signal=SIGKILL:when=2"];
        killed(traced(place, &kill, &["recover", "--wipe"]));
        let all = fixture.everything();
        assert!(fixture.file().exists() && !all.contains(".synconce"), "{all}");
        fixture.ok("settle");
        lose_memory(&fixture);
        wipe_and_restore(&fixture);
        // What is left of it is settled.
        fs::write(fixture.file(), "written").unwrap();
        fixture.ok("settle");
        assert!(!place.path("state/holds/t.aside.json").exists());
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
        fixture.fails("recover --wipe", &["a file system is mounted on "]);
        sh(place, &format!("umount {}", inside.display()));
        lose_container(&fixture);
        fixture.fails("start", &["its marker is lost"]);
        fixture.ok("recover --wipe");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_that_only_the_wipe_can_meet_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        take_away(place, &[fixture.file(), fixture.directory()]);
        damage_marker(&fixture);
        lose_data(&fixture);
        fixture.ok("recover --wipe");
        // Any other program may be the one to which the kernel reports the loss.
        let disk = File::open(fixture.rig.path()).unwrap();
        let _ = rustix::fs::syncfs(&disk);
        drop(disk);
        fixture.rig.disk().recover().unwrap();
        fixture.fails("restore", LOST);
        lose_memory(&fixture);
        fixture.fails("restore", LOST);
        mount_anew(&fixture);
        fixture.ok("restore");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_that_only_the_wipe_can_meet_needs_no_note_but_the_journal() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        take_away(place, &[fixture.file(), fixture.directory()]);
        damage_marker(&fixture);
        let no_notes = "find $1 -name started -delete; mv runtime before; mkdir runtime
                        mount -t tmpfs -o nr_inodes=40,mode=755 notes runtime; cp -a before/. runtime
                        while touch runtime/fill.$((n += 1)) 2>other; do :; done";
        sh(place, &format!("set -- {}; {no_notes}", fixture.rig.path().display()));
        lose_data(&fixture);
        fixture.ok("recover --wipe");
        sh(place, "umount runtime");
        fixture.rig.disk().recover().unwrap();
        fixture.fails("restore", LOST);
        mount_anew(&fixture);
        fixture.ok("restore");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_restore_that_two_disks_fail_waits_for_both() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        let second = place.path("second");
        fs::create_dir(&second).unwrap();
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").passthrough(false);
        let other = rig.at(&second).up().unwrap();
        let hold = format!("[[hold]]\npath = {:?}\nkind = \"other\"\n", second.join("held"));
        place.write("t.toml", &(place.read("t.toml") + &hold));
        fixture.ok("start");
        crash_at(place, &[fixture.file(), fixture.directory(), second.join("held")]);
        fixture.ok("recover --wipe");
        // In the order of a restore, wherever this test has its directory.
        let mut disks = [&fixture.rig, &other];
        disks.sort_by_key(|disk| disk.path());
        for disk in disks {
            fs::write(disk.path().join("lost"), "these bytes are lost".repeat(200)).unwrap();
            disk.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
        }
        fixture.fails("restore", &["cannot sync the file system of "]);
        for disk in disks {
            disk.disk().recover().unwrap();
            fixture.fails("restore", LOST);
            lose_memory(&fixture);
            let said = format!("{} was not mounted again", disk.path().display());
            fixture.fails("restore", &[&said]);
            disk.unmount().unwrap();
            disk.mount().unwrap();
        }
        fixture.ok("restore");
        other.down().unwrap();
        fixture.rig.down().unwrap();
    });
}
