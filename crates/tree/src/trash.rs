//! The trash: entries are moved there in one step, and removed later.

use crate::store::{CONTENT, Store, TRASH, names_in, open_below, open_directory, try_lease};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;
use synconce_sys::btrfs;

/// The result of emptying the trash.
#[derive(Debug, Default)]
pub struct Emptied {
    /// The number of files, directories and other entries that were removed.
    pub entries: u64,
    /// What could not be removed, with the reason; it stays in the trash.
    pub left: Vec<Error>,
    /// Another process is emptying the trash, so this process did not.
    pub busy: bool,
}

/// What [`empty_trash`] does while another process empties the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfBusy {
    /// Waits for its turn.
    Wait,
    /// Leaves the trash to the other process.
    Leave,
}

/// Returns whether the trash has entries.
///
/// # Errors
/// The trash cannot be read.
pub fn has_trash(store: &Store) -> Result<bool, Error> {
    Ok(!names_in(&store.path().join(TRASH))?.is_empty())
}

/// Removes the entries of the trash, including those that are added meanwhile. One process
/// at a time empties the trash. With [`IfBusy::Wait`] this process also makes btrfs begin to free
/// the space of deleted subvolumes.
///
/// # Errors
/// The trash cannot be read. Entries that cannot be removed are in the result.
pub fn empty_trash(
    store: &Store,
    if_busy: IfBusy,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Emptied, Error> {
    let trash = store.path().join(TRASH);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    // Stops at a mount on the trash, which is not the store's.
    rustix::fs::openat2(store.as_fd(), TRASH, flags, Mode::empty(), within)
        .on("cannot empty", &trash)?;
    let Some(_lease) = lease_of(&trash, if_busy, progress)? else {
        return Ok(Emptied { busy: true, ..Emptied::default() });
    };
    let mut emptied = Emptied::default();
    let mut failed: Vec<String> = Vec::new();
    loop {
        let names = names_in(&trash)?;
        let Some(name) = names.into_iter().find(|name| !failed.contains(name)) else { break };
        if store.is_btrfs() {
            delete_subvolume(&trash.join(&name));
        }
        let parent = open_directory(&trash)?;
        let removed = synconce_fs::remove(parent.as_fd(), OsStr::new(&name), threads, progress)?;
        emptied.entries += removed.entries;
        if !removed.is_complete() {
            failed.push(name);
        }
        emptied.left.extend(removed.left);
    }
    if if_busy == IfBusy::Wait && store.is_btrfs() {
        btrfs::sync(store.as_fd()).on("cannot sync the file system of", store.path())?;
    }
    Ok(emptied)
}

fn lease_of(
    trash: &Path,
    if_busy: IfBusy,
    progress: &dyn Progress,
) -> Result<Option<OwnedFd>, Error> {
    loop {
        let lease = try_lease(open_directory(trash)?, trash)?;
        if lease.is_some() || if_busy == IfBusy::Leave {
            return Ok(lease);
        }
        if progress.cancelled() {
            return Err(Error::new("cannot wait for", trash, Errno::CANCELED));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Deletes the subvolume in `directory` at once, with its inner subvolumes. If that is not
/// permitted, or `directory` is no subvolume, its entries are removed one by one later.
fn delete_subvolume(directory: &Path) {
    let Ok(directory) = open_directory(directory) else { return };
    let _ = try_delete(directory.as_fd(), OsStr::new(CONTENT));
}

/// Deletes the subvolume `name` of `above`, and first the subvolumes in it. Where that fails, makes
/// the subvolume writable.
fn try_delete(above: BorrowedFd<'_>, name: &OsStr) -> Result<(), io::Error> {
    let opened = open_below(above, name.as_ref())?;
    let opened = opened.as_fd();
    if !btrfs::is_subvolume(opened)? {
        return Ok(());
    }
    let nested = btrfs::nested(opened).unwrap_or_default();
    if !nested.is_empty() {
        btrfs::make_writable(opened)?;
    }
    for inner in nested {
        if let (Some(parent), Some(name)) = (inner.parent(), inner.file_name()) {
            let parent = open_below(opened, &Path::new(".").join(parent))?;
            try_delete(parent.as_fd(), name)?;
        }
    }
    btrfs::delete_subvolume(above, name).inspect_err(|_| {
        let _ = btrfs::make_writable(opened);
    })
}
