//! Concurrent and unusual use: two commands on one tree, a run in a run, mounts of other programs,
//! and a system without /sys.

use crate::roots;
use crate::site::{Site, limit, on};
use crate::verbs::waiting;
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, mount, mount_bind, unmount};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Need, trial};
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{FsKind, Rig};

const NEEDS: [Need; 1] = [Need::File("/bin/busybox", "busybox-static")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_run_in_a_run_keeps_what_it_did, &NEEDS),
        trial(a_commit_beside_a_run_of_the_tree_replaces_nothing, &NEEDS),
        trial(a_commit_over_open_work_replaces_nothing, &NEEDS),
        trial(another_tree_of_the_name_is_not_replaced, &NEEDS),
        trial(without_sys_nothing_is_taken_for_lost, &NEEDS),
        trial(a_mount_of_another_program_stays, &NEEDS),
        trial(what_is_mounted_below_another_mount_is_not_frozen, &NEEDS),
        trial(an_unmount_that_fails_can_be_tried_again, &NEEDS),
        trial(an_argument_is_a_name_first_and_a_path_only_then, &NEEDS),
        trial(a_mount_that_is_killed_before_it_is_there_is_undone, &NEEDS),
        trial(a_mount_on_the_trash_is_not_emptied, &NEEDS),
        trial(an_overlay_over_a_subvolume_is_refused, &on(FsKind::Btrfs, &NEEDS)),
    ]
}

fn with_clone<'a>(place: &'a Place, name: &str) -> Site<'a> {
    let site = Site::plain(place);
    site.import("base", &roots::small(place, "source"));
    site.clone_of("base", name);
    site
}

/// Runs `tree WORDS` under `synconce run`.
fn in_a_run(site: &Site<'_>, words: &[&str]) -> Finished {
    let mut command = site.place.command(binary());
    command.args(["run", "--", binary(), "tree", "--store"]).arg(site.store()).args(words);
    process::run(&mut command, limit()).unwrap()
}

