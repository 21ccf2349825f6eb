//! A run in progress: its record, its pins, and what it has held.

pub(crate) mod checkpoint;
mod commit;
mod coverage;
mod hidden;
mod in_memory;
mod markers;
mod scope;
mod sealed_scope;
mod turn;
mod unmount_sync;
pub(crate) mod unmounting;
mod work;

use self::markers::RunMarkers;
use self::scope::Scope;
use self::sealed_scope::SealedScope;
use self::turn::Checkpoints;
use self::unmount_sync::UnmountSync;
use crate::options::RunOptions;
use crate::report::accounts::PassReason;
use crate::report::protocol::Notice;
use crate::report::run_error::{FailedAct, RunError};
use crate::request::runfile::{Phase, RunFile};
use std::collections::HashSet;
use std::env;
use std::path::Path;
use std::sync::Arc;
use synconce_durable::earlier::Interrupted;
use synconce_durable::marker::Marker;
use synconce_durable::mutant;
use synconce_durable::pins::{Pin, Pins};
use synconce_durable::record::{
    FileSystem, Private, RunRecord, VERSION, boot_id, new_id, now, root_mount,
};
use synconce_probe::device::Writes;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{self, DeviceId, Mount};
pub(crate) use work::{Done, PATIENCE, TICK, Via, Work, WorkKind};

/// The state of a run in progress.
pub(crate) struct Active {
    pub(crate) markers: RunMarkers,
    pins: Pins,
    /// The file systems that were there before the command started, and were not unmounted since.
    /// A file system that was mounted later gets no descriptor.
    before: Arc<HashSet<DeviceId>>,
    run_file: Option<RunFile>,
    pub(crate) scope: Scope,
    /// Volatile overlays. Syncs there are left to the kernel, which skips them at no cost.
    volatile: HashSet<DeviceId>,
    /// Interrupted runs about which a notice is to be printed.
    earlier: Option<Interrupted>,
    /// File systems that were pinned before the start and unpinned for an unmount, which may
    /// have failed.
    early_taken: HashSet<DeviceId>,
    /// File systems without a descriptor that need sync(2) even if they have ended: their unmount
    /// does not flush the disk, or their number does not show whether they are in use.
    by_sync: HashSet<DeviceId>,
    /// The overlays whose upper file systems were not found.
    upperless: HashSet<DeviceId>,
    /// File systems that are synced because the run unmounts them.
    unmounts: Vec<Arc<UnmountSync>>,
    checkpoints: Checkpoints,
    /// Whether a call was held after the last checkpoint.
    held_since: bool,
    /// The options of the run. If `commit` is false, every call may be held.
    options: RunOptions,
    /// How much had been written to each disk before the command started.
    written_before: Writes,
}

impl Active {
    pub(crate) fn new(
        options: &RunOptions,
        record: RunRecord,
        pins: Pins,
        before: HashSet<DeviceId>,
        named: HashSet<DeviceId>,
        markers: Vec<Marker>,
        run_file: Option<RunFile>,
    ) -> Self {
        Self {
            markers: RunMarkers::new(options, record, markers),
            pins,
            before: Arc::new(before),
            run_file,
            scope: Scope::new(options, named),
            volatile: HashSet::new(),
            earlier: None,
            early_taken: HashSet::new(),
            by_sync: HashSet::new(),
            upperless: HashSet::new(),
            unmounts: Vec::new(),
            checkpoints: Checkpoints::default(),
            held_since: false,
            options: options.clone(),
            written_before: if options.commit { Writes::now() } else { Writes::default() },
        }
    }

    /// Returns this run with the `earlier` runs that it found.
    pub(crate) fn after(self, earlier: Option<Interrupted>) -> Self {
        Self { earlier, ..self }
    }

    /// Returns, once, the notice that an earlier run was interrupted.
    pub(crate) fn earlier_notice(&mut self) -> Option<Notice> {
        self.earlier.take().map(|runs| runs.note()).map(|()| Notice::EarlierInterrupted)
    }

    /// Prepares for a filter that answers without a supervisor, on every file system: the
    /// scope of the commit becomes everything that the run can reach.
    ///
    /// # Errors
    /// The run would work on a file system that no commit reaches.
    pub(crate) fn seal(&mut self, options: &RunOptions) -> Result<(), RunError> {
        if !self.options.commit {
            return Ok(());
        }
        self.scope.sealed = Some(SealedScope::new(options, &mut self.pins)?);
        if !options.sealed && self.scope.only.is_none() {
            // The other program's listener was not known when the marker was armed.
            let mounts = mounts::ours().unwrap_or_default();
            self.pins.add_found(&mounts, Path::new("/"), |_| false);
            let systems = self.pins.iter().filter(|pin| !pin.volatile).map(FileSystem::from_pin);
            let named = systems.map(|system| self.markers.files.name(&system));
            let named: Result<Vec<_>, _> = named.collect();
            named.map_err(|error| RunError::MarkerUnwritable(FailedAct::from(&error)))?;
        }
        self.pins.drop_volatile();
        Ok(())
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        if let Some(file) = &mut self.run_file {
            file.enter(phase);
        }
    }

    /// Returns, once, the notice that the marker is on volatile storage although a disk is
    /// committed.
    pub(crate) fn marker_notice(&mut self) -> Option<Notice> {
        let is_on_disk = |pin: &Pin| !pin.in_memory;
        if !self.pins.iter().any(is_on_disk) {
            return None;
        }
        self.markers.in_memory.take().map(Notice::MarkerInMemory)
    }

