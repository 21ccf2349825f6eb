//! Paths as text, for people to read.
//!
//! serde refuses a path that is not UTF-8, and the refusal would end the run
//! whose record, or whose last message, names such a path.

use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// Serialises `path`; bytes that are not UTF-8 are replaced.
///
/// # Errors
/// Those of `serializer`.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

/// [`path`], for one that may be absent.
///
/// # Errors
/// Those of `serializer`.
pub fn path_if_any<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// [`path`], for several.
///
/// # Errors
/// Those of `serializer`.
pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}
