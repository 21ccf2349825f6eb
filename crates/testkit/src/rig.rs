//! A disk to test durability on: it is slow, fails and loses its power on demand, and keeps account.
//!
//! A file system (ext4, xfs or btrfs) on a loop device on the one file of a FUSE file system, whose
//! daemon decides what a flush does:
//!
//! ```text
//! program -> ext4 -> /dev/loopN -> FUSE file -> daemon (a process of its own) -> backing file on tmpfs
//! ```
//!
//! With *passthrough* (Linux 6.9, and the default where the kernel can) data goes from the FUSE file to
//! the backing file inside the kernel and only flushes reach the daemon: what is measured is the flush
//! time and little else. Without it every write passes the daemon, which can count and fail it.
//!
//! ```no_run
//! use synconce_testkit::rig::{FsKind, Latency, Rig};
//! # fn main() -> synconce_testkit::Result<()> {
//! let rig = Rig::builder().fs(FsKind::Xfs).latency(Latency::FSYNC_8_MS).up()?;
//! let before = rig.disk().stats()?;
//! // ... work in rig.path() ...
//! let flushes = (rig.disk().stats()? - before).flushes;
//! # Ok(())
//! # }
//! ```
//!
//! A rig that is recorded ([`Builder::record`]) has a [`Log`] of what its disk was asked to do, from
//! which a [`Replay`] makes the disk of any power cut: see there. A [`Fault`] lets requests fail or hang,
//! a [`Latency`] and [`Limits`] make the disk slow, a [`Preset`] as slow as one that there is.
//!
//! What the model leaves out: a disk that reorders beyond a flush, that lies about it, or that loses what
//! was durable; writes that end up elsewhere; bits that rot. A write of the model is on the disk, with
//! all that a flush has to cover, when it is answered; a request on its way at the cut is the one after.
//!
//! The loop device serves its requests in order: while a flush takes its time, nothing else is served.
//!
//! Dropping the value takes the rig down: file system, loop device, FUSE mount, daemon and files. A drop
//! that cannot do so panics, so that the test fails. What a `SIGKILL` (or Ctrl-C) of the owner leaves,
//! the next rig of any process takes down when it is set up, and so does `rig reap`; rigs of living
//! owners are never touched. If the mount namespace of the rig ends, the kernel takes down all but the
//! files: the loop device detaches itself with its last user, and the daemon is in a mount namespace of
//! its own, where it can answer the flushes of that unmount. Needs root, `/dev/fuse`, loop devices and the mkfs programs; ask
//! [`requirements`] to skip a test with a reason.

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

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

pub use self::builder::{Builder, requirements};
pub use self::daemon::serve;
pub use self::disk::{Disk, Stats, Transfers};
pub use self::fault::{Fault, Requests};
pub use self::fs_kind::FsKind;
pub use self::keeping::{Entry, Summary, entries, find, reap};
pub use self::latency::{Draws, Latency};
pub use self::limits::Limits;
pub use self::log::{Event, Log, What};
pub use self::presets::{Figure, PRESETS, Preset, preset};
use self::record::Record;
pub use self::recording::Recording;
pub use self::replay::{
    Builder as ReplayBuilder, Cut, Granularity, Loss, Mounted, Replay, Survivors, Tape,
};
use self::teardown::{Busy, teardown};
use crate::error::{Context, run};
use crate::{Error, Result};

/// A file system on a disk under command. Dropping it takes everything down.
#[derive(Debug)]
pub struct Rig {
    record: Record,
    /// Until it is kept beyond this value.
    daemon: Option<Child>,
    device: PathBuf,
    /// Keeps the loop device attached while nothing is mounted from it.
    attached: Option<File>,
    disk: Disk,
    passthrough: bool,
}

