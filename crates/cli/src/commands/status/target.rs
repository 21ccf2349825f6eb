//! The markers in the target of `--root DIR`.
//!
//! The markers are not trusted: the author of an image that was unpacked into the target may
//! have written them. The target's file system may not answer.

use super::apart;
use crate::commands::advice::OldTarget;
use crate::commands::error::CommandError;
use crate::commands::root;
use std::collections::{BTreeSet, HashSet};
use std::fs::remove_dir;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::in_root;
use synconce_durable::marker::RUNS;
use synconce_durable::record::{Private, RunRecord};
use synconce_durable::recovery::{self, FoundMarker, MarkerState, RunKey};
use synconce_durable::standard_paths::{self, STATE_BELOW_ROOT};
use synconce_probe::mounts;

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
    let look = || {
        let (found, _) = recovery::markers_in_root(root).map_err(|error| error.to_string())?;
        // The paths of the process that has looked mean nothing here.
        let shown = |found: FoundMarker| {
            let name = found.path.file_name().unwrap_or_default();
            FoundMarker { path: below(root).join(RUNS).join(name), ..found }
        };
        Ok(found.into_iter().map(shown).collect())
    };
    apart::one(look).unwrap_or_else(|why| Err(no_answer(root, &why)))
}

/// Returns what is at the target of the run with the record `private`. Returns `None` without a
/// target of its own, and for a directory that may be another one: it has no marker of the run. May
/// not return, as the file system may not answer.
pub fn old(private: &Private, run: &RunKey) -> Option<OldTarget> {
    let root = private.root.as_ref().filter(|_| !private.in_root)?;
    let root = match root.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(OldTarget::Missing),
        other => other.ok().filter(|root| root != Path::new("/"))?,
    };
    let (found, _) = recovery::markers_in_root(&root).ok()?;
    let is_marked = found.iter().any(|found| found.run() == *run);
    is_marked.then(|| mount_points_below(&root).map(OldTarget::Marked)).flatten()
}

/// Returns the advice for the run of `record`, at whose target `status` could not look.
pub fn unanswered(record: Option<&RunRecord>, why: &str) -> String {
    let private = record.and_then(|record| record.private.as_ref());
    let root = private.and_then(Private::target).unwrap_or(Path::new("/"));
    format!("{}; once it answers: synconce status", no_answer(root, why))
}

/// Returns the mount points below `root`, or `None` if the mounts cannot be read.
fn mount_points_below(root: &Path) -> Option<Vec<PathBuf>> {
    let mounts = mounts::read("self").ok()?.into_iter().map(|mount| mount.point);
    let below: BTreeSet<_> =
        mounts.filter(|point| point.starts_with(root) && point != root).collect();
    Some(below.into_iter().collect())
}

/// Clears the markers of the interrupted `runs` in `root`.
pub fn clear(root: &Path, runs: &HashSet<RunKey>) -> Result<(), String> {
    let look = || {
        let (mut found, _directory) = recovery::markers_in_root(root)?;
        found
            .retain(|found| found.state == MarkerState::Interrupted && runs.contains(&found.run()));
        found.iter().try_for_each(recovery::clear)?;
        // A run that ends well removes the empty directories that it made in its target.
        if !found.is_empty()
            && let Ok(state) = in_root::resolve(root, Path::new(STATE_BELOW_ROOT))
            && !is_own_state(&state)
        {
            let _ = remove_dir(state.join(RUNS)).and_then(|()| remove_dir(state));
        }
        Ok(())
    };
    let look = || look().map_err(|error: Error| error.to_string());
    apart::one(look).unwrap_or_else(|why| Err(no_answer(root, &why)))
}

/// Whether `state` is this user's own state directory, which stays.
fn is_own_state(state: &Path) -> bool {
    let own = standard_paths::state().and_then(|own| own.canonicalize().ok());
    state.canonicalize().is_ok_and(|state| Some(state) == own)
}

fn below(root: &Path) -> PathBuf {
    root.join(STATE_BELOW_ROOT)
}

fn no_answer(root: &Path, why: &str) -> String {
    format!("cannot look at {}: {why}", root.display())
}
