//! Writes that the disk loses before files are restored: memory still shows what the disk does not
//! have, until the disk is mounted anew.

use crate::crashes::{crash, unmount_below};
use crate::losses::{lose_data, on_a_late_disk, stop_that_fails};
use crate::support::{HoldOnRig, configure, sh};
use synconce_testkit::harness::{Place, finish, isolated_alone};

/// Loses data of a hold, which `meet` finds. After `then`, sets the files aside and restores them:
/// that fails until the disk is mounted anew.
fn lose_before_a_restore(
    place: &Place,
    interrupt: impl FnOnce(&HoldOnRig<'_>),
    meet: impl FnOnce(&HoldOnRig<'_>),
    then: impl FnOnce(&HoldOnRig<'_>),
) {
    let fixture = lose_before_a_wipe(place, interrupt, meet);
    then(&fixture);
    fixture.ok("recover --wipe");
    fixture.fails("restore", &["a disk of the hold lost writes"]);
    mount_anew(&fixture);
    fixture.ok("restore");
    fixture.rig.down().unwrap();
}

fn lose_before_a_wipe(
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

fn mount_anew(fixture: &HoldOnRig<'_>) {
    fixture.rig.unmount().unwrap();
    fixture.rig.mount().unwrap();
}

fn damage_marker(fixture: &HoldOnRig<'_>) {
    fixture.place.write("state/holds/t.json", "nonsense");
}

/// Removes the marker and what is in memory. The next container has the disk, in the same boot.
fn lose_container(fixture: &HoldOnRig<'_>) {
    sh(fixture.place, "rm -r state runtime");
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
        fixture.fails("restore", &["a disk of the hold lost writes"]);
        fixture.rig.down().unwrap();
    });
}
