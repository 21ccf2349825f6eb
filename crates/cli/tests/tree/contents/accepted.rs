//! `verify --content --accept`: the checksums of what the disk has are right from now on.

use super::{FROZEN, content, hint, site, write};
use crate::site::limit;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::Place;
use synconce_testkit::process;

/// `--accept` alone leaves the checksums: other content may be damage.
pub fn a_content_that_was_changed_is_accepted_with_its_checksum(place: &Place) {
    let site = site(place, place.path(""));
    write(&site);
    site.well(&["commit", "tree"]);
    site.well(&["verify", "--content", "tree"]);
    let (content, why) = (content(&site), "has other content than its checksum says");
    fs::write(&content, "these bytes are new").unwrap();
    site.well(&["verify", "--accept", "tree"]);
    let found = site.ends(&["verify", "--content", "tree"]);
    let wanted = format!("synconce: {} {why}\n{}", content.display(), hint(&site));
    assert_eq!((found.status.code(), found.stderr), (Some(1), wanted));
    let accepted = site.well(&["verify", "--content", "--accept", "tree"]).stderr;
    assert!(accepted.contains(why) && accepted.contains("accepted 1 layer of tree"), "{accepted}");
    assert_eq!(site.well(&["verify", "--content", "tree"]).stderr, FROZEN);
    // Both at once.
    fs::write(&content, "these bytes are newer").unwrap();
    site.well(&["verify", "--content", "--accept", "tree"]);
    assert_eq!(site.well(&["verify", "--content", "tree"]).stderr, FROZEN);
    fs::write(&content, "these bytes are other").unwrap();
    assert_eq!(site.ends(&["verify", "--content", "tree"]).status.code(), Some(1));
}

pub fn files_that_came_and_went_are_accepted_with_their_checksums(place: &Place) {
    let site = site(place, place.path(""));
    write(&site);
    site.well(&["commit", "tree"]);
    site.well(&["verify", "--content", "tree"]);
    let content = content(&site);
    let data = content.parent().unwrap();
    let (new, gone) = (data.join("new"), data.join("a\\b"));
    fs::write(&new, "x").unwrap();
    fs::remove_file(&gone).unwrap();
    let changed =
        |path: &Path| format!("synconce: {} has changed since it was frozen\n", path.display());
    let changed = changed(&data.parent().unwrap().join("")) + &changed(data);
    let files = format!(
        "synconce: {} is gone\nsynconce: {} has no checksum\n",
        gone.display(),
        new.display()
    );
    let found = site.ends(&["verify", "--content", "tree"]);
    let begins = found.stderr.starts_with(&format!("{changed}{files}synconce: hint: `find "));
    assert!(found.status.code() == Some(1) && begins, "{found:?}");
    // The entries alone are accepted, and the file has no checksum yet.
    site.well(&["verify", "--accept", "tree"]);
    let found = site.ends(&["verify", "--content", "tree"]);
    assert_eq!((found.status.code(), found.stderr), (Some(1), format!("{files}{}", hint(&site))));
    let json = site.ends(&["verify", "--content", "--json", "tree"]).stdout;
    assert!(json.contains(r#""error": "it has no checksum""#), "{json}");
    fs::write(data.join("newer"), "x").unwrap();
    let accepted = site.well(&["verify", "--content", "--accept", "tree"]).stderr;
    assert!(accepted.starts_with(&format!("{changed}{files}")), "{accepted}");
    assert!(accepted.ends_with("synconce: accepted 1 layer of tree as found now\n"), "{accepted}");
    assert_eq!(site.well(&["verify", "--content", "tree"]).stderr, FROZEN);
    fs::write(&new, "y").unwrap();
    assert_eq!(site.ends(&["verify", "--content", "tree"]).status.code(), Some(1));
}

/// What a second read finds may be other content than was printed.
pub fn what_is_accepted_was_read_once(place: &Place) {
    let site = site(place, place.path(""));
    write(&site);
    site.well(&["commit", "tree"]);
    site.well(&["verify", "--content", "tree"]);
    let content = content(&site);
    fs::write(&content, "these bytes are new").unwrap();
    let accept = site.tree(&["verify", "--content", "--accept", "tree"]);
    let mut strace = place.command("strace");
    strace.args(["-f", "-o", "trace", "-e", "trace=read", "-P"]).arg(&content);
    let accepted =
        process::run(strace.arg(accept.get_program()).args(accept.get_args()), limit()).unwrap();
    assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
    let trace = place.read("trace");
    assert_eq!(trace.matches(" = 19\n").count(), 1, "{trace}");
    assert_eq!(site.well(&["verify", "--content", "tree"]).stderr, FROZEN);
}
