//! Writes that the disk loses before a commit: the kernel reports them once, to one commit.

use crate::roots;
use crate::site::{Site, disk, limit, on, on_all};
use crate::users;
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, exists, finish, stall, trial, without_foreign_syncs,
};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{Fault, FsKind, Rig, RigBuilder};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_loss_that_a_commit_meets_is_not_forgotten_on_ext4, &NEEDS),
        trial(a_loss_that_a_commit_meets_is_not_forgotten_on_xfs, &on(FsKind::Xfs, &NEEDS)),
        trial(a_loss_that_another_store_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_that_a_run_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_that_an_export_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_that_a_checkpoint_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_that_a_stop_of_a_hold_meets_is_not_forgotten, &NEEDS),
        trial(a_loss_is_counted_before_the_slowest_disk_has_answered, &NEEDS),
        trial(a_sync_that_hangs_is_counted, &NEEDS),
        trial(a_loss_that_another_store_of_a_user_meets_is_not_forgotten, &users::NEEDS),
        trial(a_loss_is_not_forgotten_if_an_older_version_began_the_changes, &NEEDS),
        trial(changes_that_an_unmount_wrote_out_are_not_believed, &on_all(&NEEDS)),
        trial(changes_that_cannot_be_read_for_a_moment_are_not_lost, &NEEDS),
    ]
}

fn a_loss_that_a_commit_meets_is_not_forgotten_on_ext4(place: &Place) {
    // No timer commits the journal meanwhile.
    no_commit_forgets(place, Rig::builder().size(64 << 20).mount_options("commit=300"));
}

fn a_loss_that_a_commit_meets_is_not_forgotten_on_xfs(place: &Place) {
    no_commit_forgets(place, Rig::builder().fs(FsKind::Xfs).size(512 << 20));
}

/// Changes three trees of one store before the disk loses writes, one by a mount that stays.
fn no_commit_forgets(place: &Place, rig: RigBuilder) {
    // A sync(2) between the first write and the last run would stop the file system.
    let _barrier = without_foreign_syncs();
    let source = roots::small(place, "source");
    let (rig, site) = Site::on_disk(place, rig.passthrough(false));
    site.import("base", &source);
    let trees = ["met", "other", "mounted"];
    for tree in trees {
        site.clone_of("base", tree);
    }
    // The disk fails before the write. Whatever syncs it then, only a commit takes note of the
    // error.
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
    // A sync(2) between the write and the end of the run would get the error first.
    let _barrier = without_foreign_syncs();
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
        let other = Site::new(place, &rig.path().join("elsewhere"), None);
        other.import("tree", &place.path("source"));
        other.clone_of("tree", "clone");
        lose(rig);
        other.sh("clone", &write("/data"));
        other.refused(125, &["commit", "clone"], &["cannot commit", "input/output error"]);
    });
}

fn a_loss_that_a_run_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
        lose(rig);
        let script = format!("{} && sync", write_elsewhere(rig));
        let mut run = place.command(binary());
        let run = process::run(run.args(["run", "--", "sh", "-c", &script]), limit()).unwrap();
        assert!(run.stderr.contains("Input/output error"), "{run:?}");
    });
}

fn a_loss_that_an_export_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
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

fn a_loss_that_a_checkpoint_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
        lose(rig);
        let script = format!("{} && {{ sync; {} commit; }}", write_elsewhere(rig), binary());
        let run = wait_in_run(place, &[], &script);
        assert_eq!(counted(&place.path("runtime")), 1, "{}", run.text());
        place.write("go", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
    });
}

