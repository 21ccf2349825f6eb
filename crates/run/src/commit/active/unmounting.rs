//! What a call of umount2(2) ends, and what the run gives up before the call.

use super::Active;
use super::unmount_sync::UnmountSync;
use super::work::{PATIENCE, TICK};
use crate::call::paths::{self, Start};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use synconce_durable::mutant;
use synconce_durable::pins::Pin;
use synconce_probe::filesystem::SyncKind;
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
    /// Returns what ends when `thread` unmounts `path`. Returns `None` if the path is not a mount
    /// point: the kernel refuses the call.
    pub(crate) fn find(thread: u32, path: &Path, how: How) -> Option<Self> {
        let at_path = if how == How::IfExpired {
            None
        } else {
            let found = paths::find(Start::new(thread, CWD.as_raw_fd()), path).ok()?;
            match mount_at_root(&found.file) {
                Ok(id) if found.new_name.is_none() => Some(id?),
                Ok(_) => return None,
                // An XFS that has shut down answers no statx(2), but can be unmounted.
                Err(_) => None,
            }
        };
        let theirs = mounts::read(&thread.to_string()).ok()?;
        // Of two mounts at one point, the later mount is on top.
        let by_name = || Some(theirs.iter().rev().find(|mount| mount.point == path)?.id);
        let top = at_path.or_else(by_name)?;
        Self::among(thread, &theirs, top, how)
    }

    /// Returns what ends when `thread` unmounts the mount `top`, one of its mounts `theirs`.
    fn among(thread: u32, theirs: &[Mount], top: u64, how: How) -> Option<Self> {
        let top = theirs.iter().find(|mount| mount.id == top)?;
        // A list of many mounts takes the kernel long.
        let read = (!sees_ours(thread)).then(|| mounts::read("self").unwrap_or_default());
        let ours = read.as_deref().unwrap_or(theirs);
        let is_ended = ended(top, theirs, how);
        let (ended, left): (Vec<_>, Vec<_>) = theirs.iter().partition(|mount| is_ended(mount));
        let propagated = peers(ours, &ended, theirs);
        let ids: HashSet<_> = ended.iter().copied().chain(propagated).map(|it| it.id).collect();
        let left = left.into_iter().chain(ours).filter(|mount| !ids.contains(&mount.id));
        let staying = left.map(|mount| mount.device).collect();
        let root = Path::new("/proc").join(thread.to_string()).join("root");
        Some(Self { how, mounts: ended.into_iter().cloned().collect(), root, ids, staying })
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
        if pin.is_open() {
            return Ok(Some(pin));
        }
        let is_overlay = pin.kind() == SyncKind::Stacked;
        match pin.opened(&self.mounts, &self.root) {
            // The root may belong to a user of an inner user namespace, as in rootless Podman. The
            // commit syncs the file system below the overlay, and finds its errors.
            Err(Errno::ACCESS) if is_overlay => Ok(None),
            pin => pin,
        }
    }

    /// Whether `sync` is of an earlier call for a mount, or for the last mount of a file system,
    /// that ends.
    pub(super) fn has_begun(&self, sync: &UnmountSync) -> bool {
        self.ends(sync.mount) || self.last_of().any(|device| device == sync.device)
    }
}

/// The work before an unmount. The parameter says whether the call still waits for its answer. A
/// sync that has begun is finished even if the call no longer waits.
pub(crate) type Unpinning = Box<dyn FnOnce(&dyn Fn() -> bool) + Send>;

