//! The markers in the target of `--root DIR`.
//!
//! The markers are not trusted: the author of an image that was unpacked into the target may
//! have written them. The target's file system may not answer.

use super::apart;
use crate::commands::error::CommandError;
use crate::commands::root;
use std::collections::HashSet;
use std::path::Path;
use synconce_durable::recovery::{self, FoundMarker, MarkerState, RunKey};
use synconce_durable::standard_paths::STATE_BELOW_ROOT;

/// Checks that `root` is a directory.
///
/// # Errors
/// Why `root` cannot be used.
pub fn check(root: &Path) -> Result<(), CommandError> {
    let to_mount = |root| format!("mount its disk first; then: synconce status --root {root}");
    let checked = apart::one(|| root::check(root, to_mount));
    checked.unwrap_or_else(|why| Err(no_answer(root, &why).into()))
}

/// Returns the markers in `root`.
pub fn markers(root: &Path) -> Result<Vec<FoundMarker>, String> {
    let look = || recovery::markers(&below(root)).map_err(|error| error.to_string());
    apart::one(look).unwrap_or_else(|why| Err(no_answer(root, &why)))
}

/// Clears the markers of the interrupted `runs` in `root`.
pub fn clear(root: &Path, runs: &HashSet<RunKey>) -> Result<(), String> {
    let look = || {
        let mut found = recovery::markers(&below(root))?;
        found
            .retain(|found| found.state == MarkerState::Interrupted && runs.contains(&found.run()));
        found.iter().try_for_each(recovery::clear)
    };
    let look = || look().map_err(|error| error.to_string());
    apart::one(look).unwrap_or_else(|why| Err(no_answer(root, &why)))
}

fn below(root: &Path) -> std::path::PathBuf {
    root.join(STATE_BELOW_ROOT)
}

fn no_answer(root: &Path, why: &str) -> String {
    format!("cannot look at {}: {why}", root.display())
}
