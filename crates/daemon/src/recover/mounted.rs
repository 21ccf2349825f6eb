//! Whether the file systems of a hold were mounted all the time.
use crate::record::{FileSystem, Record};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// Returns the file system of `path`.
///
/// # Errors
/// Names the path.
pub fn file_system_of(path: &Path) -> Result<FileSystem, Error> {
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).on("cannot look at", path)?;
    Ok(FileSystem { point: path.to_owned(), mount: stat.stx_mnt_id })
}

/// Whether all are mounted.
pub fn file_systems_still_mounted(record: &Record) -> bool {
    record
        .file_systems
        .iter()
        .all(|one| file_system_of(&one.point).is_ok_and(|now| now.mount == one.mount))
}
