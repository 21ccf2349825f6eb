//! The calls of a shim of containerd for a step of BuildKit: `create`, `start` and `delete`.

use super::step::{FILES, StepOnDisk, WITHOUT_MOUNTS, assert_well};
use super::{FEW, runtimes};
use libtest_mimic::Trial;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use synconce_testkit::harness::{Place, eventually, finish, trial, without_foreign_syncs};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

pub fn trials() -> Vec<Trial> {
    let needs = &runtimes::RUNC;
    vec![
        trial(the_root_is_volatile_from_create_to_delete, needs),
        trial(a_write_back_error_leaves_a_layer_that_no_engine_can_mount, needs),
        trial(a_kill_at_any_call_of_a_shim_leaves_a_layer_that_can_be_mounted_again, needs),
        trial(a_killed_delete_leaves_what_the_next_one_needs, needs),
        trial(a_root_that_cannot_be_mounted_back_is_synced, needs),
        trial(a_root_is_mounted_back_without_the_configuration, needs),
        trial(a_delete_without_the_mount_table_fails_and_can_be_repeated, needs),
        trial(a_root_that_a_killed_engine_left_volatile_is_mounted_back_first, needs),
        trial(a_delete_for_a_dead_shim_of_dockerd_waits_for_no_disk, needs),
        trial(containers_of_other_namespaces_are_not_touched, needs),
    ]
}

/// A step in the given namespace of containerd.
pub struct Shim<'a> {
    pub step: StepOnDisk<'a>,
    namespace: &'static str,
}

impl<'a> Shim<'a> {
    pub fn new(place: &'a Place, rig: &Rig) -> Self {
        Self { step: StepOnDisk::new(place, rig.path()), namespace: "buildkit" }
    }

    /// Returns the arguments of the shim's call `verb`.
    fn words(&self, verb: &[&str]) -> Vec<OsString> {
        let step = &self.step;
        let state = step.bundle.join("state").join(self.namespace);
        let before = ["--root".into(), state.into(), "--log".into()];
        let log = [step.bundle.join("log.json").into(), "--log-format".into(), "json".into()];
        let mut words: Vec<OsString> = before.into_iter().chain(log).collect();
        words.extend(verb.iter().map(OsString::from));
        words.push(OsString::from(&step.id));
        words
    }

    pub fn call(&self, verb: &[&str]) -> Command {
        let mut command = self.step.runtime.wrapped();
        command.args(self.words(verb));
        command
    }

    pub fn create(&self, words: &[&str]) -> Command {
        self.step.configure(words);
        self.call(&["create", "--bundle", self.step.bundle.to_str().unwrap()])
    }

    fn state(&self) -> Finished {
        finish(self.step.runtime.bare().args(self.words(&["state"])))
    }

    /// Whether the runtime knows the container.
    pub fn exists(&self) -> bool {
        self.state().status.success()
    }

    fn is_stopped(&self) -> bool {
        self.state().stdout.contains("\"stopped\"")
    }

    /// Waits for the end of the container's processes.
    pub fn wait(&self) {
        eventually("the container ends", || self.is_stopped());
    }

    /// Executes a step that writes and syncs a file, up to the call of `delete`.
    pub fn write(&self) {
        assert_well(&finish(&mut self.create(&["syncs", "/grown", "1"])));
        assert_well(&finish(&mut self.call(&["start"])));
        self.wait();
    }

    /// Starts a step that runs until a signal ends it.
    pub fn begin(&self) {
        assert_well(&finish(&mut self.create(&["until", "/grown", "/end"])));
        assert_well(&finish(&mut self.call(&["start"])));
    }

    /// Changes the owner of the files of the layer below.
    fn chown(&self) {
        assert_well(&finish(&mut self.create(&["chown", "/data"])));
        assert!(self.step.is_volatile(), "{}", self.step.mounted());
        assert_well(&finish(&mut self.call(&["start"])));
        self.wait();
        assert_well(&finish(&mut self.call(&["delete"])));
        self.step.assert_back();
        assert_eq!(fs::metadata(self.step.root().join("data/1")).unwrap().uid(), 1);
    }

