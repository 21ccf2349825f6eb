//! Steps of BuildKit whose root is an overlay, with `step-root = "volatile"`: a real runc, and
//! the test in place of the engine, which mounts and unmounts the root.

use crate::bundles::{Runtime, compiled, config};
use crate::runtimes;
use libtest_mimic::Trial;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{Place, Started, eventually, finish, trial, without_foreign_syncs};
use synconce_testkit::manifest::Manifest;
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

/// The files of the layer below.
const FILES: usize = 200;
/// More flushes than a step makes whose copy-ups do not sync.
const FEW: u64 = 40;

pub fn trials() -> Vec<Trial> {
    let needs = &runtimes::RUNC;
    vec![
        trial(a_copy_up_syncs_nothing_and_the_layer_is_the_same, needs),
        trial(the_root_is_volatile_while_the_step_runs_and_is_mounted_back, needs),
        trial(a_root_that_is_bound_is_volatile_at_both_places, needs),
        trial(an_exit_code_and_a_signal_are_passed_on, needs),
        trial(a_write_back_error_fails_the_step, needs),
        trial(a_killed_step_leaves_a_root_that_can_be_mounted_again, needs),
        trial(kills_at_any_moment_leave_a_layer_that_can_be_built_again, needs),
        trial(a_root_that_cannot_be_volatile_stays_as_it_is, needs),
        trial(an_ordinary_container_and_a_step_without_an_overlay_are_not_touched, needs),
    ]
}

/// A layer on a disk, mounted as the root of a step, and the step's bundle.
struct Step<'a> {
    place: &'a Place,
    runtime: Runtime<'a>,
    layer: PathBuf,
    bundle: PathBuf,
    id: String,
}

impl<'a> Step<'a> {
    /// Makes a layer in `disk` over one with [`FILES`] files, and mounts both as the root.
    fn new(place: &'a Place, disk: &Path) -> Self {
        let runtime = Runtime::new(place, "runc");
        let id = runtime.short().to_owned();
        let step = Self {
            place,
            runtime,
            layer: disk.join("layer"),
            bundle: place.path("executor").join(&id),
            id,
        };
        for name in ["lower/data", "upper", "work", "merged"] {
            fs::create_dir_all(step.layer.join(name)).unwrap();
        }
        for at in 0..FILES {
            fs::write(step.layer.join(format!("lower/data/{at}")), format!("file {at}")).unwrap();
        }
        let program = compiled(place, "step", include_str!("step.c"));
        fs::copy(program, step.layer.join("lower/step")).unwrap();
        fs::create_dir_all(step.root()).unwrap();
        step.choose("volatile");
        step.mount();
        step
    }

    fn root(&self) -> PathBuf {
        self.bundle.join("rootfs")
    }

    /// Sets `step-root`.
    fn choose(&self, how: &str) {
        self.place.write("oci.toml", &format!("step-root = {how:?}\n"));
    }

    /// Mounts the root, as an engine does.
    fn mount(&self) {
        self.mount_at(&self.root(), "index=off");
    }

    fn mount_at(&self, point: &Path, options: &str) {
        let [lower, upper, work] =
            ["lower", "upper", "work"].map(|name| self.layer.join(name).display().to_string());
        let data = format!("lowerdir={lower},upperdir={upper},workdir={work},{options}");
        let data = CString::new(data).unwrap();
        mount("overlay", point, "overlay", MountFlags::empty(), data.as_c_str()).unwrap();
    }

    /// Unmounts the root, as an engine does.
    fn unmount(&self) {
        unmount(self.root(), UnmountFlags::empty()).unwrap();
    }

    /// Returns the line of the mount table for the root.
    fn mounted(&self) -> String {
        mounted(&self.root())
    }

    /// Whether the kernel's mark of a volatile overlay is in the work directory.
    fn is_marked(&self) -> bool {
        self.layer.join("work/work/incompat").exists()
    }

    fn config(words: &[&str]) -> Value {
        let mut config = config();
        let rights = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"];
        config["process"]["capabilities"] = json!({"bounding": rights, "effective": rights,
            "permitted": rights});
        config["process"]["args"] = json!([&["/step"], words].concat());
        config
    }

    /// Returns the command of a step that executes `words`.
    fn command(&self, words: &[&str]) -> Command {
        self.command_of(&Self::config(words))
    }

    fn command_of(&self, config: &Value) -> Command {
        fs::write(self.bundle.join("config.json"), config.to_string()).unwrap();
        let mut command = self.runtime.wrapped();
        command.arg("--log").arg(self.place.path("executor/runc-log.json"));
        command.args(["--log-format", "json", "run", "--bundle"]).arg(&self.bundle).arg(&self.id);
        command
    }

