//! The configuration of a rig, and its set-up.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use synconce_sys::search;

use super::identity::ProcessId;
use super::record::RigRecord;
use super::recording::Recording;
use super::teardown::{Busy, reap, teardown};
use super::{FsKind, Latency, Limits, Preset, Rig, binary, sparse, system};
use crate::error::Context;
use crate::{Error, Result};

/// The configuration of a rig. The default is 512 MiB of ext4 without latency, mounted in a
/// new directory.
#[derive(Debug, Clone)]
#[must_use]
pub struct RigBuilder {
    fs: FsKind,
    size: u64,
    latency: Latency,
    limits: Limits,
    passthrough: Option<bool>,
    mount_point: Option<PathBuf>,
    mount_options: Option<String>,
    backing_dir: PathBuf,
    binary: Option<PathBuf>,
    image: Option<PathBuf>,
    record: bool,
}

impl Default for RigBuilder {
    fn default() -> Self {
        Self {
            fs: FsKind::Ext4,
            size: 512 << 20,
            latency: Latency::NONE,
            limits: Limits::NONE,
            passthrough: None,
            mount_point: None,
            mount_options: None,
            backing_dir: "/dev/shm".into(),
            binary: None,
            image: None,
            record: false,
        }
    }
}

impl RigBuilder {
    /// Sets the file system; the default is ext4.
    pub fn fs(mut self, fs: FsKind) -> Self {
        self.fs = fs;
        self
    }

    /// Sets the disk's size in bytes; the default is 512 MiB. Only written data takes memory.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Sets the time of a flush, from the first mount on.
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// Sets how fast data is read and written, from the first mount on. The data then passes
    /// the daemon.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes the disk as slow as an existing kind of disk: sets its [`Latency`] and its
    /// [`Limits`].
    pub fn preset(self, preset: &Preset) -> Self {
        self.latency(preset.latency).limits(preset.limits)
    }

    /// Requires that data bypasses the daemon, or that it does not. By default data bypasses
    /// the daemon where the kernel supports passthrough. Writes are counted and can fail only
    /// if they pass the daemon.
    pub fn passthrough(mut self, passthrough: bool) -> Self {
        self.passthrough = Some(passthrough);
        self
    }

    /// Sets the mount point, an existing directory; the default is a new directory.
    pub fn at(mut self, mount_point: impl Into<PathBuf>) -> Self {
        self.mount_point = Some(mount_point.into());
        self
    }

    /// Sets options for mount(8), such as `noatime,commit=1`.
    pub fn mount_options(mut self, options: impl Into<String>) -> Self {
        self.mount_options = Some(options.into());
        self
    }

    /// Sets the directory of the disk's data; the default is `/dev/shm`. It must not be on the
    /// disk of another rig.
    pub fn backing_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.backing_dir = dir.into();
        self
    }

    /// Sets the `rig` program to run as the daemon; by default it is found or built (see
    /// `SYNCONCE_RIG_BIN`).
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.binary = Some(program.into());
        self
    }

    /// Starts with a copy of this image (see [`Rig::save_image`]) instead of an empty file
    /// system. The disk gets the image's size; [`RigBuilder::fs`] must name the file system of
    /// the image.
    pub fn image(mut self, image: impl Into<PathBuf>) -> Self {
        self.image = Some(image.into());
        self
    }

    /// Records every request to the disk, from before the first mount: for [`Rig::finish`] and
    /// [`Rig::recording`]. The log lies beside the disk's data and contains all written data.
    /// Writes then pass the daemon.
    pub fn record(mut self, record: bool) -> Self {
        self.record = record;
        self
    }

    /// Sets the rig up, after taking down the rigs of dead owners.
    ///
    /// # Errors
    /// Something is missing (`requirements`) or a step failed; completed steps are undone.
    pub fn up(self) -> Result<Rig> {
        let (latency, limits) = (self.latency, self.limits);
        let rig = self.passed()?.assemble(None)?;
        rig.mount()?;
        rig.disk.set_latency(latency)?;
        rig.disk.set_limits(limits)?;
        Ok(rig)
    }

    /// Disables passthrough where the configuration requires that data passes the daemon.
    fn passed(self) -> Result<Self> {
        let by = match (self.record, self.limits == Limits::NONE) {
            (true, _) => "record",
            (false, false) => "limit the speed",
            (false, true) => return Ok(self),
        };
        if self.passthrough == Some(true) {
            let reason = format!("cannot {by} with passthrough: data would bypass the daemon");
            return Err(Error::Refused(reason));
        }
        Ok(self.passthrough(false))
    }

    /// Sets up the disk of a replay, not mounted.
    pub(super) fn replay(self, recording: Recording) -> Result<Rig> {
        self.passthrough(false).assemble(Some(recording))
    }

    fn assemble(mut self, replays: Option<Recording>) -> Result<Rig> {
        requirements(self.fs)?;
        reap()?;
        let program = self.binary.clone().map_or_else(binary::locate, Ok)?;
        if let Some(image) = &self.image {
            self.size = fs::metadata(image).context("look at the image", image)?.len();
        }
        // Two disks from one image have the same UUID, and xfs refuses to mount both.
        if self.fs == FsKind::Xfs && (replays.is_some() || self.image.is_some()) {
            let given = self.mount_options.take();
            self.mount_options =
                Some(given.map_or("nouuid".to_owned(), |given| format!("nouuid,{given}")));
        }
        let image = self.image.take();
        let cleanup = Cleanup(Some(self.write_record(replays)?));
        assemble(cleanup, image.as_deref(), &program)
    }

    fn write_record(self, replays: Option<Recording>) -> Result<RigRecord> {
        let mount_point = self
            .mount_point
            .map(|path| path.canonicalize().context("mount a rig at", &path))
            .transpose()?;
        let owner = ProcessId::current().context("look up", "/proc/self")?;
        let dir = RigRecord::new_dir()?;
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = |kind| self.backing_dir.join(format!("synconce-rig-{name}.{kind}"));
        let recording = self.record.then(|| Recording {
            fs: self.fs,
            size: self.size,
            base: file("base"),
            log: file("log"),
            mount_options: self.mount_options.clone(),
        });
        let mut record = RigRecord {
            owner_lock: None,
            owner: Some(owner),
            fs: self.fs,
            size: self.size,
            mount_point: mount_point.unwrap_or_else(|| dir.join("mnt")),
            backing: file("img"),
            mount_options: self.mount_options,
            passthrough: self.passthrough,
            recording,
            replays,
            dir,
        };
        record.lock_as_owner()?;
        record.write()?;
        Ok(record)
    }
}

