//! Looks for interrupted earlier runs at the start of a run.

use crate::error::{Context, Error};
use crate::marker::RUNS;
use crate::record::boot_id;
use crate::recovery::is_in_flight;
use crate::state_file::{
    PRIVATE, PUBLIC, StatePart, Unnamed, lock_shared, open, open_directory, read, remove,
};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file below a state directory that lists the runs in the last notice.
const REPORTED: &str = "reported.json";

/// The content of [`REPORTED`]: a boot id, and the ids of the runs that a notice has named since.
#[derive(Default, Serialize, Deserialize)]
struct Reported {
    boot: String,
    runs: BTreeSet<String>,
}

/// The ids of all interrupted runs. At least one of them was in no notice since the boot.
#[derive(Debug)]
pub struct Interrupted {
    state: PathBuf,
    runs: BTreeSet<String>,
}

/// Returns the interrupted runs below the state directory `state`; `None` if there are none, or if
/// a notice has named all of them since the boot. Also removes private files without a public file,
/// which remain if a run is killed between the two removals.
///
/// Reads one directory, which is usually empty.
pub fn find(state: &Path) -> Option<Interrupted> {
    let entries = fs::read_dir(state.join(RUNS)).into_iter().flatten().flatten();
    let mut runs = BTreeSet::new();
    for path in entries.map(|entry| entry.path()) {
        match path.extension().and_then(OsStr::to_str) {
            Some(PUBLIC) if is_interrupted(&path) => {
                runs.extend(path.file_stem().map(|id| id.to_string_lossy().into_owned()));
            }
            // A starting run names its private file first. The run has locked the file by then.
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
    /// Records that a notice has named these runs.
    pub fn note(&self) {
        let boot = boot_id().unwrap_or_default();
        let reported = Reported { boot, runs: self.runs.clone() };
        // Without the record, the next run prints the notice again.
        let _ = replace(&self.state, &reported);
    }
}

/// Replaces the record in the directory `state`. Another user may be able to write there, so a link
/// in the place of the record is not followed.
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
    // Without a boot id, the notice is printed again.
    let Ok(boot) = boot_id() else { return BTreeSet::new() };
    reported.filter(|reported| reported.boot == boot).unwrap_or_default().runs
}

/// Whether the marker at `path` still exists, and no run has locked it.
fn is_interrupted(path: &Path) -> bool {
    open(path).is_ok_and(|file| !is_in_flight(&file, path)) && is_there(path)
}

/// Whether the file at `path` still exists and certainly no run has locked it.
fn is_abandoned(path: &Path) -> bool {
    open(path).is_ok_and(|file| lock_shared(&file).is_ok()) && is_there(path)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
