//! Steps that can write to data that outlive them, and steps whose root no unmount syncs.

use super::shim::{Shim, lose_data};
use super::step::{StepOnDisk, WITHOUT_MOUNTS, assert_well};
use super::{FEW, runtimes};
use libtest_mimic::Trial;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Place, binary, finish, trial, without_foreign_syncs};
use synconce_testkit::rig::{Fault, Rig};

pub fn trials() -> Vec<Trial> {
    let needs = &runtimes::RUNC;
    vec![
        trial(the_syncs_of_a_cache_are_real_and_its_root_is_volatile, needs),
        trial(a_run_in_a_step_with_a_cache_commits_the_cache, needs),
        trial(a_step_whose_mounts_cannot_be_read_is_not_held, needs),
        trial(a_root_that_no_unmount_syncs_is_synced_at_the_end, needs),
        trial(a_root_that_cannot_be_synced_fails_the_step, needs),
        trial(an_error_that_another_sync_took_fails_the_step, needs),
        trial(a_root_that_no_unmount_syncs_is_synced_before_a_delete, needs),
        trial(a_root_whose_bundle_cannot_be_read_is_synced_before_a_delete, needs),
        trial(a_root_that_no_delete_can_sync_cannot_be_mounted, needs),
        trial(a_forced_delete_syncs_what_it_ended, needs),
        trial(an_upper_directory_that_is_mounted_over_is_synced, needs),
        trial(an_overlay_that_another_namespace_keeps_is_synced_at_the_end, needs),
    ]
}

const SYNCS: u64 = 100;

/// Returns a step that executes `words` with a cache of `source`.
fn with_cache(step: &StepOnDisk<'_>, source: &Path, mode: &str, words: &[&str]) -> Command {
    let command = step.command(&[]);
    let mut config = StepOnDisk::config(&[]);
    config["process"]["args"] = json!(words);
    let mount = json!({"destination": "/cache", "type": "bind", "source": source,
        "options": ["rbind", mode]});
    config["mounts"].as_array_mut().unwrap().push(mount);
    fs::write(step.bundle.join("config.json"), config.to_string()).unwrap();
    command
}

/// Runs a step that syncs `file` with a cache of `source`. Returns how often the disk was flushed.
fn flushes(step: &StepOnDisk<'_>, rig: &Rig, source: &Path, mode: &str, file: &str) -> u64 {
    let words = ["/step", "syncs", file, &SYNCS.to_string()];
    let mut command = with_cache(step, source, mode, &words);
    let count = || rig.disk().stats().unwrap().flushes;
    let before = count();
    assert_well(&finish(&mut command));
    count() - before
}

