//! Steps of BuildKit whose root is an overlay, with `step-root = "volatile"`: a real runc, and
//! the test in place of the engine, which mounts and unmounts the root.

mod as_mounted;
mod outliving;
mod shim;
mod step;

use crate::runtimes;
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::Signal;
use serde_json::json;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use std::{fs, io};
use step::{FILES, StepOnDisk, assert_well, is_volatile, mounted};
use synconce_testkit::harness::{
    Place, StartedCommand, children, eventually, exists, finish, kill, trial, without_foreign_syncs,
};
use synconce_testkit::manifest::Manifest;
use synconce_testkit::rig::{Fault, Rig};

/// More flushes than a step makes whose copy-ups do not sync.
const FEW: u64 = 40;

pub fn trials() -> Vec<Trial> {
    let needs = &runtimes::RUNC;
    let many = trial(two_hundred_kills_leave_a_layer_that_can_be_built_again, needs);
    let mut trials = vec![
        // Named in CONTRIBUTING.md.
        many.with_ignored_flag(true),
        trial(a_copy_up_syncs_nothing_and_the_layer_is_the_same, needs),
        trial(the_root_is_volatile_while_the_step_runs_and_is_mounted_back, needs),
        trial(a_root_that_is_bound_is_volatile_at_both_places, needs),
        trial(a_file_that_stays_open_fails_nothing, needs),
        trial(a_copy_in_another_namespace_can_still_be_written, needs),
        trial(a_mount_over_the_root_is_left, needs),
        trial(an_exit_code_and_a_signal_are_passed_on, needs),
        trial(a_write_back_error_fails_the_step, needs),
        trial(a_journal_that_its_own_timer_aborted_fails_the_step, needs),
        trial(a_killed_step_leaves_a_root_that_can_be_mounted_again, needs),
        trial(a_kill_at_any_call_leaves_a_layer_that_can_be_mounted_again, needs),
        trial(kills_at_any_moment_leave_a_layer_that_can_be_built_again, needs),
        trial(an_ordinary_container_and_a_step_without_an_overlay_are_not_touched, needs),
    ];
    trials.extend(as_mounted::trials());
    trials.extend(outliving::trials());
    trials.extend(shim::trials());
    trials
}

/// Sends a signal to synconce alone.
fn a_copy_up_syncs_nothing_and_the_layer_is_the_same(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let count = |step: &StepOnDisk<'_>| {
        let flushes = || rig.disk().stats().unwrap().flushes;
        let before = flushes();
        step.chown();
        // The engine removes stubs of mounts from the root, and then records the layer.
        fs::remove_file(step.root().join("data/0")).unwrap();
        step.unmount();
        let made = flushes() - before;
        step.mount();
        step.assert_back();
        let found = Manifest::read(step.root()).unwrap();
        step.unmount();
        (made, found)
    };
    let plain = StepOnDisk::new(place, &rig.path().join("plain"));
    plain.choose("as-mounted");
    let (as_mounted, expected) = count(&plain);
    let step = StepOnDisk::new(place, &rig.path().join("volatile"));
    let (volatile, found) = count(&step);
    println!("{FILES} files: {as_mounted} flushes as mounted, {volatile} volatile");
    assert!(as_mounted >= FILES as u64 && volatile < FEW, "{as_mounted} and {volatile}");
    assert!(step.notes().contains("is volatile"), "{}", step.notes());
    let status = place.status(&[]).stdout;
    let counted = "buildkit: 2 build steps held since the boot, 1 with a volatile root, the last ";
    assert!(status.starts_with(counted), "{status}");
    assert_eq!(found, expected);
    assert_eq!(found.entries["data/1"].uid, 1);
    rig.down().unwrap();
}

fn the_root_is_volatile_while_the_step_runs_and_is_mounted_back(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    step.configure(&["wait"]);
    let mut explain = place.synconce(&["oci", "--explain"]);
    let explained =
        finish(explain.arg(&step.bundle).env("SYNCONCE_OCI_FILE", place.path("oci.toml")));
    assert!(explained.stdout.contains("root      volatile while the step runs\n"), "{explained:?}");
    let running = step.start(&["until", "/grown", "/end"]);
    assert!(step.is_volatile() && !step.is_marked(), "{}", step.mounted());
    step.end_well(&running);
    step.assert_back();
    assert!(step.root().join("grown").exists() && step.root().join("data/1").exists());
    step.unmount();
    rig.down().unwrap();
}

