//! Work that has to be done before a call is held. It may take long, because it waits for a
//! disk or for a file server that may be part of the run.

use super::in_memory::is_in_memory;
use crate::balance::MarkerSyncs;
use crate::run_error::{FailedAct, RunError};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use synconce_durable::error::Error;
use synconce_durable::marker::Marker;
use synconce_durable::mutant;
use synconce_durable::pins::{Pins, mount_id, uppers_of};
use synconce_durable::record::{FileSystem, RunRecord};
use synconce_durable::standard_paths;
use synconce_probe::mounts::{self, DeviceId, Mount};

const STACK: usize = 256 * 1024;

/// A path to a file: the descriptor `fd` of `thread`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via {
    pub thread: u32,
    pub fd: i32,
}

/// The target of `--root`, whose marker may have to be written again.
pub(crate) struct RootMarker {
    pub(super) path: PathBuf,
    pub(super) record: RunRecord,
}

/// What work does. At most one of a kind is done at a time.
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
                let Some(pin) = pins.of(device) else { return Done::Unpinned(device) };
                if pin.volatile {
                    return Done::Volatile(device);
                }
                let is_marked = |root: Box<RootMarker>| markers.mark_again(&root).is_ok();
                // An overlay's upper file systems as well.
                let name = |pin| markers.name(&FileSystem::of(pin));
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
    pins.add_found(&mounts, &root, |device| before.contains(&device));
    let file = process.join("fd").join(via.fd.to_string());
    for path in [file.clone(), process.join("cwd"), root] {
        if !pins.covers(device) {
            adopt(&mut pins, via.thread, device, &path, before);
        }
    }
    if let Ok(path) = file.read_link() {
        pins.note_owned(&path);
    }
    pins
}

/// Pins the file system `device` by the file at `path`, if the file is on it.
///
/// A mount that no list shows was unmounted lazily, belongs to another namespace, or is the root of
/// a chroot that is no mount point. With a block device its number shows at the commit whether the
/// file system is still in use. Without one, the number may be that of a btrfs subvolume, so only
/// the root of a chroot is pinned; syncs on another mount are real, because that mount may end at
/// any moment.
fn adopt(pins: &mut Pins, thread: u32, device: DeviceId, path: &Path, before: &HashSet<DeviceId>) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    let id = mount_id(&file);
    let has_block_device = device.major != 0;
    let unlisted = || {
        let is_pinned = has_block_device || is_root(thread, id);
        is_pinned.then(|| mounts::at(path)).flatten()
    };
    let mount = listed(thread, id).or_else(unlisted).filter(|mount| mount.device == device);
    match mount {
        Some(mount) if has_block_device && !before.contains(&device) => {
            pins.add_found(&[mount], Path::new("/"), |_| false);
        }
        Some(mount) => pins.adopt(&mount, file),
        None => {}
    }
}

/// Returns the file system of the mount with `id`, as the supervisor sees it.
fn device_of(id: Option<u64>) -> Option<DeviceId> {
    let mounts = mounts::ours().unwrap_or_default();
    mounts.into_iter().find(|mount| Some(mount.id) == id).map(|mount| mount.device)
}

/// Returns the mount with `id` from the caller's mounts or from the supervisor's.
fn listed(thread: u32, id: Option<u64>) -> Option<Mount> {
    [thread.to_string().as_str(), "self"].into_iter().find_map(|process| {
        let mounts = mounts::read(process).unwrap_or_default();
        mounts.into_iter().find(|mount| Some(mount.id) == id)
    })
}

/// Whether the root directory of `thread` is on the mount with `id`.
fn is_root(thread: u32, id: Option<u64>) -> bool {
    let root = Path::new("/proc").join(thread.to_string()).join("root");
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| mount_id(root) == id)
}

/// The markers of a run. Their lock is held during disk writes, so no thread that answers
/// calls may take it.
#[derive(Clone)]
pub(crate) struct Markers(Arc<Mutex<Timed>>);

/// Markers, and how long they took so far to become durable, and to be removed.
struct Timed {
    markers: Vec<Marker>,
    cost: Duration,
}

impl Timed {
    /// Adds the time of `act` to the cost. A run without a commit has no markers, and no cost.
    fn time<T>(&mut self, act: impl FnOnce(&mut Vec<Marker>) -> T) -> T {
        let (began, has_any) = (Instant::now(), !self.markers.is_empty());
        let result = act(&mut self.markers);
        self.cost += if has_any { began.elapsed() } else { Duration::ZERO };
        result
    }
}

impl Markers {
    pub(super) fn new(markers: Vec<Marker>) -> Self {
        Self(Arc::new(Mutex::new(Timed { markers, cost: Duration::ZERO })))
    }

    fn lock(&self) -> MutexGuard<'_, Timed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn engage(&self) -> Result<(), RunError> {
        let engage = |markers: &mut Vec<Marker>| markers.iter_mut().try_for_each(Marker::engage);
        let engaged = self.lock().time(engage);
        engaged.map_err(|error| RunError::Marker(FailedAct::from(&error)))
    }

    /// Adds `system` to the file systems that the markers name.
    pub(super) fn name(&self, system: &FileSystem) -> Result<(), Error> {
        if mutant::is("marker-file-system-missing") {
            return Ok(());
        }
        self.lock().time(|markers| markers.iter_mut().try_for_each(|marker| marker.name(system)))
    }

    /// Writes the marker of `root` again, if an unmount that failed removed it.
    fn mark_again(&self, root: &RootMarker) -> Result<(), Error> {
        self.lock().time(|markers| {
            if markers.len() == 1 {
                let state = root.path.join(standard_paths::STATE_BELOW_ROOT);
                let mut marker = Marker::arm(&state, &root.record, Some(&root.path))?;
                marker.engage()?;
                markers.push(marker);
            }
            Ok(())
        })
    }

    /// Removes and returns the marker on `mount`. The first marker is the run's own and always
    /// stays.
    pub(super) fn take_on(&self, mount: u64) -> Option<Marker> {
        let markers = &mut self.lock().markers;
        let mount_of = |marker: &Marker| marker.file().ok().and_then(mount_id);
        let at = markers.iter().position(|marker| mount_of(marker) == Some(mount))?;
        (at > 0).then(|| markers.remove(at))
    }

    /// Returns where the first marker is, or will be.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.lock().markers.first().map(Marker::path)
    }

    /// Keeps the marker files and unlocks them.
    pub(super) fn abandon(&self) {
        self.lock().markers.clear();
    }

    /// Returns how long the markers took so far.
    pub(super) fn cost(&self) -> Duration {
        self.lock().cost
    }

    /// Removes the markers, and returns the syncs of those on a disk.
    ///
    /// # Errors
    /// A marker cannot be removed. The others are removed nevertheless.
    pub(super) fn clear(&self) -> Result<Vec<MarkerSyncs>, Error> {
        // The marker in the `--root` target first: the target may be moved to another machine.
        let clear = |marker: Marker| {
            let mount = marker.file().ok().and_then(mount_id);
            let (device, on_disk) = (device_of(mount), !is_in_memory(&marker));
            let times = marker.clear()?;
            Ok(on_disk.then_some(MarkerSyncs { device, times }))
        };
        let cleared: Vec<_> =
            self.lock().time(|markers| markers.drain(..).rev().map(clear).collect());
        Ok(cleared.into_iter().collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().collect())
    }
}