    /// Removes what a killed call leaves, as an engine does.
    fn clean_up(&self) {
        let _ = finish(self.step.runtime.bare().args(self.words(&["delete", "--force"])));
        self.step.clean_up();
    }
}

/// Makes the disk lose what the step has written; another process sees the error first.
pub fn lose_data(rig: &Rig) {
    // Metadata can be written, so the disk stays writable.
    rig.disk().fail(Fault::writes().holding([b'x'; 64])).unwrap();
    let seen = rustix::fs::syncfs(fs::File::open(rig.path()).unwrap());
    assert_eq!(seen, Err(Errno::IO));
    rig.disk().recover().unwrap();
}

fn the_root_is_volatile_from_create_to_delete(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    let flushes = || rig.disk().stats().unwrap().flushes;
    let before = flushes();
    shim.chown();
    let made = flushes() - before;
    println!("{FILES} files: {made} flushes");
    assert!(made < FEW, "{made}");
    // A runtime that refuses to delete leaves the root as it is.
    shim.begin();
    let refused = finish(&mut shim.call(&["delete"]));
    assert!(!refused.status.success() && shim.step.is_volatile(), "{refused:?}");
    let forced = finish(&mut shim.call(&["delete", "--force"]));
    assert!(forced.status.success(), "{forced:?}");
    shim.step.assert_back();
    shim.step.unmount();
    rig.down().unwrap();
}

/// dockerd ignores an error of the runtime after a step, and then mounts the layer once more.
fn a_write_back_error_leaves_a_layer_that_no_engine_can_mount(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().passthrough(false).up().unwrap();
    let shim = Shim::new(place, &rig);
    assert_well(&finish(&mut shim.create(&["syncs", "/grown", "64"])));
    assert_well(&finish(&mut shim.call(&["start"])));
    shim.wait();
    lose_data(&rig);
    let ended = finish(&mut shim.call(&["delete"]));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("cannot sync the file system of "), "{ended:?}");
    assert_eq!(shim.step.mounted(), "");
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

fn a_kill_at_any_call_of_a_shim_leaves_a_layer_that_can_be_mounted_again(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    for (verb, call) in
        [("create", "umount2"), ("create", "mount"), ("delete", "umount2"), ("delete", "mount")]
    {
        let kill = format!("{call}:signal=KILL:when=1");
        let create = shim.create(&["syncs", "/grown", "1"]);
        if verb == "create" {
            let killed = finish(&mut shim.step.with_signal(&kill, create));
            assert!(!killed.status.success(), "{killed:?}");
        } else {
            shim.write();
            let killed = finish(&mut shim.step.with_signal(&kill, shim.call(&["delete"])));
            assert!(!killed.status.success(), "{killed:?}");
        }
        shim.clean_up();
        shim.step.mount();
    }
    shim.chown();
    shim.step.unmount();
    rig.down().unwrap();
}

