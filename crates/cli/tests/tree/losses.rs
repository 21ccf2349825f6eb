//! Writes that the disk loses before a commit: the kernel reports them once, to one commit.

use crate::roots;
use crate::site::Site;
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use std::fs;
use synconce_testkit::harness::{Place, trial};
use synconce_testkit::rig::{Fault, FsKind, Rig, RigBuilder};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_loss_that_a_commit_meets_is_not_forgotten_on_ext4, &NEEDS),
        trial(a_loss_that_a_commit_meets_is_not_forgotten_on_xfs, &NEEDS),
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
    rig.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
    let write = "yes 'these bytes are lost' | head -c 65536 >/data/lost";
    site.sh("met", write);
    site.sh("other", write);
    let point = place.path("point");
    fs::create_dir(&point).unwrap();
    site.well(&["mount", "mounted", point.to_str().unwrap()]);
    site.refused(125, &["commit", "met"], &["cannot commit", "input/output error"]);
    rig.disk().recover().unwrap();

    fs::write(point.join("data/new"), "new").unwrap();
    site.well(&["umount", point.to_str().unwrap()]);
    for tree in trees {
        let hint = format!("discard {tree}` throws the changes away");
        site.refused(125, &["commit", tree], &["the disk lost writes", &hint]);
        site.refused(125, &["commit", tree], &["the disk lost writes"]);
        site.well(&["discard", tree]);
        site.sh(tree, "echo again >/data/lost");
        site.well(&["commit", tree]);
    }
    assert_eq!(site.sh("met", "cat /data/lost"), "again\n");
    site.well(&["fsck"]);
    drop(site);
    rig.down().unwrap();
}
