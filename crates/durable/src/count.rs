//! Counts since the boot, in memory: each is the length of a file. To count, a process appends a
//! byte, without a lock or a sync. Processes that count at the same time lose no count.

use crate::{standard_paths, state_file};
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The highest count: as many bytes of memory are used.
pub const MOST: u64 = 1 << 24;

/// Adds one to the count in the file `path`, unless it is [`MOST`].
///
/// # Errors
/// Those of [`open`] and write(2).
pub fn add_one(path: &Path) -> io::Result<()> {
    let mut file = open(OpenOptions::new().append(true), path)?;
    if file.metadata()?.len() < MOST {
        file.write_all(b".")?;
    }
    Ok(())
}

/// Returns the count in the file `path`; 0 if it cannot be read.
pub fn read(path: &Path) -> u64 {
    state_file::open(path).ok().and_then(|file| file.metadata().ok()).map_or(0, |file| file.len())
}

/// Makes `directory`, a directory of counts in a directory of run files.
///
/// # Errors
/// Those of [`standard_paths::make_runtime`] and mkdir(2).
pub fn make_directory(directory: &Path) -> io::Result<()> {
    if let Some(runtime) = directory.parent() {
        standard_paths::make_runtime(runtime)?;
    }
    DirBuilder::new().recursive(true).mode(0o755).create(directory)
}

/// Opens the file `path` beside the counts, and makes it if it is missing.
///
/// # Errors
/// Those of open(2): ELOOP for a link, ENXIO for a pipe that no process has open for
/// reading.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    options.create(true).mode(0o644).custom_flags(flags).open(path)
}
