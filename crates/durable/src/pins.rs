//! The pinned file systems: those that a commit syncs, each pinned before a call on it is held.
//!
//! Only a descriptor that was opened before the run reports every write-back error of the run: the
//! kernel reports an error to the descriptors that were open when it happened (syncfs(2), errseq;
//! Linux 5.8). The descriptor keeps its mount busy, so the pin must be dropped before the run
//! unmounts the file system.
//!
//! A file system that was mounted during the run gets a pin without a descriptor, and stays free to
//! be unmounted. A mount can end unseen, for example with its namespace. The kernel then writes the
//! file system out, as it does without a run. A descriptor that is opened later still reports an
//! error that no syncfs(2) has reported (errseq_sample, lib/errseq.c).

mod names;
mod sync;
mod uppers;

pub use self::uppers::uppers_of;
use crate::error::{Context, Error};
use crate::file_system::ErrorCount;
use crate::in_flight::InFlight;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{DeviceId, Mount, id_of, mount_id};

/// A file system and the descriptor by which it is committed. A clone shares the open file, so
/// only one of the two gets each write-back error (errseq).
#[derive(Clone, Debug)]
pub struct Pin {
    /// The file system's device number.
    pub device: DeviceId,
    /// The mount point at which the file system was found.
    pub point: PathBuf,
    /// The type of the file system, as mountinfo gives it.
    pub type_name: String,
    /// The source of the mount.
    pub source: String,
    /// Whether this is a volatile overlay, through which nothing becomes durable.
    pub volatile: bool,
    /// The pinned upper file system of an overlay, or the candidates for it ([`uppers_of`]).
    pub uppers: Vec<DeviceId>,
    /// Whether this is an overlay in memory, which a commit does not make durable.
    pub in_memory: bool,
    /// Whether the file system was pinned at [`PinTime::Early`].
    pub early: bool,
    /// The id of the mount (mountinfo), which a descriptor keeps busy.
    pub mount: u64,
    /// Paths relative to the mount point that the user of the run may own.
    owned: Vec<PathBuf>,
    /// The errors that ext4 had counted when the pin was made.
    errors: Option<ErrorCount>,
    handle: Handle,
}

/// The descriptor of a pin.
#[derive(Clone, Debug)]
enum Handle {
    Open(Arc<InFlight>),
    /// Opened at the commit, by the thread that syncs: a server may never answer an open.
    AtCommit,
    /// Not opened yet: [`Pin::opened`] looks the file system up before a sync.
    None,
}

impl Handle {
    fn keep(file: OwnedFd) -> Self {
        Self::Open(Arc::new(InFlight::keep(file)))
    }
}

/// When a file system is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinTime {
    /// Before the command starts.
    Early,
    /// At the first call there, at a commit, or without a descriptor.
    Late,
}

impl Pin {
    fn new(mount: &Mount, handle: Handle, time: PinTime) -> Self {
        Self {
            device: mount.device,
            point: mount.point.clone(),
            type_name: mount.type_name.clone(),
            source: mount.source.clone(),
            volatile: mount.is_volatile(),
            uppers: Vec::new(),
            in_memory: mount.is_in_memory(),
            early: time == PinTime::Early,
            mount: mount.id,
            owned: Vec::new(),
            errors: ErrorCount::read(mount.device),
            handle,
        }
    }

    /// Returns what a sync does on this file system.
    pub fn kind(&self) -> SyncKind {
        SyncKind::from_name(&self.type_name)
    }

