//! Work that has to be done before a call is held. It may take long, because it waits for a
//! disk or for a file server that may be part of the run.

use super::markers::{Markers, RootMarker};
use crate::call::fd_info::listed;
use crate::report::run_error::RunError;
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use synconce_durable::mutant;
use synconce_durable::pins::{Pins, uppers_of};
use synconce_durable::record::FileSystem;
use synconce_probe::mounts::{self, DeviceId, mount_id};

const STACK: usize = 256 * 1024;

/// How long a call waits for work. The calling process may be the server that the work waits
/// for. A call that waited too long goes to the kernel: an extra sync is safe.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often a thread that waits checks whether its call still waits. The repetitions of a call
/// that many signals interrupt would otherwise occupy a thread each.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// A path to a file: the descriptor `fd` of `thread`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via {
    pub thread: u32,
    pub fd: i32,
}

/// What work does. At most one work of each kind is done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkKind {
    /// Makes the markers durable.
    Mark,
    /// Makes the commit cover this file system.
    Pin(DeviceId),
}

/// Work that has to be done.
pub(crate) enum Work {
    /// Make the markers durable.
    Mark(Markers),
    /// Name the file system `device` in the markers, and open a descriptor of it if it is one
    /// of the file systems `before` the run.
    Pin {
        device: DeviceId,
        via: Via,
        before: Arc<HashSet<DeviceId>>,
        root: Option<Box<RootMarker>>,
        markers: Markers,
    },
}

/// The result of [`Work`].
pub(crate) enum Done {
    /// The path of the first marker, if there is a marker.
    Marked(Result<Option<PathBuf>, RunError>),
    Pinned(DeviceId, Pins),
    /// No path leads to this file system.
    Unpinned(DeviceId),
    /// This file system is a volatile overlay.
    Volatile(DeviceId),
}

impl Done {
    /// Returns the kind of the finished work.
    pub(crate) fn kind(&self) -> WorkKind {
        match self {
            Self::Marked(_) => WorkKind::Mark,
            Self::Pinned(device, _) | Self::Unpinned(device) | Self::Volatile(device) => {
                WorkKind::Pin(*device)
            }
        }
    }
}

impl Work {
    /// Does the work and calls `conclude`, on a new thread, or on this thread if none can be
    /// created.
    pub(crate) fn start(self, conclude: impl FnOnce(Done) + Send + 'static) {
        let (hand_over, take_over) = mpsc::channel::<(Self, _)>();
        let perform = |(work, conclude): (Self, Box<dyn FnOnce(Done) + Send>)| {
            conclude(work.perform());
        };
        let thread = thread::Builder::new().name("work".into()).stack_size(STACK);
        let started = thread.spawn(move || take_over.recv().map(perform));
        let job = (self, Box::new(conclude) as _);
        match started {
            // The thread waits for the job, so the send succeeds.
            Ok(_) => drop(hand_over.send(job)),
            Err(_) => perform(job),
        }
    }

    fn perform(self) -> Done {
        match self {
            Self::Mark(markers) => Done::Marked(markers.engage().map(|()| markers.path())),
            Self::Pin { device, via, before, root, markers } => {
                let pins = find(device, via, &before);
                let Some(pin) = pins.find(device) else { return Done::Unpinned(device) };
                if pin.volatile {
                    return Done::Volatile(device);
                }
                let is_marked = |root: Box<RootMarker>| markers.mark_again(&root).is_ok();
                // An overlay's upper file systems as well.
                let name = |pin| markers.name(&FileSystem::from_pin(pin));
                if root.is_none_or(is_marked) && pins.iter().try_for_each(name).is_ok() {
                    return Done::Pinned(device, pins);
                }
                Done::Unpinned(device)
            }
        }
    }
}

/// Pins the file system `device` as the calling thread sees it.
fn find(device: DeviceId, via: Via, before: &HashSet<DeviceId>) -> Pins {
    let process = Path::new("/proc").join(via.thread.to_string());
    let mut mounts = mounts::read(&via.thread.to_string()).unwrap_or_default();
    let of_device = mounts.iter().filter(|mount| mount.device == device);
    let root = process.join("root");
    let uppers: Vec<_> = of_device.flat_map(|mount| uppers_of(mount, &mounts, &root)).collect();
    mounts.retain(|mount| mount.device == device || uppers.contains(&mount.device));
    let mut pins = Pins::default();
    let is_kept = |device| before.contains(&device) || mutant::is("pins-kept");
    pins.add_found(&mounts, &root, is_kept);
    let file = process.join("fd").join(via.fd.to_string());
    for path in [file.clone(), process.join("cwd"), root] {
        if !pins.covers(device) {
            adopt(&mut pins, via.thread, device, &path, before);
        }
    }
    pins.name_as_in(&mounts::read("self").unwrap_or_default());
    if let Ok(path) = file.read_link() {
        pins.note_owned(&path);
    }
    pins
}

/// Pins the file system `device` by the file at `path`, if the file is on it.
///
/// A mount that no list shows was unmounted lazily, belongs to another namespace, or is the root of
/// a chroot that is no mount point. Without a block device, only such a root gets a descriptor: any
/// other mount may end at any moment.
fn adopt(pins: &mut Pins, thread: u32, device: DeviceId, path: &Path, before: &HashSet<DeviceId>) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    let id = mount_id(&file);
    let listed = id.and_then(|id| listed(thread, id));
    let may_end = device.major != 0 || (listed.is_none() && !is_root(thread, id));
    match listed.or_else(|| mounts::at(path)).filter(|mount| mount.device == device) {
        Some(mount) if may_end && !before.contains(&device) => {
            pins.add_found(&[mount], Path::new("/"), |_| false);
        }
        Some(mount) => pins.adopt(&mount, file),
        None => {}
    }
}

/// Whether the root directory of `thread` is on the mount with `id`.
fn is_root(thread: u32, id: Option<u64>) -> bool {
    let root = Path::new("/proc").join(thread.to_string()).join("root");
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| mount_id(root) == id)
}