fn the_syncs_of_a_cache_are_real_and_its_root_is_volatile(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let cache = rig.path().join("buildkit/cache");
    fs::create_dir_all(cache.join("part")).unwrap();
    // BuildKit binds a part of a cache to a directory for temporary files.
    let part = place.path("buildkit-mount1");
    fs::create_dir(&part).unwrap();
    mount_bind(cache.join("part"), &part).unwrap();
    for how in ["as-mounted", "volatile"] {
        step.choose(how);
        for source in [&cache, &part] {
            let made = flushes(&step, &rig, source, "rw", "/cache/database");
            assert!(made >= SYNCS, "{how}: {made} flushes for {}", source.display());
        }
        let made = flushes(&step, &rig, &cache, "rw", "/of-root");
        assert_eq!(made < FEW, how == "volatile", "{how}: {made} flushes");
        assert_eq!(step.notes().contains("is volatile"), how == "volatile", "{}", step.notes());
        step.assert_back();
        let made = flushes(&step, &rig, &cache, "ro", "/of-root");
        assert!(made < FEW, "{how}: {made} flushes of a step that only reads its cache");
    }
    let status = place.status(&[]).stdout;
    // Two steps only read their caches.
    let counted = "buildkit: 2 build steps held since the boot, 4 with a volatile root, the last ";
    assert!(status.starts_with(counted), "{status}");
    let log = fs::read_to_string(place.path("executor/runc-log.json")).unwrap();
    let line = format!("can write to {}, which outlives the step", cache.display());
    assert!(log.contains(&line), "{log}");
    step.unmount();
    unmount(&part, UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

/// A step with a cache is not held, so the run commits, although its volatile root needs no commit.
fn a_run_in_a_step_with_a_cache_commits_the_cache(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let cache = rig.path().join("buildkit/cache");
    fs::create_dir_all(&cache).unwrap();
    let program = step.root().join("synconce");
    fs::copy(binary(), &program).unwrap();
    sync(&rig);
    let count = || rig.disk().stats().unwrap().flushes;
    for how in ["as-mounted", "volatile"] {
        step.choose(how);
        let words = ["/synconce", "run", "--", "/step", "syncs", "/cache/database", "100"];
        let before = count();
        assert_well(&finish(&mut with_cache(&step, &cache, "rw", &words)));
        let made = count() - before;
        assert!((1..SYNCS / 2).contains(&made), "{how}: {made} flushes");
    }
    step.unmount();
    rig.down().unwrap();
}

/// Without the mount table, a cache on a disk looks like one in memory.
fn a_step_whose_mounts_cannot_be_read_is_not_held(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let count = || rig.disk().stats().unwrap().flushes;
    let before = count();
    let call = step.command(&["syncs", "/grown", &SYNCS.to_string()]);
    let ended = finish(&mut step.traced(&WITHOUT_MOUNTS, call));
    assert!(ended.status.success(), "{ended:?}");
    let made = count() - before;
    assert!(made >= SYNCS, "{made} flushes");
    let log = fs::read_to_string(place.path("executor/runc-log.json")).unwrap();
    let line = "cannot read /proc/self/mountinfo: Too many open files; this container is not held";
    assert!(log.contains(line), "{log}");
    step.unmount();
    rig.down().unwrap();
}

/// Runs a step that syncs a file of its root, whose calls are held. Asserts that its end syncs.
fn assert_synced_at_the_end(rig: &Rig, step: &StepOnDisk<'_>) {
    sync(rig);
    let count = || rig.disk().stats().unwrap().flushes;
    let before = count();
    assert_well(&finish(&mut step.command(&["syncs", "/grown", "100"])));
    let made = count() - before;
    assert!((1..FEW).contains(&made), "{made} flushes");
}

fn sync(rig: &Rig) {
    rustix::fs::syncfs(fs::File::open(rig.path()).unwrap()).unwrap();
}

/// Binds a plain directory of the disk as the root, as engines do without an overlay.
fn make_plain(step: &StepOnDisk<'_>) {
    step.unmount();
    let plain = step.layer.join("plain");
    fs::create_dir_all(&plain).unwrap();
    fs::copy(step.layer.join("lower/step"), plain.join("step")).unwrap();
    mount_bind(&plain, step.root()).unwrap();
}

fn a_root_that_no_unmount_syncs_is_synced_at_the_end(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    make_plain(&step);
    assert_synced_at_the_end(&rig, &step);
    // A step that fails has a result, too: BuildKit keeps it for a look.
    let ended = finish(&mut step.command(&["syncs", "/missing/grown", "1"]));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    unmount(step.root(), UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

fn a_root_that_cannot_be_synced_fails_the_step(place: &Place) {
    let _barrier = without_foreign_syncs();
    // A commit of ext4 after the fault would make the disk read-only before `end` is written.
    let rig = Rig::builder().passthrough(false).mount_options("commit=300").up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    make_plain(&step);
    let running = step.start(&["until", "/grown", "/end"]);
    rig.disk().fail(Fault::writes()).unwrap();
    step.end_unsynced(&running);
    rig.disk().recover().unwrap();
    unmount(step.root(), UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

fn an_error_that_another_sync_took_fails_the_step(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().passthrough(false).up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    make_plain(&step);
    let running = step.start(&["until", "/grown", "/end"]);
    lose_data(&rig);
    step.end_unsynced(&running);
    unmount(step.root(), UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

fn a_root_that_no_unmount_syncs_is_synced_before_a_delete(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    make_plain(&shim.step);
    sync(&rig);
    let count = || rig.disk().stats().unwrap().flushes;
    let before = count();
    shim.write();
    assert_eq!(count() - before, 0, "the calls of the step are held");
    assert_well(&finish(&mut shim.call(&["delete"])));
    let made = count() - before;
    assert!((1..FEW).contains(&made), "{made} flushes");
    unmount(shim.step.root(), UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

/// The bundle may be that of a held step.
fn a_root_whose_bundle_cannot_be_read_is_synced_before_a_delete(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    make_plain(&shim.step);
    sync(&rig);
    let count = || rig.disk().stats().unwrap().flushes;
    let before = count();
    shim.write();
    let config = format!("--trace-path={}", shim.step.bundle.join("config.json").display());
    let fail = [&*config, "--inject=openat:error=EMFILE"];
    assert_well(&finish(&mut shim.step.traced(&fail, shim.call(&["delete"]))));
    assert!(count() > before, "nothing is synced");
    unmount(shim.step.root(), UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

/// Returns a shim's step whose root stays as the engine mounted it.
fn as_mounted<'a>(place: &'a Place, rig: &Rig) -> Shim<'a> {
    let shim = Shim::new(place, rig);
    shim.step.choose("as-mounted");
    shim
}

/// An engine can ignore how a `delete` ended.
fn a_root_that_no_delete_can_sync_cannot_be_mounted(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = as_mounted(place, &rig);
    shim.write();
    let call = shim.call(&["delete"]);
    let ended = finish(&mut shim.step.with_signal("syncfs:error=EIO", call));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("cannot sync the file system of "), "{ended:?}");
    shim.step.unmount();
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

/// Processes of the step write until `delete --force` ends them.
fn a_forced_delete_syncs_what_it_ended(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = as_mounted(place, &rig);
    shim.begin();
    assert!(shim.exists());
    // By the upper directory and by the root, and once more after the runtime's call.
    let second = |how: &str| {
        let call = shim.call(&["delete", "--force"]);
        finish(&mut shim.step.with_signal(&format!("syncfs:{how}:when=3"), call))
    };
    let killed = second("signal=KILL");
    assert!(!killed.status.success() && !shim.exists(), "{killed:?}");
    shim.begin();
    let ended = second("error=EIO");
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("cannot sync the file system of "), "{ended:?}");
    assert!(!shim.exists());
    shim.step.unmount();
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

fn an_upper_directory_that_is_mounted_over_is_synced(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    step.choose("as-mounted");
    let upper = step.layer.join("upper");
    mount("test", &upper, "tmpfs", MountFlags::empty(), None).unwrap();
    assert_synced_at_the_end(&rig, &step);
    unmount(&upper, UnmountFlags::empty()).unwrap();
    step.unmount();
    rig.down().unwrap();
}

/// The engine's unmount syncs no overlay that another mount namespace has a copy of.
fn an_overlay_that_another_namespace_keeps_is_synced_at_the_end(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().mount_options("commit=300").up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    // A volatile root is no copy: the engine's unmount is that of the overlay mounted after the
    // step.
    step.choose("as-mounted");
    let other = step.copied_to_another_namespace();
    assert_synced_at_the_end(&rig, &step);
    let count = || rig.disk().stats().unwrap().flushes;
    fs::write(step.root().join("stub"), "").unwrap();
    let before = count();
    step.unmount();
    assert_eq!(count() - before, 0, "the unmount syncs");
    drop(other);
    rig.down().unwrap();
}
