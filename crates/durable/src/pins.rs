//! The file systems on which calls may be held, each with a descriptor that was
//! opened before it.
//!
//! Only such a descriptor sees every write-back error of the run: the kernel
//! reports an error to the descriptors that were open when it happened
//! (`syncfs(2)`, errseq; Linux 5.8). A pin keeps its mount busy, so it must be
//! let go before the run unmounts it.

use crate::error::{Context, Error};
use crate::synced::{Failure, Synced};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;
use synconce_probe::filesystem::Kind;
use synconce_probe::mounts::{DeviceId, Mount};

/// A file system and the descriptor by which it is committed.
#[derive(Debug)]
pub struct Pin {
    /// The file system's device number.
    pub device: DeviceId,
    /// Where it was found.
    pub point: PathBuf,
    /// Its type, as mountinfo gives it.
    pub type_name: String,
    /// What is mounted.
    pub source: String,
    /// Whether it is a volatile overlay, through which nothing becomes durable.
    pub volatile: bool,
    /// The file system under a writable overlay, or those that may be it.
    pub uppers: Vec<DeviceId>,
    /// Whether it is an overlay of memory, which a commit does not make last.
    pub in_memory: bool,
    /// Whether the descriptor was opened before the run.
    pub early: bool,
    /// The mount that the descriptor keeps busy.
    pub mount: u64,
    handle: Handle,
}

/// The descriptor of a pin.
#[derive(Debug)]
enum Handle {
    Open(OwnedFd),
    /// To be opened by the thread that syncs it: a server may not answer an open.
    AtCommit,
}

impl Pin {
    fn new(mount: &Mount, handle: Handle, early: bool) -> Self {
        Self {
            device: mount.device,
            point: mount.point.clone(),
            type_name: mount.type_name.clone(),
            source: mount.source.clone(),
            volatile: is_volatile(mount),
            uppers: Vec::new(),
            in_memory: mount.is_in_memory(),
            early,
            mount: mount.id,
            handle,
        }
    }