/// dockerd kills a `delete` that takes longer than 30 seconds, and may then use the layer.
fn a_killed_delete_leaves_what_the_next_one_needs(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    let kill = || {
        shim.write();
        let call = shim.call(&["delete"]);
        let killed = finish(&mut shim.step.with_signal("syncfs:signal=KILL:when=1", call));
        assert!(!killed.status.success() && shim.is_stopped(), "{killed:?}");
        assert!(shim.step.is_volatile() && shim.step.is_marked(), "{}", shim.step.mounted());
    };
    kill();
    assert_well(&finish(&mut shim.call(&["delete"])));
    assert!(!shim.is_stopped());
    shim.step.assert_back();
    kill();
    shim.clean_up();
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

fn a_root_that_cannot_be_mounted_back_is_synced(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    let cover = || {
        shim.write();
        mount_bind(shim.step.root().join("data"), &other).unwrap();
    };
    let reveal = |ended: &Finished, message: &str| {
        unmount(&other, UnmountFlags::empty()).unwrap();
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert!(ended.stderr.contains(message), "{ended:?}");
        assert!(!shim.is_stopped());
        shim.clean_up();
    };
    cover();
    let flushes = || rig.disk().stats().unwrap().flushes;
    let before = flushes();
    let ended = finish(&mut shim.call(&["delete"]));
    let made = flushes() - before;
    reveal(&ended, "as before the step: another mount is over or below it");
    assert!(made > 0);
    shim.step.mount();
    cover();
    let call = shim.call(&["delete"]);
    let ended = finish(&mut shim.step.with_signal("syncfs:error=EIO", call));
    reveal(&ended, "cannot sync the file system of ");
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

fn a_root_is_mounted_back_without_the_configuration(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    shim.write();
    fs::remove_file(shim.step.bundle.join("config.json")).unwrap();
    let flushes = || rig.disk().stats().unwrap().flushes;
    let before = flushes();
    assert_well(&finish(&mut shim.call(&["delete"])));
    assert!(flushes() > before);
    shim.step.assert_back();
    shim.write();
    fs::remove_file(shim.step.bundle.join("config.json")).unwrap();
    let call = shim.call(&["delete"]);
    let ended = finish(&mut shim.step.with_signal("syncfs:error=EIO", call));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert_eq!(shim.step.mounted(), "");
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

fn a_delete_without_the_mount_table_fails_and_can_be_repeated(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    shim.write();
    let ended = finish(&mut shim.step.traced(&WITHOUT_MOUNTS, shim.call(&["delete"])));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("cannot read /proc/self/mountinfo: "), "{ended:?}");
    assert!(shim.is_stopped() && shim.step.is_volatile(), "{}", shim.step.mounted());
    assert_well(&finish(&mut shim.call(&["delete"])));
    shim.step.assert_back();
    shim.step.unmount();
    rig.down().unwrap();
}

fn a_root_that_a_killed_engine_left_volatile_is_mounted_back_first(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    assert_well(&finish(&mut shim.create(&["syncs", "/grown", "1"])));
    let deleted = finish(shim.step.runtime.bare().args(shim.words(&["delete", "--force"])));
    assert!(deleted.status.success() && shim.step.is_volatile(), "{deleted:?}");
    // The engine starts the container once more, now by other settings.
    shim.step.choose("as-mounted");
    assert_well(&finish(&mut shim.create(&["syncs", "/grown", "1"])));
    shim.step.assert_back();
    shim.clean_up();
    rig.down().unwrap();
}

/// containerd does not start before it has deleted the containers of dead shims, and dockerd waits
/// for containerd for 15 seconds.
fn a_delete_for_a_dead_shim_of_dockerd_waits_for_no_disk(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    shim.write();
    let state = shim.step.bundle.join("state");
    fs::rename(state.join("buildkit"), state.join("moby")).unwrap();
    let shim = Shim { namespace: "moby", ..shim };
    let call = shim.call(&["delete", "--force"]);
    let deleted = finish(&mut shim.step.with_signal("syncfs,sync,fsync:signal=KILL", call));
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(shim.step.mounted(), "");
    assert_eq!(shim.step.try_mount(), Err(Errno::INVAL));
    rig.down().unwrap();
}

fn containers_of_other_namespaces_are_not_touched(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let shim = Shim { namespace: "moby", ..Shim::new(place, &rig) };
    let before = shim.step.mounted();
    assert_well(&finish(&mut shim.create(&["syncs", "/grown", "1"])));
    assert_eq!(shim.step.mounted(), before);
    assert_well(&finish(&mut shim.call(&["start"])));
    shim.wait();
    assert_well(&finish(&mut shim.call(&["delete"])));
    assert_eq!(shim.step.mounted(), before);
    shim.step.unmount();
    rig.down().unwrap();
}
