//! The disk after a power cut at any place of a recording, for thousands of cuts.
//!
//! A replay is a disk like that of a rig, with its own loop device, but its daemon composes
//! the disk from the recording: the data that was durable at the cut, and above it the
//! surviving part of the rest. Writes go into a layer that the next cut empties. A cut
//! therefore moves no data; most of the time is spent in mounting the file system.
//!
//! ```no_run
//! use synconce_testkit::rig::{Cut, FsKind, Rig, Survivors};
//! # fn main() -> synconce_testkit::Result<()> {
//! let rig = Rig::builder().fs(FsKind::Xfs).record(true).up()?;
//! std::fs::write(rig.path().join("file"), "data").unwrap();
//! // ... sync it ...
//! rig.disk().mark("synced")?;
//! let tape = rig.finish()?;
//! let (log, replay) = (tape.log()?, tape.replay().up()?);
//! for at in log.places(log.mark("synced").unwrap(), log.len()) {
//!     let survivors = Survivors::Share { seed: at as u64, share: 0.5 };
//!     let disk = replay.mounted(Cut::at(at).survivors(survivors))?;
//!     assert_eq!(std::fs::read(disk.path().join("file")).unwrap(), b"data");
//! }
//! # Ok(())
//! # }
//! ```

mod cut;
mod extents;
mod tape;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;

pub use self::cut::{Cut, Granularity, Loss, Survivors};
pub(super) use self::extents::{BytesFrom, Extents};
pub use self::tape::Tape;
use super::record::RigRecord;
use super::recording::Recording;
use super::{Rig, builder, system};
use crate::error::Context;
use crate::{Error, Result};

/// How long to wait for a device that another process has claimed, or that is mounted in
/// another namespace.
const BUSY: Duration = Duration::from_secs(10);

/// The configuration of a replay; made by [`Recording::replay`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ReplayBuilder {
    recording: Recording,
    rig: builder::RigBuilder,
}

/// A disk whose power can be cut. Dropping the value takes everything down but the recording.
#[derive(Debug)]
pub struct Replay {
    rig: Rig,
}

/// A replayed disk with its file system mounted. Dropping the value unmounts.
#[derive(Debug)]
pub struct Mounted<'a> {
    replay: &'a Replay,
    loss: Loss,
}

impl Recording {
    /// Configures a disk whose power can be cut repeatedly. Several may replay one recording
    /// in parallel.
    pub fn replay(&self) -> ReplayBuilder {
        ReplayBuilder::new(self.clone())
    }
}

impl ReplayBuilder {
    fn new(recording: Recording) -> Self {
        let mut rig = Rig::builder().fs(recording.fs).size(recording.size);
        if let Some(options) = &recording.mount_options {
            rig = rig.mount_options(options);
        }
        Self { recording, rig }
    }

    /// Sets the mount point, an existing directory; the default is a new directory.
    pub fn at(mut self, mount_point: impl Into<PathBuf>) -> Self {
        self.rig = self.rig.at(mount_point);
        self
    }

    /// Sets options for mount(8) instead of those of the recorded rig.
    pub fn mount_options(mut self, options: impl Into<String>) -> Self {
        self.rig = self.rig.mount_options(options);
        self
    }

    /// Sets the `rig` program to run as the daemon; see [`super::RigBuilder::binary`].
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.rig = self.rig.binary(program);
        self
    }

    /// Sets the disk up as it was when the recording began, not mounted.
    ///
    /// # Errors
    /// As [`super::RigBuilder::up`].
    pub fn up(self) -> Result<Replay> {
        Ok(Replay { rig: self.rig.replay(self.recording)? })
    }
}

