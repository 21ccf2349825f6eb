//! The record of a run.

use crate::error::{Context, Error};
use crate::pins::Pin;
use crate::text;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::ops::Not;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use synconce_probe::mounts::{Mount, UNLISTED};

/// The version of the format of [`RunRecord`]. In version 1 the whole record was in one file, which
/// everyone could read.
pub const VERSION: u32 = 2;

/// A run, as its marker and its run file describe it.
///
/// The record is for people to read: bytes of words and paths that are not UTF-8 are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`VERSION`] of the program that wrote the record.
    pub version: u32,
    /// The run's id, unique on a host.
    pub id: String,
    /// The part that only the user of the run may read. `None` if this process cannot read that
    /// part, and in the public file.
    #[serde(flatten)]
    pub private: Option<Private>,
    /// When the run started, as [`now`] returns it.
    pub started: String,
    /// The boot id at the start (see [`boot_id`]); empty if /proc did not show a boot id.
    pub boot: String,
    /// The user of the run.
    pub user: u32,
    /// The supervisor's process id, in its own pid namespace.
    pub supervisor: u32,
    /// Whether the run is sealed: the filter alone answers calls.
    pub sealed: bool,
    /// The file systems on which the run may have held calls.
    pub file_systems: Vec<FileSystem>,
}

/// The part of a [`RunRecord`] that is in a separate file, which only its owner may read: a
/// command line may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The options of the run, as they were typed. `None` if no command line started the run, or
    /// if an earlier version wrote the record.
    #[serde(default)]
    pub options: Option<Vec<String>>,
    /// The command's working directory.
    #[serde(serialize_with = "text::path")]
    pub directory: PathBuf,
    /// The directory of `--root`, if it was given.
    #[serde(serialize_with = "text::path_if_any")]
    pub root: Option<PathBuf>,
    /// The root of the run, as [`root_mount`] returns it. `None` if it was unknown, or if an
    /// earlier version wrote the record.
    #[serde(default)]
    pub root_mount: Option<String>,
    /// Whether this file is in the root that `--root` names. `root` and `directory` are paths of
    /// the system on which the run was started.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub in_root: bool,
}

impl Private {
    /// Returns the root of `--root` in the system whose state directory has this file.
    pub fn target(&self) -> Option<&Path> {
        if self.in_root { Some(Path::new("/")) } else { self.root.as_deref() }
    }
}

impl RunRecord {
    /// Returns the part that everyone may read.
    pub fn public(&self) -> Self {
        Self { private: None, ..self.clone() }
    }

    /// Parses the public part from `text`, followed by the file systems that were added later.
    /// Ignores an incomplete entry at the end, which was never durable: no call on its file system
    /// was held.
    pub fn from_public(text: &[u8]) -> serde_json::Result<Self> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let mut record = Self::deserialize(&mut reader)?;
        while let Ok(system) = FileSystem::deserialize(&mut reader) {
            record.file_systems.push(system);
        }
        Ok(record)
    }

    /// Returns the content of the public file and of the private file.
    pub(crate) fn to_files(&self) -> serde_json::Result<(Vec<u8>, Vec<u8>)> {
        let public = serde_json::to_vec_pretty(&self.public())?;
        let private = self.private.as_ref().map(serde_json::to_vec_pretty).transpose()?;
        Ok((line(public), line(private.unwrap_or_default())))
    }
}

/// Returns `text` with a newline appended.
pub(crate) fn line(mut text: Vec<u8>) -> Vec<u8> {
    text.push(b'\n');
    text
}

/// A file system of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// The mount point.
    #[serde(serialize_with = "text::path")]
    pub mount_point: PathBuf,
    /// The type of the file system, as mountinfo gives it.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The source of the mount.
    pub source: String,
}

impl FileSystem {
    /// Returns the file system of `pin`.
    pub fn from_pin(pin: &Pin) -> Self {
        Self {
            mount_point: pin.point.clone(),
            type_name: pin.type_name.clone(),
            source: pin.source.clone(),
        }
    }
}

/// Returns what distinguishes the root of this process from that of a container: the type of the
/// mount at `/`, its path in the file system, and the upper directory of an overlay. A reboot into
/// the same system and a restart of a container keep all three. `mounts` are those of this process.
///
/// Returns `None` if mountinfo does not list that mount, as in a chroot whose directory is no mount
/// point. Its path in the file system is unknown there, and known once the directory is booted as a
/// container.
pub fn root_mount(mounts: &[Mount]) -> Option<String> {
    // Of several at one point, the last covers the others.
    let mount = mounts.iter().rfind(|mount| mount.point == Path::new("/"))?;
    if mount.source == UNLISTED {
        return None;
    }
    let upper = mount.option("upperdir").unwrap_or_default();
    Some(format!("{} {} {}", mount.type_name, mount.root.display(), upper.display()))
}

/// Returns the boot id in /proc (random(4)). A container can have a boot id of its own; see
/// [`crate::boot::kernel_boot_id`] for the kernel's.
///
/// # Errors
/// Names the file in /proc, which may be missing in a sandbox.
pub fn boot_id() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).on("cannot read", path)?;
    match text.trim() {
        "" => Err(Error::new("cannot read", path, ErrorKind::UnexpectedEof)),
        id => Ok(id.to_owned()),
    }
}

/// Returns the current time, RFC 3339 in UTC, to the second.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Returns the seconds since 1970 of `time`, RFC 3339 in UTC. Returns `None` for any other text,
/// and for a time before 1970.
pub fn seconds(time: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(time).ok()?;
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs().try_into().ok()
}

/// Returns `seconds` since 1970 as a time, RFC 3339 in UTC. Returns the start of 1970 for a time
/// after the year 9999.
pub fn time(seconds: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    // humantime refuses to format a time after the year 9999.
    let time = time.filter(|_| seconds < 253_402_300_800).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Returns a new run id: the time to the second, and random bits that make the id unique.
pub fn new_id() -> String {
    let mut chance = [0_u8; 4];
    // Until the random pool is initialised, the process id is used; a run id is no secret.
    if rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::NONBLOCK).is_err() {
        chance = std::process::id().to_le_bytes();
    }
    let time = now().replace(['-', ':'], "");
    format!("{time}-{:08x}", u32::from_le_bytes(chance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use synconce_probe::mounts::of_bytes;

    #[test]
    fn a_root_that_mountinfo_does_not_list_is_unknown() {
        let of = |source: &str| {
            let line = format!("22 1 8:1 /@ / rw - btrfs {source} rw,subvol=/@\n");
            root_mount(&of_bytes(line.as_bytes()))
        };
        assert_eq!(of("/dev/sda1").as_deref(), Some("btrfs /@ "));
        assert_eq!(of(UNLISTED), None);
    }
}
