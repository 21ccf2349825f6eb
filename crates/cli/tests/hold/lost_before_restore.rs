//! Writes that the disk loses before files are restored: memory still shows what the disk does not
//! have, until the disk is mounted anew.

use crate::crashes::{crash, crash_at, take_away, unmount_below};
use crate::losses::{lose_data, on_a_late_disk, stop_that_fails, traced};
use crate::support::{HoldOnRig, configure, failed, sh};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use synconce_testkit::harness::{Place, finish, isolated_alone};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

pub const LOST: &[&str] = &["a disk of the hold lost writes", "was not mounted again since"];

pub fn wipe_and_restore(fixture: &HoldOnRig<'_>) {
    fixture.ok("recover --wipe");
    fixture.fails("restore", LOST);
    lose_memory(fixture);
    restores_once_mounted_anew(fixture);
}

/// Checks that a loss is known, until its disk is mounted anew.
pub fn restores_once_mounted_anew(fixture: &HoldOnRig<'_>) {
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
    sh(fixture.place, "rm -rf state runtime");
}

/// Removes what is in memory. The next container has the disk and the markers, in the same boot.
pub fn lose_memory(fixture: &HoldOnRig<'_>) {
    sh(fixture.place, "rm -r runtime");
}

fn nothing(_: &HoldOnRig<'_>) {}

fn crash_and_mount(fixture: &HoldOnRig<'_>) {
    crash(fixture);
    mount_anew(fixture);
}

/// Ends the recovery after the notes beside the files are gone, and before the marker is.
fn damage_and_kill_a_keep(fixture: &HoldOnRig<'_>) {
    damage_marker(fixture);
    let markers = fixture.place.text("state/holds");
    let kill = ["-e", "trace=unlinkat", "-e", "inject=unlinkat:signal=SIGKILL", "-P", &markers];
    killed(traced(fixture.place, &kill, &["recover", "--keep"]));
    lose_memory(fixture);
}

fn unmount_and_damage(fixture: &HoldOnRig<'_>) {
    unmount_below(fixture);
    damage_marker(fixture);
}

/// Loses data of a hold by each way to a wipe. The files come back after the disk is mounted anew
/// only, also in a container that is made anew meanwhile.
#[test]
fn a_loss_is_not_forgotten_by_a_restore() {
    type Step = fn(&HoldOnRig<'_>);
    isolated_alone(|place| {
        let ways: [(&str, Step, Step, Step); 8] = [
            ("a stop", nothing, stop_that_fails, nothing),
            ("a damaged marker", nothing, stop_that_fails, damage_marker),
            ("a damaged marker and a kill", nothing, stop_that_fails, damage_and_kill_a_keep),
            ("a lost marker", nothing, stop_that_fails, lose_container),
            ("a recovery of another boot", crash_and_mount, keep_that_fails, nothing),
            ("a recovery of another mount", unmount_below, keep_that_fails, nothing),
            ("a recovery with a damaged marker", unmount_and_damage, keep_that_fails, nothing),
            ("a marker that is lost later", unmount_below, keep_that_fails, lose_container),
        ];
        for (way, interrupt, meet, then) in ways {
            println!("{way}");
            let fixture = lose_before_a_wipe(place, interrupt, meet);
            then(&fixture);
            wipe_and_restore(&fixture);
            end_of_way(fixture);
        }
    });
}

/// A loss of another mount or boot than the present one.
#[test]
fn a_loss_that_memory_no_longer_shows_refuses_no_restore() {
    type Step = fn(&HoldOnRig<'_>);
    isolated_alone(|place| {
        let ways: [(&str, Step, Step); 5] = [
            ("a marker", mount_anew, nothing),
            ("a damaged marker", mount_anew, damage_marker),
            ("a lost marker", mount_anew, lose_container),
            ("a marker of an earlier boot", let_another_boot_begin, nothing),
            ("a lost marker of an earlier boot", let_another_boot_begin, lose_container),
        ];
        for (way, begin, then) in ways {
            println!("{way}");
            let fixture = lose_before_a_wipe(place, nothing, stop_that_fails);
            begin(&fixture);
            then(&fixture);
            fixture.ok("recover --wipe");
            fixture.ok("restore");
            end_of_way(fixture);
        }
    });
}

pub fn end_of_way(fixture: HoldOnRig<'_>) {
    lose_container(&fixture);
    fixture.rig.down().unwrap();
}

/// Gives the marker and the notes beside the files an earlier boot, whose super block can have the
/// same number, and removes what is in memory.
fn let_another_boot_begin(fixture: &HoldOnRig<'_>) {
    let change = "set -e; boot=$(cat /proc/sys/kernel/random/boot_id)
         sed -i s/$boot/another/g state/holds/t.json
         ! grep -q $boot state/holds/t.json
         notes=$(find ROOT -name started); [ -n \"$notes\" ]
         for note in $notes; do
             text=$(readlink $note); rm $note
             ln -s \"$(echo \"$text\" | sed s/$boot/another/)\" $note
             readlink $note | grep -q 'failed .* another '
         done";
    sh(fixture.place, &change.replace("ROOT", &fixture.rig.path().display().to_string()));
    lose_memory(fixture);
}

/// The notes beside the files are gone then, and what is in memory goes with the container.
#[test]
fn a_loss_that_the_last_sync_of_a_recovery_meets_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        crash(&fixture);
        // The first three syncs are before the notes are removed: of two directories and of what is
        // above.
        let fail = ["-e", "trace=syncfs", "-e", "inject=syncfs:error=EIO:when=4"];
        let kept = traced(place, &fail, &["recover", "--keep"]);
        failed(kept, &["cannot sync", "Input/output error"]);
        assert!(!fixture.everything().contains(".synconce"), "{}", fixture.everything());
        lose_memory(&fixture);
        wipe_and_restore(&fixture);
        fixture.rig.down().unwrap();
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
        for has_earlier_set in [false, true] {
            let fixture = on_a_late_disk(place);
            if has_earlier_set {
                fixture.ok("start");
                crash(&fixture);
                fixture.ok("recover --wipe");
            }
            fixture.ok("start");
            fs::write(fixture.file(), "written").unwrap();
            crash(&fixture);
            lose_data(&fixture);
            let at = if has_earlier_set { AT_LATER_JOURNAL } else { AT_FIRST_JOURNAL };
            killed(traced(place, &at, &["recover", "--wipe"]));
            fixture.rig.disk().recover().unwrap();
            assert_eq!(place.path("state/holds/t.aside.json").exists(), has_earlier_set);
            // The set before was settled by the daemon that wrote.
            fixture.ok("settle");
            assert!(!place.path("state/holds/t.aside.json").exists());
            lose_memory(&fixture);
            wipe_and_restore(&fixture);
            end_of_way(fixture);
        }
    });
}

/// Options of strace(1) that kill a verb when it gives the first journal its name.
pub const AT_FIRST_JOURNAL: [&str; 6] =
    ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=SIGKILL", "-P", "t.aside.json"];
/// Options of strace(1) that kill a verb when it replaces the journal.
const AT_LATER_JOURNAL: [&str; 6] =
    ["-e", "trace=renameat", "-e", "inject=renameat:signal=SIGKILL", "-P", "t.aside.json"];

/// The second recovery, which sets the remaining files aside, finds the loss.
fn lose_between_two_wipes<'a>(place: &'a Place, at: &[&str]) -> HoldOnRig<'a> {
    let fixture = on_a_late_disk(place);
    fixture.ok("start");
    crash(&fixture);
    let point = fixture.rig.path().display().to_string();
    let between = ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=SIGKILL:when=2"];
    killed(traced(place, &[&between[..], &["-P", &point]].concat(), &["recover", "--wipe"]));
    assert!(!fixture.directory().exists() && fixture.file().exists());
    fs::write(fixture.rig.path().join("lost"), "these bytes are lost".repeat(200)).unwrap();
    fixture.rig.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
    let at: Vec<_> = at.iter().map(|word| word.replace("POINT", &point)).collect();
    let at: Vec<_> = at.iter().map(String::as_str).collect();
    killed(traced(place, &at, &["recover", "--wipe"]));
    fixture.rig.disk().recover().unwrap();
    fixture
}

