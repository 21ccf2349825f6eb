//! A disk for durability tests: it is slow, fails and loses its power on demand, and counts
//! its requests.
//!
//! A rig is a file system (ext4, xfs or btrfs) on a loop device. The loop device is on the one
//! file of a FUSE file system, whose daemon, a process of its own, decides what a flush does:
//!
//! ```text
//! program -> ext4 -> /dev/loopN -> FUSE file -> daemon -> backing file on tmpfs
//! ```
//!
//! With *passthrough* (Linux 6.9, and the default where the kernel supports it) data goes from
//! the FUSE file to the backing file inside the kernel and only flushes reach the daemon: a
//! measurement contains the flush time and little else. Without passthrough every write passes
//! the daemon, which can count and fail it.
//!
//! ```no_run
//! use synconce_testkit::rig::{FsKind, Latency, Rig};
//! # fn main() -> synconce_testkit::Result<()> {
//! let flush = std::time::Duration::from_millis(4);
//! let rig = Rig::builder().fs(FsKind::Xfs).latency(Latency::of_flush(flush)).up()?;
//! let before = rig.disk().stats()?;
//! // ... work in rig.path() ...
//! let flushes = (rig.disk().stats()? - before).flushes;
//! # Ok(())
//! # }
//! ```
//!
//! A recorded rig ([`RigBuilder::record`]) has a [`Log`] of the requests to its disk, from which
//! a [`Replay`] makes the disk after any power cut. A [`Fault`] makes requests fail or hang, a
//! [`Latency`] and [`Limits`] make the disk slow, and a [`Preset`] makes it as slow as an
//! existing kind of disk.
//!
//! The model leaves out disks that reorder across a flush, report a flush that they did not
//! do, or lose durable data; misdirected writes; and bit rot. In the model a later flush makes
//! each write durable that was answered before the flush. A request in flight at the cut counts
//! as one after the cut.
//!
//! The loop device serves its requests in order: during a flush nothing else is served.
//!
//! Dropping the value takes the rig down: file system, loop device, FUSE mount, daemon and
//! files. A drop that fails to do so panics, so that the test fails. After a `SIGKILL` (or
//! Ctrl-C) of the owner, the next rig of any process takes the stale rig down at its set-up,
//! and so does `rig reap`; rigs of living owners are never touched. If the mount namespace of
//! the rig ends, the kernel takes down all but the files: the loop device detaches itself with
//! its last user, and the daemon is in its own mount namespace, where it can answer the
//! flushes of that unmount. Needs root, `/dev/fuse`, loop devices and the mkfs programs.

mod binary;
mod builder;
mod daemon;
mod disk;
mod fault;
mod fs_kind;
mod identity;
mod keeping;
mod latency;
mod limits;
mod log;
mod presets;
mod protocol;
mod record;
mod recording;
mod remount;
mod replay;
mod sparse;
mod system;
mod teardown;
mod thaw;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use synconce_probe::mounts::Mount;

pub use self::builder::RigBuilder;
pub use self::daemon::serve;
pub use self::disk::{Disk, Stats, Transfers};
pub use self::fault::{Fault, Requests};
pub use self::fs_kind::FsKind;
pub use self::keeping::{RecordedRig, RigSummary, entries, find, reap};
pub use self::latency::{Draws, Latency};
pub use self::limits::Limits;
pub use self::log::{Event, EventKind, Log};
pub use self::presets::{Figure, PRESETS, Preset, preset};
use self::record::RigRecord;
pub use self::recording::Recording;
pub use self::replay::{Cut, Granularity, Loss, Mounted, Replay, ReplayBuilder, Survivors, Tape};
use self::teardown::{Busy, teardown};
use crate::error::{Context, run};
use crate::{Error, Result, patiently};

/// A file system on a controllable disk. Dropping the value takes everything down.
#[derive(Debug)]
pub struct Rig {
    record: RigRecord,
    /// The daemon, unless the rig was kept beyond this value.
    daemon: Option<Child>,
    device: PathBuf,
    /// Keeps the loop device attached while nothing is mounted from it.
    attached: Option<File>,
    disk: Disk,
    passthrough: bool,
}

impl Rig {
    /// Returns a builder with the default configuration.
    pub fn builder() -> RigBuilder {
        RigBuilder::default()
    }

