//! A step of BuildKit whose root is an overlay that the test mounts.

use crate::bundles::{Runtime, compiled, config};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use synconce_testkit::harness::{Place, StartedCommand, eventually, finish};
use synconce_testkit::process::Finished;

/// A process that ends when this is dropped.
pub struct Running(Child);

impl Running {
    /// Returns the name here of `path` in the process's mount namespace.
    pub fn sees(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.0.id(), path.display()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Options of strace(1) by which synconce, and not the runtime, fails to read the mount table.
pub const WITHOUT_MOUNTS: [&str; 2] =
    ["--trace-path=/proc/self/mountinfo", "--inject=openat:error=EMFILE:when=1"];

/// The files of the layer below.
pub const FILES: usize = 200;
/// A layer on a disk, mounted as the root of a step, and the step's bundle.
pub struct StepOnDisk<'a> {
    place: &'a Place,
    pub runtime: Runtime<'a>,
    pub layer: PathBuf,
    pub bundle: PathBuf,
    pub id: String,
}

impl<'a> StepOnDisk<'a> {
    /// Makes a layer in `disk` over one with [`FILES`] files, and mounts both as the root.
    pub fn new(place: &'a Place, disk: &Path) -> Self {
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
        let program = compiled(place, "step", include_str!("../step.c"));
        fs::copy(program, step.layer.join("lower/step")).unwrap();
        fs::create_dir_all(step.root()).unwrap();
        step.choose("volatile");
        step.mount();
        step
    }

    pub fn root(&self) -> PathBuf {
        self.bundle.join("rootfs")
    }

    /// Sets `step-root`.
    pub fn choose(&self, how: &str) {
        self.place.write("oci.toml", &format!("step-root = {how:?}\n"));
    }

    /// Mounts the root, as an engine does.
    pub fn mount(&self) {
        self.try_mount().unwrap();
    }

    /// Mounts the root, as an engine does, and returns the kernel's error.
    pub fn try_mount(&self) -> rustix::io::Result<()> {
        self.try_mount_at(&self.root(), "index=off")
    }

    pub fn mount_at(&self, point: &Path, options: &str) {
        self.try_mount_at(point, options).unwrap();
    }

    fn try_mount_at(&self, point: &Path, options: &str) -> rustix::io::Result<()> {
        let [lower, upper, work] =
            ["lower", "upper", "work"].map(|name| self.layer.join(name).display().to_string());
        let data = format!("lowerdir={lower},upperdir={upper},workdir={work},{options}");
        let data = CString::new(data).unwrap();
        mount("overlay", point, "overlay", MountFlags::empty(), data.as_c_str())
    }

    /// Unmounts the root, as an engine does.
    pub fn unmount(&self) {
        unmount(self.root(), UnmountFlags::empty()).unwrap();
    }

    /// Starts a process with a mount namespace of its own, which has a copy of the root's mount.
    pub fn copied_to_another_namespace(&self) -> Running {
        let other = Command::new("unshare").args(["--mount", "sleep", "1000"]).spawn();
        let other = Running(other.unwrap());
        let process = format!("/proc/{}", other.0.id());
        let namespace = |process: &str| fs::read_link(format!("{process}/ns/mnt")).ok();
        let point = format!(" {} ", self.root().display());
        eventually("another namespace has the mount", || {
            let mounts = fs::read_to_string(format!("{process}/mountinfo"));
            namespace(&process) != namespace("/proc/self")
                && mounts.is_ok_and(|text| text.contains(&point))
        });
        other
    }

