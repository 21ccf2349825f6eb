//! What is found in the state and runtime directories: runs in flight, runs
//! that were interrupted, runs whose survivors are still served.

use crate::error::{Context, Error};
use crate::marker::{RUNS, is_marker};
use crate::record::Record;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How a marker was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its supervisor holds the lock: the run goes on.
    InFlight,
    /// Nobody holds the lock: the run was cut short.
    Interrupted,
}

/// A marker.
#[derive(Debug)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// Its run's name: the file's, also when the content cannot be read.
    pub id: String,
    /// How it was found.
    pub state: State,
    /// Its content; `None` when it is damaged, which is an interrupted run still.
    pub record: Option<Record>,
}

/// The markers below the state directory `state`, oldest first. A directory
/// that does not exist has none.
///
/// # Errors
/// Names the path that could not be read: not being able to look is not the
/// same as finding nothing.
pub fn markers(state: &Path) -> Result<Vec<Found>, Error> {
    let directory = state.join(RUNS);
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.on("cannot read", &directory)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.on("cannot read", &directory)?.path();
        if is_marker(Path::new(path.file_name().unwrap_or_default())) {
            found.extend(examine(path)?);
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}

/// `None` when the run ended while we looked.
fn examine(path: PathBuf) -> Result<Option<Found>, Error> {
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.on("cannot open", &path)?,
    };
    let state = if is_locked(&file) { State::InFlight } else { State::Interrupted };
    if state == State::Interrupted && !path.exists() {
        return Ok(None);
    }
    let mut text = String::new();
    let record = match file.read_to_string(&mut text) {
        Ok(_) => serde_json::from_str(&text).ok(),
        Err(_) => None,
    };
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Some(Found { path, id, state, record }))
}

/// Whether somebody holds the exclusive lock on `file`.
pub fn is_locked(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)
        == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Forgets the interrupted run of `found`, durably.
///
/// # Errors
/// Names the act and path.
pub fn clear(found: &Found) -> Result<(), Error> {
    let directory = found.path.parent().unwrap_or(Path::new("/"));
    std::fs::remove_file(&found.path).on("cannot remove", &found.path)?;
    File::open(directory).and_then(|file| file.sync_all()).on("cannot sync", directory)
}
