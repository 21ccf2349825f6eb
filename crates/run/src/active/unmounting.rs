//! What a call of umount2(2) ends.

use super::unmount_sync::UnmountSync;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use synconce_durable::pins::Pin;
use synconce_probe::mounts::{self, DeviceId, Mount};

/// How a mount is unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The mount alone, if it is not in use.
    Alone,
    /// With all mounts below it, also while they are in use (`MNT_DETACH`).
    WithAllBelow,
    /// Only if the mount was not in use since the last such call (`MNT_EXPIRE`). A look at a file
    /// on the mount is a use.
    IfExpired,
}

/// The mounts that a call of umount2(2) is about to end.
#[derive(Debug)]
pub(crate) struct Unmounting {
    how: How,
    /// The mounts that end, as the caller sees them below `root`.
    mounts: Vec<Mount>,
    root: PathBuf,
    /// The ids of these mounts, and of the mounts of this process that end with them.
    ids: HashSet<u64>,
    /// The file systems that stay mounted for the caller or for this process.
    staying: HashSet<DeviceId>,
}

impl Unmounting {
    /// Returns what ends when `thread` unmounts the mount `id`. Returns `None` if the mount is not
    /// among the caller's.
    pub(crate) fn of(thread: u32, id: u64, how: How) -> Option<Self> {
        let theirs = mounts::read(&thread.to_string()).ok()?;
        let top = theirs.iter().find(|mount| mount.id == id)?;
        let ours = mounts::read("self").unwrap_or_default();
        let is_ended = ended(top, &theirs, how);
        let (ended, left): (Vec<_>, Vec<_>) = theirs.iter().partition(|mount| is_ended(mount));
        let propagated = ours.iter().filter(|mount| is_peer_of_any(mount, &ours, &ended, &theirs));
        let ids: HashSet<_> = ended.iter().copied().chain(propagated).map(|it| it.id).collect();
        let ours_left = ours.iter().filter(|mount| !ids.contains(&mount.id));
        let staying = left.into_iter().chain(ours_left).map(|mount| mount.device).collect();
        let root = Path::new("/proc").join(thread.to_string()).join("root");
        Some(Self { how, mounts: ended.into_iter().cloned().collect(), root, ids, staying })
    }

    /// Returns what ends when `thread` unmounts the mount at `path`, which is found without a look
    /// at the path.
    pub(crate) fn at(thread: u32, path: &Path, how: How) -> Option<Self> {
        let theirs = mounts::read(&thread.to_string()).ok()?;
        // Of two mounts at one point, the later mount is on top.
        let mount = theirs.iter().rev().find(|mount| mount.point == path)?;
        Self::of(thread, mount.id, how)
    }

    /// Whether the mount `id` ends.
    pub(super) fn ends(&self, id: u64) -> bool {
        self.ids.contains(&id)
    }

    /// Returns the file systems whose last mounts end, as far as the caller and this process see.
    pub(super) fn last_of(&self) -> impl Iterator<Item = DeviceId> {
        let devices = self.mounts.iter().map(|mount| mount.device);
        devices.filter(|device| !self.staying.contains(device))
    }

    /// Whether `pin` has to be synced and given up.
    pub(super) fn takes(&self, pin: &Pin) -> bool {
        if pin.is_open() {
            return self.ends(pin.mount);
        }
        self.how != How::IfExpired && self.last_of().any(|device| device == pin.device)
    }

    /// Returns `pin` with a descriptor. Returns `None` if no path leads to the file system: the
    /// kernel writes it out when it ends.
    ///
    /// # Errors
    /// Those of open(2).
    pub(super) fn opened(&self, pin: Pin) -> Result<Option<Pin>, Errno> {
        if pin.is_open() { Ok(Some(pin)) } else { pin.opened(&self.mounts, &self.root) }
    }

    /// Whether `sync` is of an earlier call for a mount, or for the last mount of a file system,
    /// that ends.
    pub(super) fn has_begun(&self, sync: &UnmountSync) -> bool {
        self.ends(sync.mount) || self.last_of().any(|device| device == sync.device)
    }
}

/// Returns which of `mounts` end with `top`.
fn ended<'a>(top: &'a Mount, mounts: &[Mount], how: How) -> impl Fn(&Mount) -> bool + use<'a> {
    let parents: HashMap<_, _> = mounts.iter().map(|mount| (mount.id, mount.parent)).collect();
    let above = move |id: &u64| parents.get(id).copied().filter(|parent| parent != id);
    move |mount| {
        let mut chain = std::iter::successors(Some(mount.id), &above);
        mount.id == top.id || how == How::WithAllBelow && chain.any(|id| id == top.id)
    }
}

/// Whether `mount`, one of `ours`, ends with one of the mounts `ended`, because both are on shared
/// mounts that are peers (mount_namespaces(7)).
fn is_peer_of_any(mount: &Mount, ours: &[Mount], ended: &[&Mount], theirs: &[Mount]) -> bool {
    let group = |mount: &Mount, among: &[Mount]| {
        among.iter().find(|other| other.id == mount.parent).and_then(|parent| parent.peer_group)
    };
    let Some(peers) = group(mount, ours) else { return false };
    ended.iter().any(|other| {
        (mount.device, &mount.root) == (other.device, &other.root)
            && group(other, theirs) == Some(peers)
    })
}
