//! Layers of overlays in held directories: their attributes are neither lost nor taken for those of
//! the hold.

use crate::support::{Fixture, sh};
use std::fs;
use synconce_testkit::harness::{Place, isolated};

/// Returns the attributes of overlays at and below the held directory, sorted.
fn attributes(place: &Place, held: &str) -> String {
    let found = format!("getfattr -hRd -m trusted.overlay --absolute-names {held} | grep trusted");
    sh(place, &format!("{{ {found} || true; }} | sort"))
}

#[test]
fn an_opaque_directory_that_was_made_while_held_stays_opaque() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let held = fixture.directory().display().to_string();
        fixture.ok("start");
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
        let refused = fixture.hold("start");
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        assert!(refused.stderr.contains("a layer of an overlay"), "{}", refused.stderr);
        assert_eq!(attributes(place, &held), meant);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_start_takes_no_attribute_of_a_layer_for_its_own() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let held = fixture.directory().display().to_string();
        fs::create_dir(fixture.directory().join("etc")).unwrap();
        sh(place, &format!("setfattr -n trusted.overlay.opaque -v y {held}/etc"));
        // What a start left that was killed before its mount, or a part of a backup.
        let parts = fixture.rig.path().join(".synconce-hold/databases/work");
        fs::create_dir_all(parts).unwrap();
        let refused = fixture.hold("start");
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        assert!(refused.stderr.contains("a layer of an overlay"), "{}", refused.stderr);
        assert_eq!(attributes(place, &held), "trusted.overlay.opaque=\"y\"\n");
        fixture.rig.down().unwrap();
    });
}
