//! What is found in the state and runtime directories: runs in flight, runs
//! that were interrupted, runs whose survivors are still served.

use crate::error::{Context, Error};
pub use crate::marker::PRIVATE;
use crate::marker::{RUNS, is_marker};
use crate::record::{Private, Record};
use crate::text;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// More than any record has, in bytes: a command's words are at most 6 MiB, each
/// byte of which JSON may write as six (`execve(2)`).
const LONGEST: u64 = 64 << 20;

/// How a marker was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Its supervisor holds the lock: the run goes on.
    InFlight,
    /// Nobody holds the lock: the run was cut short.
    Interrupted,
}

/// A run, wherever its markers are: two users may have runs with one id, because anyone
/// may give a marker any name.
pub type Run = (u32, String);

/// A marker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Found {
    /// Where it is.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// The user that its file belongs to.
    pub owner: u32,
    /// Its run's name: the file's, also when the content cannot be read.
    pub id: String,
    /// How it was found.
    pub state: State,
    /// Its content; `None` when it is damaged, which is an interrupted run still.
    pub record: Option<Record>,
}

impl Found {
    /// The run that it is of: its owner and its id.
    pub fn run(&self) -> Run {
        (self.owner, self.id.clone())
    }
}

/// The markers below the state directory `state`, oldest first. A directory
/// that does not exist has none.
///
/// # Errors
/// Names the path that could not be read: not being able to look is not the
/// same as finding nothing.
pub fn markers(state: &Path) -> Result<Vec<Found>, Error> {
    Ok(markers_among(state, &mut { usize::MAX })?.0)
}

/// As [`markers`], among at most `left` names of any kind, which are counted down; and
/// whether there were no more.
///
/// # Errors
/// Those of [`markers`].
pub fn markers_among(state: &Path, left: &mut usize) -> Result<(Vec<Found>, bool), Error> {
    let directory = state.join(RUNS);
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), true)),
        other => other.on("cannot read", &directory)?,
    };
    let (mut found, mut all) = (Vec::new(), true);
    for entry in entries {
        all = *left > 0;
        if !all {
            break;
        }
        *left -= 1;
        let path = entry.on("cannot read", &directory)?.path();
        if is_marker(Path::new(path.file_name().unwrap_or_default())) {
            found.extend(examine(path)?);
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok((found, all))
}

/// `None` when the run ended while we looked.
fn examine(path: PathBuf) -> Result<Option<Found>, Error> {
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (state, record) = match open(&path) {
        Ok(file) => {
            let state =
                if is_in_flight(&file, &path) { State::InFlight } else { State::Interrupted };
            (state, read_record(&file, &path).ok())
        }
        // No run makes such a marker. Whatever became of the one that had this name,
        // it was not seen to end.
        Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => (State::Interrupted, None),
        // One that we may not read hides no other.
        Err(Errno::ACCESS) => (State::Interrupted, None),
        // Nothing makes a directory of a file, so this was never a marker.
        Err(Errno::NOENT | Errno::ISDIR) => return Ok(None),
        other => return other.map(|_| None).on("cannot open", &path),
    };
    let metadata = path.symlink_metadata().ok();
    if state == State::Interrupted && metadata.is_none() {
        return Ok(None);
    }
    let owner = metadata.map_or(u32::MAX, |metadata| metadata.uid());
    Ok(Some(Found { path, owner, id, state, record }))
}

/// Reads the record whose public file is `file`, at `path`, and its private file where
/// that can be read. A record of version 1 has both parts in one file.
///
/// # Errors
/// Those of [`read`], of the public file.
pub fn read_record(file: &File, path: &Path) -> io::Result<Record> {
    let mut record = Record::from_public(&content(file)?)?;
    if record.private.is_none() {
        record.private = read_private(path);
    }
    Ok(record)
}

/// Reads the private file that belongs to the public file at `path`.
pub fn read_private(path: &Path) -> Option<Private> {
    read(&open(&path.with_extension(PRIVATE)).ok()?).ok()
}

/// Opens the marker or run file at `path` for reading. It follows no link, and
/// waits for nobody: anything may be in a directory after a crash.
///
/// # Errors
/// `ELOOP` for a link, `ENXIO` or `ENODEV` for a socket or device, `EISDIR` for a
/// directory, and those of `open(2)`.
pub fn open(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::Directory => Err(Errno::ISDIR),
        _ => Ok(file.into()),
    }
}

/// Reads the JSON in `file`, from its start, but not more than a run would write.
///
/// # Errors
/// Those of reading, and `InvalidData` for anything but a `T`.
pub fn read<T: DeserializeOwned>(file: &File) -> io::Result<T> {
    Ok(serde_json::from_slice(&content(file)?)?)
}

fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether the run of the marker `file`, at `path`, goes on. Its supervisor has both files
/// locked. Every user can lock the public one, so the private one decides where it can be
/// opened.
pub(crate) fn is_in_flight(file: &File, path: &Path) -> bool {
    match open(&path.with_extension(PRIVATE)) {
        Ok(private) => is_locked(&private),
        Err(_) => is_locked(file),
    }
}

/// Whether a process holds the exclusive lock on `file`.
pub fn is_locked(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// Forgets the interrupted run of `found`, durably. A marker that is gone already, by
/// another name of its directory or another process, is forgotten.
///
/// # Errors
/// Names the act and path.
pub fn clear(found: &Found) -> Result<(), Error> {
    let directory = found.path.parent().unwrap_or(Path::new("/"));
    match std::fs::remove_file(&found.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other.on("cannot remove", &found.path)?,
    }
    // Alone it says nothing; a run removes it if we cannot.
    let _ = std::fs::remove_file(found.path.with_extension(PRIVATE));
    File::open(directory).and_then(|file| file.sync_all()).on("cannot sync", directory)
}
