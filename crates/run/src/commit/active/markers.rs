//! The markers of a run: what they say, and whether they are durable.

use super::in_memory::{is_in_memory, place_in_memory};
use crate::options::RunOptions;
use crate::report::balance::MarkerSyncs;
use crate::report::run_error::{FailedAct, RunError};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use synconce_durable::error::Error;
use synconce_durable::marker::Marker;
use synconce_durable::mutant;
use synconce_durable::record::{FileSystem, RunRecord};
use synconce_probe::mounts::{self, DeviceId, mount_id};

/// The record of a run, and its markers.
pub(crate) struct RunMarkers {
    record: RunRecord,
    pub(super) files: Markers,
    pub(super) are_durable: bool,
    /// The directory of the first marker, if no marker is on a disk; `None` once the notice
    /// was returned.
    pub(super) in_memory: Option<PathBuf>,
    /// The target of `--root`, if it has a marker of its own.
    pub(super) root: Option<PathBuf>,
}

impl RunMarkers {
    pub(super) fn new(options: &RunOptions, record: RunRecord, markers: Vec<Marker>) -> Self {
        let root = (markers.len() > 1).then(|| options.root.clone()).flatten();
        let in_memory = place_in_memory(&markers);
        Self { record, files: Markers::new(markers), are_durable: false, in_memory, root }
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.record.id
    }

    /// Returns where the first marker is once it is durable.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.files.path()
    }

    /// Makes the markers durable.
    ///
    /// # Errors
    /// No call may be held then.
    pub(crate) fn engage(&mut self) -> Result<(), RunError> {
        self.files.engage()?;
        self.are_durable = true;
        Ok(())
    }

    /// Keeps the markers, as not everything is durable.
    pub(crate) fn abandon(&mut self) {
        self.files.abandon();
    }

    /// Removes the markers once everything is durable. Returns how long their syncs took.
    ///
    /// # Errors
    /// A marker cannot be removed.
    pub(crate) fn clear(&mut self) -> Result<Vec<MarkerSyncs>, RunError> {
        self.files.clear().map_err(|error| RunError::Clear(FailedAct::from(&error)))
    }

    /// Returns how long the markers took so far to become durable, and to be removed.
    pub(crate) fn cost(&self) -> Duration {
        self.files.lock().cost
    }

    /// Returns the marker in the target of `--root`, if there is one.
    pub(super) fn root_marker(&self) -> Option<Box<RootMarker>> {
        let path = self.root.clone()?;
        Some(Box::new(RootMarker { path, record: self.record.clone() }))
    }
}

/// The target of `--root`, whose marker may have to be written again.
pub(crate) struct RootMarker {
    path: PathBuf,
    record: RunRecord,
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
    fn new(markers: Vec<Marker>) -> Self {
        Self(Arc::new(Mutex::new(Timed { markers, cost: Duration::ZERO })))
    }

    fn lock(&self) -> MutexGuard<'_, Timed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn engage(&self) -> Result<(), RunError> {
        self.lock().time(|markers| {
            markers.iter_mut().try_for_each(|marker| {
                let failed =
                    if marker.is_in_root() { RunError::RootMarker } else { RunError::Marker };
                marker.engage().map_err(|error| failed(FailedAct::from(&error)))
            })
        })
    }

    /// Adds `system` to the file systems that the markers name.
    pub(super) fn name(&self, system: &FileSystem) -> Result<(), Error> {
        if mutant::is("marker-file-system-missing") {
            return Ok(());
        }
        self.lock().time(|markers| markers.iter_mut().try_for_each(|marker| marker.name(system)))
    }

    /// Writes the marker of `root` again, if an unmount that failed removed it.
    pub(super) fn mark_again(&self, root: &RootMarker) -> Result<(), Error> {
        self.lock().time(|markers| {
            if markers.len() == 1 {
                let mut marker = Marker::arm_in_root(&root.path, &root.record)?;
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

    /// Removes the markers with names, and returns the syncs of those on a disk.
    ///
    /// The other markers are not durable. They are closed after the report to the frontend: on a
    /// frozen ext4 that close waits for the thaw (`ext4_evict_inode` of Linux 6.1 and 6.12; not of
    /// 6.18).
    ///
    /// # Errors
    /// A marker cannot be removed. The others are removed nevertheless.
    fn clear(&self) -> Result<Vec<MarkerSyncs>, Error> {
        // The marker in the `--root` target first: the target may be moved to another machine.
        let clear = |marker: Marker| {
            let mount = marker.file().ok().and_then(mount_id);
            let (device, on_disk) = (device_of(mount), !is_in_memory(&marker));
            let times = marker.clear()?;
            Ok(on_disk.then_some(MarkerSyncs { device, times }))
        };
        let cleared: Vec<_> = self.lock().time(|markers| {
            let named = markers.extract_if(.., |marker| marker.is_named());
            named.collect::<Vec<_>>().into_iter().rev().map(clear).collect()
        });
        Ok(cleared.into_iter().collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().collect())
    }
}

/// Returns the file system of the mount with `id`, as the supervisor sees it.
fn device_of(id: Option<u64>) -> Option<DeviceId> {
    let mounts = mounts::ours().unwrap_or_default();
    mounts.into_iter().find(|mount| Some(mount.id) == id).map(|mount| mount.device)
}