    /// Starts a process in a user namespace of its own, which has no right to the mounts here.
    pub fn user_namespace(&self) -> Running {
        let namespace = Command::new("unshare").args(["--user", "sleep", "1000"]).spawn();
        let namespace = Running(namespace.unwrap());
        let process = format!("/proc/{}", namespace.0.id());
        let of = |process: &str| fs::read_link(format!("{process}/ns/user")).ok();
        eventually("the namespace is made", || of(&process) != of("/proc/self"));
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("{process}/{map}"), "0 0 65536").unwrap();
        }
        namespace
    }

    /// Returns the command of a step that executes `words`, by an engine in a user namespace.
    pub fn entering(&self, namespace: &Running, words: &[&str]) -> Command {
        let call = self.command(words);
        let mut enter = self.place.command("nsenter");
        enter.env("SYNCONCE_OCI_FILE", self.place.path("oci.toml"));
        enter.args(["--user", "--target", &namespace.0.id().to_string()]);
        enter.arg(call.get_program()).args(call.get_args());
        enter
    }

    /// Returns the line of the mount table for the root.
    pub fn mounted(&self) -> String {
        mounted(&self.root())
    }

    /// Whether the kernel's mark of a volatile overlay is in the work directory.
    pub fn is_marked(&self) -> bool {
        self.layer.join("work/work/incompat").exists()
    }

    pub fn config(words: &[&str]) -> Value {
        let mut config = config();
        let rights = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"];
        config["process"]["capabilities"] = json!({"bounding": rights, "effective": rights,
            "permitted": rights});
        config["process"]["args"] = json!([&["/step"], words].concat());
        config
    }

    /// Writes the configuration of a step that executes `words`.
    pub fn configure(&self, words: &[&str]) {
        fs::write(self.bundle.join("config.json"), Self::config(words).to_string()).unwrap();
    }

    /// Returns the command of a step that executes `words`.
    pub fn command(&self, words: &[&str]) -> Command {
        self.configure(words);
        let mut command = self.runtime.wrapped();
        command.arg("--log").arg(self.place.path("executor/runc-log.json"));
        command.args(["--log-format", "json", "run", "--bundle"]).arg(&self.bundle).arg(&self.id);
        command
    }

    /// Returns `call` of synconce with a signal at a call of the kernel: for synconce, not for its
    /// children.
    pub fn with_signal(&self, inject: &str, call: Command) -> Command {
        self.traced(&["--inject", inject], call)
    }

    /// Returns `call` of synconce under strace(1) with `options`.
    pub fn traced(&self, options: &[&str], call: Command) -> Command {
        let mut strace = self.place.command("strace");
        strace.env("SYNCONCE_OCI_FILE", self.place.path("oci.toml"));
        strace.arg("--output=/dev/null").args(options);
        strace.arg(call.get_program()).args(call.get_args());
        strace
    }

    /// Removes what a killed step leaves, as an engine does: it unmounts the root also if it is
    /// not mounted any more.
    pub fn clean_up(&self) {
        let _ = finish(self.runtime.bare().args(["delete", "--force", &self.id]));
        eventually("the root is unmounted", || {
            unmount(self.root(), UnmountFlags::empty()) == Err(Errno::INVAL)
        });
    }

    /// Starts a step, and waits until it prints "begun".
    pub fn start(&self, words: &[&str]) -> StartedCommand {
        let started = StartedCommand::new(&mut self.command(words));
        eventually("the step begins", || started.text().contains("begun"));
        started
    }

    /// Ends a step that waits for the file `/end`.
    fn end(&self, running: &StartedCommand) -> ExitStatus {
        fs::write(self.root().join("end"), "").unwrap();
        running.end()
    }

    /// Ends a step that waits for the file `/end`, and succeeds.
    pub fn end_well(&self, running: &StartedCommand) {
        assert!(self.end(running).success(), "{}", running.text());
    }

    /// Ends a step that waits for the file `/end`, and whose files cannot be synced.
    pub fn end_unsynced(&self, running: &StartedCommand) {
        let (status, text) = (self.end(running), running.text());
        assert_eq!(status.code(), Some(125), "{text}");
        assert!(text.contains("synconce-oci: cannot sync the file system of "), "{text}");
    }

    /// Changes the owner of the files of the layer below.
    pub fn chown(&self) {
        assert_well(&finish(&mut self.command(&["chown", "/data"])));
    }

    /// Returns the lines of the runtime's log about the root.
    pub fn notes(&self) -> String {
        let text = fs::read_to_string(self.place.path("executor/runc-log.json"));
        let text = text.unwrap_or_default();
        text.lines().filter(|line| line.contains("the root of this step")).collect()
    }

    pub fn is_volatile(&self) -> bool {
        is_volatile(&self.mounted())
    }

    /// Asserts that the step left its root as an engine mounted it.
    pub fn assert_back(&self) {
        assert!(!self.is_volatile() && !self.is_marked(), "{}", self.mounted());
    }
}

pub fn mounted(point: &Path) -> String {
    let point = format!(" {} ", point.display());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines: Vec<_> = mounts.lines().filter(|line| line.contains(&point)).collect();
    assert!(lines.len() < 2, "{lines:?}");
    lines.first().copied().unwrap_or_default().to_owned()
}

/// Whether a line of the mount table shows a volatile overlay; Linux 7.0 names it `fsync=volatile`.
pub fn is_volatile(line: &str) -> bool {
    line.ends_with("volatile") || line.contains("volatile,")
}

pub fn assert_well(finished: &Finished) {
    assert!(finished.status.success() && finished.stderr.is_empty(), "{finished:?}");
}
