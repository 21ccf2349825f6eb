//! The disk as it would be after a power cut, at any place of a recording, thousands of times.
//!
//! A replay is a disk like that of a rig, on a loop device of its own, but its daemon puts it together
//! from the recording: what was durable at the cut, and above it what survived of the rest. What is
//! written to it goes into a layer that the next cut empties. So a cut moves no data; what takes time is
//! to mount the file system.
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
pub(super) use self::extents::{Extents, Source};
pub use self::tape::Tape;
use super::record::Record;
use super::recording::Recording;
use super::{Rig, builder, system};
use crate::error::Context;
use crate::{Error, Result};

/// How long a device is waited for that somebody has claimed, or that is mounted in another namespace.
const BUSY: Duration = Duration::from_secs(10);

/// How a replay is set up: from [`Recording::replay`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    recording: Recording,
    rig: builder::Builder,
}

/// A disk to cut the power of. Dropping it takes everything down but the recording.
#[derive(Debug)]
pub struct Replay {
    rig: Rig,
}

/// A replayed disk with its file system mounted. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted<'a> {
    replay: &'a Replay,
    loss: Loss,
}

impl Recording {
    /// A disk to cut the power of, again and again. Several may replay one recording side by side.
    pub fn replay(&self) -> Builder {
        Builder::new(self.clone())
    }
}

impl Builder {
    fn new(recording: Recording) -> Self {
        let mut rig = Rig::builder().fs(recording.fs).size(recording.size);
        if let Some(options) = &recording.mount_options {
            rig = rig.mount_options(options);
        }
        Self { recording, rig }
    }

    /// Where to mount it: an existing directory. A new one unless said.
    pub fn at(mut self, mount_point: impl Into<PathBuf>) -> Self {
        self.rig = self.rig.at(mount_point);
        self
    }

    /// Options for mount(8), instead of those of the recorded rig.
    pub fn mount_options(mut self, options: impl Into<String>) -> Self {
        self.rig = self.rig.mount_options(options);
        self
    }

    /// The `rig` program to run as the daemon; see [`super::Builder::binary`].
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.rig = self.rig.binary(program);
        self
    }

    /// Sets the disk up, as it was when the recording began, not mounted.
    ///
    /// # Errors
    /// As [`super::Builder::up`].
    pub fn up(self) -> Result<Replay> {
        Ok(Replay { rig: self.rig.replay(self.recording)? })
    }
}

impl Replay {
    /// Where the file system is mounted, when it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.rig.path()
    }

    /// The loop device, for fsck and the like between [`Replay::cut`] and [`Replay::mount`].
    #[must_use]
    pub fn device(&self) -> &Path {
        self.rig.device()
    }

    /// The rig under it: its disk can fail and be slow as any other.
    #[must_use]
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Makes this the disk after a power cut. All that has been written since the last cut is gone.
    ///
    /// Cuts at places that go up are the quickest; to go back costs one pass over the log's events.
    ///
    /// # Errors
    /// The file system is mounted, here or for more than ten seconds in another mount namespace; the log
    /// has no such place; the daemon does not answer.
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
    /// The file system or the loop device is in use; the text names who uses it.
    pub fn down(self) -> Result<()> {
        self.rig.down()
    }

    /// Leaves the replay standing when this process ends; see [`Rig::keep`].
    ///
    /// # Errors
    /// The record could not be written.
    pub fn keep(self) -> Result<()> {
        self.rig.keep()
    }
}

/// Cuts the replay of `record`, whoever set it up.
pub(super) fn recut(record: &Record, device: &Path, cut: Cut) -> Result<Loss> {
    let claimed = claim(record, device)?;
    let loss = record.disk().cut(cut)?;
    forget(&claimed, record.size).context("empty the cache of", device)?;
    record.disk().settle()?;
    Ok(loss)
}

/// Opens a device for this process alone: no file system lives on it, in no mount namespace, and none is
/// mounted until the close.
///
/// A process that has made a namespace of its own has a copy of every mount in it, so that an unmount
/// here does not end the file system: it would write to the disk after the cut.
fn claim(record: &Record, device: &Path) -> Result<File> {
    if system::mounts()?.iter().any(|mount| mount.source == device) {
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
    opened.map_err(|error| match by.is_empty() {
        true => error,
        false => Error::Refused(format!("{error}; it is mounted for {}", by.join(", "))),
    })
}

/// Makes the kernel forget a device whose content has changed under it, and the FUSE file below.
///
/// The last close of a device empties its cache, but somebody else may have it open: udev, or a
/// `mkfs.btrfs` that looks at every device there is. BLKFLSBUF and `POSIX_FADV_DONTNEED` leave what such
/// a reader holds at that moment. A discard truncates the caches, whoever holds what; the disk itself
/// ignores it.
fn forget(device: &File, size: u64) -> rustix::io::Result<()> {
    fallocate(device, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, size)
}

impl Mounted<'_> {
    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.replay.path()
    }

    /// What the cut did; all zero after a bare [`Replay::mount`].
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Leaves it mounted.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// Unmounts, and says who is in the way if somebody is.
    ///
    /// # Errors
    /// It is in use for more than two seconds.
    pub fn unmount(self) -> Result<()> {
        let result = self.replay.rig.unmount();
        std::mem::forget(self);
        result
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.replay.rig.unmount() {
            // The next cut finds it mounted and refuses; nothing goes unseen.
            eprintln!("rig: {error}");
        }
    }
}
