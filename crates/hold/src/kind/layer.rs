//! Layers of overlays at and below a directory that is to be held, and subvolumes below.
//!
//! The overlay of a hold would hide the marks of another overlay, and the end of the hold would
//! remove some of them: what the layer had deleted would be back.
//!
//! An overlay has one device number for all subvolumes of btrfs, and their inode numbers are the
//! same. So `find` and `du` would report a subvolume as a loop, and in a copy by `rsync -H` files
//! with hard links in two subvolumes would become one file.

use super::refusal::RefusalReason;
use crate::directories::{DIRECTORY, Entries, walk};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};

/// The prefixes of the attributes by which overlays find and merge their layers
/// (Documentation/filesystems/overlayfs.rst).
const PREFIXES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];
/// This attribute alone makes no layer: the mounts of a hold set it, and a crash leaves it.
const MOUNTED_ONCE: &[u8] = b"trusted.overlay.uuid";

/// What ends the walk.
enum WalkEnd {
    Refused(RefusalReason),
    Failed(Error),
}

impl From<Error> for WalkEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Refuses a directory that is a layer of an overlay, or has one below: an attribute of overlays,
/// or a whiteout (a character device with the number 0). Refuses one with a subvolume below. Needs
/// CAP_SYS_ADMIN.
pub(super) fn check(top: &Path) -> Result<(), RefusalReason> {
    let opened = rustix::fs::open(top, DIRECTORY, Mode::empty()).on("cannot open", top);
    match opened.map_err(WalkEnd::from).and_then(|directory| walk(directory, top, look)) {
        Ok(()) => Ok(()),
        Err(WalkEnd::Refused(reason)) => Err(reason),
        Err(WalkEnd::Failed(error)) => {
            let kind = error.io().kind();
            Err(RefusalReason::Unreadable(error.path().to_owned(), io::Error::new(kind, error)))
        }
    }
}

fn look(entries: &Entries<'_>) -> Result<(), WalkEnd> {
    let failed = |error: Errno| Error::new("cannot look below", &entries.path_of(c"."), error);
    if entries.is_of_another_device() {
        return Err(WalkEnd::Refused(RefusalReason::SubvolumeBelow(entries.path_of(c"."))));
    }
    let below = PathBuf::from(format!("/proc/self/fd/{}", entries.directory.as_raw_fd()));
    let attribute = attribute_of(&below).map_err(failed)?;
    if let Some(attribute) = attribute {
        return Err(WalkEnd::Refused(RefusalReason::Layer(entries.path_of(c"."), attribute)));
    }
    for (name, kind) in entries.entries {
        let path = || entries.path_of(name);
        match kind {
            FileType::CharacterDevice => {
                let is_whiteout =
                    match rustix::fs::statat(entries.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Err(Errno::NOENT) => false,
                        stat => stat.map_err(failed)?.st_rdev == 0,
                    };
                if is_whiteout {
                    return Err(WalkEnd::Refused(RefusalReason::Layer(
                        path(),
                        "is a whiteout".into(),
                    )));
                }
            }
            FileType::RegularFile => {
                let file = below.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                if let Some(attribute) = attribute_of(&file).map_err(failed)? {
                    return Err(WalkEnd::Refused(RefusalReason::Layer(path(), attribute)));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the end of a message: the attribute of overlays that the file at `path` has.
fn attribute_of(path: &Path) -> Result<Option<String>, Errno> {
    let mut names = [0_u8; 1024];
    let length = match rustix::fs::listxattr(path, &mut names[..]) {
        // The file was removed meanwhile, or its file system has no attributes.
        Err(Errno::OPNOTSUPP | Errno::NOENT) => return Ok(None),
        Err(Errno::RANGE) => return long(path),
        length => length?,
    };
    Ok(among(&names[..length]))
}

/// Like [`attribute_of`], with room for the longest list of names, 64 KiB (xattr(7)).
fn long(path: &Path) -> Result<Option<String>, Errno> {
    let mut names = vec![0_u8; 65536];
    let length = rustix::fs::listxattr(path, &mut names[..])?;
    Ok(among(&names[..length]))
}

fn among(names: &[u8]) -> Option<String> {
    let mut names = names.split(|byte| *byte == 0);
    let is_of_layer = |name: &&[u8]| {
        *name != MOUNTED_ONCE && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let found = names.find(is_of_layer)?;
    Some(format!("has the attribute {}", String::from_utf8_lossy(found)))
}