    /// Returns the pin with a descriptor, opened at one of `mounts` as seen below `prefix`. Returns
    /// `None` if no path leads to the file system: it is unmounted, or another mount covers it.
    ///
    /// # Errors
    /// Those of open(2): the file system is mounted, but cannot be synced.
    pub fn opened(self, mounts: &[Mount], prefix: &Path) -> Result<Option<Self>, Errno> {
        for mount in mounts.iter().filter(|mount| mount.device == self.device) {
            match open(&below(prefix, &mount.point)) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                handle => {
                    let handle = handle?;
                    if mount_id(&handle) == Some(mount.id) {
                        let pin = Self { handle: Handle::keep(handle), mount: mount.id, ..self };
                        return Ok(Some(pin));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether the pin has a descriptor, or gets one at the commit.
    pub fn is_open(&self) -> bool {
        !matches!(self.handle, Handle::None)
    }
}

/// The pinned file systems, with one pin for each; and the counts of errors of the pins that
/// [`Pins::drop_closed`] dropped. A commit pins the same file systems again.
#[derive(Clone, Debug, Default)]
pub struct Pins(Vec<Pin>, Vec<ErrorCount>);

impl Pins {
    /// Pins, before the command starts, the disk file systems and overlays of `mounts` that are
    /// writable and can be opened.
    pub fn open(mounts: &[Mount]) -> Self {
        let mut pins = Self::default();
        pins.add_at(mounts, Path::new("/"), PinTime::Early);
        pins
    }

    /// Pins, before the command starts, the file systems of `paths` and the upper file systems of
    /// overlays among them. Opens no other file system: its server may hang, and another process
    /// may be about to unmount it.
    ///
    /// # Errors
    /// Names a path that does not exist, or whose file system cannot be pinned: it is not on a
    /// disk, is read-only, or cannot be opened.
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
        let mut pins = Self::open(&wanted.cloned().collect::<Vec<_>>());
        for path in paths.iter().filter_map(|path| std::path::absolute(path).ok()) {
            pins.note_owned(&path);
        }
        match asked.iter().find(|(_, device)| !pins.covers(*device)) {
            None => Ok(pins),
            Some((path, _)) => {
                let not_a_disk = Errno::NODEV;
                Err(Error::new("no disk file system to commit at", path, not_a_disk))
            }
        }
    }

    /// Adds late pins for the file systems of `mounts` that have none yet and can be opened below
    /// `prefix`: `/` for this mount namespace, `/proc/PID/root` for that of another process.
    pub fn add(&mut self, mounts: &[Mount], prefix: &Path) {
        self.add_at(mounts, prefix, PinTime::Late);
    }

    fn add_at(&mut self, mounts: &[Mount], prefix: &Path, time: PinTime) {
        for mount in mounts.iter().filter(|mount| mount.writable && mount.kind().is_held()) {
            if !self.covers(mount.device) {
                self.0.extend(pin(mount, prefix, time));
            }
        }
        self.find_uppers(mounts, prefix);
    }

    /// Adds pins for the file systems of `mounts` that have none yet. Only those for which
    /// `is_kept` holds get descriptors.
    pub fn add_found(
        &mut self,
        mounts: &[Mount],
        prefix: &Path,
        is_kept: impl Fn(DeviceId) -> bool,
    ) {
        for mount in mounts.iter().filter(|mount| mount.writable && mount.kind().is_held()) {
            if self.covers(mount.device) {
                continue;
            }
            if is_kept(mount.device) {
                self.0.extend(pin(mount, prefix, PinTime::Late));
            } else {
                self.0.push(Pin::new(mount, Handle::None, PinTime::Late));
            }
        }
        self.find_uppers(mounts, prefix);
    }

    /// Notes the absolute path `path`, which the user of the run may own. On ext4 a sync finds a
    /// stopped journal through a file that this user owns.
    pub fn note_owned(&mut self, path: &Path) {
        let above = self.0.iter_mut().filter(|pin| path.starts_with(&pin.point));
        let pin = above.max_by_key(|pin| pin.point.components().count());
        if let Some(pin) = pin
            && let Ok(below) = path.strip_prefix(&pin.point)
        {
            pin.owned.push(below.to_owned());
        }
    }

    /// Drops the pins without descriptors.
    pub fn drop_closed(&mut self) {
        let closed = self.0.extract_if(.., |pin| !pin.is_open());
        self.1.extend(closed.filter_map(|pin| pin.errors));
    }

    /// Adds pins for the file systems of `mounts` on which only a sealed run holds calls: network
    /// file systems, and those that a FUSE server keeps on a block device.
    pub fn add_served(&mut self, mounts: &[Mount], time: PinTime) {
        for mount in mounts.iter().filter(|mount| mount.writable) {
            let handle = match mount.kind() {
                SyncKind::Network => Handle::AtCommit,
                SyncKind::Fuse { on_device: true } => {
                    // An unprivileged user may not open the device, and syncs by the server.
                    open(Path::new(&mount.source)).map_or(Handle::AtCommit, Handle::keep)
                }
                _ => continue,
            };
            if !self.covers(mount.device) {
                self.0.push(Pin::new(mount, handle, time));
            }
        }
    }

    /// Finds the pinned upper file systems of the overlays: an overlay's sync does not report their
    /// errors, and a volatile overlay's sync does not reach them.
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

    /// Drops the pins of the volatile overlays, through which nothing becomes durable.
    pub fn drop_volatile(&mut self) {
        self.0.retain(|pin| !pin.volatile);
    }

    /// Returns the pin of the file system `device`.
    pub fn find(&self, device: DeviceId) -> Option<&Pin> {
        self.0.iter().find(|pin| pin.device == device)
    }

    /// Whether the file system `device` is pinned.
    pub fn covers(&self, device: DeviceId) -> bool {
        self.0.iter().any(|pin| pin.device == device)
    }

    /// Removes and returns the pins for which `wanted` holds.
    pub fn take(&mut self, wanted: impl FnMut(&mut Pin) -> bool) -> Vec<Pin> {
        self.0.extract_if(.., wanted).collect()
    }

    /// Pins the file system of `mount`, whose mount point cannot be opened, by a file on it.
    pub fn adopt(&mut self, mount: &Mount, file: OwnedFd) {
        if !self.covers(mount.device) {
            self.0.push(Pin::new(mount, Handle::keep(file), PinTime::Late));
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

    /// Iterates over the pins.
    pub fn iter(&self) -> impl Iterator<Item = &Pin> {
        self.0.iter()
    }

    pub(crate) fn into_vec(mut self) -> Vec<Pin> {
        for count in self.0.iter_mut().filter_map(|pin| pin.errors.as_mut()) {
            let earlier = self.1.iter().find(|earlier| earlier.is_of_super_block_of(count));
            *count = *earlier.unwrap_or(count);
        }
        self.0
    }
}

impl From<Pin> for Pins {
    fn from(pin: Pin) -> Self {
        Self(vec![pin], Vec::new())
    }
}

fn pin(mount: &Mount, prefix: &Path, time: PinTime) -> Option<Pin> {
    let handle = open(&below(prefix, &mount.point)).ok()?;
    // If another mount covers this mount point, the path leads to another file system.
    if mount_id(handle.as_fd())? != mount.id {
        return None;
    }
    Some(Pin::new(mount, Handle::keep(handle), time))
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Returns the mount among `mounts` that `path` is on.
///
/// # Errors
/// Names a path that cannot be opened, or whose mount is not among `mounts`.
pub fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Result<&'a Mount, Error> {
    // With `STATX_DONT_SYNC` no request goes to a file server, which may hang (statx(2)).
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID);
    let id = id_of(&stat.on("cannot open", path)?);
    mounts
        .iter()
        .find(|mount| Some(mount.id) == id)
        .ok_or_else(|| Error::new("cannot find the mount of", path, Errno::NODEV))
}

/// Returns the absolute path `path`, as seen from the root `prefix`.
fn below(prefix: &Path, path: &Path) -> PathBuf {
    prefix.join(path.strip_prefix("/").unwrap_or(path))
}
