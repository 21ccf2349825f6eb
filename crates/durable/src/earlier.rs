//! Interrupted earlier runs, as found at the start of a run.

use crate::error::{Context, Error};
use crate::marker::RUNS;
use crate::record::boot_id;
use crate::recovery::is_in_flight;
use crate::state_file::{
    PRIVATE, PUBLIC, StatePart, Unnamed, is_locked, open, open_directory, read, remove,
};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file below a state directory that lists the runs of which a notice was printed.
const REPORTED: &str = "reported.json";

/// The interrupted runs of which a notice was printed since the boot.
#[derive(Default, Serialize, Deserialize)]
struct Reported {
    boot: String,
    runs: BTreeSet<String>,
}

/// Interrupted runs, at least one of which had no notice since the boot.
#[derive(Debug)]
pub struct Interrupted {
    state: PathBuf,
    runs: BTreeSet<String>,
}

/// Looks for earlier runs below the state directory `state`. Also removes private files
/// without a public file, which remain if a run is killed between the two removals.
///
/// Costs one read of a directory that is usually empty.
pub fn find(state: &Path) -> Option<Interrupted> {
    let entries = fs::read_dir(state.join(RUNS)).into_iter().flatten().flatten();
    let mut runs = BTreeSet::new();
    for path in entries.map(|entry| entry.path()) {
        match path.extension().and_then(OsStr::to_str) {
            Some(PUBLIC) if is_interrupted(&path) => {
                runs.extend(path.file_stem().map(|id| id.to_string_lossy().into_owned()));
            }
            // A new private file gets its name before the public file does, but is locked
            // already.
            Some(PRIVATE) if !is_there(&path.with_extension(PUBLIC)) && is_abandoned(&path) => {
                let _ = fs::remove_file(&path);
            }
            _ => {}
        }
    }
    let is_new = !runs.is_empty() && !reported(state).is_superset(&runs);
    is_new.then(|| Interrupted { state: state.to_owned(), runs })
}

impl Interrupted {
    /// Records that the notice was printed.
    pub fn note(&self) {
        let boot = boot_id().unwrap_or_default();
        let reported = Reported { boot, runs: self.runs.clone() };
        // If the record is lost, the notice is printed again.
        let _ = replace(&self.state, &reported);
    }
}

/// Replaces the record in `state`, to which another user may have access: follows no link.
fn replace(state: &Path, reported: &Reported) -> Result<(), Error> {
    let directory = open_directory(state)?;
    let text = serde_json::to_vec(reported).map_err(io::Error::from);
    let text = text.on("cannot write to", state)?;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let note = StatePart { name: REPORTED.to_owned(), text, mode };
    let new = Unnamed::new(&directory, &note).on("cannot write to", state)?;
    let named = remove(&directory, REPORTED);
    named.and_then(|_| new.give_name(&directory, &directory, REPORTED)).on("cannot write to", state)
}

fn reported(state: &Path) -> BTreeSet<String> {
    let reported = open(&state.join(REPORTED)).ok().and_then(|file| read::<Reported>(&file).ok());
    // Where the boot is unknown, a run is reported again.
    let Ok(boot) = boot_id() else { return BTreeSet::new() };
    reported.filter(|reported| reported.boot == boot).unwrap_or_default().runs
}

/// Whether the marker at `path` still exists and its run does not go on.
fn is_interrupted(path: &Path) -> bool {
    open(path).is_ok_and(|file| !is_in_flight(&file, path)) && is_there(path)
}

/// Whether the file at `path` still exists and no run has locked it.
fn is_abandoned(path: &Path) -> bool {
    open(path).is_ok_and(|file| !is_locked(&file)) && is_there(path)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