    /// What a sync means on it.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.type_name)
    }

    /// Syncs the file system. The first error is final.
    pub(crate) fn sync(self) -> Synced {
        let began = Instant::now();
        let synced = self.sync_by_descriptor();
        synced.map_err(|error| Failure::Sync(error.into()))?;
        if self.volatile {
            return Err(Failure::Volatile);
        }
        Ok(began.elapsed())
    }

    fn sync_by_descriptor(&self) -> Result<(), Errno> {
        let opened;
        let handle = match &self.handle {
            Handle::Open(handle) => handle,
            Handle::AtCommit => match open(&self.point) {
                Ok(handle) if mount_id(&handle) == Some(self.mount) => {
                    opened = handle;
                    &opened
                }
                // Hidden from us: sync(2) reaches it.
                Ok(_) | Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        match self.kind() {
            // fsync(2) on the block device below it, or else a request to its server.
            Kind::Fuse { .. } => rustix::fs::fsync(handle),
            Kind::Disk { flushes: false } => {
                rustix::fs::syncfs(handle)?;
                rustix::fs::fsync(handle)
            }
            _ => rustix::fs::syncfs(handle),
        }
    }
}

/// The pinned file systems, at most one pin for each.
#[derive(Debug, Default)]
pub struct Pins(Vec<Pin>);

impl Pins {
    /// Pins every writable disk file system among `mounts` that can be reached
    /// below `prefix` (`/` for our own namespace, `/proc/PID/root` for another's).
    /// What cannot be opened is left to [`Pins::missing`].
    pub fn open(mounts: &[Mount], prefix: &Path, early: bool) -> Self {
        let mut pins = Self::default();
        pins.add(mounts, prefix, early);
        pins
    }

    /// Pins the file systems that `paths` are on, and those below an overlay among
    /// them, in our own namespace and before the run. No other is so much as opened:
    /// its server may hang, and somebody may be about to unmount it.
    ///
    /// # Errors
    /// Names a path that does not exist or is not on a disk file system.
    pub fn open_only(paths: &[PathBuf], mounts: &[Mount]) -> Result<Self, Error> {
        let mut wanted = HashSet::new();
        let mut asked = Vec::new();
        for path in paths {
            let mount = mount_of(path, mounts)?;
            asked.push((path, mount.device));
            wanted.insert(mount.device);
            wanted.extend(uppers_of(mount, mounts, Path::new("/")));
        }
        let wanted = mounts.iter().filter(|mount| wanted.contains(&mount.device));
        let pins = Self::open(&wanted.cloned().collect::<Vec<_>>(), Path::new("/"), true);
        match asked.iter().find(|(_, device)| !pins.covers(*device)) {
            None => Ok(pins),
            Some((path, _)) => {
                let not_a_disk = Errno::NODEV;
                Err(Error::new("no disk file system to commit at", path, not_a_disk))
            }
        }
    }

    /// Adds pins for the file systems of `mounts` that have none yet.
    pub fn add(&mut self, mounts: &[Mount], prefix: &Path, early: bool) {
        for mount in mounts.iter().filter(|mount| mount.writable && mount.kind().is_held()) {
            if !self.covers(mount.device) {
                self.0.extend(pin(mount, prefix, early));
            }
        }
        self.find_uppers(mounts, prefix);
    }

    /// Adds pins for the file systems of `mounts` that only a sealed run holds: those of a
    /// network, and those that a FUSE server keeps on a block device.
    pub fn add_served(&mut self, mounts: &[Mount], early: bool) {
        for mount in mounts.iter().filter(|mount| mount.writable) {
            let handle = match mount.kind() {
                Kind::Network => Handle::AtCommit,
                Kind::Fuse { on_device: true } => {
                    // The kernel refuses the device to an ordinary user, who asks the server.
                    open(Path::new(&mount.source)).map_or(Handle::AtCommit, Handle::Open)
                }
                _ => continue,
            };
            if !self.covers(mount.device) {
                self.0.push(Pin::new(mount, handle, early));
            }
        }
    }

    /// Finds what is under the overlays: an overlay's own sync reports no error of it, and a
    /// volatile one does not reach it.
    fn find_uppers(&mut self, mounts: &[Mount], prefix: &Path) {
        let uppers = |pin: &Pin| {
            let mount = mounts.iter().find(|mount| mount.id == pin.mount);
            let uppers = mount.map(|mount| uppers_of(mount, mounts, prefix)).unwrap_or_default();
            uppers.into_iter().filter(|upper| self.covers(*upper)).collect::<Vec<_>>()
        };
        let found: Vec<_> = self.0.iter().map(uppers).collect();
        for (pin, uppers) in self.0.iter_mut().zip(found).filter(|(pin, _)| pin.uppers.is_empty()) {
            pin.volatile &= uppers.is_empty();
            pin.uppers = uppers;
        }
    }

    /// Lets go of the volatile overlays, through which nothing becomes durable.
    pub fn drop_volatile(&mut self) {
        self.0.retain(|pin| !pin.volatile);
    }

    /// The pin of the file system `device`.
    pub fn of(&self, device: DeviceId) -> Option<&Pin> {
        self.0.iter().find(|pin| pin.device == device)
    }

    /// Whether the file system `device` is pinned.
    pub fn covers(&self, device: DeviceId) -> bool {
        self.0.iter().any(|pin| pin.device == device)
    }

    /// Writable disk file systems among `mounts` that could not be opened, one
    /// mount for each.
    pub fn missing<'a>(&self, mounts: &'a [Mount]) -> Vec<&'a Mount> {
        let mut seen = HashSet::new();
        mounts
            .iter()
            .filter(|mount| mount.writable && mount.kind().is_held())
            .filter(|mount| !self.covers(mount.device) && seen.insert(mount.device))
            .collect()
    }

    /// Lets go of the file system whose pin keeps `mount` busy.
    pub fn take(&mut self, mount: u64) -> Option<Pin> {
        let at = self.0.iter().position(|pin| pin.mount == mount)?;
        Some(self.0.swap_remove(at))
    }

    /// Pins the file system of `mount` by `file`, which is on it, because the
    /// mount point itself cannot be opened.
    pub fn adopt(&mut self, mount: &Mount, file: OwnedFd) {
        if !self.covers(mount.device) {
            self.0.push(Pin::new(mount, Handle::Open(file), false));
        }
    }

    /// Adds the pins of `others` for file systems that have none yet.
    pub fn join(&mut self, others: Self) {
        for pin in others.0 {
            if !self.covers(pin.device) {
                self.0.push(pin);
            }
        }
    }

    /// Keeps the pins of the file systems for which `wanted` holds.
    pub fn retain(&mut self, wanted: impl Fn(DeviceId) -> bool) {
        self.0.retain(|pin| wanted(pin.device));
    }

    /// The pins.
    pub fn iter(&self) -> impl Iterator<Item = &Pin> {
        self.0.iter()
    }

    pub(crate) fn into_vec(self) -> Vec<Pin> {
        self.0
    }
}

