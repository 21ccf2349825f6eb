//! What is written down about a run.

use crate::pins::Pin;
use crate::text;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The version of the format of [`Record`]. Version 1 had all of a record in one
/// file that everyone could read.
pub const VERSION: u32 = 2;

/// A run, as its marker and its run file describe it.
///
/// It is written down for people: bytes that are not UTF-8 are replaced, in
/// words and in paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The run's name, unique on a host.
    pub id: String,
    /// What only the user of the run may read; `None` where the reader may not, or
    /// where it is damaged.
    #[serde(flatten)]
    pub private: Option<Private>,
    /// When it was started, RFC 3339 in UTC.
    pub started: String,
    /// The kernel's boot id at the time.
    pub boot: String,
    /// The user that ran it.
    pub user: u32,
    /// The supervisor's process id, in its own pid namespace.
    pub supervisor: u32,
    /// Whether calls are answered by the filter alone.
    pub sealed: bool,
    /// The file systems on which it may have held calls.
    pub file_systems: Vec<FileSystem>,
}

/// The part of a [`Record`] that is in a file of its own, which only its owner may
/// read: a command line may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Its working directory.
    #[serde(serialize_with = "text::path")]
    pub directory: PathBuf,
    /// The root that the work was for, with `--root`.
    #[serde(serialize_with = "text::path_if_any")]
    pub root: Option<PathBuf>,
}

impl Record {
    /// The part that everyone may read.
    pub fn public(&self) -> Self {
        Self { private: None, ..self.clone() }
    }

    /// Reads the public part from `text`, which file systems that were added later follow. A
    /// piece at the end that is not whole was never durable, and no call was held on its
    /// account.
    ///
    /// # Errors
    /// Those of `serde_json`.
    pub fn from_public(text: &[u8]) -> serde_json::Result<Self> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let mut record = Self::deserialize(&mut reader)?;
        while let Ok(system) = FileSystem::deserialize(&mut reader) {
            record.file_systems.push(system);
        }
        Ok(record)
    }

    /// The content of the two files of the run: the public and the private one.
    ///
    /// # Errors
    /// Those of `serde_json`.
    pub fn to_files(&self) -> serde_json::Result<(Vec<u8>, Vec<u8>)> {
        let public = serde_json::to_vec_pretty(&self.public())?;
        let private = self.private.as_ref().map(serde_json::to_vec_pretty).transpose()?;
        Ok((line(public), line(private.unwrap_or_default())))
    }
}

/// `text` with a newline at its end.
pub(crate) fn line(mut text: Vec<u8>) -> Vec<u8> {
    text.push(b'\n');
    text
}

/// A file system of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// Where it was mounted.
    #[serde(serialize_with = "text::path")]
    pub mount_point: PathBuf,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// What was mounted.
    pub source: String,
}

impl FileSystem {
    /// That of `pin`.
    pub fn of(pin: &Pin) -> Self {
        Self {
            mount_point: pin.point.clone(),
            type_name: pin.type_name.clone(),
            source: pin.source.clone(),
        }
    }
}

/// The boot id of the running kernel (`random(4)`); empty when /proc has none.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.unwrap_or_default().trim().to_owned()
}

/// The time now, RFC 3339 in UTC, to the second.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A new run's name: the time to the second, and enough chance to be unique.
pub fn new_id() -> String {
    let mut chance = [0_u8; 4];
    // Before the pool is ready the process id must do; the name is no secret.
    if rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::NONBLOCK).is_err() {
        chance = std::process::id().to_le_bytes();
    }
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    format!("{time}-{:08x}", u32::from_le_bytes(chance))
}