#[test]
fn a_loss_that_only_the_marker_has_is_not_forgotten_by_a_restore() {
    isolated_alone(|place| {
        let fixture = lose_between_two_wipes(place, &AT_LATER_JOURNAL);
        assert!(place.read("state/holds/t.aside.json").contains("\"losses\": []"));
        lose_memory(&fixture);
        restores_once_mounted_anew(&fixture);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_is_in_the_journal_before_a_recovery_goes_on_with_its_renames() {
    isolated_alone(|place| {
        let kill =
            ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=SIGKILL", "-P", "POINT"];
        let fixture = lose_between_two_wipes(place, &kill);
        assert!(fixture.file().exists());
        assert!(!place.read("state/holds/t.aside.json").contains("\"losses\": []"));
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
        restores_once_mounted_anew(&fixture);
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
        restores_once_mounted_anew(&fixture);
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
        for disk in [&fixture.rig, &other] {
            fs::write(disk.path().join("lost"), "these bytes are lost".repeat(200)).unwrap();
            disk.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
        }
        fixture.fails("restore", &["cannot sync the file system of "]);
        for disk in [&fixture.rig, &other] {
            disk.disk().recover().unwrap();
        }
        let points = [&fixture.rig, &other].map(|disk| disk.path().to_owned());
        let mut sorted = points.clone();
        sorted.sort();
        let [first, last] = sorted.each_ref().map(|point| point.display());
        fixture.fails("restore", &[LOST[0], &format!("since: {first}, {last}\n")]);
        lose_memory(&fixture);
        for (disk, point) in [&fixture.rig, &other].into_iter().zip(&points) {
            let umount = format!("  umount {} ", point.display());
            fixture.fails("restore", &[LOST[1], &umount]);
            disk.unmount().unwrap();
            disk.mount().unwrap();
        }
        fixture.ok("restore");
        other.down().unwrap();
        fixture.rig.down().unwrap();
    });
}
