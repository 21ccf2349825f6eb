//! The extended attributes of an entry.

use crate::Error;
use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel's limit for names and for a value (XATTR_LIST_MAX and XATTR_SIZE_MAX in
/// linux/limits.h).
const LIMIT: usize = 64 << 10;

/// Values by their names.
pub(super) type Attributes = BTreeMap<OsString, Vec<u8>>;

/// Reads attributes into one reused buffer, because nearly no entry has any.
pub(super) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; LIMIT] }
    }

    /// Returns the attributes of an entry; a symbolic link is not followed. Empty if the file
    /// system does not support attributes.
    pub(super) fn read(&mut self, path: &Path) -> Result<Attributes, Error> {
        let length = match llistxattr(path, self.buffer.as_mut_slice()) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => return Ok(Attributes::new()),
            Err(errno) => return Err(Error::io("list the extended attributes of", path)(errno)),
        };
        let names = self.buffer[..length].split(|byte| *byte == 0);
        let names =
            names.filter(|name| !name.is_empty()).map(|name| OsStr::from_bytes(name).into());
        let names: Vec<OsString> = names.collect();
        names
            .into_iter()
            .map(|name| {
                let value = self.value(path, &name)?;
                Ok((name, value))
            })
            .collect()
    }

    fn value(&mut self, path: &Path, name: &OsStr) -> Result<Vec<u8>, Error> {
        let length = lgetxattr(path, name, self.buffer.as_mut_slice())
            .map_err(Error::io("read an extended attribute of", path))?;
        Ok(self.buffer[..length].to_vec())
    }
}