    /// Returns where the file system is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.record.mount_point
    }

    /// Returns the loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Returns the file system's kind.
    #[must_use]
    pub fn fs(&self) -> FsKind {
        self.record.fs
    }

    /// Returns the handle that controls the disk and reads its counts.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Whether data bypasses the daemon, as actually set up.
    #[must_use]
    pub fn passthrough(&self) -> bool {
        self.passthrough
    }

    /// Returns the daemon's pid, for tests that remove the disk: after the daemon's end every
    /// request fails with EIO.
    #[must_use]
    pub fn daemon_pid(&self) -> Option<i32> {
        self.record.daemon().map(|process| process.pid())
    }

    /// Unmounts the file system; the disk stays. Waits until no other mount namespace has the file
    /// system mounted: a new namespace has a copy of each mount for a moment. The kernel's cache
    /// ends with the last mount, so [`Rig::mount`] shows the content of the disk.
    ///
    /// # Errors
    /// The file system is in use for more than two seconds, or mounted in another namespace for
    /// more than ten; or the kernel refuses.
    pub fn unmount(&self) -> Result<()> {
        let ours = |mount: &Mount| Path::new(&mount.source) == self.device;
        system::unmount_all(ours, UnmountFlags::empty(), Duration::from_secs(2))?;
        // While a device is mounted anywhere, an open with O_EXCL fails (open(2)).
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&self.device, flags, Mode::empty());
        let opened = system::retry(patiently(teardown::ELSEWHERE), open);
        opened.map(drop).context("open exclusively", &self.device)
    }

    /// Mounts the file system again.
    ///
    /// # Errors
    /// mount(8) fails, for instance because the disk's errors have damaged the file system.
    pub fn mount(&self) -> Result<()> {
        let RigRecord { fs, mount_point, mount_options, replays, .. } = &self.record;
        let mount = if replays.is_some() { remount::mount } else { system::mount };
        mount(*fs, &self.device, mount_point, mount_options.as_deref())
    }

    /// Mounts the file system again with other options, such as `ro`: mount(8)'s remount.
    ///
    /// # Errors
    /// mount(8) fails; for `ro`, because a process has a file open for writing.
    pub fn remount(&self, options: &str) -> Result<()> {
        let mut command = Command::new("mount");
        command.arg("-o").arg(format!("remount,{options}")).arg(self.path());
        run(&mut command).map(drop)
    }

    /// Fills the file system until about `left` bytes are free, and returns the file that
    /// fills it. For a disk without any free space use a small disk: [`RigBuilder::size`].
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn fill(&self, left: u64) -> Result<PathBuf> {
        let path = self.path().join("filler");
        let file = File::create(&path).context("create", &path)?;
        let space = rustix::fs::fstatvfs(&file).context("look at the space of", &path)?;
        let length = (space.f_bavail * space.f_frsize).saturating_sub(left);
        match fallocate(&file, FallocateFlags::empty(), 0, length.max(1)) {
            // The file system's own metadata for a file of this size also needs space.
            Err(Errno::NOSPC) => {
                fallocate(&file, FallocateFlags::empty(), 0, (length - length / 64).max(1))
            }
            done => done,
        }
        .context("fill the disk with", &path)?;
        Ok(path)
    }

    /// Aborts the journal of an ext4 that was mounted with `commit=1`. Calls `change`, which has to
    /// change metadata, and lets one write of the next commit fail, which the kernel's timer
    /// begins. ext4 does not notice the abort until the next transaction.
    ///
    /// # Errors
    /// No write fails within a minute.
    pub fn abort_journal(&self, change: impl FnOnce()) -> Result<()> {
        // The first commit of an empty journal writes the journal's superblock. ext4 would notice
        // that this write fails.
        let (path, first) = (self.path(), self.path().join("first"));
        std::fs::write(&first, "").context("make", &first)?;
        File::open(path).map(rustix::fs::syncfs).context("open", path)?.context("sync", path)?;
        let failed =
            || Ok::<_, Error>(self.disk.stats()?.transfers.map_or(0, |it| it.failed_writes));
        let (before, end) = (failed()?, Instant::now() + patiently(Duration::from_secs(60)));
        self.disk.fail(Fault::writes().times(1))?;
        change();
        while failed()? == before {
            if Instant::now() > end {
                return Err(Error::Refused(format!("no write of {} fails", path.display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes everything down. If something is in use, this fails, and the drop of `self` then takes
    /// the rig down by force. [`RecordedRig::down`] leaves the rig up.
    ///
    /// # Errors
    /// The file system or the loop device is in use; the text names the processes.
    pub fn down(mut self) -> Result<()> {
        self.attached = None;
        let result = teardown(&self.record, Busy::Refuse).map(drop);
        if result.is_ok() {
            self.end();
        }
        result
    }

    /// Copies the disk into the new file `to`, from which [`RigBuilder::image`] makes other
    /// disks. The file system must be unmounted.
    ///
    /// # Errors
    /// The file system is mounted, or `to` cannot be created.
    pub fn save_image(&self, to: &Path) -> Result<()> {
        if system::is_mounted(&self.device)? {
            let path = self.path().display();
            return Err(Error::Refused(format!("cannot save the image of {path}: it is mounted")));
        }
        sparse::copy(&self.record.backing, to)
    }

    /// Returns the recording while the rig is up; its log contains what was recorded so far.
    ///
    /// # Errors
    /// The rig was set up without recording.
    pub fn recording(&self) -> Result<&Recording> {
        self.record.recording()
    }

    /// Takes the disk down and keeps its recording. Writes of the unmount are recorded, too.
    ///
    /// # Errors
    /// There is no recording; or the file system is in use: the text names the processes.
    pub fn finish(mut self) -> Result<Tape> {
        let recording = self.recording()?.clone();
        self.attached = None;
        teardown::retire(&self.record)?;
        self.end();
        Ok(Tape::new(self.record.clone(), recording))
    }

    /// Leaves the rig up when this process ends, until it is taken down with [`RecordedRig::down`].
    ///
    /// # Errors
    /// The record could not be written; the rig is then taken down.
    pub fn keep(mut self) -> Result<()> {
        self.record.owner = None;
        self.record.write()?;
        self.daemon = None;
        Ok(())
    }

    /// Reaps the exited daemon, which is this process's child.
    fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.wait();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            return; // kept, or down already
        }
        self.attached = None;
        match teardown(&self.record, Busy::Force) {
            Ok(_) => self.end(),
            // The record stays for the reaper. A wait for the daemon might never return.
            Err(error) => {
                let failed = format!("rig: cannot take down {}: {error}", self.path().display());
                // A second panic would abort the process and hide the first one.
                assert!(std::thread::panicking(), "{failed}");
                eprintln!("{failed}");
            }
        }
    }
}