/// Makes a mount point.
pub fn point(site: &Site<'_>, name: &str) -> PathBuf {
    let point = site.dir.join(name);
    fs::create_dir(&point).unwrap();
    point
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn a_run_in_a_run_keeps_what_it_did(place: &Place) {
    let site = with_clone(place, "work");
    let kept = in_a_run(&site, &["run", "work", "--", "/bin/sh", "-c", "touch /kept; exit 7"]);
    assert_eq!(kept.status.code(), Some(7), "{kept:?}");
    site.well(&["commit", "work"]);
    site.sh("work", "test -e /kept");
    let made =
        in_a_run(&site, &["run", "--from", "base", "--commit", "new", "--", "touch", "/made"]);
    assert!(made.status.success(), "{made:?}");
    site.sh("new", "test -e /made");
}

fn a_commit_beside_a_run_of_the_tree_replaces_nothing(place: &Place) {
    let site = with_clone(place, "work");
    let run = waiting(&site, &["work"], "touch /late");
    let commit = ["run", "--from", "work", "--commit", "work", "--", "touch", "/early"];
    site.refused(125, &commit, &["work", "in use"]);
    place.write("talk/go", "");
    assert_eq!(run.end().code(), Some(0), "{}", run.text());
    site.well(&["commit", "work"]);
    site.sh("work", "test -e /late");
}

fn a_commit_over_open_work_replaces_nothing(place: &Place) {
    let site = with_clone(place, "work");
    let run = waiting(&site, &["--from", "work", "--commit", "work"], "touch /late");
    site.sh("work", "touch /open");
    place.write("talk/go", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
    site.sh("work", "test -e /open -a ! -e /late");
}

fn another_tree_of_the_name_is_not_replaced(place: &Place) {
    let site = with_clone(place, "work");
    let run = waiting(&site, &["--from", "work", "--commit", "work"], "touch /late");
    site.keep("base", "other", &["touch", "/other"]);
    site.well(&["remove", "work"]);
    site.clone_of("other", "work");
    place.write("talk/go", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
    site.sh("work", "test -e /other -a ! -e /late");
}

fn a_mount_that_is_killed_before_it_is_there_is_undone(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    // The copy of this file takes so long that the command can be killed meanwhile.
    fs::write(source.join("data/large"), vec![b'x'; 400 << 20]).unwrap();
    site.import("base", &source);
    site.well(&["clone", "--strategy", "copy", "base", "work"]);
    let at = point(&site, "point");
    let mounting = StartedCommand::new(&mut site.tree(&["mount", "work", text(&at)]));
    let sessions = site.store().join("sessions");
    let is_copying = |session: fs::DirEntry| session.path().join("tree").exists();
    eventually("the copy has begun", || fs::read_dir(&sessions).unwrap().flatten().any(is_copying));
    mounting.signal(Signal::KILL).unwrap();
    assert_eq!(mounting.end().code(), None, "{}", mounting.text());
    let notice = site.well(&["list"]);
    assert!(notice.stderr.contains("work"), "{notice:?}");
    site.well(&["run", "work", "--", "/bin/test", "-e", "/data/large"]);
    assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
}

fn without_sys_nothing_is_taken_for_lost(place: &Place) {
    let site = with_clone(place, "work");
    site.sh("work", "touch /open");
    unmount("/sys", UnmountFlags::DETACH).unwrap();
    let listed = site.well(&["list"]);
    assert!(!listed.stderr.contains("lost"), "{listed:?}");
    site.sh("work", "test -e /open");
}

fn a_mount_of_another_program_stays(place: &Place) {
    let site = with_clone(place, "work");
    let point = point(&site, "point");
    site.well(&["mount", "work", text(&point)]);
    fs::write(point.join("ours"), "").unwrap();
    unmount(&point, UnmountFlags::empty()).unwrap();
    mount("none", &point, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    fs::write(point.join("theirs"), "").unwrap();
    site.well(&["umount", "work"]);
    assert!(point.join("theirs").exists());
    unmount(&point, UnmountFlags::empty()).unwrap();
    site.sh("work", "test -e /ours");
}

fn what_is_mounted_below_another_mount_is_not_frozen(place: &Place) {
    let site = with_clone(place, "work");
    let point = point(&site, "point");
    site.well(&["mount", "work", text(&point)]);
    mount("none", &point, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    site.refused(125, &["umount", "work"], &["still mounted", text(&point)]);
    unmount(&point, UnmountFlags::empty()).unwrap();
    fs::write(point.join("late"), "").unwrap();
    site.well(&["umount", "work"]);
    site.well(&["commit", "work"]);
    site.well(&["verify", "work"]);
    site.sh("work", "test -e /late");
}

fn an_unmount_that_fails_can_be_tried_again(place: &Place) {
    let site = with_clone(place, "work");
    let point = point(&site, "point");
    site.well(&["mount", "work", text(&point)]);
    fs::write(point.join("precious"), "").unwrap();
    let layers = site.store().join("layers");
    let immutable = |sign: &str| {
        let mut command = place.command("chattr");
        command.arg(format!("{sign}i")).arg(&layers);
        assert!(process::run(&mut command, limit()).unwrap().status.success());
    };
    immutable("+");
    let failed = site.ends(&["umount", "work"]);
    immutable("-");
    assert_eq!(failed.status.code(), Some(125), "{failed:?}");
    site.well(&["umount", "work"]);
    site.sh("work", "test -e /precious");
}

fn an_argument_is_a_name_first_and_a_path_only_then(place: &Place) {
    let site = with_clone(place, "word");
    site.clone_of("base", "other");
    let (word, elsewhere) = (point(&site, "word"), point(&site, "elsewhere"));
    site.well(&["mount", "other", text(&word)]);
    site.well(&["mount", "word", text(&elsewhere)]);
    fs::write(word.join("others"), "").unwrap();
    let mut umount = site.tree(&["umount", "--discard", "word"]);
    let umounted = process::run(umount.current_dir(&site.dir), limit()).unwrap();
    assert!(umounted.status.success(), "{umounted:?}");
    site.well(&["umount", text(&word)]);
    site.sh("other", "test -e /others");
}

fn a_mount_on_the_trash_is_not_emptied(place: &Place) {
    let site = with_clone(place, "work");
    let theirs = point(&site, "theirs");
    fs::write(theirs.join("file"), "").unwrap();
    let trash = site.store().join("trash");
    mount_bind(&theirs, &trash).unwrap();
    site.refused(125, &["gc", "--wait"], &["trash"]);
    assert!(theirs.join("file").exists());
    unmount(&trash, UnmountFlags::empty()).unwrap();
    let entry = trash.join("entry");
    fs::create_dir(&entry).unwrap();
    mount_bind(&theirs, &entry).unwrap();
    let gc = format!("then `synconce tree --store {} gc`\n", site.store().display());
    site.refused(125, &["gc", "--wait"], &["stay in the trash", &gc]);
    assert!(theirs.join("file").exists());
    unmount(&entry, UnmountFlags::empty()).unwrap();
    site.well(&["gc", "--wait"]);
}

/// Files of two subvolumes can have the same inode number, and an overlay shows such files as files
/// of one file system.
fn an_overlay_over_a_subvolume_is_refused(place: &Place) {
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(FsKind::Btrfs).size(1 << 30));
    let source = roots::small(place, "source");
    site.import("base", &source);
    for verb in [["clone", "base", "by"], ["run", "--from", "base"]] {
        let words = [&verb[..], &["--strategy", "overlay"]].concat();
        let words = if verb[0] == "run" { [&words[..], &["--", "true"]].concat() } else { words };
        site.refused(125, &words, &["overlay", "subvolume"]);
    }
    site.well(&["import", "--strategy", "overlay", "plain", text(&source)]);
    site.keep("plain", "kept", &["touch", "/made"]);
    let numbers =
        site.sh("kept", "find / -xdev -type f -links 1 -exec stat -c %i {} + | sort | uniq -d");
    assert_eq!(numbers, "", "each file has a number of its own");
    rig.down().unwrap();
}
