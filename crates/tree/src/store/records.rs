//! Reads, writes and removes records, each in one step.

use super::{OPEN, SESSIONS, Store, TREES, names_in};
use crate::record::{self, BootEpoch, FORMAT, KEEPING, Layer, Open, TreeName, TreeRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_durable::replace::{self, Rights};

const SUFFIX: &str = ".json";
/// The file that describes a session.
pub(crate) const SESSION: &str = "session.json";

impl Store {
    fn record_path(&self, name: &TreeName) -> PathBuf {
        self.path().join(TREES).join(format!("{name}{SUFFIX}"))
    }

    fn open_path(&self, name: &TreeName) -> PathBuf {
        self.path().join(OPEN).join(format!("{name}{SUFFIX}"))
    }

    /// Returns the record of `name`, or `None` when there is no such tree.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn record(&self, name: &TreeName) -> Result<Option<TreeRecord>, Error> {
        read_record(&self.record_path(name))
    }

    /// Returns all records by name, and the errors of records that cannot be read.
    ///
    /// # Errors
    /// The directory of records cannot be read.
    pub fn records(&self) -> Result<(Vec<TreeRecord>, Vec<Error>), Error> {
        let (mut records, mut broken) = (Vec::new(), Vec::new());
        for path in names(&self.path().join(TREES))? {
            match read_record(&path) {
                Ok(record) => records.extend(record),
                Err(error) => broken.push(error),
            }
        }
        records.sort_by(|a: &TreeRecord, b| a.name.cmp(&b.name));
        Ok((records, broken))
    }

    /// Writes the record durably, as a new record or in place of the old one.
    ///
    /// # Errors
    /// The error names the act and the path; the old record is then still there.
    pub(crate) fn write(&self, record: &TreeRecord) -> Result<(), Error> {
        if mutant::is("tree-record-unsynced") || mutant::is("tree-record-directory-unsynced") {
            return self.write_without_sync(record);
        }
        let path = self.record_path(&record.name);
        let text = encode(&with_format(record), &path)?;
        replace::write(&path, &text, Rights { mode: 0o600, ..Rights::common() })
    }

    /// Writes the record of a tree whose protection has changed, durably.
    pub(crate) fn write_protection(&self, record: &TreeRecord) -> Result<(), Error> {
        if mutant::is("tree-protect-unsynced") {
            return self.write_without_sync(record);
        }
        self.write(record)
    }

    /// Writes the record durably after an earlier generation was restored as the newest.
    pub(crate) fn write_restored(&self, record: &TreeRecord) -> Result<(), Error> {
        if mutant::is("tree-restore-unsynced") {
            return self.write_without_sync(record);
        }
        self.write(record)
    }

    /// Writes the record durably after a generation was removed. The layers of `before` are removed
    /// only afterwards.
    pub(crate) fn write_without_generation(
        &self,
        record: &TreeRecord,
        before: &TreeRecord,
    ) -> Result<(), Error> {
        if mutant::is("tree-kept-trash-first") {
            let stays = record.layer_ids();
            for id in before.layer_ids().iter().filter(|id| !stays.contains(id)) {
                self.discard(&self.layer(id))?;
            }
        }
        self.write(record)
    }

    /// Writes a record without a sync, for mutants.
    fn write_without_sync(&self, record: &TreeRecord) -> Result<(), Error> {
        let path = self.record_path(&record.name);
        write_lightly(&path, &encode(&with_format(record), &path)?)
    }

    /// Removes the record of `name`, durably.
    pub(crate) fn forget(&self, name: &TreeName) -> Result<(), Error> {
        let path = self.record_path(name);
        if mutant::is("tree-trash-first") {
            fs::remove_file(&path).on("cannot remove", &path)?;
        } else {
            replace::remove(&path)?;
        }
        self.close_durably(name)
    }

    /// Renames the record of `name` to `new` durably, in one step. There must be no tree `new`,
    /// and `name` has no uncommitted changes.
    pub(crate) fn rename(&self, name: &TreeName, new: &TreeName) -> Result<(), Error> {
        // A command that was killed may have left notes of changes that are committed or removed.
        self.close_durably(new)?;
        self.close_durably(name)?;
        let (from, to) = (self.record_path(name), self.record_path(new));
        if mutant::is("tree-rename-unsynced") {
            fs::rename(&from, &to).on("cannot replace", &to)
        } else {
            replace::rename(&from, &to)
        }
    }

    /// Returns the uncommitted changes of `record`'s tree, if they are of the record's generation
    /// and of this boot epoch.
    pub(crate) fn opened(&self, record: &TreeRecord) -> Result<Opened, Error> {
        let path = self.open_path(&record.name);
        let open = match read::<Open>(&path) {
            Ok(None) => return Ok(Opened::No),
            Ok(Some(open)) => open,
            // The note is written without a sync, so a power failure may leave any content.
            Err(error) if error.io().kind() == io::ErrorKind::InvalidData => {
                return Ok(Opened::Lost);
            }
            Err(error) => return Err(error),
        };
        if open.generation != record.generation {
            return Ok(Opened::Stale);
        }
        if open.boot_epoch.is_over(&self.boot_epoch()?) && !mutant::is("tree-open-believed") {
            return Ok(Opened::Lost);
        }
        for layer in &open.layers {
            let content = self.content(&layer.id);
            // After a read error the content may still be there.
            if !replace::exists(&content)? {
                return Ok(Opened::Missing(content));
            }
        }
        Ok(Opened::Yes(open.layers))
    }

    /// Returns the stack in the note of `name`, if there is a readable note.
    pub(crate) fn noted(&self, name: &TreeName) -> Result<Option<Vec<Layer>>, Error> {
        match read::<Open>(&self.open_path(name)) {
            Err(error) if error.io().kind() != io::ErrorKind::InvalidData => Err(error),
            other => Ok(other.ok().flatten().map(|open| open.layers)),
        }
    }

    /// Notes the changes of a session that began at `began`. A system crash may lose the note; a
    /// crash of synconce does not.
    pub(crate) fn note_open(
        &self,
        record: &TreeRecord,
        layers: Vec<Layer>,
        began: &BootEpoch,
    ) -> Result<(), Error> {
        let path = self.open_path(&record.name);
        let (format, generation) = (FORMAT, record.generation);
        // The changes of earlier runs are in the stack, too.
        let now = self.boot_epoch()?;
        let earlier = self.open_note(record)?.map(|open| open.boot_epoch);
        let earlier = earlier.filter(|earlier| !earlier.is_over(&now));
        let boot_epoch = match earlier {
            None => began.clone(),
            // A note of an older version may lack fields.
            Some(earlier) => BootEpoch {
                kernel: earlier.kernel.or_else(|| began.kernel.clone()),
                mount: earlier.mount.or(began.mount),
                losses: earlier.losses.or(began.losses),
                ..earlier
            },
        };
        let open = Open { format, boot_epoch, generation, layers };
        write_lightly(&path, &encode(&open, &path)?)
    }

    /// Returns the note of uncommitted changes of `record`'s tree, if the note is of the record's
    /// generation.
    pub(crate) fn open_note(&self, record: &TreeRecord) -> Result<Option<Open>, Error> {
        let open = match read::<Open>(&self.open_path(&record.name)) {
            Err(error) if error.io().kind() != io::ErrorKind::InvalidData => return Err(error),
            open => open.ok().flatten(),
        };
        Ok(open.filter(|open| open.generation == record.generation))
    }

    /// Removes the note of `name` durably. A note that came back after a power failure would
    /// be reported as lost changes: nothing distinguishes it from a newer note.
    pub(crate) fn close_durably(&self, name: &TreeName) -> Result<(), Error> {
        let path = self.open_path(name);
        if path.exists() { replace::remove(&path) } else { Ok(()) }
    }

    /// Makes the records as they are durable. A command that finds its work done calls this: the
    /// sync of an earlier command may have failed after that command had replaced a record.
    pub(crate) fn sync_records(&self) -> Result<(), Error> {
        replace::sync_directory_of(&self.path().join(TREES).join(SUFFIX))
    }

    /// Like [`Self::sync_records`], for the removal of notes of uncommitted changes.
    pub(crate) fn sync_notes(&self) -> Result<(), Error> {
        replace::sync_directory_of(&self.path().join(OPEN).join(SUFFIX))
    }

    /// Removes the note of `name` after a commit made the tree's next generation.
    pub(crate) fn close(&self, name: &TreeName) -> Result<(), Error> {
        let path = self.open_path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.on("cannot remove", &path),
        }
    }

    /// Returns the ids of all sessions, interrupted ones included, each with its note if the
    /// note can be read.
    pub(crate) fn sessions(&self) -> Result<Vec<(String, Option<record::Session>)>, Error> {
        let names = names_in(&self.path().join(SESSIONS))?;
        let names = names.into_iter().filter(|id| self.session(id).is_dir());
        let with_note = |id: String| {
            let note = read(&self.session(&id).join(SESSION)).ok().flatten();
            (id, note)
        };
        Ok(names.map(with_note).collect())
    }

    /// Returns why it is unknown which layers the session `id` needs: another version wrote its
    /// note, or the note cannot be read. Called if [`Store::sessions`] had no note of the session.
    /// Returns `None` if there is no note, or a crash left an incomplete note.
    pub(crate) fn unknown_needs(&self, id: &str) -> Option<Error> {
        let path = self.session(id).join(SESSION);
        let is_half = |error: &Error| error.io().kind() == io::ErrorKind::InvalidData;
        let why = match read::<record::Session>(&path) {
            Ok(None) => return None,
            // The caller could not read the note, and this read succeeded.
            Ok(Some(_)) => "it could not be read at first",
            Err(error) if !is_half(&error) => return Some(error),
            Err(_) => match read::<serde_json::Value>(&path) {
                Ok(Some(_)) => "another version of synconce wrote it",
                Err(error) if !is_half(&error) => return Some(error),
                _ => return None,
            },
        };
        Some(Error::new("cannot use", &path, io::Error::other(why)))
    }

    /// Returns the trees that have notes of uncommitted changes, by the notes' names.
    pub(crate) fn open_names(&self) -> Result<Vec<TreeName>, Error> {
        let paths = names(&self.path().join(OPEN))?;
        Ok(paths.iter().filter_map(|path| name_of(path)).collect())
    }
}

