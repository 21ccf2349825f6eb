//! Where a held path is, with the directories of its overlay.

use crate::config::Held;
use crate::safe_directory::{SCRATCH, SafeDirectory, resolve};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_probe::mounts::Mount;

/// The upper directory of an overlay over one file.
pub(crate) const UPPER: &str = "upper";

/// A held path, with links above its last component resolved.
#[derive(Clone, Debug)]
pub struct ResolvedPath {
    parent: PathBuf,
    name: OsString,
    is_file: bool,
}

impl ResolvedPath {
    /// Finds the place of `held`.
    ///
    /// # Errors
    /// Names the directory that does not exist or cannot be reached.
    pub fn find(held: &Held) -> Result<Self, Error> {
        let above = held.path.parent().unwrap_or(Path::new("/"));
        Ok(Self {
            parent: resolve(above)?,
            name: held.path.file_name().unwrap_or_default().to_owned(),
            is_file: held.kind.is_file(),
        })
    }

    /// Returns the place of `held` in `parent`, which has no links.
    pub fn at(parent: PathBuf, held: &Held) -> Self {
        let name = held.path.file_name().unwrap_or_default().to_owned();
        Self { parent, name, is_file: held.kind.is_file() }
    }

    /// Returns the held path.
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// Returns the last name of the held path.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the directory that has the held path.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// Opens the directory that has the held path.
    ///
    /// # Errors
    /// Names the path. A link that was put there since is an error.
    pub(crate) fn open_parent(&self) -> Result<SafeDirectory, Error> {
        SafeDirectory::open(&self.parent)
    }

    /// Whether the held path is one file, and not a directory.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Opens the directory of the overlay, beside the held path; `None` if there is none.
    ///
    /// # Errors
    /// Names what cannot be opened, or is not of a hold.
    pub(crate) fn scratch(&self) -> Result<Option<SafeDirectory>, Error> {
        let Some(parent) = SafeDirectory::open_if_there(&self.parent)? else { return Ok(None) };
        let Some(all) = parent.inner(OsStr::new(SCRATCH))? else { return Ok(None) };
        all.inner(&self.name)
    }

    /// Opens the held file below its overlay, to be locked.
    pub(crate) fn open_below(&self) -> Result<OwnedFd, Error> {
        let upper = match self.scratch()? {
            Some(scratch) => scratch.inner(OsStr::new(UPPER))?,
            None => None,
        };
        let missing = || Error::new("cannot find the file below", &self.path(), Errno::NOENT);
        upper.ok_or_else(missing)?.open_file(&self.name, OFlags::RDWR)
    }

    fn scratch_path(&self) -> PathBuf {
        self.parent.join(SCRATCH).join(&self.name)
    }

    /// Returns the mount over the held path among `mounts`, in the order of mountinfo.
    pub fn mount<'a>(&self, mounts: &'a [Mount]) -> Option<&'a Mount> {
        let path = self.path();
        let at = mounts.iter().rev().find(|mount| mount.point == path)?;
        is_of_hold(at).then_some(at)
    }

    /// Whether `mount` is a volatile overlay of a hold and its upper directory may be the one of
    /// this place. The kernel shows the path that the directory had, or a link in /proc.
    pub fn may_have(&self, mount: &Mount) -> bool {
        let upper = if self.is_file { self.scratch_path().join(UPPER) } else { self.path() };
        let shown = mount.option("upperdir");
        is_of_hold(mount) && shown.is_none_or(|shown| shown == upper || shown.starts_with("/proc"))
    }
}

/// Whether `mount` is a volatile overlay of a hold.
pub fn is_of_hold(mount: &Mount) -> bool {
    // The source that every overlay of `sys::overlay` has.
    mount.type_name == "overlay" && mount.source == "synconce" && mount.is_volatile()
}