    /// Starts a step, and waits until it prints "begun".
    fn start(&self, words: &[&str]) -> Started {
        let started = Started::new(&mut self.command(words));
        eventually("the step begins", || started.text().contains("begun"));
        started
    }

    /// Changes the owner of the files of the layer below.
    fn chown(&self) {
        assert_well(&finish(&mut self.command(&["chown", "/data"])));
    }

    /// Returns the lines of the runtime's log about the root.
    fn notes(&self) -> String {
        let text = fs::read_to_string(self.place.path("executor/runc-log.json"));
        let text = text.unwrap_or_default();
        text.lines().filter(|line| line.contains("the root of this step")).collect()
    }

    fn is_volatile(&self) -> bool {
        is_volatile(&self.mounted())
    }

    /// Asserts that the step left its root as an engine mounted it.
    fn assert_back(&self) {
        assert!(!self.is_volatile() && !self.is_marked(), "{}", self.mounted());
    }
}

fn mounted(point: &Path) -> String {
    let point = format!(" {} ", point.display());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines: Vec<_> = mounts.lines().filter(|line| line.contains(&point)).collect();
    assert!(lines.len() < 2, "{lines:?}");
    lines.first().copied().unwrap_or_default().to_owned()
}

/// Whether a line of the mount table shows a volatile overlay; Linux 7.0 names it `fsync=volatile`.
fn is_volatile(line: &str) -> bool {
    line.ends_with("volatile") || line.contains("volatile,")
}

fn assert_well(finished: &Finished) {
    assert!(finished.status.success() && finished.stderr.is_empty(), "{finished:?}");
}

fn a_copy_up_syncs_nothing_and_the_layer_is_the_same(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let count = |step: &Step<'_>| {
        let flushes = || rig.disk().stats().unwrap().flushes;
        let before = flushes();
        step.chown();
        // The engine removes stubs of mounts from the root, and then records the layer.
        fs::remove_file(step.root().join("data/0")).unwrap();
        step.unmount();
        let made = flushes() - before;
        step.mount();
        step.assert_back();
        let found = Manifest::of(step.root()).unwrap();
        step.unmount();
        (made, found)
    };
    let plain = Step::new(place, &rig.path().join("plain"));
    plain.choose("as-mounted");
    let (as_mounted, expected) = count(&plain);
    let step = Step::new(place, &rig.path().join("volatile"));
    let (volatile, found) = count(&step);
    println!("{FILES} files: {as_mounted} flushes as mounted, {volatile} volatile");
    assert!(as_mounted >= FILES as u64 && volatile < FEW, "{as_mounted} and {volatile}");
    assert!(step.notes().contains("is volatile"), "{}", step.notes());
    assert_eq!(found, expected);
    assert_eq!(found.entries["data/1"].uid, 1);
    rig.down().unwrap();
}

fn the_root_is_volatile_while_the_step_runs_and_is_mounted_back(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
    fs::write(step.bundle.join("config.json"), Step::config(&["wait"]).to_string()).unwrap();
    let mut explain = place.synconce(&["oci", "--explain"]);
    let explained =
        finish(explain.arg(&step.bundle).env("SYNCONCE_OCI_FILE", place.path("oci.toml")));
    assert!(explained.stdout.contains("root      volatile while the step runs\n"), "{explained:?}");
    let running = step.start(&["until", "/grown", "/end"]);
    assert!(step.is_volatile() && !step.is_marked(), "{}", step.mounted());
    fs::write(step.root().join("end"), "").unwrap();
    assert!(running.end().success(), "{}", running.text());
    step.assert_back();
    assert!(step.root().join("grown").exists() && step.root().join("data/1").exists());
    step.unmount();
    rig.down().unwrap();
}

