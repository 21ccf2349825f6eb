//! Paths as text, for people to read.
//!
//! serde refuses to serialise a path that is not UTF-8. The error would end a run whose record
//! or last message contains such a path.

use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// Serialises `path`, and replaces bytes that are not UTF-8.
///
/// # Errors
/// Those of `serializer`.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

/// Serialises an optional path, as [`path`] does.
///
/// # Errors
/// Those of `serializer`.
pub fn path_if_any<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// Serialises several paths, as [`path`] does.
///
/// # Errors
/// Those of `serializer`.
pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}
