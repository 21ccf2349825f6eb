//! The copy that a session writes in.

use super::snapshot::snapshot;
use super::{Begun, ROOT, Session, UPPER, WORK, Working, nothing};
use crate::record::{LayerContent, Purpose};
use crate::store::{CONTENT, open_directory};
use crate::strategy::Strategy;
use crate::{overlay, view};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_fs::{CopyMode, CopyOptions, CopyReport, OverlayAttributes, Progress};
use synconce_sys::btrfs;

impl<'a> Session<'a, Begun> {
    /// Makes the copy: only directories for an overlay, a snapshot in one step, or a copy of
    /// every entry.
    ///
    /// # Errors
    /// The session has then ended.
    pub fn prepare(self, progress: &dyn Progress) -> Result<Session<'a>, Error> {
        match self.make_copy(progress) {
            Ok(()) => Ok(self.into_state(Working)),
            Err(error) => self.discard_after(error),
        }
    }

    /// Makes an empty directory in place of a copy, by the strategy `of`, and calls `fill`.
    pub(crate) fn fill<T>(
        self,
        of: Strategy,
        fill: impl FnOnce(BorrowedFd<'_>) -> Result<T, Error>,
    ) -> Result<(Session<'a>, T), Error> {
        let made = self.make_whole(of).and_then(|whole| fill(open_directory(&whole)?.as_fd()));
        match made {
            Ok(filled) => Ok((self.into_state(Working), filled)),
            Err(error) => self.discard_after(error),
        }
    }

    fn make_copy(&self, progress: &dyn Progress) -> Result<(), Error> {
        make(&self.directory().join(ROOT))?;
        if matches!(self.note.purpose, Purpose::View(_)) {
            return Ok(());
        }
        match self.note.strategy {
            Strategy::Overlay => self.prepare_upper(),
            Strategy::Snapshot => self.snapshot(),
            Strategy::Reflink => self.copy(CopyMode::Reflink, progress),
            Strategy::Copy => self.copy(CopyMode::Copy, progress),
        }
    }

    fn prepare_upper(&self) -> Result<(), Error> {
        let upper = self.directory().join(UPPER);
        make(&upper)?;
        make(&self.directory().join(WORK))?;
        let top = self.note.layers.last().ok_or_else(|| nothing(&self.directory()))?;
        let top = open_directory(&self.store.content(&top.id))?;
        overlay::prepare_upper(open_directory(&upper)?.as_fd(), top.as_fd())
    }

    fn snapshot(&self) -> Result<(), Error> {
        let base = self.note.layers.last().ok_or_else(|| nothing(&self.directory()))?;
        let path = self.store.content(&base.id);
        let base = open_directory(&path)?;
        let directory = open_directory(&self.directory())?;
        snapshot(base.as_fd(), &path, directory.as_fd(), OsStr::new(CONTENT))
    }

    fn copy(&self, mode: CopyMode, progress: &dyn Progress) -> Result<(), Error> {
        let target = open_directory(&self.make_whole(self.note.strategy)?)?;
        let view = view::view(self.store, &self.note.layers)?;
        // Overlays that a container engine in the tree has made.
        let overlays = OverlayAttributes::Kept;
        let options = CopyOptions { mode, overlays, ..CopyOptions::default() };
        let report = synconce_fs::copy(view.as_fd(), target.as_fd(), &options, progress)?;
        settled(&report, &self.directory())
    }

    /// Makes an empty directory for a whole copy: a subvolume on btrfs, unless the copy will
    /// be a layer of overlays.
    fn make_whole(&self, of: Strategy) -> Result<PathBuf, Error> {
        let path = self.whole();
        if self.store.is_btrfs() && of != Strategy::Overlay {
            let directory = open_directory(&self.directory())?;
            btrfs::create_subvolume(directory.as_fd(), OsStr::new(CONTENT))
                .on("cannot make a subvolume at", &path)?;
            open_to_all(&path)?;
        } else {
            make(&path)?;
        }
        Ok(path)
    }
}

impl<State> Session<'_, State> {
    /// Returns the path of the whole copy.
    pub(super) fn whole(&self) -> PathBuf {
        self.directory().join(CONTENT)
    }

    /// Returns the directory that becomes a layer, and what the directory holds.
    pub(crate) fn content(&self) -> (PathBuf, LayerContent) {
        match self.note.strategy {
            Strategy::Overlay if self.note.features.user_xattr => {
                (self.directory().join(UPPER), LayerContent::UserUpper)
            }
            Strategy::Overlay => (self.directory().join(UPPER), LayerContent::Upper),
            _ => (self.whole(), LayerContent::Whole),
        }
    }
}

/// Fails if a source that nothing else may write changed during the copy, or if not all of the
/// source could be copied.
pub(crate) fn settled(report: &CopyReport, path: &Path) -> Result<(), Error> {
    if !report.changed.is_empty() {
        return Err(Error::new("cannot copy", path, Errno::STALE));
    }
    match (report.devices.first(), report.attributes.first()) {
        (Some(device), _) => Err(Error::new("cannot make the device node", device, Errno::PERM)),
        (_, Some(path)) => Err(Error::new("cannot set all attributes of", path, Errno::PERM)),
        (None, None) => Ok(()),
    }
}

fn make(path: &Path) -> Result<(), Error> {
    fs::create_dir(path).on("cannot create", path)?;
    open_to_all(path)
}

/// Lets all users enter the root of a tree, whatever the umask.
fn open_to_all(path: &Path) -> Result<(), Error> {
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).on("cannot set the mode of", path)
}
