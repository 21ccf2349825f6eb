//! Finds and removes markers in a state directory: those of runs in flight and of interrupted runs.

use crate::error::{Context, Error};
use crate::in_root;
use crate::marker::{RUNS, is_marker};
use crate::record::{Private, RunRecord};
use crate::standard_paths::STATE_BELOW_ROOT;
use crate::state_file::{PRIVATE, content, is_locked, open, read};
use crate::text;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The state of a run, by its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkerState {
    /// The supervisor holds the lock: the run has not ended.
    InFlight,
    /// No process holds the lock: the run ended without removing its marker.
    Interrupted,
}

/// The owner and the id of a run. Two users may have runs with the same id, because any user
/// may give a marker any name.
pub type RunKey = (u32, String);

/// A marker.
#[derive(Debug, Serialize, Deserialize)]
pub struct FoundMarker {
    /// The path of the public file.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// The user that owns the public file; `u32::MAX` if the run ended during the read.
    pub owner: u32,
    /// The run's id, from the file's name, even if the content cannot be read.
    pub id: String,
    /// Whether the run is in flight or interrupted.
    pub state: MarkerState,
    /// The content; `None` if it is damaged or may not be read. The marker counts all the same.
    pub record: Option<RunRecord>,
}

impl FoundMarker {
    /// Returns the run of the marker: its owner and its id.
    pub fn run(&self) -> RunKey {
        (self.owner, self.id.clone())
    }
}

/// Returns the markers below the state directory `state`, sorted by id, which begins with the time
/// of the start. A missing directory has none.
///
/// # Errors
/// Names a path that cannot be read. An unreadable directory is not an empty one.
pub fn markers(state: &Path) -> Result<Vec<FoundMarker>, Error> {
    Ok(markers_among(state, &mut { usize::MAX })?.0)
}

/// Like [`markers`], but reads at most `left` names of any kind, and subtracts their number from
/// `left`. Also returns whether these were all names.
///
/// # Errors
/// Those of [`markers`].
pub fn markers_among(state: &Path, left: &mut usize) -> Result<(Vec<FoundMarker>, bool), Error> {
    match markers_in(&state.join(RUNS), left) {
        Err(error) if error.io().kind() == io::ErrorKind::NotFound => Ok((Vec::new(), true)),
        other => other,
    }
}

/// Returns the markers in the root of another system, in [`RUNS`] of its state directory. Their
/// paths are those by which this process opens them while the second value lives. Links are
/// followed as in a process whose root is `root`: the author of that system may have made a link to
/// a directory of this system.
///
/// # Errors
/// Those of [`markers`].
pub fn markers_in_root(root: &Path) -> Result<(Vec<FoundMarker>, Option<OwnedFd>), Error> {
    let below = Path::new(STATE_BELOW_ROOT).join(RUNS);
    let path = root.join(&below);
    let directory = match in_root::open(root, &below) {
        Err(Errno::NOENT) => return Ok((Vec::new(), None)),
        other => other.on("cannot open", &path)?,
    };
    let here = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let (found, _) = markers_in(&here, &mut { usize::MAX })?;
    Ok((found, Some(directory)))
}

fn markers_in(directory: &Path, left: &mut usize) -> Result<(Vec<FoundMarker>, bool), Error> {
    let entries = std::fs::read_dir(directory).on("cannot read", directory)?;
    let (mut found, mut all) = (Vec::new(), true);
    for entry in entries {
        all = *left > 0;
        if !all {
            break;
        }
        *left -= 1;
        let path = entry.on("cannot read", directory)?.path();
        if is_marker(Path::new(path.file_name().unwrap_or_default())) {
            found.extend(examine(path)?);
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok((found, all))
}

/// Returns the marker at `path`; `None` if it was removed meanwhile, or if a directory is there.
fn examine(path: PathBuf) -> Result<Option<FoundMarker>, Error> {
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (state, record) = match open(&path) {
        Ok(file) => {
            let state = if is_in_flight(&file, &path) {
                MarkerState::InFlight
            } else {
                MarkerState::Interrupted
            };
            (state, read_record(&file, &path).ok())
        }
        // A link, FIFO, socket or device. No run makes one, but it may have replaced a marker.
        Err(Errno::LOOP | Errno::NODEV) => (MarkerState::Interrupted, None),
        // An error would hide the other markers.
        Err(Errno::ACCESS) => (MarkerState::Interrupted, None),
        // A directory was never a marker: rename(2) puts none in the place of a file.
        Err(Errno::NOENT | Errno::ISDIR) => return Ok(None),
        other => return other.map(|_| None).on("cannot open", &path),
    };
    let metadata = path.symlink_metadata().ok();
    if state == MarkerState::Interrupted && metadata.is_none() {
        return Ok(None);
    }
    let owner = metadata.map_or(u32::MAX, |metadata| metadata.uid());
    Ok(Some(FoundMarker { path, owner, id, state, record }))
}

/// Reads the record whose public file is `file`, at `path`, and its private file if that can
/// be read. A record of version 1 has both parts in one file.
///
/// # Errors
/// Those of [`read`], for the public file.
fn read_record(file: &File, path: &Path) -> io::Result<RunRecord> {
    let mut record = RunRecord::from_public(&content(file)?)?;
    if record.private.is_none() {
        record.private = read_private(path);
    }
    Ok(record)
}

/// Reads the private file that belongs to the public file at `path`.
pub fn read_private(path: &Path) -> Option<Private> {
    read(&open(&path.with_extension(PRIVATE)).ok()?).ok()
}

/// Whether the run of the marker `file`, at `path`, has not ended. Until then the supervisor holds
/// a lock on both files. Every user can lock the public file, so the lock on the private file
/// decides, if this process may open that file.
pub(crate) fn is_in_flight(file: &File, path: &Path) -> bool {
    match open(&path.with_extension(PRIVATE)) {
        Ok(private) => is_locked(&private),
        Err(_) => is_locked(file),
    }
}

/// Removes the marker `found` durably. A missing marker is no error: another process may have
/// removed it, or this process through another name of the directory.
pub fn clear(found: &FoundMarker) -> Result<(), Error> {
    let directory = found.path.parent().unwrap_or(Path::new("/"));
    match std::fs::remove_file(&found.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other.on("cannot remove", &found.path)?,
    }
    // A private file alone has no meaning, and the next run removes it (`earlier::find`).
    let _ = std::fs::remove_file(found.path.with_extension(PRIVATE));
    File::open(directory).and_then(|file| file.sync_all()).on("cannot sync", directory)
}
