//! The attributes of a held directory after its overlay is unmounted.

use crate::directories::{Entries, walk};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// The attributes that an overlay adds to directories of its upper.
const OWN: &[u8] = b"trusted.overlay.";
/// The kernel stores an attribute that a process sets through an overlay, and that begins as
/// [`OWN`], with this beginning (Linux 6.7, "Nesting overlayfs mounts" in
/// Documentation/filesystems/overlayfs.rst).
const ESCAPED: &[u8] = b"trusted.overlay.overlay.";
/// The kernel's limit for a list of names and for a value, in bytes (xattr(7)).
const LONGEST: usize = 64 << 10;

/// Removes the attributes of the overlay of a hold from the open directory `top` and from the directories below. What
/// processes set through the overlay gets its name back: a directory that an unpacked layer made
/// opaque is opaque afterwards.
///
/// # Errors
/// Names `top`.
pub(crate) fn restore(directory: OwnedFd, top: &Path) -> Result<(), Error> {
    walk(directory, top, |Entries { directory, .. }| {
        let mut names = vec![0_u8; LONGEST];
        let length = rustix::fs::flistxattr(directory, &mut names[..]);
        let length = length.on("cannot list the attributes below", top)?;
        let names: Vec<_> = names[..length].split(|byte| *byte == 0).collect();
        let own = names.iter().filter(|name| name.starts_with(OWN) && !name.starts_with(ESCAPED));
        for name in own {
            remove(directory, name).on("cannot remove an attribute below", top)?;
        }
        for name in names.iter().filter(|name| name.starts_with(ESCAPED)) {
            rename(directory, name).on("cannot rename an attribute below", top)?;
        }
        Ok(())
    })
}

/// Gives the attribute with the escaped `name` the name that was meant.
fn rename(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let mut value = vec![0_u8; LONGEST];
    let length = match rustix::fs::fgetxattr(directory, name, &mut value[..]) {
        Err(Errno::NODATA) => return Ok(()),
        length => length?,
    };
    let meant = [OWN, &name[ESCAPED.len()..]].concat();
    rustix::fs::fsetxattr(directory, &*meant, &value[..length], XattrFlags::empty())?;
    remove(directory, name)
}

fn remove(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::fremovexattr(directory, name) {
        Err(Errno::NODATA) => Ok(()),
        other => other,
    }
}
