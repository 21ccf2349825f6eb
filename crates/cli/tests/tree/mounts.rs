//! Trees that are mounted: where, how they are found again, and how a mount ends that
//! cannot end well.

use crate::harness::trial;
use crate::meetings::{point, text};
use crate::roots;
use crate::site::{Site, same};
use crate::support::Place;
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(an_unmount_that_was_cut_short_is_done_again, &NEEDS),
        trial(an_unmount_that_was_cut_short_can_be_a_discard, &NEEDS),
        trial(what_has_no_room_to_be_kept_is_discarded, &NEEDS),
        trial(immutable_files_of_several_names_are_kept, &NEEDS),
        trial(of_two_mounts_the_one_that_is_seen_is_unmounted, &NEEDS),
        trial(a_name_means_the_mount_that_is_kept, &NEEDS),
        trial(a_mount_never_hides_the_store, &NEEDS),
    ]
}

/// What a kill leaves of `umount` when all is noted, and only the session is still there.
fn cut_short<'a>(place: &'a Place) -> (Site<'a>, PathBuf) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    fs::write(at.join("data/new"), "new\n").unwrap();
    let sessions = site.store().join("sessions");
    let session = fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let saved =
        ["session.json", "device"].map(|name| (name, fs::read(session.join(name)).unwrap()));
    site.well(&["umount", "work"]);
    fs::create_dir(&session).unwrap();
    fs::create_dir(session.join("root")).unwrap();
    saved.iter().for_each(|(name, bytes)| fs::write(session.join(name), bytes).unwrap());
    (site, sessions)
}

fn an_unmount_that_was_cut_short_is_done_again(place: &Place) {
    let (site, sessions) = cut_short(place);
    site.refused(125, &["run", "work", "--", "/bin/true"], &["work"]);
    site.well(&["umount", "work"]);
    assert_eq!(site.sh("work", "cat /data/new"), "new\n");
    site.well(&["commit", "work"]);
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 0);
    site.well(&["fsck"]);
}

fn an_unmount_that_was_cut_short_can_be_a_discard(place: &Place) {
    let (site, sessions) = cut_short(place);
    let base = site.content("base");
    site.well(&["umount", "--discard", "work"]);
    same("the clone", &base, &site.content("work"));
    site.well(&["gc", "--wait"]);
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 0);
    site.well(&["fsck"]);
}

fn what_has_no_room_to_be_kept_is_discarded(place: &Place) {
    let source = roots::small(place, "source");
    let disk = place.path("rig");
    fs::create_dir(&disk).unwrap();
    let rig = Rig::builder().fs(FsKind::Ext4).size(24 << 20).at(disk).up().unwrap();
    let site = Site::new(place, rig.path(), None);
    site.import("base", &source);
    site.clone_of("base", "work");
    let at = place.path("point");
    fs::create_dir(&at).unwrap();
    site.well(&["mount", "work", text(&at)]);
    let full = "echo more >>point/data/hard; cat /dev/zero >point/fill; n=0; \
                while touch point/empty-$n; do n=$((n+1)); done";
    place.sh(&format!("({full}) 2>/dev/null; true"));
    site.refused(125, &["umount", "work"], &["no space left"]);
    site.well(&["umount", "--discard", "work"]);
    site.well(&["gc", "--wait"]);
    assert_eq!(site.sh("work", "ls /; head -c 8 /data/hard").lines().last(), Some("original"));
    rig.down().unwrap();
}

fn immutable_files_of_several_names_are_kept(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    let flagged = place.bare(&["chattr", "+i", text(&at.join("data/hard"))]);
    assert!(flagged.status.success(), "{flagged:?}");
    site.well(&["umount", "work"]);
    let links = site.sh("work", "stat -c %i /data/hard /data/far/hard; echo x >>/data/hard");
    let (one, other) = links.trim_end().split_once('\n').unwrap();
    assert_eq!(one, other);
    site.well(&["commit", "work"]);
}

fn of_two_mounts_the_one_that_is_seen_is_unmounted(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    site.sh("work", "touch /data/upper");
    let at = point(&site, "point");
    for round in 0..4 {
        // Sessions have no order: either may be found first.
        let names = if round % 2 == 0 { ["base", "work"] } else { ["work", "base"] };
        names.iter().for_each(|name| drop(site.well(&["mount", "--read-only", name, text(&at)])));
        let is_work = || at.join("data/upper").exists();
        assert_eq!(is_work(), names[1] == "work");
        site.well(&["umount", text(&at)]);
        assert_eq!(is_work(), names[0] == "work");
        site.well(&["umount", text(&at)]);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    }
}

fn a_name_means_the_mount_that_is_kept(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (write, read) = (point(&site, "write"), point(&site, "read"));
    for _ in 0..4 {
        site.well(&["mount", "work", text(&write)]);
        site.well(&["mount", "--read-only", "work", text(&read)]);
        site.well(&["umount", "work"]);
        assert!(!write.join("data").exists() && read.join("data").exists());
        site.well(&["umount", "work"]);
        assert!(!read.join("data").exists());
    }
}

fn a_mount_never_hides_the_store(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let store = fs::canonicalize(site.store()).unwrap();
    let inode = fs::metadata(&store).unwrap().ino();
    for at in ["/", text(store.parent().unwrap()), text(&store), text(&store.join("trees"))] {
        for options in [&["mount"][..], &["mount", "--read-only"]] {
            site.refused(
                125,
                &[options, &["work", at]].concat(),
                &["cannot mount on", "the store"],
            );
        }
    }
    assert_eq!(fs::metadata(&store).unwrap().ino(), inode);
    site.well(&["run", "work", "--", "/bin/true"]);
}
