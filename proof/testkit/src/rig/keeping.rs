//! Recorded rigs, for other processes than their owner: `rig list`, `rig down` and the reaper.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use serde::Serialize;

use super::record::RigRecord;
use super::teardown::{self, Busy, teardown};
use super::{Cut, Disk, FsKind, Loss, Recording, remount, replay, system, thaw};
use crate::error::Context;
use crate::{Error, Result};

/// How long to wait for a file system in use.
const BUSY: Duration = Duration::from_secs(2);

/// A recorded rig, whichever process set it up.
#[derive(Debug)]
pub struct RecordedRig {
    record: RigRecord,
}

/// The properties of a rig, for display.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RigSummary {
    /// Where its file system is mounted.
    pub mount_point: PathBuf,
    /// The file system's kind.
    pub fs: FsKind,
    /// The disk's size in bytes.
    pub size: u64,
    /// The loop device, while there is one.
    pub device: Option<PathBuf>,
    /// The process whose end makes the rig stale; `None` if the rig stays until it is taken
    /// down.
    pub owner: Option<i32>,
    /// The daemon, once it has started.
    pub daemon: Option<i32>,
    /// Whether the owner, which should take the rig down, is dead.
    pub stale: bool,
}

impl RecordedRig {
    /// Returns the properties of the rig, for display.
    #[must_use]
    pub fn summary(&self) -> RigSummary {
        let record = &self.record;
        RigSummary {
            mount_point: record.mount_point.clone(),
            fs: record.fs,
            size: record.size,
            device: system::loop_device(&record.disk_file()),
            owner: record.owner.as_ref().map(super::identity::ProcessId::pid),
            daemon: record.daemon().map(|daemon| daemon.pid()),
            stale: record.is_stale(),
        }
    }

    /// Returns the handle that controls the disk.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.record.disk()
    }

    /// Returns the recording of the rig's disk.
    ///
    /// # Errors
    /// The rig was set up without recording.
    pub fn recording(&self) -> Result<&Recording> {
        self.record.recording()
    }

    /// Cuts the power of a replay of `recording` again, and mounts the replay again.
    ///
    /// # Errors
    /// The rig is not a replay of `recording`; or as [`super::Replay::cut`].
    pub fn recut(&self, recording: &Recording, cut: Cut) -> Result<Loss> {
        let RigRecord { mount_point, fs, mount_options, replays, .. } = &self.record;
        let device = system::loop_device(&self.record.disk_file());
        let replayed = replays.as_ref().is_some_and(|replayed| replayed.log == recording.log);
        let (Some(device), true) = (device, replayed) else {
            let point = mount_point.display();
            return Err(Error::Refused(format!(
                "cannot cut {point}: it is not a replay of that rig"
            )));
        };
        // The kernel would detach the device with its last user, while nothing is mounted.
        let _attached = File::open(&device).context("open", &device)?;
        system::unmount_all(|mount| mount.source == device, UnmountFlags::empty(), BUSY)?;
        let loss = replay::recut(&self.record, &device, cut)?;
        remount::mount(*fs, &device, mount_point, mount_options.as_deref())?;
        Ok(loss)
    }

    /// Takes the rig down. With `force` also if the file system is in use; its users then get
    /// EIO.
    ///
    /// # Errors
    /// The file system is in use: the text names the processes. Or the kernel refuses.
    pub fn down(&self, force: bool) -> Result<()> {
        let busy = if force { Busy::Force } else { Busy::Refuse };
        if teardown(&self.record, busy)? {
            return Ok(());
        }
        let point = self.record.mount_point.display();
        Err(Error::Refused(format!("another process is taking down {point}")))
    }
}

/// Returns all recorded rigs.
///
/// # Errors
/// The work directory cannot be read.
pub fn entries() -> Result<Vec<RecordedRig>> {
    Ok(RigRecord::all()?.into_iter().map(|record| RecordedRig { record }).collect())
}

/// Returns the rig that is mounted at `mount_point`.
///
/// # Errors
/// No rig is mounted there.
pub fn find(mount_point: &Path) -> Result<RecordedRig> {
    let path = std::path::absolute(mount_point).context("resolve", mount_point)?;
    let path = path.canonicalize().unwrap_or(path);
    let found = entries()?.into_iter().find(|entry| entry.record.mount_point == path);
    found.ok_or_else(|| Error::Refused(format!("no rig is mounted at {}", path.display())))
}

/// Takes down the rigs of dead owners and returns their mount points. Also removes the control
/// groups of killed tests, and thaws what they have frozen.
///
/// # Errors
/// The work directory cannot be read. A rig that cannot be taken down is named on stderr.
pub fn reap() -> Result<Vec<PathBuf>> {
    thaw::thaw_abandoned();
    crate::harness::cgroups::reap();
    teardown::reap()
}
