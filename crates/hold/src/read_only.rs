//! Makes whole overlays read-only, with all their mounts.
//!
//! An unmount ends one mount of an overlay. A private copy in another mount namespace stays, and
//! its processes can go on writing without syncs. A read-only super block has no writer: the kernel
//! refuses it while a file is open for writing through any mount of it, also a detached one
//! (`sb_prepare_remount_readonly` in fs/namespace.c). Only root outside of user namespaces can make
//! it writable again.

use crate::patience::eventually;
use crate::resolved_path::ResolvedPath;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};
use std::os::fd::OwnedFd;
use synconce_durable::error::{Context, Error};
use synconce_probe::mounts::Mount;

/// Read-only overlays. Dropped before [`ReadOnly::keep`], it makes them writable again.
#[derive(Debug, Default)]
pub(crate) struct ReadOnly(Vec<OwnedFd>);

impl ReadOnly {
    /// Makes the overlays that are mounted at `places` read-only, all or none of them.
    ///
    /// Returns `None` if a file of one is open for writing for as long as a verb waits.
    pub fn make(places: &[(ResolvedPath, Mount)]) -> Result<Option<Self>, Error> {
        let mut made = None;
        eventually(|| {
            made = Self::try_make(places)?;
            Ok::<_, Error>(made.is_some())
        })?;
        Ok(made)
    }

    /// Tries once. Between two tries all overlays are writable.
    fn try_make(places: &[(ResolvedPath, Mount)]) -> Result<Option<Self>, Error> {
        let mut made = Self::default();
        for (place, mount) in places {
            // A descriptor that failed to change the super block never changes it
            // (`FS_CONTEXT_FAILED` in fs/fsopen.c).
            let system = pick(place, mount)?;
            match set(&system, "ro") {
                Err(Errno::BUSY) => return Ok(None),
                other => other.on("cannot make read-only", &place.path())?,
            }
            made.0.push(system);
        }
        Ok(Some(made))
    }

    /// Makes the read-only overlays of `places` writable: those of a start, which mounts them
    /// read-only, and those that a killed stop has left.
    pub fn undo(places: &[(ResolvedPath, Mount)]) -> Result<(), Error> {
        for (place, mount) in places.iter().filter(|(_, mount)| is_read_only(mount)) {
            set(&pick(place, mount)?, "rw").on("cannot make writable", &place.path())?;
        }
        Ok(())
    }

    /// Leaves the overlays read-only.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        for system in &self.0 {
            // The caller has an error to report already.
            let _ = set(system, "rw");
        }
    }
}

/// Whether the whole file system of `mount` is read-only, and not only the mount.
pub(crate) fn is_read_only(mount: &Mount) -> bool {
    mount.has_option("ro")
}

/// Opens the super block of `mount`, which is at `place`.
fn pick(place: &ResolvedPath, mount: &Mount) -> Result<OwnedFd, Error> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_SYMLINK_NOFOLLOW;
    let (_parent, point) = place.mount_point(mount)?;
    fspick(CWD, &point, flags).on("cannot open the mount on", &place.path())
}

/// Sets `flag` of the super block; no other option and no flag of a mount changes (mount(2) would
/// set those of the mount, too).
fn set(system: &OwnedFd, flag: &str) -> rustix::io::Result<()> {
    fsconfig_set_flag(system, flag)?;
    fsconfig_reconfigure(system)
}
