//! `hold restore`: what is set aside comes back, and nothing newer is lost.

use crate::crashes::{crash, edit, interrupted};
use crate::support::{HoldOnRig, end, failed, hide_systemd, hold, sh, show_systemd, with_hold};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually, isolated, kill};
use synconce_testkit::rig::{Cut, Fault, Rig};

const WIPE: &str = "after_crash = \"wipe\"\n";
const NOTHING: &str = "synconce: hold t: nothing more is to be put back\n";

/// Returns the content of the held file, and of the file in the held directory.
fn content(fixture: &HoldOnRig<'_>) -> [String; 2] {
    [fixture.file(), fixture.directory().join("data")].map(|path| fs::read_to_string(path).unwrap())
}

/// Lets the daemon write anew after a wipe of files that have the text `old`.
fn wiped(fixture: &HoldOnRig<'_>) {
    interrupted(fixture, "old");
    fixture.ok("recover");
    fixture.ok("start");
    fs::write(fixture.file(), "new").unwrap();
    fs::write(fixture.directory().join("data"), "new").unwrap();
}

/// Checks that nothing is removed before the daemon has written to the files that were put back,
/// and settles then.
fn settled_once_written(fixture: &HoldOnRig<'_>) {
    let before = fixture.everything();
    let said = "cannot remove what was set aside: the daemon has not written ";
    fixture.fails("settle", &[said]);
    assert_eq!(fixture.everything(), before);
    // An hour later: the times of files have ticks.
    let daemon = File::options().write(true).open(fixture.file()).unwrap();
    daemon.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    fixture.ok("settle");
    assert!(!fixture.everything().contains(".synconce-"), "{}", fixture.everything());
}

#[test]
fn what_is_set_aside_comes_back_and_what_is_newer_is_kept_until_it_is_settled() {
    with_hold(WIPE, |_, fixture| {
        wiped(fixture);
        let held = "cannot put back the files of the hold t: it is in force";
        fixture.fails("restore", &[held, "then: synconce hold stop t; then restore again\n"]);
        fixture.ok("stop");
        let daemon = fixture.open(&fixture.directory().join("data"));
        let said = format!("cannot put back {}: it is in use by ", fixture.directory().display());
        fixture.fails("restore", &[&said, "hint: stop the daemon"]);
        end(daemon);
        assert_eq!(content(fixture), ["new", "new"]);

        let said = fixture.ok("restore");
        let aside = fixture.rig.path().join(".synconce-aside-t-1/.synconce-replaced");
        for (path, name) in [(fixture.file(), "meta.db"), (fixture.directory(), "databases")] {
            let (path, kept) = (path.display().to_string(), aside.join(name));
            assert!(said.contains(&format!("hold t: put back {path}\n")), "{said}");
            let newer = format!("the previous {path} is kept as {}\n", kept.display());
            assert!(said.contains(&newer), "{said}");
        }
        assert!(said.contains("synconce hold settle t\n"), "{said}");
        assert!(said.contains("may have damaged these files: check them before "), "{said}");
        assert_eq!(content(fixture), ["old", "old"]);
        assert_eq!(fs::read_to_string(aside.join("meta.db")).unwrap(), "new");
        assert_eq!(fs::read_to_string(aside.join("databases/data")).unwrap(), "new");
        assert_eq!(fixture.ok("restore"), NOTHING);
        settled_once_written(fixture);
        assert_eq!(content(fixture), ["old", "old"]);
    });
}

#[test]
fn a_restore_under_a_daemon_names_the_units_and_sockets_to_stop() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let end = "synconce hold stop t; then restore again\n";
        fixture.fails("restore", &[&format!("hint: end the daemon first; then: {end}")]);
        edit(place, |record| record["config"]["unit"] = "jobs.service".into());
        hide_systemd(place);
        fixture.fails("restore", &[&format!("hint: end the daemon first; then: {end}")]);
        show_systemd(place);
        let units = "jobs.service synconce-hold-t.service";
        fixture.fails("restore", &[&format!("hint: systemctl stop {units}; {end}")]);
        // A connection to the socket would start the daemon again.
        sh(place, "mount -t tmpfs test /etc/systemd/system; touch /etc/systemd/system/jobs.socket");
        fixture.fails("restore", &[&format!("hint: systemctl stop jobs.socket {units}; {end}")]);
        fixture.ok("stop");
    });
}

#[test]
fn a_restore_that_replaces_nothing_leaves_nothing() {
    with_hold(WIPE, |place, fixture| {
        interrupted(fixture, "old");
        fixture.fails("restore", &["was interrupted, and is not recovered", "hold recover t\n"]);
        fixture.ok("recover");
        assert_eq!(fixture.ok("restore").lines().count(), 3);
        assert_eq!(content(fixture), ["old", "old"]);
        assert!(!fixture.everything().contains(".synconce-"), "{}", fixture.everything());
        assert!(!place.path("state/holds/t.aside.json").exists());
        assert_eq!(fixture.ok("restore"), NOTHING);
        failed(hold(place, &["restore", "mistyped"]), &["mistyped"]);
    });
}

#[test]
fn a_lost_write_is_remembered_until_the_disk_is_mounted_again() {
    with_hold(WIPE, |place, fixture| {
        interrupted(fixture, "old");
        fixture.ok("recover");
        let lost = "these bytes are lost";
        fs::write(fixture.rig.path().join("written"), lost.repeat(200)).unwrap();
        fixture.rig.disk().fail(Fault::writes().holding(lost)).unwrap();
        fixture.fails("restore", &["cannot sync the file system of "]);
        fixture.rig.disk().recover().unwrap();
        let mount = format!("  umount {} ", fixture.rig.path().display());
        for verb in ["restore", "recover", "restore"] {
            fixture.fails(
                verb,
                &["was not mounted again since: ", &mount, "  synconce hold restore t "],
            );
            // The next container has the journal.
            fs::remove_dir_all(place.path("runtime")).unwrap();
        }
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        fixture.ok("restore");
        assert_eq!(content(fixture), ["old", "old"]);
    });
}