/// Takes a half-made rig down if a step fails.
struct Cleanup(Option<RigRecord>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(record) = &self.0 {
            // The caller gets the first error; if the teardown fails, the record stays for the
            // reaper.
            let _ = teardown(record, Busy::Force);
        }
    }
}

/// Does everything but the mount; after that the rig's own drop cleans up.
fn assemble(mut cleanup: Cleanup, image: Option<&Path>, program: &Path) -> Result<Rig> {
    let Some(record) = &cleanup.0 else { unreachable!("nothing has taken it yet") };
    if record.mount_point.starts_with(&record.dir) {
        fs::create_dir(&record.mount_point).context("create", &record.mount_point)?;
    }
    fill_backing(record, image)?;
    let daemon = start_daemon(record, program)?;
    let disk = record.disk();
    let passthrough = disk.passthrough()?;
    // Data that passes the daemon must pass when the file system writes it, and not when the
    // page cache of the FUSE file writes it back. With passthrough, the cache of tmpfs is the
    // disk itself. The requests to a replay are of no interest, and the cache saves thousands
    // of them at a mount.
    let direct_io = !passthrough && record.replays.is_none();
    let (device, attached) = system::attach(&record.disk_file(), direct_io)?;
    let Some(record) = cleanup.0.take() else { unreachable!("it was there above") };
    Ok(Rig { record, daemon: Some(daemon), device, attached: Some(attached), disk, passthrough })
}

/// Makes the file that contains the disk's data, with a file system or, for a replay, empty.
fn fill_backing(record: &RigRecord, image: Option<&Path>) -> Result<()> {
    match image {
        Some(image) => sparse::copy(image, &record.backing)?,
        None => {
            let mut create = File::options();
            let file = create.write(true).create_new(true).open(&record.backing);
            let file = file.context("create", &record.backing)?;
            if record.replays.is_some() {
                return Ok(());
            }
            file.set_len(record.size).context("size", &record.backing)?;
            // On the file itself: faster than through the disk, and the counts start at the
            // mount.
            system::make_fs(record.fs, &record.backing)?;
        }
    }
    match &record.recording {
        Some(recording) => sparse::copy(&record.backing, &recording.base),
        None => Ok(()),
    }
}

fn start_daemon(record: &RigRecord, program: &Path) -> Result<Child> {
    let (fuse_dir, log_path) = (record.fuse_dir(), record.log_file());
    fs::create_dir(&fuse_dir).context("create", &fuse_dir)?;
    let log = File::create(&log_path).context("create", &log_path)?;
    let mut command = Command::new(program);
    command.arg("serve").arg(&record.dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut daemon = command.spawn().context("start", program)?;
    let mut message = String::new();
    if let Some(stdout) = daemon.stdout.take() {
        // Returns at the end of the line, or when the daemon exits.
        BufReader::new(stdout).read_line(&mut message).context("hear from", program)?;
    }
    if message == "ready\n" {
        return Ok(daemon);
    }
    let _ = daemon.kill();
    let _ = daemon.wait();
    let log = fs::read_to_string(&log_path).unwrap_or_default();
    Err(Error::Refused(format!(
        "the rig's daemon {} did not start: {}",
        program.display(),
        log.trim()
    )))
}

/// Checks whether a rig with this file system can be set up here.
///
/// # Errors
/// A prerequisite is missing. The error names the prerequisite and how to get it, as the reason to
/// skip a test.
pub(crate) fn requirements(fs: FsKind) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Refused("a rig needs root, to mount".to_owned()));
    }
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if !Path::new(device).exists() {
            return Err(Error::Refused(format!(
                "a rig needs {device} (modprobe {module}; in a container, pass it in)"
            )));
        }
    }
    for (program, package) in [(fs.mkfs(), fs.package()), ("losetup", "mount"), ("mount", "mount")]
    {
        if search::find(program).is_none() {
            return Err(Error::Refused(format!(
                "a rig needs {program} (apt-get install {package})"
            )));
        }
    }
    Ok(())
}
