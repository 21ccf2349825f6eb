//! Fuzzing of what is found after a crash: no content of a marker, and no file in its
//! directory, may hide an interrupted run.

use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use synconce_durable::marker::{Marker, RUNS};
use synconce_durable::record::{FileSystem, Private, RunRecord, VERSION};
use synconce_durable::recovery::{MarkerState, markers};
use synconce_durable::registry::pointers;
use synconce_fuzz::arbitrary::{self, Arbitrary};

#[test]
fn any_bytes_are_a_record_that_can_be_written_again_or_none() {
    synconce_fuzz::target("record", 5_000, |bytes| {
        if let Ok(record) = serde_json::from_slice::<RunRecord>(bytes) {
            let text = serde_json::to_vec(&record).expect("a record that was read");
            assert_eq!(serde_json::from_slice::<RunRecord>(&text).ok(), Some(record));
        }
    });
}

/// An entry in the directory of markers.
#[derive(Debug, Arbitrary)]
enum MarkerEntry {
    File(Vec<u8>),
    Locked(Vec<u8>),
    Directory,
    Link(Vec<u8>),
    Pipe,
    Socket,
}

#[derive(Debug, Arbitrary)]
struct NamedEntry {
    name: Vec<u8>,
    suffix: Suffix,
    entry: MarkerEntry,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Suffix {
    Json,
    New,
    None,
}

impl NamedEntry {
    /// Returns a valid file name.
    fn name(&self) -> Option<OsString> {
        let mut name: Vec<u8> = self.name.iter().copied().take(24).collect();
        name.retain(|byte| !matches!(byte, 0 | b'/'));
        name.extend_from_slice(match self.suffix {
            Suffix::Json => b".json",
            Suffix::New => b".json.new",
            Suffix::None => b"",
        });
        let is_dots = name.iter().all(|byte| *byte == b'.');
        (!is_dots).then(|| OsString::from_vec(name))
    }
}

/// Makes `entry`. Returns `None` if the kernel refuses the name, else the lock of a locked
/// file, which is held until it is dropped.
fn make(path: &Path, entry: &MarkerEntry) -> Option<Option<File>> {
    let made = match entry {
        MarkerEntry::File(bytes) => fs::write(path, bytes),
        MarkerEntry::Locked(bytes) => {
            fs::write(path, bytes).ok()?;
            let file = File::open(path).ok()?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
            return Some(Some(file));
        }
        MarkerEntry::Directory => fs::create_dir(path),
        MarkerEntry::Link(target) => symlink(OsStr::from_bytes(target), path),
        MarkerEntry::Pipe => mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).map_err(Into::into),
        MarkerEntry::Socket => UnixListener::bind(path).map(drop),
    };
    made.ok().map(|()| None)
}

fn is_marker(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.len() > 5 && name.ends_with(b".json") && !name.starts_with(b".")
}

#[test]
fn every_name_of_a_marker_is_reported_whatever_has_it() {
    let place = tempfile::tempdir().expect("a directory");
    synconce_fuzz::values("runs", 200, |entries: Vec<NamedEntry>| {
        let state = place.path().join("state");
        let runs = state.join(RUNS);
        fs::create_dir_all(&runs).expect("a directory");
        let mut expected: BTreeMap<PathBuf, MarkerState> = BTreeMap::new();
        let mut locks = Vec::new();
        for named in &entries {
            let Some(name) = named.name() else { continue };
            let path = runs.join(&name);
            if path.symlink_metadata().is_ok() {
                continue;
            }
            let Some(lock) = make(&path, &named.entry) else { continue };
            let state =
                if lock.is_some() { MarkerState::InFlight } else { MarkerState::Interrupted };
            locks.extend(lock);
            if is_marker(&name) {
                expected.insert(path, state);
            }
        }
        let found = markers(&state).expect("a directory that can be read");
        let found = found.into_iter().map(|found| (found.path, found.state)).collect();
        fs::remove_dir_all(&state).expect("a directory of ours");
        assert_eq!(expected, found);
    });
}

#[test]
fn any_bytes_in_the_registry_are_a_pointer_to_an_absolute_path_or_counted_as_none() {
    let registry = tempfile::tempdir().expect("a directory");
    let path = registry.path().join("x.json");
    synconce_fuzz::target("pointer", 1_000, |bytes| {
        fs::write(&path, bytes).expect("a file");
        let (found, others) = pointers(registry.path()).expect("a directory that can be read");
        assert_eq!(found.len() + others, 1);
        assert!(found.iter().all(|one| one.path == path && one.pointer.directory.is_absolute()));
    });
}

#[test]
fn a_marker_without_end_is_an_interrupted_run_and_is_not_read_to_its_end() {
    let state = tempfile::tempdir().expect("a directory");
    fs::create_dir(state.path().join(RUNS)).expect("a directory");
    let file = File::create(state.path().join(RUNS).join("long.json")).expect("a file");
    file.set_len(1 << 40).expect("a file of holes");
    let found = markers(state.path()).expect("a directory that can be read");
    assert_eq!((found[0].state, &found[0].record), (MarkerState::Interrupted, &None));
}

/// Arbitrary words and paths of a command.
#[derive(Debug, Arbitrary)]
struct AnyCommand {
    words: Vec<String>,
    directory: Vec<u8>,
    root: Option<Vec<u8>>,
    mount_points: Vec<Vec<u8>>,
    sealed: bool,
}

impl AnyCommand {
    fn record(&self, path: impl Fn(&[u8]) -> PathBuf) -> RunRecord {
        let file_system = |point: &Vec<u8>| FileSystem {
            mount_point: path(point),
            type_name: "ext4".to_owned(),
            source: "/dev/vda".to_owned(),
        };
        RunRecord {
            version: VERSION,
            id: "20260101T000000Z-00000000".to_owned(),
            private: Some(Private {
                command: self.words.clone(),
                options: None,
                directory: path(&self.directory),
                root: self.root.as_deref().map(&path),
                root_mount: None,
                in_root: false,
            }),
            started: "2026-01-01T00:00:00Z".to_owned(),
            boot: String::new(),
            user: 0,
            supervisor: 1,
            sealed: self.sealed,
            file_systems: self.mount_points.iter().map(file_system).collect(),
        }
    }
}

#[test]
fn a_marker_is_read_as_it_was_written_whatever_its_paths_are() {
    let state = tempfile::tempdir().expect("a directory");
    synconce_fuzz::values("markers", 100, |command: AnyCommand| {
        let record = command.record(|bytes| OsStr::from_bytes(bytes).into());
        let mut marker = Marker::arm(state.path(), &record).expect("an armed marker");
        marker.engage().expect("an engaged marker");
        let found = markers(state.path()).expect("a directory that can be read");
        marker.clear().expect("a marker that can be removed");
        let wanted = command.record(|bytes| String::from_utf8_lossy(bytes).into_owned().into());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].state, &found[0].record), (MarkerState::InFlight, &Some(wanted)));
    });
}