/// The BuildKit of dockerd binds the overlay that dockerd has mounted.
fn a_root_that_is_bound_is_volatile_at_both_places(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    step.unmount();
    let merged = step.layer.join("merged");
    step.mount_at(&merged, "index=off");
    mount_bind(&merged, step.root()).unwrap();
    let running = step.start(&["until", "/grown", "/end"]);
    assert!(step.is_volatile() && is_volatile(&mounted(&merged)));
    fs::write(merged.join("end"), "").unwrap();
    assert!(running.end().success(), "{}", running.text());
    step.assert_back();
    assert!(merged.join("grown").exists() && step.root().join("grown").exists());
    let other = mounted(&merged);
    assert!(other.contains(" overlay ") && !other.contains("volatile"), "{other}");
    step.unmount();
    unmount(&merged, UnmountFlags::empty()).unwrap();
    rig.down().unwrap();
}

/// A process of the host that has a file of the root open keeps the volatile overlay.
fn a_file_that_stays_open_fails_nothing(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    fs::write(step.layer.join("lower/other"), "as below").unwrap();
    let running = step.start(&["until", "/grown", "/end"]);
    let mut open = fs::File::open(step.root().join("data/1")).unwrap();
    let root = fs::File::open(step.root()).unwrap();
    let other = step.copied_to_another_namespace();
    step.end_well(&running);
    step.assert_back();
    assert!(step.root().join("grown").exists());
    // What the engine changes after the step is as durable as without synconce.
    fs::write(step.root().join("stub"), "").unwrap();
    let flushes = || rig.disk().stats().unwrap().flushes;
    let before = flushes();
    step.unmount();
    assert!(flushes() > before, "the unmount syncs nothing");
    step.mount();
    step.chown();
    step.assert_back();
    assert_eq!(fs::metadata(step.root().join("data/1")).unwrap().uid(), 1);
    assert_eq!(io::read_to_string(&mut open).unwrap(), "file 1");
    // Its overlay still copies files up.
    fs::write(format!("/proc/self/fd/{}/other", root.as_raw_fd()), "changed").unwrap();
    drop((open, root, other));
    step.unmount();
    step.mount();
    step.chown();
    step.unmount();
    rig.down().unwrap();
}

/// Another mount namespace that has the volatile overlay makes no unmount here fail.
fn a_copy_in_another_namespace_can_still_be_written(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let running = step.start(&["until", "/grown", "/end"]);
    let other = step.copied_to_another_namespace();
    step.end_well(&running);
    step.assert_back();
    fs::write(other.sees(&step.root().join("data/1")), "changed").unwrap();
    // A second step is no reason to take it away, either.
    step.chown();
    fs::write(other.sees(&step.root().join("data/2")), "changed").unwrap();
    drop(other);
    step.unmount();
    rig.down().unwrap();
}

