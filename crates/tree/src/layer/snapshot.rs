//! Fingerprints of snapshots, which btrfs itself takes: each subvolume has the number of its last
//! change. No entry is looked at.

use super::alteration::Alteration;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_sys::btrfs;

/// The fingerprint of a read-only snapshot.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotFingerprint {
    /// The UUID of the subvolume.
    uuid: String,
    /// The transaction of the file system that last changed the subvolume.
    last_change: u64,
}

impl SnapshotFingerprint {
    /// Returns the fingerprint of the snapshot in the directory `content`. The file system must
    /// have been synced: written data counts as a change only after its write-back.
    ///
    /// Returns `None` if `content` is no snapshot, if the snapshot can be written to, or if
    /// subvolumes are in it: btrfs counts their changes separately. Also before Linux 4.18.
    pub(super) fn read(content: BorrowedFd<'_>, path: &Path) -> Result<Option<Self>, Error> {
        let has_numbers = || {
            Ok(btrfs::is_subvolume(content)?
                && btrfs::is_read_only(content)?
                && !btrfs::has_nested(content)?)
        };
        let subvolume = has_numbers()
            .and_then(|has| if has { btrfs::subvolume(content).map(Some) } else { Ok(None) });
        match subvolume {
            Err(error) if is_unsupported(&error) => Ok(None),
            subvolume => {
                let snapshot = subvolume.on("cannot look at", path)?.filter(|one| one.is_snapshot);
                Ok(snapshot.map(|one| Self { uuid: text(one.uuid), last_change: one.last_change }))
            }
        }
    }

    /// Returns how the directory `content` differs from the snapshot of this fingerprint. The file
    /// system must have been synced, as for [`Self::read`].
    pub(super) fn alteration(
        &self,
        content: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<Option<Alteration>, Error> {
        let alteration = || -> io::Result<_> {
            if !btrfs::is_subvolume(content)? {
                return Ok(Some(Alteration::Replaced));
            }
            let now = btrfs::subvolume(content)?;
            Ok(if text(now.uuid) != self.uuid {
                Some(Alteration::Replaced)
            } else if !btrfs::is_read_only(content)? {
                Some(Alteration::Writable)
            } else if now.last_change != self.last_change || btrfs::has_nested(content)? {
                Some(Alteration::Counted)
            } else {
                None
            })
        };
        alteration().on("cannot look at", path)
    }
}

/// Returns `uuid` in hexadecimal digits.
fn text(uuid: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(uuid))
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTTY.raw_os_error())
}
