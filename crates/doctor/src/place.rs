//! The file system of a path: its mount, its space and its devices.

use crate::device::{self, Device};
use crate::error::Error;
use rustix::fs::statvfs;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use synconce_durable::text;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{self, DeviceId, Mount};

/// The place that is examined.
#[derive(Clone, Debug, Serialize)]
pub struct ExaminedPlace {
    /// The directory, absolute.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Where its file system is mounted.
    #[serde(serialize_with = "text::path")]
    pub mount_point: PathBuf,
    /// The type of the file system.
    pub type_name: String,
    /// The source of the mount.
    pub source: String,
    /// The options of the mount, then those of the file system.
    pub mount_options: String,
    /// Bytes of the file system.
    pub size: u64,
    /// Bytes of it that are in use.
    pub used: u64,
    /// Bytes that this user can still write.
    pub available: u64,
    /// Files that the file system can have; `None` if it does not limit them.
    pub files: Option<u64>,
    /// Files that can still be made; `None` if the file system does not limit them.
    pub available_files: Option<u64>,
    /// Whether written data are in memory only.
    pub in_memory: bool,
    /// The overlay, if the place is on one.
    pub overlay: Option<Overlay>,
    /// The block devices that get the flushes of the file system.
    pub devices: Vec<Device>,
    /// The effect of a sync.
    #[serde(skip)]
    pub(crate) kind: Option<SyncKind>,
    /// Device numbers by which limits of control groups name the place.
    #[serde(skip)]
    pub(crate) numbers: Vec<DeviceId>,
}

/// An overlay file system.
#[derive(Clone, Debug, Serialize)]
pub struct Overlay {
    /// The upper directory, as the mount names it.
    #[serde(serialize_with = "text::path_if_any")]
    pub upper: Option<PathBuf>,
    /// Whether the overlay is mounted volatile, so that no sync reaches a disk.
    pub volatile: bool,
    /// Whether a change of attributes copies no data of a file of a lower layer.
    pub metacopy: bool,
}

/// Whether there is space for temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Enough,
    /// There would be, if files were removed.
    Full,
    /// There would not be in the empty file system either.
    TooSmall,
}

/// Below this number of free files a measurement is not possible.
const FILES: u64 = 10_000;

impl ExaminedPlace {
    /// Returns whether `bytes` of temporary files leave the file system usable for others.
    pub(crate) fn space_for(&self, bytes: u64) -> Space {
        let (wanted, is_enough) =
            (2 * bytes, |files: Option<u64>| files.is_none_or(|it| it >= FILES));
        // A file system that does not say its size may have space.
        let has = |bytes: u64| self.size == 0 || bytes >= wanted;
        if has(self.available) && is_enough(self.available_files) {
            Space::Enough
        } else if has(self.size) && is_enough(self.files) {
            Space::Full
        } else {
            Space::TooSmall
        }
    }

    /// Returns the part of the file system that is in use, in percent, as df(1) does.
    pub fn used_percent(&self) -> u64 {
        (100 * self.used).checked_div(self.used + self.available).unwrap_or(0)
    }

    /// Whether a sync here reaches no disk by the design of the mount.
    pub(crate) fn needs_no_sync(&self) -> bool {
        self.in_memory || self.overlay.as_ref().is_some_and(|overlay| overlay.volatile)
    }

    /// Whether synconce holds syncs on this kind of file system.
    pub(crate) fn is_held_kind(&self) -> bool {
        self.kind.is_some_and(SyncKind::is_held)
    }
}

/// Looks at the file system of the directory `path`.
///
/// # Errors
/// The directory cannot be examined, or its file system is read-only.
pub(crate) fn look(path: &Path) -> Result<ExaminedPlace, Error> {
    let absolute = fs::canonicalize(path).map_err(Error::io("examine", path))?;
    if !absolute.is_dir() {
        return Err(Error::NotDirectory(path.to_owned()));
    }
    let all = mounts::ours().map_err(Error::io("read", Path::new("/proc/self/mountinfo")))?;
    let mount = mount_of(&all, &absolute);
    let space = statvfs(&absolute).map_err(Error::io("examine", path))?;
    let unit = space.f_frsize;
    let mut place = ExaminedPlace {
        path: absolute,
        mount_point: PathBuf::new(),
        type_name: "unknown".to_owned(),
        source: String::new(),
        mount_options: String::new(),
        size: space.f_blocks * unit,
        used: (space.f_blocks - space.f_bfree.min(space.f_blocks)) * unit,
        available: space.f_bavail * unit,
        files: (space.f_files > 0).then_some(space.f_files),
        available_files: (space.f_files > 0).then_some(space.f_favail),
        in_memory: false,
        overlay: None,
        devices: Vec::new(),
        kind: None,
        numbers: Vec::new(),
    };
    let Some(mount) = mount else { return Ok(place) };
    if !mount.writable {
        return Err(Error::ReadOnly(place.path));
    }
    place.kind = Some(mount.kind());
    place.in_memory = mount.is_in_memory();
    let is_overlay = mount.kind() == SyncKind::Stacked && mount.type_name == "overlay";
    place.overlay = is_overlay.then(|| Overlay {
        upper: mount.option("upperdir"),
        volatile: mount.is_volatile(),
        metacopy: has_metacopy(&mount),
    });
    let upper = place.overlay.as_ref().and_then(|overlay| overlay.upper.clone());
    let below = upper.and_then(|upper| mount_of(&all, &upper));
    place.numbers = numbers(below.as_ref().unwrap_or(&mount));
    place.devices = device::devices(&place.numbers);
    place.mount_options = mount.all_options();
    (place.mount_point, place.type_name, place.source) =
        (mount.point, mount.type_name, mount.source);
    Ok(place)
}

/// Returns the mount that has `path`.
fn mount_of(all: &[Mount], path: &Path) -> Option<Mount> {
    let (id, _) = mounts::look(path)?;
    let found = all.iter().find(|mount| mount.id == id);
    found.cloned().or_else(|| mounts::at(path))
}

/// mountinfo shows the option where it differs from the default of the module.
fn has_metacopy(mount: &Mount) -> bool {
    let by_default = fs::read_to_string("/sys/module/overlay/parameters/metacopy");
    let is_default = by_default.is_ok_and(|text| text.trim() == "Y");
    mount.has_option("metacopy=on") || is_default && !mount.has_option("metacopy=off")
}

/// Returns the number of the block device of `mount`. btrfs and zfs have numbers of their own,
/// and name the device as the source.
fn numbers(mount: &Mount) -> Vec<DeviceId> {
    if mount.device.major != 0 {
        return vec![mount.device];
    }
    let source = fs::metadata(&mount.source).ok().filter(|meta| meta.file_type().is_block_device());
    let number = source.map(|meta| meta.rdev());
    number
        .map(|number| DeviceId {
            major: rustix::fs::major(number),
            minor: rustix::fs::minor(number),
        })
        .into_iter()
        .collect()
}