impl From<Pin> for Pins {
    fn from(pin: Pin) -> Self {
        Self(vec![pin])
    }
}

fn pin(mount: &Mount, prefix: &Path, early: bool) -> Option<Pin> {
    let handle = open(&below(prefix, &mount.point)).ok()?;
    // Another mount may lie over this one: then the path leads elsewhere.
    if mount_id(handle.as_fd())? != mount.id {
        return None;
    }
    Some(Pin::new(mount, Handle::Open(handle), early))
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
}

/// The id of the mount that `file` was opened through (`statx(2)`, Linux 5.8). No server
/// is asked.
pub fn mount_id(file: impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    id_of(&rustix::fs::statx(file, "", flags, StatxFlags::MNT_ID).ok()?)
}

fn id_of(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// The mount among `mounts` that `path` is on.
///
/// # Errors
/// Names a path that cannot be opened, or whose mount is not among `mounts`.
pub fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Result<&'a Mount, Error> {
    // No server is asked (statx(2)), which may hang.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID);
    let id = id_of(&stat.on("cannot open", path)?);
    mounts
        .iter()
        .find(|mount| Some(mount.id) == id)
        .ok_or_else(|| Error::new("cannot find the mount of", path, Errno::NODEV))
}

/// The file system of the upper directory of the overlay `mount`, which is seen below `root`
/// among `mounts`; none for any other mount.
///
/// A relative name is of the directory of the process that mounted it, which is not known, and
/// a container does not see the directory. Then they are the disks of the overlay's size,
/// because statfs(2) of an overlay is that of its upper file system. For a volatile overlay
/// that is not certain enough.
pub fn uppers_of(mount: &Mount, mounts: &[Mount], root: &Path) -> Vec<DeviceId> {
    let Some(upper) = mount.option("upperdir") else { return Vec::new() };
    match named_upper(&upper, mounts, root) {
        Some(device) => vec![device],
        None if is_volatile(mount) => Vec::new(),
        None => of_size(mount, mounts, root),
    }
}

fn is_volatile(mount: &Mount) -> bool {
    mount.has_option("volatile") || mount.has_option("fsync=volatile")
}

fn named_upper(upper: &Path, mounts: &[Mount], root: &Path) -> Option<DeviceId> {
    let upper = upper.strip_prefix("/").ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty()).ok()?;
    // Links are those of the process that has this root.
    let within = ResolveFlags::IN_ROOT;
    let id = mount_id(rustix::fs::openat2(root, upper, flags, Mode::empty(), within).ok()?);
    mounts.iter().find(|mount| Some(mount.id) == id).map(|mount| mount.device)
}

fn of_size(overlay: &Mount, mounts: &[Mount], root: &Path) -> Vec<DeviceId> {
    let size = |mount: &Mount| {
        let system = rustix::fs::statfs(below(root, &mount.point)).ok()?;
        Some((system.f_blocks, system.f_bsize))
    };
    let is_disk = |mount: &&Mount| mount.writable && matches!(mount.kind(), Kind::Disk { .. });
    let Some(of_overlay) = size(overlay) else { return Vec::new() };
    let disks = mounts.iter().filter(is_disk).filter(|mount| size(mount) == Some(of_overlay));
    disks.map(|mount| mount.device).collect()
}

/// `path`, which is absolute, as seen from the root `prefix`.
fn below(prefix: &Path, path: &Path) -> PathBuf {
    prefix.join(path.strip_prefix("/").unwrap_or(path))
}
