//! Records: read, written and removed, each in one step.

use super::{OPEN, Store, TREES};
use crate::record::{FORMAT, Layer, Name, Open, Record};
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

impl Store {
    fn record_path(&self, name: &Name) -> PathBuf {
        self.path().join(TREES).join(format!("{name}{SUFFIX}"))
    }

    fn open_path(&self, name: &Name) -> PathBuf {
        self.path().join(OPEN).join(format!("{name}{SUFFIX}"))
    }

    /// The record of `name`; `None` when there is no such tree.
    ///
    /// # Errors
    /// Names one that cannot be read.
    pub fn record(&self, name: &Name) -> Result<Option<Record>, Error> {
        read_record(&self.record_path(name))
    }

    /// Every tree, by name; those whose record cannot be read are beside them.
    ///
    /// # Errors
    /// The directory of records cannot be read.
    pub fn records(&self) -> Result<(Vec<Record>, Vec<Error>), Error> {
        let (mut records, mut broken) = (Vec::new(), Vec::new());
        for path in names(&self.path().join(TREES))? {
            match read_record(&path) {
                Ok(record) => records.extend(record),
                Err(error) => broken.push(error),
            }
        }
        records.sort_by(|a: &Record, b| a.name.cmp(&b.name));
        Ok((records, broken))
    }

    /// Writes the record durably, in the place of an older one or as a new one.
    ///
    /// # Errors
    /// Names the act and path; the old record is then still there.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let path = self.record_path(&record.name);
        let text = encode(record, &path)?;
        if mutant::is("tree-record-unsynced") || mutant::is("tree-record-directory-unsynced") {
            return write_lightly(&path, &text);
        }
        match path.exists() {
            true => replace::replace(&path, &text),
            false => replace::create(&path, &text, Rights { mode: 0o600, ..Rights::common() }),
        }
    }

    /// Removes the record of `name`, durably.
    pub(crate) fn forget(&self, name: &Name) -> Result<(), Error> {
        let path = self.record_path(name);
        match mutant::is("tree-trash-first") {
            false => replace::remove(&path)?,
            true => fs::remove_file(&path).on("cannot remove", &path)?,
        }
        self.close_durably(name)
    }

    /// What runs did to `record`'s tree, if that is still to be had: of its generation
    /// and of this boot_epoch.
    pub(crate) fn opened(&self, record: &Record) -> Result<Opened, Error> {
        let path = self.open_path(&record.name);
        let open = match read::<Open>(&path) {
            Ok(None) => return Ok(Opened::No),
            Ok(Some(open)) => open,
            // It is written without a sync, so a power cut may leave anything of it.
            Err(error) if error.io().kind() == io::ErrorKind::InvalidData => {
                return Ok(Opened::Lost);
            }
            Err(error) => return Err(error),
        };
        if open.generation != record.generation {
            return Ok(Opened::Stale);
        }
        let there = |layer: &Layer| self.content(&layer.id).exists();
        let same =
            !open.boot_epoch.is_over(&self.boot_epoch()?) || mutant::is("tree-open-believed");
        let holds = same && open.layers.iter().all(there);
        Ok(if holds { Opened::Yes(open.layers) } else { Opened::Lost })
    }

    /// The stack that the note of `name` has, as far as there is one that can be read.
    pub(crate) fn noted(&self, name: &Name) -> Result<Option<Vec<Layer>>, Error> {
        match read::<Open>(&self.open_path(name)) {
            Err(error) if error.io().kind() != io::ErrorKind::InvalidData => Err(error),
            other => Ok(other.ok().flatten().map(|open| open.layers)),
        }
    }

    /// Notes what a run did. A crash of the system may lose it, one of ours not.
    pub(crate) fn note_open(&self, record: &Record, layers: Vec<Layer>) -> Result<(), Error> {
        let path = self.open_path(&record.name);
        let (format, generation) = (FORMAT, record.generation);
        let open = Open { format, boot_epoch: self.boot_epoch()?, generation, layers };
        write_lightly(&path, &encode(&open, &path)?)
    }

    /// Forgets what runs did to `name`, so that it is not said to be lost after a cut:
    /// nothing else tells the note from one that was made since.
    pub(crate) fn close_durably(&self, name: &Name) -> Result<(), Error> {
        let path = self.open_path(name);
        if path.exists() { replace::remove(&path) } else { Ok(()) }
    }

    /// Forgets what runs did to `name`, of which there is a next generation.
    pub(crate) fn close(&self, name: &Name) -> Result<(), Error> {
        let path = self.open_path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.on("cannot remove", &path),
        }
    }

    /// The trees that runs have worked on, as the names of their notes say.
    pub(crate) fn open_names(&self) -> Result<Vec<Name>, Error> {
        let paths = names(&self.path().join(OPEN))?;
        let name = |path: &PathBuf| path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.parse().ok();
        Ok(paths.iter().filter_map(name).collect())
    }
}

/// What runs did to a tree since its record was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Nothing.
    No,
    /// The stack is this one now, and not durable.
    Yes(Vec<Layer>),
    /// It was lost with the power.
    Lost,
    /// It was committed since: only the note was still there, whose removal no cut respects.
    Stale,
}

/// The files of records in `directory`; those that are being written are left out.
fn names(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_record = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.ends_with(SUFFIX) && !name.starts_with('.')
    };
    let entries = fs::read_dir(directory).on("cannot read", directory)?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    Ok(paths.on("cannot read", directory)?.into_iter().filter(is_record).collect())
}

/// A record of the format that we know.
fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    let record = read::<Record>(path)?;
    match record.as_ref().filter(|record| record.format != FORMAT) {
        None => Ok(record),
        Some(Record { format, .. }) => {
            let why = format!("format {format}, and this version knows {FORMAT}");
            Err(Error::new("cannot use", path, io::Error::other(why)))
        }
    }
}

/// The JSON in `path`, if there is such a file; `InvalidData` for anything else in it.
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
    file.and_then(|mut file| file.write_all(text)).on("cannot write", &new)?;
    if mutant::is("tree-record-directory-unsynced") {
        fs::File::open(&new).and_then(|file| file.sync_all()).on("cannot sync", &new)?;
    }
    fs::rename(&new, path).on("cannot replace", path)
}
