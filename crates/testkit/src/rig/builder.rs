//! What a rig is to be, and how it is set up.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::identity::ProcessId;
use super::record::Record;
use super::recording::Recording;
use super::teardown::{Busy, reap, teardown};
use super::{FsKind, Latency, Limits, Preset, Rig, binary, sparse, system};
use crate::error::Context;
use crate::{Error, Result};

/// What a rig is to be. The default is 512 MiB of ext4 without latency, mounted in a directory of its own.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    fs: FsKind,
    size: u64,
    latency: Latency,
    limits: Limits,
    passthrough: Option<bool>,
    mount_point: Option<PathBuf>,
    mount_options: Option<String>,
    mkfs_options: Vec<String>,
    backing_dir: PathBuf,
    binary: Option<PathBuf>,
    image: Option<PathBuf>,
    record: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            fs: FsKind::Ext4,
            size: 512 << 20,
            latency: Latency::NONE,
            limits: Limits::NONE,
            passthrough: None,
            mount_point: None,
            mount_options: None,
            mkfs_options: Vec::new(),
            backing_dir: "/dev/shm".into(),
            binary: None,
            image: None,
            record: false,
        }
    }
}

impl Builder {
    /// The file system; ext4 unless said.
    pub fn fs(mut self, fs: FsKind) -> Self {
        self.fs = fs;
        self
    }

    /// The disk's size in bytes, 512 MiB unless said. Only what is written takes memory.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// The time of a flush, from the first mount on.
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// How fast data moves, from the first mount on. It passes the daemon then.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// As slow as a kind of disk that there is: its [`Latency`] and its [`Limits`].
    pub fn preset(self, preset: &Preset) -> Self {
        self.latency(preset.latency).limits(preset.limits)
    }

    /// Requires that data bypasses the daemon, or that it does not; unless said, it does where the
    /// kernel can. Writes are counted and can fail only if they pass the daemon.
    pub fn passthrough(mut self, passthrough: bool) -> Self {
        self.passthrough = Some(passthrough);
        self
    }

    /// Where to mount the file system: an existing directory. A new one unless said.
    pub fn at(mut self, mount_point: impl Into<PathBuf>) -> Self {
        self.mount_point = Some(mount_point.into());
        self
    }

    /// Options for mount(8), such as `noatime,commit=1`.
    pub fn mount_options(mut self, options: impl Into<String>) -> Self {
        self.mount_options = Some(options.into());
        self
    }

    /// Options for the program that makes the file system, such as `-J size=8` for ext4.
    pub fn mkfs_options(mut self, options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.mkfs_options = options.into_iter().map(Into::into).collect();
        self
    }

    /// Where the disk's data lies, `/dev/shm` unless said. Not a directory on the disk of another rig.
    pub fn backing_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.backing_dir = dir.into();
        self
    }

    /// The `rig` program to run as the daemon; found or built unless said (see `SYNCONCE_RIG_BIN`).
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.binary = Some(program.into());
        self
    }

    /// Begins with a copy of this image (see [`Rig::save_image`]) instead of an empty file system. The
    /// disk gets the image's size; [`Builder::fs`] has to say what is on it.
    pub fn image(mut self, image: impl Into<PathBuf>) -> Self {
        self.image = Some(image.into());
        self
    }

    /// Records what the disk is asked to do, from before the first mount: for [`Rig::finish`] and
    /// [`Rig::recording`]. The log lies beside the disk's data and grows by all that is written. Writes
    /// pass the daemon then.
    pub fn record(mut self, record: bool) -> Self {
        self.record = record;
        self
    }

    /// Sets the rig up, after taking down what dead owners have left.
    ///
    /// # Errors
    /// Something is missing ([`requirements`]) or a step failed; what was set up is taken down again.
    pub fn up(self) -> Result<Rig> {
        let (latency, limits) = (self.latency, self.limits);
        let rig = self.passed()?.assemble(None)?;
        rig.mount()?;
        rig.disk.set_latency(latency)?;
        rig.disk.set_limits(limits)?;
        Ok(rig)
    }

    /// Lets data pass the daemon where it has to.
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

    /// The disk of a replay, not mounted.
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
        // Two disks from one image have one identity, which xfs refuses to mount twice.
        if self.fs == FsKind::Xfs && (replays.is_some() || self.image.is_some()) {
            let given = self.mount_options.take();
            self.mount_options =
                Some(given.map_or("nouuid".to_owned(), |given| format!("nouuid,{given}")));
        }
        let start = match self.image.take() {
            Some(image) => Start::Image(image),
            None => Start::Empty(std::mem::take(&mut self.mkfs_options)),
        };
        let cleanup = Cleanup(Some(self.write_record(replays)?));
        assemble(cleanup, &start, &program)
    }

    fn write_record(self, replays: Option<Recording>) -> Result<Record> {
        let mount_point = self
            .mount_point
            .map(|path| path.canonicalize().context("mount a rig at", &path))
            .transpose()?;
        let owner = ProcessId::current().context("look up", "/proc/self")?;
        let dir = Record::new_dir()?;
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = |kind| self.backing_dir.join(format!("synconce-rig-{name}.{kind}"));
        let recording = self.record.then(|| Recording {
            fs: self.fs,
            size: self.size,
            base: file("base"),
            log: file("log"),
            mount_options: self.mount_options.clone(),
        });
        let record = Record {
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
        record.write()?;
        Ok(record)
    }
}