/// The BuildKit of dockerd binds the overlay that dockerd has mounted.
fn a_root_that_is_bound_is_volatile_at_both_places(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
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

fn an_exit_code_and_a_signal_are_passed_on(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
    let wrong = finish(&mut step.command(&["nonsense"]));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    step.assert_back();
    let running = step.start(&["wait"]);
    assert!(step.is_volatile());
    let pid = rustix::process::Pid::from_raw(running.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(running.end().code(), Some(9), "{}", running.text());
    step.assert_back();
    step.unmount();
    rig.down().unwrap();
}

fn a_write_back_error_fails_the_step(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().passthrough(false).up().unwrap();
    let step = Step::new(place, rig.path());
    let running = step.start(&["until", "/grown", "/end"]);
    rig.disk().fail(Fault::writes()).unwrap();
    fs::write(step.root().join("end"), "").unwrap();
    let status = running.end();
    let text = running.text();
    assert_eq!(status.code(), Some(125), "{text}");
    assert!(text.contains("synconce-oci: cannot sync the file system of "), "{text}");
    rig.disk().recover().unwrap();
    step.assert_back();
    step.unmount();
    rig.down().unwrap();
}

fn a_killed_step_leaves_a_root_that_can_be_mounted_again(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
    let running = step.start(&["until", "/grown", "/end"]);
    running.signal(Signal::KILL).unwrap();
    assert!(!running.end().success());
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

/// Kills the runtime and synconce earlier or later, also while the root is mounted anew.
fn kills_at_any_moment_leave_a_layer_that_can_be_built_again(place: &Place) {
    const KILLS: u64 = 24;
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
    for at in 0..KILLS {
        let running = Started::new(&mut step.command(&["chown", "/data"]));
        std::thread::sleep(Duration::from_millis(at * 5));
        running.signal(Signal::KILL).unwrap();
        running.end();
        let _ = finish(step.runtime.bare().args(["delete", "--force", &step.id]));
        // An engine unmounts the root even if it is not mounted any more.
        eventually("the root is unmounted", || {
            unmount(step.root(), UnmountFlags::empty()) == Err(Errno::INVAL)
        });
        // The engine throws the layer away, and makes it anew.
        for name in ["upper", "work"] {
            fs::remove_dir_all(step.layer.join(name)).unwrap();
            fs::create_dir(step.layer.join(name)).unwrap();
        }
        step.mount();
    }
    step.chown();
    step.assert_back();
    assert_eq!(fs::metadata(step.root().join("data/1")).unwrap().uid(), 1);
    step.unmount();
    rig.down().unwrap();
}

fn a_root_that_cannot_be_volatile_stays_as_it_is(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
    let stays = |why: &str| {
        let before = step.mounted();
        step.chown();
        assert!(step.notes().contains(why), "{why}: {}", step.notes());
        let _ = fs::remove_file(place.path("executor/runc-log.json"));
        // The id of the mount is its first word, so this is the very mount of the engine.
        before == step.mounted()
    };
    let open = fs::File::open(step.root().join("data/1")).unwrap();
    assert!(stays("it is in use"));
    drop(open);
    let other = Command::new("unshare").args(["--mount", "sleep", "1000"]).spawn();
    let mut other = other.unwrap();
    let has_copy = || {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", other.id()));
        let is_apart = fs::read_link(format!("/proc/{}/ns/mnt", other.id())).ok()
            != fs::read_link("/proc/self/ns/mnt").ok();
        is_apart && mounts.is_ok_and(|text| text.contains("executor"))
    };
    eventually("another namespace has the mount", has_copy);
    stays("it is in use");
    step.assert_back();
    other.kill().unwrap();
    other.wait().unwrap();
    fs::create_dir_all(step.root().join("below")).unwrap();
    mount("test", step.root().join("below"), "tmpfs", MountFlags::empty(), None).unwrap();
    assert!(stays("another mount is over or below it"));
    unmount(step.root().join("below"), UnmountFlags::empty()).unwrap();
    step.unmount();
    step.mount_at(&step.root(), "index=on");
    assert!(stays("it has the mount option index=on"));
    step.unmount();
    step.mount_at(&step.root(), "index=off,volatile");
    assert!(stays("it is volatile already"));
    step.unmount();
    rig.down().unwrap();
}

fn an_ordinary_container_and_a_step_without_an_overlay_are_not_touched(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = Step::new(place, rig.path());
    let before = step.mounted();
    fs::write(step.bundle.join("config.json"), Step::config(&["chown", "/data"]).to_string())
        .unwrap();
    let mut ordinary = step.runtime.wrapped();
    let id = step.runtime.id("ordinary");
    let started = finish(ordinary.args(["run", "--bundle"]).arg(&step.bundle).arg(id));
    assert_well(&started);
    assert_eq!(step.mounted(), before);
    // A container that asks for a hold is no step.
    let mut config = Step::config(&["until", "/grown", "/end"]);
    config["annotations"] = json!({"io.synconce.hold": "true"});
    fs::write(step.bundle.join("config.json"), config.to_string()).unwrap();
    let mut asks = step.runtime.wrapped();
    let running =
        Started::new(asks.args(["run", "--bundle"]).arg(&step.bundle).arg(step.runtime.id("asks")));
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
