//! Where the notes of lost writes are, when a note cannot be written or says less than it should.

use crate::crashes::{crash, crash_at, take_away};
use crate::losses::{lose_data, on_a_late_disk, on_a_second_disk, stop_that_fails, traced};
use crate::lost_before_restore::{
    LOST, damage_marker, killed, lose_container, lose_memory, mount_anew,
    restores_once_mounted_anew, wipe_and_restore,
};
use crate::support::{HoldOnRig, configure, failed, sh};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use synconce_testkit::harness::{Place, eventually, isolated_alone};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, FsKind, Rig};

#[test]
fn a_kill_between_two_notes_of_losses_leaves_one() {
    isolated_alone(|place| kill_between_two_notes(place, "symlinkat"));
}

#[test]
fn a_kill_before_the_rename_of_a_note_of_a_loss_leaves_the_old_one() {
    isolated_alone(|place| kill_between_two_notes(place, "/^renameat"));
}

fn kill_between_two_notes(place: &Place, call: &str) {
    let fixture = with_one_note(place);
    fixture.ok("start");
    lose_data(&fixture);
    stop_that_fails(&fixture);
    fixture.rig.disk().recover().unwrap();
    lose_again_and_kill(place, call, 1);
    lose_container(&fixture);
    wipe_and_restore(&fixture);
    fixture.rig.down().unwrap();
}

/// Makes a hold of one path.
fn with_one_note(place: &Place) -> HoldOnRig<'_> {
    let fixture = on_a_late_disk(place);
    configure(place, "t", "", &fixture.directory());
    fixture
}

fn lose_again_and_kill(place: &Place, call: &str, when: usize) {
    killed(lose_again(place, call, when));
}

/// Lets a recovery find another lost write, and kills it at its call number `when` of `call`.
fn lose_again(place: &Place, call: &str, when: usize) -> Finished {
    let (trace, kill) =
        (format!("trace=syncfs,{call}"), format!("inject={call}:signal=SIGKILL:when={when}"));
    let options = ["-e", &trace, "-e", "inject=syncfs:error=EIO", "-e", &kill];
    traced(place, &options, &["recover", "--keep"])
}

/// Loses data on a disk that `fill` fills. After `then`, the marker is lost.
fn lose_on_a_full_disk(place: &Place, fill: &str, then: impl FnOnce(&HoldOnRig<'_>)) {
    let fixture = with_one_note(place);
    fixture.ok("start");
    let data = fixture.directory().join("lost");
    fs::write(&data, "these bytes are kept".repeat(200)).unwrap();
    let disk = fixture.rig.path().display().to_string();
    sh(place, &format!("mkdir {disk}/fill; sync -f {disk}"));
    sh(place, &fill.replace("DISK", &disk));
    let file = File::options().write(true).open(&data).unwrap();
    file.write_all_at("these bytes are lost".repeat(200).as_bytes(), 0).unwrap();
    drop(file);
    fixture.rig.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
    stop_that_fails(&fixture);
    fixture.rig.disk().recover().unwrap();
    then(&fixture);
    sh(place, &format!("rm -r {disk}/fill"));
    lose_container(&fixture);
    assert_eq!(fixture.state(), "interrupted");
    wipe_and_restore(&fixture);
    fixture.rig.down().unwrap();
}

#[test]
fn a_loss_on_a_disk_without_free_blocks_is_not_forgotten_by_a_restore_if_the_marker_is_lost() {
    isolated_alone(|place| {
        let fill = "for turn in 1 2; do cat /dev/zero >>DISK/fill/0 2>other || sync -f DISK; done
             while echo >DISK/fill/$((n += 1)) && sync -f DISK; do :; done 2>other";
        lose_on_a_full_disk(place, fill, |fixture| {
            // The block of the first note.
            sh(place, &fill.replace("DISK", &fixture.rig.path().display().to_string()));
            // The old note gets another name, because no other note can be made.
            lose_again_and_kill(place, "/^renameat", 1);
        });
    });
}

#[test]
fn a_loss_on_a_disk_without_free_inodes_is_not_forgotten_by_a_restore_if_the_marker_is_lost() {
    isolated_alone(|place| {
        let fill = "while true >DISK/fill/$((n += 1)); do :; done 2>other";
        lose_on_a_full_disk(place, fill, |_| {
            // A link cannot be made before the old one is removed.
            let _ = lose_again(place, "symlinkat", 3);
        });
    });
}

#[test]
fn a_loss_on_a_disk_that_is_covered_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").passthrough(false);
        let fixture = HoldOnRig { place, rig: rig.up().unwrap() };
        let above = fixture.rig.path().join("above");
        configure(place, "t", "", &above.join("databases"));
        fixture.ok("start");
        take_away(place, &[above.join("databases")]);
        fs::write(above.join("lost"), "these bytes are lost".repeat(200)).unwrap();
        fixture.rig.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
        sh(place, &format!("mount -t tmpfs cover {}", above.display()));
        stop_that_fails(&fixture);
        sh(place, &format!("umount {}", above.display()));
        fixture.rig.disk().recover().unwrap();
        // What is in memory is all that names the disk.
        damage_marker(&fixture);
        wipe_and_restore(&fixture);
        fixture.rig.down().unwrap();
    });
}

