//! Snapshots of subvolumes with the subvolumes in them. btrfs itself makes an empty directory in
//! the place of each subvolume in a subvolume.

use crate::overlay::own_times;
use crate::store::open_below;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_sys::btrfs;

/// Makes the writable snapshot `name`, in the directory `above`, of the subvolume `source` at
/// `path`, and of the subvolumes in it. Of these, read-only ones stay read-only. Nothing may change
/// `source` meanwhile.
///
/// # Errors
/// The error names the act and the path of the subvolume.
pub(super) fn snapshot(
    source: BorrowedFd<'_>,
    path: &Path,
    above: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<(), Error> {
    btrfs::snapshot(source, above, name).on("cannot make a snapshot of", path)?;
    let nested = btrfs::nested(source).on("cannot list the subvolumes in", path)?;
    if nested.is_empty() {
        return Ok(());
    }
    let copy = open_below(above, name.as_ref()).on("cannot open the snapshot of", path)?;
    for inner in nested {
        snapshot_nested(source, copy.as_fd(), &inner, &path.join(&inner))?;
    }
    Ok(())
}

/// Replaces the directory `inner` of the snapshot `copy` by a snapshot of the subvolume `inner` of
/// `source`, which is at `path`.
fn snapshot_nested(
    source: BorrowedFd<'_>,
    copy: BorrowedFd<'_>,
    inner: &Path,
    path: &Path,
) -> Result<(), Error> {
    let nested = open_below(source, inner).on("cannot open", path)?;
    let (Some(parent), Some(name)) = (inner.parent(), inner.file_name()) else {
        return Err(Error::new("cannot make a snapshot of", path, Errno::INVAL));
    };
    let act = "cannot make a snapshot of";
    let above = open_below(copy, &Path::new(".").join(parent)).on(act, path)?;
    let before = rustix::fs::fstat(&above).on(act, path)?;
    rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR).on(act, path)?;
    snapshot(nested.as_fd(), path, above.as_fd(), name)?;
    if btrfs::is_read_only(nested.as_fd()).on("cannot look at", path)? {
        let made = open_below(above.as_fd(), name.as_ref()).on(act, path)?;
        btrfs::make_read_only(made.as_fd()).on(act, path)?;
    }
    rustix::fs::futimens(&above, &own_times(&before)).on(act, path)
}