fn a_loss_that_a_stop_of_a_hold_meets_is_not_forgotten(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
        let held = rig.path().join("elsewhere");
        place.write("t.toml", &format!("[[hold]]\npath = {held:?}\nkind = \"other\"\n"));
        let hold = |words: &[&str]| finish(&mut place.synconce(&[&["hold"], words].concat()));
        assert!(hold(&["start", "./t.toml"]).status.success());
        lose(rig);
        let written = place.bare(&["sh", "-c", &write_elsewhere(rig)]);
        assert!(written.status.success(), "{written:?}");
        let stopped = hold(&["stop", "./t.toml"]);
        assert!(stopped.stderr.contains("the disk lost writes"), "{stopped:?}");
        rig.disk().recover().unwrap();
        let kept = hold(&["recover", "--keep", "./t.toml"]);
        assert!(kept.status.success(), "{kept:?}");
    });
}

fn a_loss_is_counted_before_the_slowest_disk_has_answered(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
        let slow = Rig::builder().size(64 << 20).up().unwrap();
        lose(rig);
        let late = slow.path().join("late").display().to_string();
        let script =
            format!("{} && echo late >{late} && sync {late} && sync", write_elsewhere(rig));
        let run = wait_in_run(place, &[], &script);
        let stalled = stall(&slow);
        place.write("go", "");
        slow.disk().wait_for_waiting_flush(limit()).unwrap();
        eventually("the loss is counted", || counted(&place.path("runtime")) > 0);
        assert!(run.wait(Duration::ZERO).unwrap().is_none(), "{}", run.text());
        slow.disk().release_flushes().unwrap();
        drop(stalled);
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        slow.down().unwrap();
    });
}

/// The kernel reports the error to the sync that was given up.
fn a_sync_that_hangs_is_counted(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |_, rig| {
        // Only the file on the rig is synced: the limit is too short for the disks of the host.
        let written = rig.path().join("elsewhere/lost").display().to_string();
        let script = format!("{} && sync {written}", write_elsewhere(rig));
        let run = wait_in_run(place, &["--commit-timeout", "1"], &script);
        let supervisor = place.supervisor();
        let stalled = stall(rig);
        place.write("go", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        assert!(run.text().contains("no answer for "), "{}", run.text());
        assert_eq!(counted(&place.path("runtime")), 1);
        rig.disk().release_flushes().unwrap();
        drop(stalled);
        eventually("the supervisor ends", || !exists(supervisor));
    });
}

/// The user is root in the namespace of the trees, and does not write to `/run`.
fn a_loss_that_another_store_of_a_user_meets_is_not_forgotten(place: &Place) {
    users::subordinate(place, "nobody:100000:65536\n");
    let tar = users::tar(place);
    let rig = disk(place, Rig::builder().size(64 << 20).passthrough(false));
    chown(rig.path(), Some(users::NOBODY), Some(users::NOBODY)).unwrap();
    let tree = |store: &str, words: &[&str]| -> Finished {
        let store = rig.path().join(store);
        let words = [&["--store", store.to_str().unwrap()], words].concat();
        process::run(&mut users::by_nobody(place, &[], &words), limit()).unwrap()
    };
    let well = |store: &str, words: &[&str]| {
        let finished = tree(store, words);
        assert!(finished.status.success(), "{words:?}: {finished:?}");
    };
    for store in ["one", "other"] {
        well(store, &["init"]);
        well(store, &["import", "base", tar.to_str().unwrap()]);
        well(store, &["clone", "base", "tree"]);
    }
    well("one", &["run", "tree", "--", "/bin/sh", "-c", "echo change >/data/new"]);
    lose(&rig);
    well("other", &["run", "tree", "--", "/bin/sh", "-c", &write("/data")]);
    let met = tree("other", &["commit", "tree"]);
    assert!(met.stderr.contains("Input/output error"), "{met:?}");
    rig.disk().recover().unwrap();
    assert_eq!(counted(&place.path("home/.local/state/synconce")), 1);
    for _ in 0..2 {
        let refused = tree("one", &["commit", "tree"]);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(refused.stderr.contains("a sync of the disk failed"), "{refused:?}");
    }
    rig.down().unwrap();
}