    /// Keeps the markers, unlocked, and drops the pins: the run was cut short.
    pub(crate) fn abandon(&mut self) {
        self.markers.files.abandon();
        self.pins = Pins::default();
    }
}

/// What the handling of calls needs.
impl Active {
    /// Returns why the commit will not cover a call on the file systems `devices`, or `None` if it
    /// will. For sync(), and if the file system is unknown, `devices` is empty.
    pub(crate) fn why_passed(&self, devices: &[DeviceId]) -> Option<PassReason> {
        if !self.options.commit {
            return None;
        }
        if devices.iter().any(|device| self.volatile.contains(device)) {
            return Some(PassReason::Volatile);
        }
        let uncovered = self.uncovered(devices)?;
        if !self.scope.admits(uncovered) {
            return Some(PassReason::CommitOnly);
        }
        self.is_lost(uncovered).then_some(PassReason::Uncovered)
    }

    /// Returns the work that has to be done before a call on `devices` is held.
    pub(crate) fn needed_work(&self, devices: &[DeviceId]) -> Option<WorkKind> {
        if !self.options.commit {
            return None;
        }
        if !self.markers.are_durable && !mutant::is_at_first("marker-late") {
            return Some(WorkKind::Mark);
        }
        // Mounted during the run, unpinned for an unmount that failed, or inaccessible at the
        // start: the caller's own file leads to the file system.
        self.uncovered(devices).map(WorkKind::Pin)
    }

    /// Returns the work of `kind`. `via` may lead to a file on the file system.
    pub(crate) fn work(&self, kind: WorkKind, via: Via) -> Work {
        let markers = self.markers.files.clone();
        let WorkKind::Pin(device) = kind else { return Work::Mark(markers) };
        let (before, root) = (Arc::clone(&self.before), self.markers.root_marker());
        Work::Pin { device, via, before, root, markers }
    }

    /// Notes that a call on `devices` is held, so that the commit covers it. Returns whether one of
    /// them was pinned after the command had started.
    pub(crate) fn cover_call(&mut self, devices: &[DeviceId]) -> bool {
        if !self.options.commit {
            return false;
        }
        self.held_since = true;
        self.scope.add_call(devices, &self.pins);
        devices.iter().any(|device| self.pins.find(*device).is_some_and(|pin| !pin.early))
    }

    fn uncovered(&self, devices: &[DeviceId]) -> Option<DeviceId> {
        devices.iter().find(|device| !self.pins.covers(**device)).copied()
    }

    /// Takes over the result of work and returns the notice about it.
    ///
    /// # Errors
    /// No call may be held any more.
    pub(crate) fn take_over(&mut self, done: Done) -> Result<Option<Notice>, RunError> {
        match done {
            Done::Pinned(_, pins) => self.keep(pins),
            Done::Unpinned(_) => {}
            Done::Volatile(device) => drop(self.volatile.insert(device)),
            Done::Marked(marked) => self.markers.are_durable = marked.map(|_| true)?,
        }
        Ok(if self.markers.are_durable { self.marker_notice() } else { None })
    }

    fn keep(&mut self, pins: Pins) {
        let needs_sync = |pin: &&Pin| {
            // It may be the number of a btrfs subvolume, which ustat(2) does not have.
            let is_untraceable = pin.device.major == 0 && pin.source == mounts::UNLISTED;
            !pin.is_open() && (is_untraceable || pin.kind() == SyncKind::Disk { flushes: false })
        };
        self.by_sync.extend(pins.iter().filter(needs_sync).map(|pin| pin.device));
        let is_upperless =
            |pin: &&Pin| pin.kind() == SyncKind::Stacked && pin.uppers.is_empty() && !pin.in_memory;
        self.upperless.extend(pins.iter().filter(is_upperless).map(|pin| pin.device));
        self.pins.join(pins);
    }

    /// Whether `device` is being synced for an unmount, or its sync failed.
    fn is_lost(&self, device: DeviceId) -> bool {
        self.checkpoints.has_lost(device)
            || self.unmounts.iter().any(|unmount| unmount.device == device && unmount.may_be_lost())
    }
}

/// Returns the record of a run that begins now, with `pins`. `mounts` are those of this process, or
/// none for a run without a marker.
pub(crate) fn record(options: &RunOptions, pins: &Pins, mounts: &[Mount]) -> RunRecord {
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    let file_systems = pins.iter().map(FileSystem::from_pin);
    RunRecord {
        version: VERSION,
        id: new_id(),
        private: Some(Private {
            command: words.collect(),
            options: options.typed.clone(),
            directory: env::current_dir().unwrap_or_default(),
            root: options.root.clone(),
            root_mount: root_mount(mounts),
            in_root: false,
        }),
        started: now(),
        boot: boot_id().unwrap_or_default(),
        user: rustix::process::geteuid().as_raw(),
        supervisor: std::process::id(),
        sealed: options.sealed,
        file_systems: file_systems.collect(),
    }
}

#[cfg(test)]
impl Active {
    /// Returns a run without markers and pins.
    pub(crate) fn for_tests(options: &RunOptions) -> Self {
        let record = record(options, &Pins::default(), &[]);
        let none = HashSet::new;
        Self::new(options, record, Pins::default(), none(), none(), Vec::new(), None)
    }
}
