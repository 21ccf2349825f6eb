//! Runs and imports on a disk without space.

use crate::roots;
use crate::site::{Site, same};
use crate::verbs::{NEEDS, names, set, with_base};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::io::Write;
use synconce_testkit::harness::{Place, trial, trials_on};
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_on(
        &FsKind::ALL,
        a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error,
        &NEEDS,
    );
    trials.extend([
        trial(what_fails_on_a_full_disk_says_what_helps, &NEEDS),
        trial(changes_that_cannot_be_kept_are_said_to_be_thrown_away, &NEEDS),
    ]);
    let kinds = [FsKind::Ext4, FsKind::Xfs];
    trials.extend(trials_on(&kinds, a_run_that_fills_the_disk_keeps_its_changes, &NEEDS));
    trials
}

fn what_fails_on_a_full_disk_says_what_helps(place: &Place) {
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    mount("none", &disk, "tmpfs", MountFlags::empty(), c"size=16m").unwrap();
    let site = Site::new(place, &disk, None);
    let source = roots::small(place, "source");
    fs::write(source.join("data/large"), vec![b'x'; 6 << 20]).unwrap();
    site.import("base", &source);
    // What an overlay can do is not known yet, as for a store of another machine.
    let _ = fs::remove_file(site.store().join("abilities.json"));
    let mut fill = fs::File::create(disk.join("fill")).unwrap();
    while fill.write_all(&[0; 4096]).is_ok() {}
    let run = ["run", "--from", "base", "/bin/true"];
    let gc = format!("hint: `synconce tree --store {} gc --wait`", site.store().display());
    site.refused(125, &run, &["no space left on device", &gc]);
    fill.set_len(1 << 20).unwrap();
    let to = disk.join("an export");
    let incomplete = format!("hint: '{0}' is incomplete: rm -r -- '{0}'\n", to.display());
    site.refused(125, &["export", "base", to.to_str().unwrap()], &["no space left", &incomplete]);
}

fn changes_that_cannot_be_kept_are_said_to_be_thrown_away(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    // In the place of the note of the changes.
    fs::create_dir(site.store().join("open/.clone.json")).unwrap();
    let thrown = "is a directory\nsynconce: the command's changes in the tree are thrown away\n";
    site.refused(125, &["run", "clone", "touch", "/data/new"], &["cannot write", thrown]);
}

fn a_run_that_fills_the_disk_keeps_its_changes(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    for number in 0..400 {
        fs::create_dir(source.join(format!("data/{number}"))).unwrap();
    }
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(kind).size(420 << 20));
    site.import("base", &source);
    site.clone_of("base", "clone");
    let fill = "cd /data; for n in $(seq 0 399); do echo x >$n/new; done
        for size in 1048576 512; do dd if=/dev/zero of=zero$size bs=$size; done; exit 5";
    let filled = site.run("clone", &["/bin/sh", "-c", fill]);
    assert_eq!(filled.status.code(), Some(5), "{filled:?}");
    let mounted = site.ends(&["diff", "clone"]);
    assert!(mounted.stdout.contains("A data/399/new\n"), "{mounted:?}");
    site.remove("clone");
    drop(site);
    rig.down().unwrap();
}

fn a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    let large = place.path("large");
    fs::create_dir(&large).unwrap();
    for number in 0..40 {
        fs::write(large.join(format!("{number}")), vec![number; 16 << 20]).unwrap();
    }
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(kind).size(420 << 20));
    site.import("base", &source);
    let (wanted, before) = (site.content("base"), site.layers());
    let full = ["no space left"];
    site.refused(125, &["import", "large", large.to_str().unwrap()], &full);
    assert_eq!(names(&site), set(&["base"]));
    site.assert_unchanged("an import that failed", "base", &before);
    site.well(&["gc", "--wait"]);

    site.clone_of("base", "clone");
    let fill = "dd if=/dev/zero of=/data/large bs=1048576; echo \"ended $?\"; exit 5";
    let filled = site.run("clone", &["/bin/sh", "-c", fill]);
    // The command gets the error. On btrfs keeping its changes may fail, with a message.
    assert!(filled.stdout.contains("ended 1"), "{filled:?}");
    assert!(matches!(filled.status.code(), Some(5 | 125)), "{filled:?}");
    site.assert_unchanged("a run that filled the disk", "base", &before);
    // A full disk has room for what a removal writes.
    site.well(&["remove", "--force", "clone", "--wait"]);
    site.well(&["gc", "--wait"]);
    same("the base", &wanted, &site.content("base"));
    site.clone_of("base", "clone");
    assert_eq!(site.sh("clone", "echo x >/data/x; cat /data/x"), "x\n");
    site.well(&["fsck"]);
    drop(site);
    rig.down().unwrap();
}
