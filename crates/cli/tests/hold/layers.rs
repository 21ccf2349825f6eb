//! Layers of overlays in held directories: a hold neither removes nor uses their attributes.

use crate::crashes::crash_at;
use crate::support::{HoldOnRig, sh, with_hold};
use std::fs;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_testkit::harness::Place;

/// Returns the attributes of overlays at and below the held directory, sorted.
fn attributes(place: &Place, held: &str) -> String {
    let found = format!("getfattr -hRd -m trusted.overlay --absolute-names {held} | grep trusted");
    sh(place, &format!("{{ {found} || true; }} | sort"))
}

/// Whether the hold takes attributes of overlays (Linux 6.7). Before, each attempt fails, and so
/// none can be lost.
fn takes_attributes(place: &Place, held: &str) -> bool {
    let takes = kernel_is_at_least(6, 7);
    let not = if takes { "" } else { "! " };
    sh(
        place,
        &format!("mkdir {held}/tried && {not}setfattr -n trusted.overlay.opaque -v y {held}/tried"),
    );
    sh(place, &format!("rmdir {held}/tried"));
    takes
}

#[test]
fn an_opaque_directory_that_was_made_while_held_stays_opaque() {
    with_hold("", |place, fixture| {
        let held = fixture.directory().display().to_string();
        fixture.ok("start");
        if !takes_attributes(place, &held) {
            fixture.ok("stop");
            return;
        }
        sh(place, &format!("mkdir -p {held}/plain/below {held}/layer/etc"));
        let set = "setfattr -n trusted.overlay";
        sh(
            place,
            &format!(
                "{set}.opaque -v y {held}/layer/etc; {set}.redirect -v /old {held}/layer; \
                 {set}.overlay.opaque -v y {held}/layer"
            ),
        );
        let meant = "trusted.overlay.opaque=\"y\"\ntrusted.overlay.overlay.opaque=\"y\"\n\
                     trusted.overlay.redirect=\"/old\"\n";
        assert_eq!(attributes(place, &held), meant);
        fixture.ok("stop");
        assert_eq!(attributes(place, &held), meant);
        fixture.fails("start", &["a layer of an overlay"]);
        assert_eq!(attributes(place, &held), meant);
    });
}

#[test]
fn a_start_takes_no_attribute_of_a_layer_for_its_own() {
    with_hold("", |place, fixture| {
        let held = fixture.directory().display().to_string();
        fs::create_dir(fixture.directory().join("etc")).unwrap();
        sh(place, &format!("setfattr -n trusted.overlay.opaque -v y {held}/etc"));
        // What a start left that was killed before its mount, or a part of a backup.
        let parts = fixture.rig.path().join(".synconce-hold/databases/work");
        fs::create_dir_all(parts).unwrap();
        fixture.fails("start", &["a layer of an overlay"]);
        assert_eq!(attributes(place, &held), "trusted.overlay.opaque=\"y\"\n");
    });
}

/// Makes opaque directories in the hold, each in the one before, and has its end fail at `c`, which
/// cannot be changed. Returns the attributes that were set; `None` where the hold takes none.
fn stop_in_the_middle(place: &Place, fixture: &HoldOnRig<'_>) -> Option<String> {
    let held = fixture.directory().display().to_string();
    let rig = fixture.rig.path().display().to_string();
    sh(place, &format!("cd {held}; mkdir -p a/b/c/d/e"));
    fixture.ok("start");
    if !takes_attributes(place, &held) {
        fixture.ok("stop");
        return None;
    }
    // Through the overlay, chattr(1) would set no flag of the file below.
    sh(
        place,
        &format!(
            "cd {held}; setfattr -n trusted.overlay.opaque -v y a a/b a/b/c a/b/c/d a/b/c/d/e
             mkdir {rig}.below; mount --bind {rig} {rig}.below; chattr +i {rig}.below/databases/a/b/c
             umount {rig}.below; rmdir {rig}.below"
        ),
    );
    let meant = attributes(place, &held);
    assert_eq!(meant, "trusted.overlay.opaque=\"y\"\n".repeat(5));
    fixture.fails("stop", &["cannot rename an attribute below"]);
    assert!(attributes(place, &held).contains("trusted.overlay.opaque"), "none was renamed");
    sh(place, &format!("chattr -i {held}/a/b/c"));
    Some(meant)
}

#[test]
fn a_stop_that_was_cut_short_is_finished_by_the_next_without_a_loss_of_attributes() {
    with_hold("", |place, fixture| {
        let Some(meant) = stop_in_the_middle(place, fixture) else { return };
        fixture.ok("stop");
        assert_eq!(attributes(place, &fixture.directory().display().to_string()), meant);
        assert!(!fixture.rig.path().join(".synconce-hold").exists());
    });
}

#[test]
fn a_recovery_after_a_stop_that_was_cut_short_keeps_attributes() {
    with_hold("", |place, fixture| {
        let Some(meant) = stop_in_the_middle(place, fixture) else { return };
        crash_at(place, &[]);
        fixture.ok("recover --keep");
        assert_eq!(attributes(place, &fixture.directory().display().to_string()), meant);
    });
}
