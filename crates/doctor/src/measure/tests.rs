use super::*;
use crate::observer::SilentObserver;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Returns the names in `directory`, in order.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Makes each measurement that writes; returns what could not be measured.
fn measure_all(scratch: &Scratch) -> Vec<NotMeasured> {
    let observer = &mut SilentObserver(None);
    let bound = Bound { time: Duration::from_millis(50), samples: 3 };
    let (mut measured, mut not_measured) = (Measured::default(), Vec::new());
    let layers = LayersBudget { copies: bound, writes: None };
    syncs::overwrites(scratch, "overwrite", 1, bound, observer).unwrap();
    at_once::measure(scratch, bound, observer).unwrap();
    names::measure(scratch, bound, observer).unwrap();
    layers::measure(scratch, &layers, 0, observer, &mut not_measured).unwrap();
    let (size, time) = (32 << 20, bound.time);
    writes::measure(scratch, size, time, observer, &mut measured, &mut not_measured).unwrap();
    not_measured
}

#[test]
fn a_link_in_the_place_of_the_temporary_directory_leads_no_write_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    let theirs = elsewhere.join("writes");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(&theirs, "theirs").unwrap();
    let scratch = Scratch::new(place.path()).unwrap();
    let made = place.path().join(&names_in(place.path())[0]);
    // The owner of a directory may rename what root made in it.
    fs::rename(&made, place.path().join("renamed")).unwrap();
    symlink(&elsewhere, &made).unwrap();

    let undisturbed = Scratch::new(place.path()).unwrap();
    assert_eq!(measure_all(&scratch), measure_all(&undisturbed));
    undisturbed.remove().unwrap();

    assert_eq!(names_in(&elsewhere), ["writes"]);
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert!(scratch.remove().is_err(), "the link is not ours");
    assert_eq!(names_in(place.path()).len(), 3);
    assert!(names_in(&place.path().join("renamed")).is_empty());
    assert!(theirs.exists());
}

#[test]
fn the_temporary_directory_is_removed_with_its_content() {
    let place = tempfile::tempdir().unwrap();
    let bound = Bound { time: Duration::from_millis(50), samples: 3 };
    for ends in [|scratch: Scratch| scratch.remove().unwrap(), drop] {
        let scratch = Scratch::new(place.path()).unwrap();
        assert_eq!(names_in(place.path()).len(), 1);
        names::measure(&scratch, bound, &mut SilentObserver(None)).unwrap();
        ends(scratch);
        assert!(names_in(place.path()).is_empty());
    }
}