impl Rig {
    /// What to set up.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where the file system is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.record.mount_point
    }

    /// The loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The file system's kind.
    #[must_use]
    pub fn fs(&self) -> FsKind {
        self.record.fs
    }

    /// The disk, to command it and to read its counts.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Whether data bypasses the daemon, as it was really set up.
    #[must_use]
    pub fn passthrough(&self) -> bool {
        self.passthrough
    }

    /// The number of the daemon's process, for tests that take the disk away: its end turns every
    /// request into EIO.
    #[must_use]
    pub fn daemon_pid(&self) -> Option<i32> {
        self.record.daemon().map(|process| process.pid())
    }

    /// Unmounts the file system; the disk stays. What was cached is gone afterwards, so that
    /// [`Rig::mount`] shows what the disk has.
    ///
    /// # Errors
    /// It is in use for more than two seconds, or the kernel refuses.
    pub fn unmount(&self) -> Result<()> {
        let ours = |mount: &system::Mount| mount.source == self.device;
        system::unmount_all(ours, UnmountFlags::empty(), Duration::from_secs(2))
    }

    /// Mounts the file system again.
    ///
    /// # Errors
    /// mount(8) fails, for instance because the disk's errors have damaged the file system.
    pub fn mount(&self) -> Result<()> {
        let Record { fs, mount_point, mount_options, replays, .. } = &self.record;
        let mount = if replays.is_some() { remount::mount } else { system::mount };
        mount(*fs, &self.device, mount_point, mount_options.as_deref())
    }

    /// Mounts anew with other options, such as `ro`: mount(8)'s remount.
    ///
    /// # Errors
    /// mount(8) fails: for `ro`, because somebody has a file open to write.
    pub fn remount(&self, options: &str) -> Result<()> {
        let mut command = Command::new("mount");
        command.arg("-o").arg(format!("remount,{options}")).arg(self.path());
        run(&mut command).map(drop)
    }

    /// Fills the file system until about `left` bytes are free, and returns the file that fills it. For
    /// a disk that is full in earnest take a small one: [`Builder::size`].
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn fill(&self, left: u64) -> Result<PathBuf> {
        let path = self.path().join("filler");
        let file = File::create(&path).context("create", &path)?;
        let space = rustix::fs::fstatvfs(&file).context("look at the space of", &path)?;
        let length = (space.f_bavail * space.f_frsize).saturating_sub(left);
        match fallocate(&file, FallocateFlags::empty(), 0, length.max(1)) {
            // What the file system itself needs for so large a file is not free either.
            Err(Errno::NOSPC) => {
                fallocate(&file, FallocateFlags::empty(), 0, (length - length / 64).max(1))
            }
            done => done,
        }
        .context("fill the disk with", &path)?;
        Ok(path)
    }

    /// Takes everything down, and says what is in the way if something is. Then the rig stays as it
    /// is: the disk is quick and without errors by then, and the drop of this value would still force it.
    ///
    /// # Errors
    /// The file system or the loop device is in use; the text names who uses it.
    pub fn down(mut self) -> Result<()> {
        self.attached = None;
        let result = teardown(&self.record, Busy::Refuse).map(drop);
        if result.is_ok() {
            self.end();
        }
        result
    }

    /// Copies the disk into the new file `to`, from which [`Builder::image`] makes others. The file
    /// system has to be unmounted.
    ///
    /// # Errors
    /// It is mounted, or `to` cannot be made.
    pub fn save_image(&self, to: &Path) -> Result<()> {
        if system::mounts()?.iter().any(|mount| mount.source == self.device) {
            let path = self.path().display();
            return Err(Error::Refused(format!("cannot save the image of {path}: it is mounted")));
        }
        sparse::copy(&self.record.backing, to)
    }

    /// The recording, while the rig stands: its log is what was recorded so far.
    ///
    /// # Errors
    /// The rig was set up without recording.
    pub fn recording(&self) -> Result<&Recording> {
        self.record.recording()
    }

    /// Takes the disk down and keeps its recording. What the unmount writes is recorded, too.
    ///
    /// # Errors
    /// There is no recording; or the file system is in use, and by whom.
    pub fn finish(mut self) -> Result<Tape> {
        let recording = self.recording()?.clone();
        self.attached = None;
        teardown::retire(&self.record)?;
        self.end();
        Ok(Tape::new(self.record.clone(), recording))
    }

    /// Leaves the rig standing when this process ends, until it is taken down with [`Entry::down`].
    ///
    /// # Errors
    /// The record could not be written; the rig is taken down then.
    pub fn keep(mut self) -> Result<()> {
        self.record.owner = None;
        self.record.write()?;
        self.daemon = None;
        Ok(())
    }

    /// Collects the ended daemon, which is this process's child.
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
            // The record stays for the reaper. Waiting for the daemon might be for ever.
            Err(error) => {
                let failed = format!("rig: cannot take down {}: {error}", self.path().display());
                // A second panic would abort the process and hide the first one.
                assert!(std::thread::panicking(), "{failed}");
                eprintln!("{failed}");
            }
        }
    }
}
