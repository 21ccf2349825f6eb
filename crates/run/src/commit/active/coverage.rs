//! The file systems that a commit covers.

use super::hidden;
use super::sealed_scope::SealedScope;
use super::work::PATIENCE;
use crate::process::process_tree::Process;
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use synconce_durable::pins::{PinTime, Pins, mount_of};
use synconce_probe::mounts::{self, DeviceId, Mount};
use synconce_sys::ustat;

/// Which file systems a commit covers.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    /// The only file systems, with `--commit-only`.
    pub(super) only: Option<HashSet<DeviceId>>,
    /// Whether every file system is covered: in a sealed run, after a held sync(), and with
    /// `--commit-all`.
    pub(super) takes_all: bool,
    /// The file systems that were named or on which a call was held.
    pub(super) scope: HashSet<DeviceId>,
    /// The target of `--root`.
    pub(super) root: Option<PathBuf>,
    /// The file systems that were synced before their last unmount, and not used since.
    pub(super) ended: HashSet<DeviceId>,
    /// The file systems that sync(2) commits if they have no pin, whether they have ended or not.
    pub(super) by_sync: HashSet<DeviceId>,
    /// The overlays whose upper file systems were not found.
    pub(super) upperless: HashSet<DeviceId>,
}

impl Coverage {
    /// Whether the pin of `device` is synced. In a sealed run with `--commit-only` that includes
    /// the pins of file systems that only their servers can make durable.
    pub(super) fn keeps(&self, device: DeviceId) -> bool {
        self.takes_all || self.scope.contains(&device)
    }

    /// Whether `device` is pinned for the commit if it has no pin.
    fn wants(&self, device: DeviceId) -> bool {
        self.only.as_ref().map_or_else(|| self.keeps(device), |only| only.contains(&device))
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.takes_all && self.scope.is_empty()
    }

    /// Adds the file system of `--root`, which the command may have mounted.
    pub(super) fn add_root(&mut self) {
        let Some(root) = self.root.as_ref().filter(|_| self.only.is_none()) else { return };
        let mounts = mounts::ours().unwrap_or_default();
        let mount = mount_of(root, &mounts).ok().filter(|mount| mount.kind().is_held());
        self.scope.extend(mount.map(|mount| mount.device));
    }

    /// Pins the covered file systems that have no pin, in the mount namespaces of this process
    /// and of `others`. They were mounted during the run, or were unpinned for an unmount that
    /// failed or that left another mount. In a sealed run `sealed` gets the file systems that only
    /// their servers can make durable.
    pub(super) fn add_late(
        &self,
        pins: &mut Pins,
        others: &[Process],
        mut sealed: Option<&mut SealedScope>,
    ) {
        let wanted = |mount: &Mount| self.wants(mount.device);
        let others = others.iter().map(|process| process.pid.to_string());
        for place in ["self".to_owned()].into_iter().chain(others) {
            let Ok(mut mounts) = mounts::read(&place) else { continue };
            if let Some(sealed) = sealed.as_mut().filter(|_| place == "self") {
                sealed.add(&mounts, pins, PinTime::Late);
            }
            mounts.retain(wanted);
            for mount in &mut mounts {
                // A remount or an error may have made it read-only since.
                mount.writable |= self.scope.contains(&mount.device);
            }
            pins.add(&mounts, &prefix(&place));
            for directory in ["root", "cwd"] {
                adopt(pins, &Path::new("/proc").join(&place).join(directory), wanted);
            }
        }
    }

    /// Pins the file systems on which a call was held and that other mounts hide. Not at a
    /// checkpoint: while the copy of the mount namespace exists, an unmount by the run ends no file
    /// system.
    pub(super) fn add_hidden(&self, pins: &mut Pins) {
        for mount in mounts::ours().unwrap_or_default() {
            if self.scope.contains(&mount.device)
                && mount.kind().is_held()
                && !pins.covers(mount.device)
                && let Some(file) = hidden::open(&mount)
            {
                pins.adopt(&mount, file);
            }
        }
    }

    /// Adds the `early` pins, from before the command started, if a covered overlay without a known
    /// upper file system ended without a sync. The kernel wrote the overlay out, and only a pin of
    /// the file system below reports the errors.
    pub(super) fn add_below(&self, pins: &mut Pins, early: Pins) {
        let is_unseen = |device: &DeviceId| {
            self.scope.contains(device) && !self.ended.contains(device) && !pins.covers(*device)
        };
        if self.only.is_none() && self.upperless.iter().any(is_unseen) {
            pins.join(early);
        }
    }

    /// Whether a covered file system without a pin is still in use. No path leads there: it was
    /// unmounted lazily, another mount hides it, or a mount namespace without processes has it.
    /// sync(2) reaches it. The kernel has written out any other file system that was unmounted.
    pub(super) fn leaves(&self, pins: &Pins) -> bool {
        let is_left = |device: &&DeviceId| !pins.covers(**device) && !self.ended.contains(device);
        let mut left = self.scope.iter().filter(is_left).copied();
        left.any(|device| self.by_sync.contains(&device) || is_in_use(device) != Some(false))
    }
}

/// Returns whether the file system `device` is in use, within [`PATIENCE`]: the number may be that
/// of a server by now, which does not answer.
fn is_in_use(device: DeviceId) -> Option<bool> {
    let (answer, answered) = mpsc::channel();
    let ask = move || answer.send(ustat::is_in_use(device.major, device.minor));
    let asked = thread::Builder::new().name("ustat".into()).stack_size(64 * 1024).spawn(ask);
    asked.ok().and_then(|_| answered.recv_timeout(PATIENCE).ok()).flatten()
}

/// Pins the file system of the directory `path` if it is `wanted`. In a chroot, mountinfo does
/// not show the mount of the root.
fn adopt(pins: &mut Pins, path: &Path, wanted: impl Fn(&Mount) -> bool) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = mounts::at(path).filter(|mount| mount.writable && !pins.covers(mount.device));
    let mount = mount.filter(wanted);
    if let (Some(mount), Ok(file)) = (mount, rustix::fs::open(path, flags, Mode::empty())) {
        pins.adopt(&mount, file);
    }
}

fn prefix(place: &str) -> PathBuf {
    match place {
        "self" => PathBuf::from("/"),
        pid => Path::new("/proc").join(pid).join("root"),
    }
}
