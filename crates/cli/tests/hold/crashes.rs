//! Crashes of the machine, as the kernel leaves them.

use crate::support::{HoldOnRig, sh};
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::Place;

/// Unmounts `held`, kills the guard, and waits until it has ended: until then it has its locks.
pub fn take_away(place: &Place, held: &[PathBuf]) {
    for path in held {
        place.bare(&["umount", &path.display().to_string()]);
    }
    place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]);
    // A zombie has no locks, and perhaps no process reaps it.
    sh(place, "while pgrep -r D,R,S,T -x synconce-guard >/dev/null; do sleep 0.01; done");
}

/// Takes the overlays of the hold away, and gives the marker the boot of another day.
pub fn crash(fixture: &HoldOnRig<'_>) {
    crash_at(fixture.place, &[fixture.file(), fixture.directory()]);
}

/// Does so for a hold of `held` with the name `t`.
pub fn crash_at(place: &Place, held: &[PathBuf]) {
    take_away(place, held);
    edit(place, |record| record["boot"] = "another".into());
}

/// Changes the marker.
pub fn edit(place: &Place, change: impl FnOnce(&mut serde_json::Value)) {
    let mut record = serde_json::from_str(&place.read("state/holds/t.json")).expect("JSON");
    change(&mut record);
    place.write("state/holds/t.json", &record.to_string());
}

/// Holds the files, writes `text` to them, and takes the disk away under the hold.
pub fn interrupted(fixture: &HoldOnRig<'_>, text: &str) {
    fixture.ok("start");
    let owned = fixture.directory().display().to_string();
    sh(fixture.place, &format!("chown 65534:65534 {owned}; chmod 770 {owned}"));
    fs::write(fixture.file(), text).unwrap();
    fs::write(fixture.directory().join("data"), text).unwrap();
    unmount_below(fixture);
}

/// Takes the disk away under the hold, and mounts it again.
pub fn unmount_below(fixture: &HoldOnRig<'_>) {
    take_away(fixture.place, &[fixture.file(), fixture.directory()]);
    fixture.rig.unmount().unwrap();
    fixture.rig.mount().unwrap();
}
