//! Extended attributes, of open files and of files that must not be opened.

use std::collections::BTreeMap;
use std::convert::identity;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, flistxattr_query, fsetxattr, lgetxattr, llistxattr,
    llistxattr_query, lsetxattr,
};
use rustix::io::Errno;

/// A buffer size that suffices for most values.
const VALUE: usize = 1 << 10;

/// The kernel's limit for a value and for a list of names (xattr(7)).
const LARGEST: usize = 64 << 10;

/// A file with extended attributes.
pub(crate) trait Attributed {
    /// Returns the size of the list of names in bytes.
    fn query(&self) -> Result<usize, Errno>;
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno>;
    fn get(&self, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno>;
    fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno>;
}

/// An open file.
pub(crate) struct Open<'a>(pub BorrowedFd<'a>);

impl Attributed for Open<'_> {
    fn query(&self) -> Result<usize, Errno> {
        flistxattr_query(self.0)
    }
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        flistxattr(self.0, buffer)
    }
    fn get(&self, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
        fgetxattr(self.0, name, buffer)
    }
    fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        fsetxattr(self.0, name, value, XattrFlags::empty())
    }
}

/// A file by its path, whose last name is not followed.
pub(crate) struct NamedFile(Vec<u8>);

impl NamedFile {
    /// Returns `name` in `directory`, by `/proc/self/fd/N/NAME`: before Linux 6.13 no call for
    /// attributes takes a directory and a name. The path is always short enough.
    pub(crate) fn in_directory(directory: BorrowedFd<'_>, name: &[u8]) -> Self {
        let path = format!("/proc/self/fd/{}/", directory.as_raw_fd());
        Self([path.as_bytes(), name].concat())
    }
}

impl Attributed for NamedFile {
    fn query(&self) -> Result<usize, Errno> {
        llistxattr_query(&self.0[..])
    }
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        llistxattr(&self.0[..], buffer)
    }
    fn get(&self, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
        lgetxattr(&self.0[..], name, buffer)
    }
    fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        lsetxattr(&self.0[..], name, value, XattrFlags::empty())
    }
}

/// Calls `tell` with each attribute that is `wanted`, and its value.
pub(crate) fn each_of<E>(
    source: &impl Attributed,
    wanted: impl Fn(&CStr) -> bool,
    failed: impl Fn(Errno) -> E,
    mut tell: impl FnMut(&CStr, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    // Most files have no attributes, which costs one call.
    let length = match source.query() {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length.map_err(&failed)?,
    };
    let mut list = vec![0; length];
    // The list may have grown since.
    let length = match source.list(&mut list) {
        Err(Errno::RANGE) => {
            list.resize(LARGEST, 0);
            source.list(&mut list)
        }
        length => length,
    };
    let mut rest = &list[..length.map_err(&failed)?];
    let mut value = vec![0; VALUE];
    while let Ok(name) = CStr::from_bytes_until_nul(rest) {
        rest = &rest[name.to_bytes_with_nul().len()..];
        if !wanted(name) {
            continue;
        }
        let length = match source.get(name, &mut value) {
            Err(Errno::RANGE) => {
                value.resize(LARGEST, 0);
                source.get(name, &mut value)
            }
            length => length,
        };
        match length {
            // The attribute was removed meanwhile, which changes the file's ctime.
            Err(Errno::NODATA) => {}
            length => tell(name, &value[..length.map_err(&failed)?])?,
        }
    }
    Ok(())
}

/// Returns the attributes of an open directory, which may be `O_PATH`. Attributes that the file
/// system derives itself and overlay's own attributes are left out. Attributes of overlay's names
/// that a program has set in the overlay are returned for an upper directory, where they are
/// escaped.
///
/// # Errors
/// The errors of listxattr(2) and getxattr(2).
pub fn xattrs(directory: BorrowedFd<'_>) -> Result<BTreeMap<CString, Vec<u8>>, Errno> {
    all(&NamedFile::in_directory(directory, b"."))
}

/// Returns whether an open directory, which may be `O_PATH`, shows attributes of overlays.
///
/// # Errors
/// The errors of listxattr(2) and getxattr(2).
pub fn shows_overlay_attributes(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    has_overlay_attributes(&NamedFile::in_directory(directory, b"."))
}

/// Returns the attributes of a file. Attributes that the file system derives itself and overlay's
/// own attributes are left out.
pub(crate) fn all(file: &impl Attributed) -> Result<BTreeMap<CString, Vec<u8>>, Errno> {
    let mut found = BTreeMap::new();
    let is_own = |name: &[u8]| is_overlays(name) && !is_escaped(name);
    let wanted = |name: &CStr| !is_other_form(name) && !is_own(name.to_bytes());
    each_of(file, wanted, identity, |name, value| {
        found.insert(name.to_owned(), value.to_vec());
        Ok(())
    })?;
    Ok(found)
}

/// Returns whether a file has attributes of overlays.
pub(crate) fn has_overlay_attributes(file: &impl Attributed) -> Result<bool, Errno> {
    let mut found = false;
    let wanted = |name: &CStr| is_overlays(name.to_bytes());
    each_of(file, wanted, identity, |_, _| {
        found = true;
        Ok(())
    })?;
    Ok(found)
}

/// Returns whether this is xfs's own form of an access list, which it lists for root beside
/// `system.posix_acl_*`.
pub(crate) fn is_other_form(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"trusted.SGI_ACL_")
}

/// Returns whether an xattr is overlay's own metadata. On another file the attribute would be
/// wrong, and would redirect an overlay that has the file in a layer.
pub(crate) fn is_overlays(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
}

/// Returns whether a program in an overlay has set the attribute, by a name of overlay's own. The
/// upper file has such an attribute under this longer name (Linux 6.7).
fn is_escaped(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.overlay.") || name.starts_with(b"user.overlay.overlay.")
}