impl Replay {
    /// Returns the mount point of the file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.rig.path()
    }

    /// Returns the loop device, for fsck and the like between [`Replay::cut`] and
    /// [`Replay::mount`].
    #[must_use]
    pub fn device(&self) -> &Path {
        self.rig.device()
    }

    /// Makes this the disk after a power cut. All data written since the last cut is lost.
    ///
    /// Cuts in ascending order are the fastest; going back costs one pass over the log's
    /// events.
    ///
    /// # Errors
    /// The file system is mounted, here or for more than ten seconds in another mount
    /// namespace; the log has no such place; the daemon does not answer.
    pub fn cut(&self, cut: Cut) -> Result<Loss> {
        recut(&self.rig.record, &self.rig.device, cut)
    }

    /// Mounts the file system, which recovers from the cut.
    ///
    /// # Errors
    /// The file system does not recover: mount fails.
    pub fn mount(&self) -> Result<Mounted<'_>> {
        self.mount_after(Loss::default())
    }

    /// [`Replay::cut`], then [`Replay::mount`].
    ///
    /// # Errors
    /// Those of both.
    pub fn mounted(&self, cut: Cut) -> Result<Mounted<'_>> {
        let loss = self.cut(cut)?;
        self.mount_after(loss)
    }

    fn mount_after(&self, loss: Loss) -> Result<Mounted<'_>> {
        self.rig.mount()?;
        Ok(Mounted { replay: self, loss })
    }

    /// Takes everything down but the recording; see [`Rig::down`].
    ///
    /// # Errors
    /// The file system or the loop device is in use; the text names the processes.
    pub fn down(self) -> Result<()> {
        self.rig.down()
    }

    /// Leaves the replay up when this process ends; see [`Rig::keep`].
    ///
    /// # Errors
    /// The record could not be written.
    pub fn keep(self) -> Result<()> {
        self.rig.keep()
    }
}

/// Cuts the replay of `record`, whichever process set it up.
pub(super) fn recut(record: &RigRecord, device: &Path, cut: Cut) -> Result<Loss> {
    let claimed = claim(record, device)?;
    let loss = record.disk().cut(cut)?;
    forget(&claimed, record.size).context("empty the cache of", device)?;
    record.disk().settle()?;
    Ok(loss)
}

/// Opens a device exclusively: no file system is mounted from it in any mount namespace, and
/// none can be mounted until the close.
///
/// A process that has made a mount namespace has a copy of every mount. An unmount here
/// therefore does not end the file system, which would write to the disk after the cut.
fn claim(record: &RigRecord, device: &Path) -> Result<File> {
    if system::is_mounted(device)? {
        let point = record.mount_point.display();
        return Err(Error::Refused(format!("cannot cut the disk of {point}: it is mounted")));
    }
    let flags = OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = system::retry(BUSY, || rustix::fs::open(device, flags, Mode::empty()));
    let by = match opened {
        Err(Errno::BUSY) => system::mounted_by(device),
        _ => Vec::new(),
    };
    let opened = opened.map(File::from).context("claim", device);
    opened.map_err(|error| {
        if by.is_empty() {
            error
        } else {
            Error::Refused(format!("{error}; it is mounted for {}", by.join(", ")))
        }
    })
}

/// Makes the kernel drop its caches of a device whose content has changed below it, and of the
/// FUSE file below the device.
///
/// The last close of a device empties its cache, but another process may have the device open:
/// udev, or a `mkfs.btrfs`, which reads every device. BLKFLSBUF and `POSIX_FADV_DONTNEED` skip
/// pages that a reader holds at that moment. A discard truncates the caches in every case; the
/// disk itself ignores the discard.
fn forget(device: &File, size: u64) -> rustix::io::Result<()> {
    fallocate(device, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, size)
}

impl Mounted<'_> {
    /// Returns where the file system is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.replay.path()
    }

    /// Returns the effect of the cut; all zero after a bare [`Replay::mount`].
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Leaves the file system mounted.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// Unmounts, and fails if the file system is in use.
    ///
    /// # Errors
    /// The file system is in use for more than two seconds.
    pub fn unmount(self) -> Result<()> {
        let result = self.replay.rig.unmount();
        std::mem::forget(self);
        result
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.replay.rig.unmount() {
            // The next cut finds the file system mounted and refuses, so the error is not
            // lost.
            eprintln!("rig: {error}");
        }
    }
}
