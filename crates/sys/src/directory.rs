//! Whether a directory is empty.

use rustix::fs::Dir;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Returns whether `directory` has no entries.
///
/// # Errors
/// The directory cannot be read.
pub fn is_empty(directory: impl AsFd) -> Result<bool, Errno> {
    for entry in Dir::read_from(directory)? {
        if ![c".", c".."].contains(&entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}