/// A file that is open makes the unmount lazy, which would take another mount in place of the root.
fn a_mount_over_the_root_is_left(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let running = step.start(&["until", "/grown", "/end"]);
    let root = fs::File::open(step.root()).unwrap();
    mount("over", step.root(), "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(format!("/proc/self/fd/{}/end", root.as_raw_fd()), "").unwrap();
    let (status, text) = (running.end(), running.text());
    assert_eq!(status.code(), Some(125), "{text}");
    assert!(text.contains("another mount is over or below it"), "{text}");
    drop(root);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let over = format!(" {} ", step.root().display());
    let found: Vec<_> = table.lines().filter(|line| line.contains(&over)).collect();
    assert!(found.len() == 2 && found[1].contains(" - tmpfs over "), "{found:?}");
    step.unmount();
    step.unmount();
    rig.down().unwrap();
}

fn an_exit_code_and_a_signal_are_passed_on(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let wrong = finish(&mut step.command(&["nonsense"]));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    step.assert_back();
    let running = step.start(&["wait"]);
    assert!(step.is_volatile());
    kill(running.pid(), Signal::TERM);
    assert_eq!(running.end().code(), Some(9), "{}", running.text());
    step.assert_back();
    step.unmount();
    rig.down().unwrap();
}

fn a_write_back_error_fails_the_step(place: &Place) {
    let _barrier = without_foreign_syncs();
    // A commit of ext4 after the fault would make the disk read-only before `end` is written.
    let rig = Rig::builder().passthrough(false).mount_options("commit=300").up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let running = step.start(&["until", "/grown", "/end"]);
    rig.disk().fail(Fault::writes()).unwrap();
    step.end_unsynced(&running);
    rig.disk().recover().unwrap();
    assert_eq!(step.mounted(), "");
    rig.down().unwrap();
}

fn a_journal_that_its_own_timer_aborted_fails_the_step(place: &Place) {
    let rig = Rig::builder().passthrough(false).mount_options("commit=1").up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let running = step.start(&["wait"]);
    rig.abort_journal(|| fs::create_dir(step.root().join("made")).unwrap()).unwrap();
    kill(running.pid(), Signal::TERM);
    let (status, text) = (running.end(), running.text());
    assert_eq!(status.code(), Some(125), "{text}");
    assert!(text.contains("synconce-oci: cannot sync the file system of "), "{text}");
    rig.disk().recover().unwrap();
    assert_eq!(step.mounted(), "");
    rig.down().unwrap();
}

fn a_killed_step_leaves_a_root_that_can_be_mounted_again(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let running = step.start(&["until", "/grown", "/end"]);
    // An engine that ends kills synconce alone, and the kernel the runtime.
    let of_synconce = children(running.pid());
    assert_eq!(of_synconce.len(), 1, "{of_synconce:?}");
    kill(running.pid(), Signal::KILL);
    assert!(!running.end().success());
    eventually("the runtime ends", || !exists(of_synconce[0].0));
    let ended = finish(step.runtime.bare().args(["delete", "--force", &step.id]));
    assert!(ended.status.success(), "{ended:?}");
    assert!(!step.is_marked());
    eventually("the root is unmounted", || unmount(step.root(), UnmountFlags::empty()).is_ok());
    step.mount();
    step.chown();
    step.assert_back();
    step.unmount();
    rig.down().unwrap();
}

/// Kills synconce at each of its calls that change mounts or the work directory.
fn a_kill_at_any_call_leaves_a_layer_that_can_be_mounted_again(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let mut kills = 0;
    for call in ["umount2", "mount", "mkdir", "unlinkat", "/^(clone|fork|vfork)", "syncfs"] {
        for at in 1.. {
            // The signal is pending at the begin of the call, and kills at its end.
            let signal = format!("{call}:signal=KILL:when={at}");
            let run = finish(&mut step.with_signal(&signal, step.command(&["chown", "/data"])));
            step.clean_up();
            step.mount();
            if run.status.success() {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 6, "{kills}");
    step.chown();
    step.assert_back();
    assert_eq!(fs::metadata(step.root().join("data/1")).unwrap().uid(), 1);
    step.unmount();
    rig.down().unwrap();
}

/// Kills synconce and the runtime earlier or later.
fn kills_at_any_moment_leave_a_layer_that_can_be_built_again(place: &Place) {
    kill_often(place, 12);
}

fn two_hundred_kills_leave_a_layer_that_can_be_built_again(place: &Place) {
    kill_often(place, 200);
}

fn kill_often(place: &Place, kills: u64) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    for at in 0..kills {
        let running = StartedCommand::new(&mut step.command(&["chown", "/data"]));
        std::thread::sleep(Duration::from_micros(at * 120_000 / kills));
        running.signal(Signal::KILL).unwrap();
        running.end();
        step.clean_up();
        step.mount();
    }
    step.chown();
    step.assert_back();
    assert_eq!(fs::metadata(step.root().join("data/1")).unwrap().uid(), 1);
    step.unmount();
    rig.down().unwrap();
}

fn an_ordinary_container_and_a_step_without_an_overlay_are_not_touched(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let before = step.mounted();
    step.configure(&["chown", "/data"]);
    let mut ordinary = step.runtime.wrapped();
    let id = step.runtime.id("ordinary");
    let flushes = || rig.disk().stats().unwrap().flushes;
    let before_copies = flushes();
    let started = finish(ordinary.args(["run", "--bundle"]).arg(&step.bundle).arg(id));
    assert_well(&started);
    let copies = flushes() - before_copies;
    assert!(copies >= FILES as u64, "{copies} flushes for {FILES} copies");
    assert_eq!(step.mounted(), before);
    // A container that requests a hold is no step.
    let mut config = StepOnDisk::config(&["until", "/grown", "/end"]);
    config["annotations"] = json!({"io.synconce.hold": "true"});
    fs::write(step.bundle.join("config.json"), config.to_string()).unwrap();
    let mut asks = step.runtime.wrapped();
    let running = StartedCommand::new(
        asks.args(["run", "--bundle"]).arg(&step.bundle).arg(step.runtime.id("asks")),
    );
    eventually("it begins", || running.text().contains("begun"));
    assert_eq!(step.mounted(), before);
    fs::write(step.root().join("end"), "").unwrap();
    assert!(running.end().success());
    step.unmount();
    fs::copy(step.layer.join("lower/step"), step.root().join("step")).unwrap();
    fs::create_dir(step.root().join("data")).unwrap();
    step.chown();
    assert!(step.notes().contains("it is not a mounted overlay"), "{}", step.notes());
    rig.down().unwrap();
}