/// What the disk begins with.
enum Start {
    Image(PathBuf),
    /// A file system made with these options; a replay is empty.
    Empty(Vec<String>),
}

/// Takes a half-made rig down when a step fails.
struct Cleanup(Option<Record>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(record) = &self.0 {
            // The first error is what the caller gets; the record stays for the reaper if this fails.
            let _ = teardown(record, Busy::Force);
        }
    }
}

/// Everything but the mount: from there on the rig's own drop cleans up.
fn assemble(mut cleanup: Cleanup, start: &Start, program: &Path) -> Result<Rig> {
    let Some(record) = &cleanup.0 else { unreachable!("nothing has taken it yet") };
    if record.mount_point.starts_with(&record.dir) {
        fs::create_dir(&record.mount_point).context("create", &record.mount_point)?;
    }
    fill_backing(record, start)?;
    let daemon = start_daemon(record, program)?;
    let disk = record.disk();
    let passthrough = disk.passthrough()?;
    // Data that passes the daemon is to pass it when the file system writes it, not when the page
    // cache of the FUSE file sees fit. With passthrough, the cache of tmpfs is the disk itself. Of a
    // replay nothing is learnt by its requests: the cache saves a mount thousands of them.
    let direct_io = !passthrough && record.replays.is_none();
    let (device, attached) = system::attach(&record.disk_file(), direct_io)?;
    let Some(record) = cleanup.0.take() else { unreachable!("it was there above") };
    Ok(Rig { record, daemon: Some(daemon), device, attached: Some(attached), disk, passthrough })
}

/// Makes the file that the disk's data lies in, with a file system or, for a replay, empty.
fn fill_backing(record: &Record, start: &Start) -> Result<()> {
    match start {
        Start::Image(image) => sparse::copy(image, &record.backing)?,
        Start::Empty(options) => {
            let mut create = File::options();
            let file = create.write(true).create_new(true).open(&record.backing);
            let file = file.context("create", &record.backing)?;
            if record.replays.is_some() {
                return Ok(());
            }
            file.set_len(record.size).context("size", &record.backing)?;
            // On the file itself: quicker than through the disk, and the counts start at the mount.
            system::make_fs(record.fs, &record.backing, options)?;
        }
    }
    match &record.recording {
        Some(recording) => sparse::copy(&record.backing, &recording.base),
        None => Ok(()),
    }
}

fn start_daemon(record: &Record, program: &Path) -> Result<Child> {
    let (fuse_dir, log_path) = (record.fuse_dir(), record.log_file());
    fs::create_dir(&fuse_dir).context("create", &fuse_dir)?;
    let log = File::create(&log_path).context("create", &log_path)?;
    let mut command = Command::new(program);
    command.arg("serve").arg(&record.dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut daemon = command.spawn().context("start", program)?;
    let mut said = String::new();
    if let Some(stdout) = daemon.stdout.take() {
        // Ends with the line, or with the daemon.
        BufReader::new(stdout).read_line(&mut said).context("hear from", program)?;
    }
    if said == "ready\n" {
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

/// Whether a rig with this file system can be set up here.
///
/// # Errors
/// Says what is missing and what would bring it: the reason for which a test is skipped.
pub fn requirements(fs: FsKind) -> Result<()> {
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
        if !on_path(program) {
            return Err(Error::Refused(format!(
                "a rig needs {program} (apt-get install {package})"
            )));
        }
    }
    Ok(())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
