//! Rigs on record, for those who did not set them up: `rig list`, `rig down` and the reaper.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use serde::Serialize;

use super::record::Record;
use super::teardown::{self, Busy, teardown};
use super::{Cut, Disk, FsKind, Loss, Recording, remount, replay, system};
use crate::error::Context;
use crate::{Error, Result};

/// How long a file system in use is waited for.
const BUSY: Duration = Duration::from_secs(2);

/// A rig on record, whoever set it up.
#[derive(Debug)]
pub struct Entry {
    record: Record,
}

/// What is to be told of a rig.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Where its file system is mounted.
    pub mount_point: PathBuf,
    /// The file system's kind.
    pub fs: FsKind,
    /// The disk's size in bytes.
    pub size: u64,
    /// The loop device, while there is one.
    pub device: Option<PathBuf>,
    /// The process with which the rig goes; none if it stays until it is taken down.
    pub owner: Option<i32>,
    /// The daemon, once it has started.
    pub daemon: Option<i32>,
    /// Whether nobody is left to take it down.
    pub stale: bool,
}

impl Entry {
    /// What is to be told of it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let record = &self.record;
        Summary {
            mount_point: record.mount_point.clone(),
            fs: record.fs,
            size: record.size,
            device: system::loop_device(&record.disk_file()),
            owner: record.owner.as_ref().map(super::identity::ProcessId::pid),
            daemon: record.daemon().map(|daemon| daemon.pid()),
            stale: record.is_stale(),
        }
    }

    /// The disk, to command it.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.record.disk()
    }

    /// The recording of its disk.
    ///
    /// # Errors
    /// The rig was set up without recording.
    pub fn recording(&self) -> Result<&Recording> {
        self.record.recording()
    }

    /// Cuts the power of a replay of `recording` anew, and mounts it again.
    ///
    /// # Errors
    /// It is something else; or as [`super::Replay::cut`].
    pub fn recut(&self, recording: &Recording, cut: Cut) -> Result<Loss> {
        let Record { mount_point, fs, mount_options, replays, .. } = &self.record;
        let device = system::loop_device(&self.record.disk_file());
        let replayed = replays.as_ref().is_some_and(|replayed| replayed.log == recording.log);
        let (Some(device), true) = (device, replayed) else {
            let point = mount_point.display();
            return Err(Error::Refused(format!(
                "cannot cut {point}: it is not a replay of that rig"
            )));
        };
        // Detached with its last user, the device would be gone while nothing is mounted.
        let _attached = File::open(&device).context("open", &device)?;
        system::unmount_all(|mount| mount.source == device, UnmountFlags::empty(), BUSY)?;
        let loss = replay::recut(&self.record, &device, cut)?;
        remount::mount(*fs, &device, mount_point, mount_options.as_deref())?;
        Ok(loss)
    }

    /// Takes the rig down; with `force` even if its file system is in use, whose users then get EIO.
    ///
    /// # Errors
    /// It is in use, and by whom; or the kernel refuses.
    pub fn down(&self, force: bool) -> Result<()> {
        let busy = if force { Busy::Force } else { Busy::Refuse };
        if teardown(&self.record, busy)? {
            return Ok(());
        }
        let point = self.record.mount_point.display();
        Err(Error::Refused(format!("another process is taking down {point}")))
    }
}

/// All rigs on record.
///
/// # Errors
/// The work directory cannot be read.
pub fn entries() -> Result<Vec<Entry>> {
    Ok(Record::all()?.into_iter().map(|record| Entry { record }).collect())
}

/// The rig that is mounted at `mount_point`.
///
/// # Errors
/// There is none.
pub fn find(mount_point: &Path) -> Result<Entry> {
    let path = std::path::absolute(mount_point).context("resolve", mount_point)?;
    let path = path.canonicalize().unwrap_or(path);
    let found = entries()?.into_iter().find(|entry| entry.record.mount_point == path);
    found.ok_or_else(|| Error::Refused(format!("no rig is mounted at {}", path.display())))
}

/// Takes down what dead owners left and returns the mount points of what went.
///
/// # Errors
/// The work directory cannot be read. A rig that does not go is named on stderr.
pub fn reap() -> Result<Vec<PathBuf>> {
    teardown::reap()
}