/// The note of the loss is in memory alone: nothing can be written beside the journal.
#[test]
fn a_loss_that_a_restore_meets_beside_a_read_only_state_disk_is_not_forgotten() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        sh(place, "mkdir -p state; mount -t tmpfs state state");
        fixture.ok("start");
        crash(&fixture);
        fixture.ok("recover --wipe");
        let kill = ["-e", "trace=syncfs", "-e", "inject=syncfs:signal=SIGKILL"];
        killed(traced(place, &kill, &["restore"]));
        sh(place, "mount -o remount,ro state");
        lose_data(&fixture);
        fixture.fails("restore", &["cannot sync the file system of "]);
        fixture.rig.disk().recover().unwrap();
        sh(place, "mount -o remount,rw state");
        restores_once_mounted_anew(&fixture);
        sh(place, "umount state");
        fixture.rig.down().unwrap();
    });
}

/// Loses data while sysfs does not show the disk. Then `recover` recovers in another container,
/// which has the markers, and has the disk by another mount. The restore is to be made in a third
/// one.
fn without_sysfs(place: &Place, recover: impl FnOnce(&HoldOnRig<'_>)) -> HoldOnRig<'_> {
    let fixture = on_a_late_disk(place);
    sh(place, "mount -t tmpfs nothing /sys");
    fixture.ok("start");
    lose_data(&fixture);
    stop_that_fails(&fixture);
    fixture.rig.disk().recover().unwrap();
    let other_mount = "mkdir other; mount --bind DISK other; umount DISK
         mount --bind other DISK; umount other";
    sh(place, &other_mount.replace("DISK", &fixture.rig.path().display().to_string()));
    lose_memory(&fixture);
    recover(&fixture);
    lose_memory(&fixture);
    fixture
}

fn show_sysfs(fixture: &HoldOnRig<'_>) {
    sh(fixture.place, "umount /sys");
}

#[test]
fn a_loss_without_sysfs_refuses_a_restore_until_the_machine_boots() {
    isolated_alone(|place| {
        let fixture = without_sysfs(place, |fixture| drop(fixture.ok("recover --wipe")));
        let said = ["a disk of the hold lost writes, and nothing shows whether "];
        fixture.fails("restore", &said);
        show_sysfs(&fixture);
        mount_anew(&fixture);
        let boot = "  synconce hold restore t    # after a reboot of the machine; ";
        fixture.fails("restore", &[said[0], boot]);
        let journal = place.read("state/holds/t.aside.json");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(journal.contains(boot.trim()));
        place.write("state/holds/t.aside.json", &journal.replace(boot.trim(), "another"));
        fixture.ok("restore");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_without_sysfs_is_one_of_the_disk_that_a_recovery_sees() {
    isolated_alone(|place| {
        let fixture = without_sysfs(place, |fixture| {
            show_sysfs(fixture);
            fixture.ok("recover --wipe");
        });
        fixture.fails("restore", &["was not mounted again since"]);
        mount_anew(&fixture);
        fixture.ok("restore");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_restore_that_only_needs_sysfs_says_so() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        lose_data(&fixture);
        stop_that_fails(&fixture);
        fixture.rig.disk().recover().unwrap();
        fixture.ok("recover --wipe");
        mount_anew(&fixture);
        lose_memory(&fixture);
        sh(place, "mount -t tmpfs nothing /sys");
        fixture.fails("restore", &["nothing shows whether ", "  mount -t sysfs sysfs /sys "]);
        sh(place, "mount -t sysfs sysfs /sys");
        fixture.ok("restore");
        sh(place, "umount /sys; umount /sys");
        fixture.rig.down().unwrap();
    });
}

/// Recovers a hold of two disks, of which the first has lost a write, while a tracer changes the
/// calls on the second one as `inject` says: `COUNT` is the number of the last openat(2) there
/// before its sync.
fn with_a_second_disk(place: &Place, inject: &str, check: impl FnOnce(Finished)) {
    let fixture = on_a_late_disk(place);
    let (other, held) = on_a_second_disk(place);
    fixture.ok("start");
    crash_at(place, &[fixture.file(), fixture.directory(), held]);
    let point = other.path().display().to_string();
    let recover = |inject: &str| {
        let options = ["-e", "trace=openat,syncfs", "-P", &point, "-e", inject];
        traced(place, &options, &["recover", "--keep"])
    };
    killed(recover("inject=syncfs:signal=SIGKILL"));
    let count = place.read("calls").matches("openat(").count();
    lose_data(&fixture);
    check(recover(&inject.replace("COUNT", &count.to_string())));
    fixture.rig.disk().recover().unwrap();
    let said = fixture.ok("recover --keep");
    assert!(said.contains("the disk lost writes"), "{said}");
    other.down().unwrap();
    fixture.rig.down().unwrap();
}

#[test]
fn a_loss_is_not_forgotten_by_a_recovery_that_cannot_open_another_disk() {
    isolated_alone(|place| {
        with_a_second_disk(place, "inject=openat:error=EIO:when=COUNT", |recovered| {
            failed(recovered, &["Input/output error"]);
            // The open before the sync, and no earlier one.
            assert!(!place.read("calls").contains("syncfs("), "{}", place.read("calls"));
        });
    });
}

#[test]
fn a_loss_is_not_forgotten_by_a_recovery_that_is_killed_at_the_sync_of_another_disk() {
    isolated_alone(|place| {
        with_a_second_disk(place, "inject=syncfs:signal=SIGKILL", killed);
    });
}

#[test]
fn a_stop_notes_a_loss_for_its_disk_alone() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        let (other, held) = on_a_second_disk(place);
        fixture.ok("start");
        lose_data(&fixture);
        stop_that_fails(&fixture);
        fixture.rig.disk().recover().unwrap();
        assert_eq!(losses(place).len(), 1);
        fixture.ok("recover --wipe");
        let said = fixture.fails("restore", LOST);
        assert!(!said.contains(&other.path().display().to_string()), "{said}");
        mount_anew(&fixture);
        fixture.ok("restore");
        assert!(held.exists());
        other.down().unwrap();
        fixture.rig.down().unwrap();
    });
}

/// Returns the losses in the marker.
fn losses(place: &Place) -> Vec<Value> {
    let marker: Value = serde_json::from_str(&place.read("state/holds/t.json")).unwrap();
    marker["losses"].as_array().expect("a list").clone()
}

/// A sync does not reach the second disk, because another one covers the held directory.
#[test]
fn a_wipe_notes_a_disk_that_failed_beside_a_loss_that_the_marker_has() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        let second = place.path("second");
        fs::create_dir(&second).unwrap();
        let other = Rig::builder().size(64 << 20).mount_options("commit=1").passthrough(false);
        let other = other.at(&second).up().unwrap();
        let above = second.join("above");
        fs::create_dir(&above).unwrap();
        let hold = format!("[[hold]]\npath = {:?}\nkind = \"other\"\n", above.join("held"));
        place.write("t.toml", &(place.read("t.toml") + &hold));
        fixture.ok("start");
        crash_at(place, &[fixture.file(), fixture.directory(), above.join("held")]);
        let fail = ["-e", "trace=syncfs", "-e", "inject=syncfs:error=EIO:when=1"];
        failed(traced(place, &fail, &["recover", "--keep"]), &["Input/output error"]);
        let count = |text: String| text.matches("/sys/fs/ext4/").count();
        let in_marker = || count(place.read("state/holds/t.json"));
        let systems = in_marker();
        // The boot before gave the disk another number.
        let marker: Value = serde_json::from_str(&place.read("state/holds/t.json")).unwrap();
        let point = second.to_str();
        let of_second = |system: &&Value| system["point"].as_str() == point;
        let system = marker["file_systems"].as_array().unwrap().iter().find(of_second).unwrap();
        let number = |number: u64| format!("\"number\": {number}");
        let now = system["super_block"]["number"].as_u64().unwrap();
        let text = place.read("state/holds/t.json").replace(&number(now), &number(now + 1000));
        place.write("state/holds/t.json", &text);
        other.abort_journal(|| fs::create_dir(second.join("made")).unwrap()).unwrap();
        other.disk().recover().unwrap();
        eventually("the abort", || fs::write(second.join("new"), "").is_err());
        sh(place, &format!("mount -t tmpfs cover {}", above.display()));
        fixture.ok("recover --wipe");
        let journal = place.read("state/holds/t.aside.json");
        assert!(
            journal.contains(&number(now)) && !journal.contains(&number(now + 1000)),
            "{journal}"
        );
        assert_eq!((systems, count(journal)), (3, 2));
        sh(place, &format!("umount {}", above.display()));
        other.down().unwrap();
        fixture.rig.down().unwrap();
    });
}

/// XFS writes no more after it lost a write to its log, and answers no statx(2).
#[test]
fn a_loss_of_a_disk_that_was_shut_down_is_noted_for_no_other_disk() {
    isolated_alone(|place| {
        let rig = Rig::builder().fs(FsKind::Xfs).size(512 << 20).passthrough(false);
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "");
        fixture.ok("start");
        fixture.rig.disk().fail_writes(true).unwrap();
        fs::write(fixture.directory().join("new"), "new").unwrap();
        fixture.fails("stop", &[]);
        fixture.rig.disk().fail_writes(false).unwrap();
        let losses = losses(place);
        assert_eq!(losses.len(), 1, "{losses:?}");
        let directory = losses[0]["super_block"]["directory"].as_str().expect("a path");
        assert!(directory.starts_with("/sys/fs/xfs/"), "{directory}");
        mount_anew(&fixture);
        fixture.ok("recover --wipe");
        fixture.ok("restore");
        fixture.rig.down().unwrap();
    });
}