fn a_loss_is_not_forgotten_if_an_older_version_began_the_changes(place: &Place) {
    a_loss_elsewhere_is_not_forgotten(place, |site, rig| {
        make_older(site, "tree");
        site.sh("tree", "echo more >>/data/new");
        lose(rig);
        let run = place.run(&[], &["sh", "-c", &format!("{} && sync", write_elsewhere(rig))]);
        assert!(run.stderr.contains("Input/output error"), "{run:?}");
    });
}

/// Leaves of the note of the changes of `tree` what the first versions noted.
fn make_older(site: &Site<'_>, tree: &str) {
    let path = site.store().join("open").join(format!("{tree}.json"));
    let mut note: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let epoch = note["boot_epoch"].as_object_mut().unwrap();
    for field in ["kernel", "losses", "mount"] {
        epoch.remove(field).unwrap_or_else(|| panic!("{field} is noted"));
    }
    fs::write(path, note.to_string()).unwrap();
}

/// Starts a run that does `script`, and then waits for the file `go`.
fn wait_in_run(place: &Place, options: &[&str], script: &str) -> StartedCommand {
    let script = format!("{script}; echo yes >met; until [ -e go ]; do sleep 0.02; done");
    let run = StartedCommand::new(&mut place.held(options, &["sh", "-c", &script]));
    place.wait_for("met");
    run
}

/// Returns how many failed syncs are counted below `directory`.
fn counted(directory: &Path) -> u64 {
    let counts = fs::read_dir(directory.join("failures")).into_iter().flatten();
    counts.map(|count| count.unwrap().metadata().unwrap().len()).sum()
}

/// Changes a tree of a store. `meets` then runs another command, which gets the error of a lost
/// write. Expects that the changes cannot be committed, and that a later change can.
fn a_loss_elsewhere_is_not_forgotten(place: &Place, meets: impl Fn(&Site<'_>, &Rig)) {
    let source = roots::small(place, "source");
    let (rig, site) = Site::on_disk(place, Rig::builder().size(64 << 20).passthrough(false));
    fs::create_dir(rig.path().join("elsewhere")).unwrap();
    site.import("base", &source);
    site.clone_of("base", "tree");
    site.sh("tree", "echo change >/data/new");
    meets(&site, &rig);
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
        for tree in ["kept", "continued", "older"] {
            site.clone_of("base", tree);
            site.sh(tree, "echo change >/data/new");
        }
        make_older(&site, "older");
        site.sh("older", "echo more >>/data/new");
        rig.unmount().unwrap();
        rig.mount().unwrap();
        // What was done since then is on top of what may be lost.
        site.sh("continued", "echo more >>/data/new");
        for tree in ["kept", "continued", "older"] {
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

/// Returns a script that writes such a file on `rig`, beside the store.
fn write_elsewhere(rig: &Rig) -> String {
    write(rig.path().join("elsewhere").to_str().unwrap())
}

/// Expects that the commit of `tree` is refused each time, because of `why`.
fn is_refused(site: &Site<'_>, tree: &str, why: &str) {
    let hint = format!("discard {tree}` throws the changes away");
    for _ in 0..2 {
        site.refused(125, &["commit", tree], &[why, &hint]);
    }
}

fn changes_that_cannot_be_read_for_a_moment_are_not_lost(place: &Place) {
    let source = roots::small(place, "source");
    let (rig, site) = Site::on_disk(place, Rig::builder().size(64 << 20).passthrough(false));
    site.import("base", &source);
    site.clone_of("base", "work");
    site.sh("work", "echo new >/data/new");
    rig.unmount().unwrap();
    rig.mount().unwrap();
    // All that `list` reads is in memory, but for the directories of the layers.
    for directory in ["", "trees", "open", "sessions", "layers", "trash"] {
        for entry in fs::read_dir(site.store().join(directory)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::read(entry.path()).unwrap();
            }
        }
    }
    rig.disk().fail(Fault::reads()).unwrap();
    site.refused(125, &["list"], &["cannot look at", "input/output error"]);
    rig.disk().recover().unwrap();
    assert_eq!(site.sh("work", "cat /data/new"), "new\n");
    drop(site);
    rig.down().unwrap();
}
