//! `hold restore`: what is set aside comes back, and nothing newer is lost.

use crate::crashes::{crash, interrupted};
use crate::support::{HoldOnRig, end, failed, hold, with_hold};
use std::fs::{self, File};
use std::time::{Duration, SystemTime};
use synconce_testkit::harness::{Place, isolated};
use synconce_testkit::rig::{Cut, Rig};

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
        fixture.fails("restore", &[held, "hint: synconce hold stop t\n"]);
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
            let newer = format!("{path} as it was until now is kept as {}\n", kept.display());
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
        // As the daemon's unit does after the next boot.
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
