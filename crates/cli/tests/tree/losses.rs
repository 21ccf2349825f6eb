//! Writes that the disk loses before a commit: the kernel reports them once, to one commit.

use crate::roots;
use crate::site::{Site, limit};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use std::fs;
use synconce_testkit::harness::{Place, binary, trial};
use synconce_testkit::process;
use synconce_testkit::rig::{Fault, FsKind, Rig, RigBuilder};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_loss_that_a_commit_meets_is_not_forgotten_on_ext4, &NEEDS),
        trial(a_loss_that_a_commit_meets_is_not_forgotten_on_xfs, &NEEDS),
        trial(a_loss_that_another_store_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_that_a_run_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_that_an_export_meets_is_not_forgotten, &NEEDS),
        trial(changes_that_an_unmount_wrote_out_are_not_believed, &NEEDS),
    ]
}

fn a_loss_that_a_commit_meets_is_not_forgotten_on_ext4(place: &Place) {
    no_commit_forgets(place, Rig::builder().size(64 << 20));
}

fn a_loss_that_a_commit_meets_is_not_forgotten_on_xfs(place: &Place) {
    no_commit_forgets(place, Rig::builder().fs(FsKind::Xfs).size(512 << 20));
}

/// Changes three trees of one store before the disk loses writes, one by a mount that stays.
fn no_commit_forgets(place: &Place, rig: RigBuilder) {
    let source = roots::small(place, "source");
    let rig = rig.passthrough(false).up().unwrap();
    let site = Site::new(place, rig.path(), None);
    site.import("base", &source);
    let trees = ["met", "other", "mounted"];
    for tree in trees {
        site.clone_of("base", tree);
    }
    // The disk fails before the write. Whatever syncs it then, only a commit takes note of the error.
    lose(&rig);
    site.sh("met", &write("/data"));
    site.sh("other", &write("/data"));
    let point = place.path("point");
    fs::create_dir(&point).unwrap();
    site.well(&["mount", "mounted", point.to_str().unwrap()]);
    site.refused(125, &["commit", "met"], &["cannot commit", "input/output error"]);
    rig.disk().recover().unwrap();

    fs::write(point.join("data/new"), "new").unwrap();
    site.well(&["umount", point.to_str().unwrap()]);
    for tree in trees {
        is_refused(&site, tree, "a sync of the disk failed");
        site.well(&["discard", tree]);
        site.sh(tree, "echo again >/data/lost");
        site.well(&["commit", tree]);
    }
    assert_eq!(site.sh("met", "cat /data/lost"), "again\n");
    site.well(&["fsck"]);
    drop(site);
    rig.down().unwrap();
}

fn a_loss_that_another_store_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |rig| {
        let other = Site::new(place, &rig.path().join("elsewhere"), None);
        other.import("tree", &place.path("source"));
        other.clone_of("tree", "clone");
        lose(rig);
        other.sh("clone", &write("/data"));
        other.refused(125, &["commit", "clone"], &["cannot commit", "input/output error"]);
    });
}

fn a_loss_that_a_run_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |rig| {
        lose(rig);
        let directory = rig.path().join("elsewhere");
        let script = format!("{} && sync", write(directory.to_str().unwrap()));
        let mut run = place.command(binary());
        let run = process::run(run.args(["run", "--", "sh", "-c", &script]), limit()).unwrap();
        assert!(run.stderr.contains("Input/output error"), "{run:?}");
    });
}

fn a_loss_that_an_export_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |rig| {
        let other = Site::plain(place);
        other.import("tree", &place.path("source"));
        other.clone_of("tree", "clone");
        other.sh("clone", &write("/data"));
        lose(rig);
        let target = rig.path().join("elsewhere/root");
        let export = ["export", "clone", target.to_str().unwrap()];
        other.refused(125, &export, &["input/output error"]);
    });
}

/// Changes a tree of a store, lets `meets` meet a lost write with another command, and commits.
fn a_loss_elsewhere_is_not_forgotten(place: &Place, meets: impl Fn(&Rig)) {
    let source = roots::small(place, "source");
    let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
    fs::create_dir(rig.path().join("elsewhere")).unwrap();
    let site = Site::new(place, rig.path(), None);
    site.import("base", &source);
    site.clone_of("base", "tree");
    site.sh("tree", "echo change >/data/new");
    meets(&rig);
    rig.disk().recover().unwrap();
    is_refused(&site, "tree", "a sync of the disk failed");
    site.well(&["discard", "tree"]);
    site.sh("tree", "echo again >/data/new");
    site.well(&["commit", "tree"]);
    drop(site);
    rig.down().unwrap();
}

/// As after an error that made the file system read-only, and its repair.
fn changes_that_an_unmount_wrote_out_are_not_believed(place: &Place) {
    let source = roots::small(place, "source");
    for kind in FsKind::ALL {
        let point = place.path(kind.name());
        fs::create_dir(&point).unwrap();
        let rig = Rig::builder().fs(kind).size(512 << 20).at(point).up().unwrap();
        let site = Site::new(place, rig.path(), None);
        site.import("base", &source);
        for tree in ["kept", "continued"] {
            site.clone_of("base", tree);
            site.sh(tree, "echo change >/data/new");
        }
        rig.unmount().unwrap();
        rig.mount().unwrap();
        // What was done since then is on top of what may be lost.
        site.sh("continued", "echo more >>/data/new");
        for tree in ["kept", "continued"] {
            is_refused(&site, tree, "the disk was unmounted");
            let saved = place.path(&format!("{kind}-{tree}"));
            site.well(&["export", tree, saved.to_str().unwrap()]);
            assert!(fs::read_to_string(saved.join("data/new")).unwrap().starts_with("change"));
            site.well(&["discard", tree]);
            site.sh(tree, "echo again >/data/new");
            site.well(&["commit", tree]);
        }
        drop(site);
        rig.down().unwrap();
    }
}

/// Lets the disk lose what [`write`] writes.
fn lose(rig: &Rig) {
    rig.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
}

/// Returns a script that writes a file in `directory`.
fn write(directory: &str) -> String {
    format!("yes 'these bytes are lost' | head -c 65536 >{directory}/lost")
}

/// Expects that the commit of `tree` is refused each time, because of `why`.
fn is_refused(site: &Site<'_>, tree: &str, why: &str) {
    let hint = format!("discard {tree}` throws the changes away");
    for _ in 0..2 {
        site.refused(125, &["commit", tree], &[why, &hint]);
    }
}