/// The uncommitted changes of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// None.
    No,
    /// The stack with the changes, which is not durable.
    Yes(Vec<Layer>),
    /// The changes were lost in a power failure.
    Lost,
    /// The content of a layer, which is missing although the machine has not stopped.
    Missing(PathBuf),
    /// The changes were committed. The note is still there because its removal is not synced,
    /// and a power failure can undo it.
    Stale,
}

/// Returns the paths of records in `directory`, without the temporary files of records that
/// are being written.
fn names(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_record = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.ends_with(SUFFIX) && !name.starts_with('.')
    };
    let entries = fs::read_dir(directory).on("cannot read", directory)?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    Ok(paths.on("cannot read", directory)?.into_iter().filter(is_record).collect())
}

/// Returns the name of the tree whose record or note is at `path`.
fn name_of(path: &Path) -> Option<TreeName> {
    path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Returns `record` with the lowest format that has all its content, so that earlier versions
/// read what they can keep.
fn with_format(record: &TreeRecord) -> TreeRecord {
    let keeps = record.keep > 0 || !record.kept.is_empty();
    TreeRecord { format: if keeps { KEEPING } else { FORMAT }, ..record.clone() }
}

/// Reads a record, which must have the format [`FORMAT`] or [`KEEPING`].
fn read_record(path: &Path) -> Result<Option<TreeRecord>, Error> {
    let mut record = read::<TreeRecord>(path)?;
    if let (Some(record), Some(name)) = (&mut record, name_of(path)) {
        record.name = name;
    }
    match record.as_ref().filter(|record| !(FORMAT..=KEEPING).contains(&record.format)) {
        None => Ok(record),
        Some(TreeRecord { format, .. }) => {
            let why = format!("format {format}, and this version knows {FORMAT} to {KEEPING}");
            Err(Error::new("cannot use", path, io::Error::other(why)))
        }
    }
}

/// Reads the JSON in `path`; `None` if the file is missing, `InvalidData` for anything else
/// than valid JSON.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.on("cannot read", path)?,
    };
    let invalid = |error: serde_json::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    serde_json::from_slice(&text).map(Some).map_err(invalid).on("cannot use", path)
}

pub(crate) fn encode(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec_pretty(value).on("cannot encode", path)?;
    text.push(b'\n');
    Ok(text)
}

/// Replaces the file at `path` in one step, without a sync.
pub(crate) fn write_lightly(path: &Path, text: &[u8]) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default();
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    let new = path.with_file_name(new);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
    if let Err(error) = file.and_then(|mut file| file.write_all(text)) {
        let _ = fs::remove_file(&new);
        return Err(Error::new("cannot write", &new, error));
    }
    if mutant::is("tree-record-directory-unsynced") {
        fs::File::open(&new).and_then(|file| file.sync_all()).on("cannot sync", &new)?;
    }
    fs::rename(&new, path).on("cannot replace", path)
}