#[test]
fn from_before_its_recovery_a_run_keeps_a_restore_out() {
    with_hold(WIPE, |place, fixture| {
        interrupted(fixture, "old");
        let disk = fixture.rig.path().metadata().unwrap().dev();
        let disk = File::create(place.path(&format!("runtime/holds/{disk}.disk"))).unwrap();
        flock(&disk, FlockOperation::LockExclusive).unwrap();
        let script = "\"$0\" hold restore ./t.toml";
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", script, binary()];
        let running = StartedCommand::new(&mut place.synconce(&words));
        // The recovery is over, and the hold has not begun.
        let waits = || running.text().contains("waiting for the lock of the disk of ");
        eventually("the start waits", waits);
        let run = File::options().write(true).open(place.path("runtime/holds/t.run")).unwrap();
        let lock = fcntl_lock(&run, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock, Err(Errno::AGAIN), "{}", running.text());
        drop(disk);
        assert_eq!(running.end().code(), Some(125), "{}", running.text());
        let said = "cannot put back the files of the hold t: \"synconce hold run\" has not ended\n";
        assert!(running.text().contains(said), "{}", running.text());
        // Neither its guard nor its daemon keeps the place after a kill.
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", "echo up >up; exec sleep 600"];
        let running = StartedCommand::new(&mut place.synconce(&words));
        place.wait_for("up");
        kill(running.pid(), Signal::KILL);
        running.end();
        fixture.fails("restore", &["it is in force"]);
        end(running);
        fixture.ok("stop");
        fixture.ok("restore");
        assert_eq!(content(fixture), ["old", "old"]);
    });
}

#[test]
fn without_a_name_the_holds_with_files_that_are_set_aside_are_listed() {
    with_hold(WIPE, |place, fixture| {
        let list = || {
            let listed = hold(place, &["restore"]);
            assert_eq!(listed.status.code(), Some(0), "{}", listed.stderr);
            listed.stdout
        };
        assert_eq!(list(), "no files are set aside\n");
        wiped(fixture);
        fixture.ok("stop");
        let before = fixture.everything();
        let listed = list();
        let lines: Vec<Vec<_>> =
            listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "SINCE", "FILES"]);
        assert_eq!((lines.len(), lines[1][0], lines[1][2]), (2, "t", "2"), "{listed}");
        assert_eq!(fixture.everything(), before);
        fixture.ok("restore");
        // What is newer waits for `settle`, and is not put back.
        assert_eq!(list(), "no files are set aside\n");
        place.write("state/holds/t.aside.json", "{");
        failed(hold(place, &["restore"]), &["cannot read "]);
    });
}

/// Leaves the restore of a wipe as a kill after its first rename does.
fn killed(place: &Place, fixture: &HoldOnRig<'_>) {
    wiped(fixture);
    fixture.ok("stop");
    let journal = place.read("state/holds/t.aside.json");
    let mut journal: serde_json::Value = serde_json::from_str(&journal).expect("JSON");
    for one in journal["sets"][0]["moves"].as_array_mut().expect("renames") {
        one["put_back"] = true.into();
    }
    place.write("state/holds/t.aside.json", &journal.to_string());
    fs::rename(fixture.directory(), fixture.rig.path().join("away")).unwrap();
}

#[test]
fn nothing_starts_on_files_of_which_only_a_part_is_put_back() {
    with_hold(WIPE, |place, fixture| {
        killed(place, fixture);
        let half = "cannot start the hold t: files that were set aside are not all put back";
        fixture.fails("start", &[half, "hint: synconce hold restore t\n"]);
        fixture.fails("settle", &["cannot remove what was set aside: "]);
        let (status, _) = fixture.status();
        assert_eq!(status["advice"], "synconce hold restore t");
        assert_eq!(status["reason"], "files that were set aside are not all put back");
        // The daemon's unit calls `recover` after the next boot.
        let said = fixture.ok("recover");
        assert!(said.contains("hold t: put back "), "{said}");
        assert_eq!(content(fixture), ["old", "old"]);
        settled_once_written(fixture);
    });
}

#[test]
fn after_a_restore_or_a_decision_to_keep_what_the_daemon_has_synced_survives_a_power_cut() {
    isolated(|place| {
        for verbs in [&["recover", "restore"][..], &["recover --keep"]] {
            let rig = Rig::builder().size(64 << 20).mount_options("commit=300").record(true);
            let fixture = HoldOnRig::on(place, rig.up().unwrap(), WIPE);
            fixture.ok("start");
            fs::write(fixture.file(), "old").unwrap();
            fs::write(fixture.directory().join("data"), "old").unwrap();
            // The disk stays mounted: the files are in memory alone.
            crash(&fixture);
            for verb in verbs {
                fixture.ok(verb);
            }
            fixture.rig.disk().mark("over").unwrap();
            let tape = fixture.rig.finish().unwrap();
            let replay = tape.replay().up().unwrap();
            let at = tape.log().unwrap().mark("over").unwrap();
            let cut = replay.mounted(Cut::at(at)).unwrap();
            for path in ["meta.db", "databases/data"] {
                let found = fs::read_to_string(cut.path().join(path)).unwrap_or_default();
                assert_eq!(found, "old", "{verbs:?}: {path}");
            }
            cut.unmount().unwrap();
            replay.down().unwrap();
        }
    });
}
