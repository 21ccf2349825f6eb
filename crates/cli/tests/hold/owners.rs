//! A `chown -R` above the held paths, as entrypoints of containers, `StateDirectory=` of systemd
//! and tmpfiles.d(5) do: it changes the owner of the directories of the hold, too.

use crate::crashes::{crash, take_away};
use crate::support::{HoldOnRig, sh, with_hold};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Gives everything on the disk to the daemon's user, and lets its group write.
fn chown(fixture: &HoldOnRig<'_>) {
    let rig = fixture.rig.path().display().to_string();
    sh(fixture.place, &format!("chown -R 4321:4321 {rig}; chmod -R g+w {rig}"));
}

/// Returns the owner of `path`.
fn owner(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

/// Checks that the hold has ended, and that the held paths are of the daemon's user.
fn expect_ended(fixture: &HoldOnRig<'_>) {
    assert_eq!(fixture.state(), "off");
    assert!(!fixture.rig.path().join(".synconce-hold").exists(), "something is left");
    assert_eq!(fixture.everything().matches("trusted.overlay").count(), 0);
    assert_eq!((owner(&fixture.file()), owner(&fixture.directory())), (4321, 4321));
}

#[test]
fn a_change_of_the_owner_above_the_held_paths_does_not_keep_the_hold() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        fs::create_dir(fixture.directory().join("one")).unwrap();
        chown(fixture);
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        expect_ended(fixture);
    });
}

#[test]
fn a_guard_is_started_again_after_a_change_of_the_owner() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        chown(fixture);
        take_away(place, &[]);
        fixture.ok("start");
        assert_eq!(fixture.status().0["guarded"], true);
        fixture.ok("stop");
        expect_ended(fixture);
    });
}

#[test]
fn a_change_of_the_owner_does_not_keep_a_recovery_from_its_end() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        fs::create_dir(fixture.directory().join("one")).unwrap();
        crash(fixture);
        // systemd changes the owner before the recovery, which a unit calls.
        chown(fixture);
        fixture.ok("recover --keep");
        expect_ended(fixture);
    });
}

/// Returns the command of the hint in `said`.
fn hint(said: &str) -> &str {
    said.lines().find_map(|line| Some(line.split_once("hint: ")?.1)).expect("a hint")
}

#[test]
fn other_directories_are_refused_before_the_unmount_and_the_hint_is_a_command_that_helps() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let rig = fixture.rig.path().display().to_string();
        let before = fs::metadata(format!("{rig}/.synconce-hold")).unwrap().mode();
        // A marker of an older version has no identities.
        let marker = place.read("state/holds/t.json");
        let mut record: serde_json::Value = serde_json::from_str(&marker).expect("JSON");
        for spot in record["spots"].as_array_mut().expect("spots") {
            spot.as_object_mut().expect("a spot").remove("directories").expect("identities");
        }
        fs::write(place.path("state/holds/t.json"), record.to_string()).unwrap();
        chown(fixture);
        let stopped = fixture.fails("stop", &["root did not make this directory"]);
        assert_eq!(fixture.state(), "held");
        sh(place, hint(&stopped));
        assert_eq!(fs::metadata(format!("{rig}/.synconce-hold")).unwrap().mode(), before);
        fixture.ok("stop");
        expect_ended(fixture);
    });
}

#[test]
fn what_is_set_aside_is_settled_after_a_change_of_the_owner() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        fixture.ok("start");
        fs::write(fixture.directory().join("data"), "old").unwrap();
        crash(fixture);
        fixture.ok("recover");
        fs::create_dir(fixture.directory()).unwrap();
        fs::write(fixture.directory().join("data"), "new").unwrap();
        chown(fixture);
        let aside = fixture.rig.path().join(".synconce-aside-t-1");
        assert_eq!((owner(&aside), owner(&aside.join("databases"))), (4321, 4321));
        fixture.ok("settle");
        assert!(!aside.exists());
    });
}
