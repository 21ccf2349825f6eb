//! The sync of one pinned file system.

use super::{Handle, Pin, open};
use crate::file_system::ErrorCount;
use crate::synced::{SyncFailure, Synced};
use crate::{failures, file_system};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::time::Instant;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::mount_id;

impl Pin {
    /// Syncs the file system, and returns the time it took.
    pub(crate) fn sync(self) -> Synced {
        let began = Instant::now();
        self.sync_by_descriptor().and_then(|()| self.find_new_errors()).map_err(
            |error| match error {
                Errno::MFILE | Errno::NFILE => SyncFailure::NotBegun(error.into()),
                _ => {
                    failures::note(self.device);
                    SyncFailure::Sync(error.into())
                }
            },
        )?;
        if self.volatile {
            return Err(SyncFailure::Volatile);
        }
        Ok(began.elapsed())
    }

    fn sync_by_descriptor(&self) -> Result<(), Errno> {
        let handle = &match &self.handle {
            Handle::Open(handle) => handle.descriptor()?,
            Handle::AtCommit => match open(&self.point) {
                Ok(handle) if mount_id(&handle) == Some(self.mount) => handle,
                // This user cannot reach the mount. The sync(2) of `Everything` covers it.
                Ok(_) | Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            },
            // The file system was not found.
            Handle::None => return Err(Errno::NODEV),
        };
        match self.kind() {
            // fsync(2) on the block device below the file system, or a request to its server.
            SyncKind::Fuse { .. } => rustix::fs::fsync(handle),
            SyncKind::Disk { flushes: false } => {
                rustix::fs::syncfs(handle)?;
                rustix::fs::fsync(handle)
            }
            SyncKind::Disk { flushes: true } => file_system::sync_by(handle.as_fd(), &self.owned),
            // The upper file system has no pin that reports its errors. fsync(2) of the overlay's
            // root reaches the upper directory (`ovl_dir_fsync`).
            SyncKind::Stacked if self.uppers.is_empty() => {
                rustix::fs::syncfs(handle)?;
                file_system::find_stop(handle.as_fd())?;
                file_system::find_aborted_journal(handle.as_fd(), &self.owned)
            }
            _ => rustix::fs::syncfs(handle),
        }
    }

    /// Fails if ext4 has counted an error since the pin was made. It may then have thrown away data
    /// for which it found no place, which syncfs(2) does not report (`mpage_map_and_submit_extent`,
    /// Linux 6.18).
    fn find_new_errors(&self) -> Result<(), Errno> {
        let Some((before, now)) = self.errors.zip(ErrorCount::read(self.device)) else {
            return Ok(());
        };
        // ext4's EFSCORRUPTED, as fsync(2) returns it.
        if now.has_grown_since(&before) { Err(Errno::UCLEAN) } else { Ok(()) }
    }
}
