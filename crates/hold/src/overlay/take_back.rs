//! The directories of an overlay after a `chown -R` above the held path: entrypoints of containers,
//! `StateDirectory=` of systemd and tmpfiles.d(5) change the owner of what a hold made there, too.

use super::{POINT, ResolvedPath, SCRATCH, UPPER, WORK, own};
use crate::file_id::FileId;
use crate::safe_directory::SafeDirectory;
use rustix::io::Errno;
use std::ffi::OsStr;
use synconce_durable::error::{Context, Error};

/// The number of the directory that has those of one overlay, in the order of
/// [`ResolvedPath::directories`].
const SCRATCH_OF_PATH: usize = 2;

impl ResolvedPath {
    /// Returns the names of the directories of the overlay, each one with the number of the
    /// directory above it; 0 is the directory that has the held path.
    fn directories(&self) -> [(usize, &OsStr); 5] {
        let [all, upper, work, lower] = [SCRATCH, UPPER, WORK, POINT].map(OsStr::new);
        [(0, all), (1, self.name()), (2, upper), (2, work), (2, lower)]
    }

    /// Returns the identities of the directories of the overlay, for [`ResolvedPath::take_back`].
    ///
    /// # Errors
    /// Names a directory that is missing, or is not root's.
    pub(crate) fn identities(&self) -> Result<Vec<FileId>, Error> {
        let mut opened = vec![self.open_parent()?];
        let mut identities = Vec::new();
        for (above, name) in self.directories() {
            let path = || opened[above].path().join(name);
            let found = opened[above].inner(name)?;
            let found = found.ok_or_else(|| Error::new("cannot find", &path(), Errno::NOENT))?;
            identities.push(FileId::of_open(&found).on("cannot look at", &path())?);
            opened.push(found);
        }
        Ok(identities)
    }

    /// Makes root the owner of the directories of the overlay again, if these are the ones with
    /// `identities`. Directories of another user are left alone, and so are missing ones.
    ///
    /// # Errors
    /// Names a directory that is not root's and is another one, or that no hold made.
    pub(crate) fn take_back(&self, identities: &[FileId]) -> Result<(), Error> {
        let mut opened = vec![SafeDirectory::open_if_there(self.parent())?];
        for (index, (above, name)) in self.directories().into_iter().enumerate() {
            let found = match &opened[above] {
                Some(above) => above.inner_or_taken_back(name, identities.get(index))?,
                None => None,
            };
            opened.push(found);
        }
        match &opened[SCRATCH_OF_PATH] {
            Some(scratch) => own::refuse_foreign(scratch),
            None => Ok(()),
        }
    }
}