impl Active {
    /// Unpins the file systems that are about to be unmounted. The returned closure finishes the
    /// unpinning and may take long.
    pub(crate) fn unmount(&mut self, unmounting: Unmounting) -> Unpinning {
        if mutant::is("pins-kept") {
            return Box::new(|_| {});
        }
        // The device numbers may be reused.
        self.volatile.clear();
        let before = Arc::make_mut(&mut self.before);
        for device in unmounting.last_of() {
            before.remove(&device);
        }
        // An earlier call for the same mount may have taken the pin.
        let earlier = self.unmounts.iter().filter(|sync| unmounting.has_begun(sync));
        let earlier: Vec<_> = earlier.cloned().collect();
        let pins = self.pins.take(|pin| unmounting.takes(pin));
        let early = pins.iter().filter(|pin| pin.early).map(|pin| pin.device);
        self.early_taken.extend(early);
        let is_synced =
            |pin: &Pin| self.scope.takes_all() || self.scope.devices.contains(&pin.device);
        let (synced, unneeded): (Vec<_>, Vec<_>) = pins.into_iter().partition(is_synced);
        let syncs = synced.into_iter().map(|pin| (Arc::new(UnmountSync::from_pin(&pin)), pin));
        let syncs: Vec<_> = syncs.collect();
        self.unmounts.extend(syncs.iter().map(|(sync, _)| Arc::clone(sync)));
        let (markers, patience) = (self.markers.files.clone(), self.options.patience);
        let checkpoints = self.checkpoints.clone();
        Box::new(move |call_waits| {
            // A checkpoint in progress has file systems open.
            let end = Instant::now() + PATIENCE;
            let waits = || (!syncs.is_empty() || call_waits()) && Instant::now() < end;
            while !checkpoints.is_idle_within(TICK) && waits() {}
            drop(unneeded);
            for (sync, pin) in syncs {
                match unmounting.opened(pin) {
                    Ok(Some(pin)) => sync.sync(pin, &checkpoints, &markers, patience),
                    Ok(None) => sync.end_unopened(None),
                    Err(error) => sync.end_unopened(Some(error)),
                }
            }
            for sync in earlier {
                while !sync.is_over_within(TICK) && call_waits() {}
            }
        })
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

/// Returns those of `ours` that end with the mounts `ended` of `theirs`, because both are on shared
/// mounts that are peers (mount_namespaces(7)).
fn peers<'a>(ours: &'a [Mount], ended: &[&Mount], theirs: &[Mount]) -> Vec<&'a Mount> {
    let identify = shared_identity(theirs);
    let ended: HashSet<_> = ended.iter().filter_map(|mount| identify(mount)).collect();
    if ended.is_empty() {
        return Vec::new();
    }
    let identify = shared_identity(ours);
    ours.iter().filter(|mount| identify(mount).is_some_and(|it| ended.contains(&it))).collect()
}

/// Returns a function that identifies one of `mounts` among its peers: what is mounted, and the
/// peer group of the mount below. `None` if the mount below is not shared.
fn shared_identity(
    mounts: &[Mount],
) -> impl Fn(&Mount) -> Option<(DeviceId, PathBuf, u64)> + use<> {
    let groups = mounts.iter().filter_map(|mount| Some((mount.id, mount.peer_group?)));
    let groups: HashMap<_, _> = groups.collect();
    move |mount| Some((mount.device, mount.root.clone(), *groups.get(&mount.parent)?))
}

/// Returns the id of the mount whose root `file` is; `None` for any other file. Sends no request to
/// a file server.
///
/// # Errors
/// Those of statx(2).
fn mount_at_root(file: &OwnedFd) -> Result<Option<u64>, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(file, "", flags, StatxFlags::MNT_ID)?;
    let is_root = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let has_id = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok((is_root && has_id).then_some(stat.stx_mnt_id))
}

/// Whether `thread` has the mount namespace and the root of this process, so that both see the same
/// mounts.
fn sees_ours(thread: u32) -> bool {
    let view = |process: &str| {
        let process = Path::new("/proc").join(process);
        let namespace = process.join("ns/mnt").read_link().ok()?;
        let flags = AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::MNT_ID | StatxFlags::INO;
        let root = rustix::fs::statx(CWD, process.join("root"), flags, wanted).ok()?;
        Some((namespace, root.stx_mnt_id, root.stx_ino))
    };
    view(&thread.to_string()).is_some_and(|theirs| view("self") == Some(theirs))
}
