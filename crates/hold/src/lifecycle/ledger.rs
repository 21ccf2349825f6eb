//! What a run has written down, pinned and held.

use crate::families::Process;
use crate::judge::Ledger;
use crate::options::Options;
use crate::protocol::{CommitReport, Committed};
use crate::runfile::{Phase, RunFile};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use synconce_durable::commit::{self, Failure, Outcome, Progress};
use synconce_durable::marker::Marker;
use synconce_durable::pins::{Pins, mount_id};
use synconce_durable::record::Record;
use synconce_probe::mounts::{self, DeviceId, Mount};

/// The books of a run.
pub(super) struct Run {
    record: Record,
    /// The mounts at the start.
    mounts: Vec<Mount>,
    pins: Pins,
    markers: Vec<Marker>,
    run_file: Option<RunFile>,
    held_on: HashSet<DeviceId>,
    /// File systems that were synced because they were unmounted.
    unmounted: Vec<Outcome>,
}

impl Run {
    pub(super) fn new(
        record: Record,
        mounts: Vec<Mount>,
        pins: Pins,
        markers: Vec<Marker>,
        run_file: Option<RunFile>,
    ) -> Self {
        let (held_on, unmounted) = (HashSet::new(), Vec::new());
        Self { record, mounts, pins, markers, run_file, held_on, unmounted }
    }

    pub(super) fn id(&self) -> &str {
        &self.record.id
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.run_file.iter_mut().for_each(|file| file.enter(phase));
    }

    pub(super) fn engage_all(&mut self) -> Result<(), String> {
        for marker in &mut self.markers {
            marker.engage().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The run was cut short: its markers stay, unlocked, and its pins go.
    pub(super) fn abandon(&mut self) {
        self.markers.clear();
        self.pins = Pins::default();
    }

    /// Makes everything durable that the run could have written.
    pub(super) fn commit(
        &mut self,
        options: &Options,
        survivors: &[Process],
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> CommitReport {
        let began = Instant::now();
        self.enter(Phase::Committing);
        let mut outcomes = std::mem::take(&mut self.unmounted);
        let mut pins = std::mem::take(&mut self.pins);
        if options.commit_only.is_empty() {
            outcomes.extend(self.add_late(&mut pins, survivors));
        }
        outcomes.extend(commit::commit(pins, options.patience, progress));
        CommitReport {
            micros: began.elapsed().as_micros() as u64,
            file_systems: outcomes.into_iter().map(committed).collect(),
        }
    }

    /// Pins what was mounted during the run and still is, here or where a
    /// survivor lives. What was unmounted, the kernel has written back itself.
    fn add_late(&self, pins: &mut Pins, survivors: &[Process]) -> Vec<Outcome> {
        let places = survivors.iter().map(|process| process.pid.to_string());
        let mut lost = Vec::new();
        for place in ["self".to_owned()].into_iter().chain(places) {
            let Ok(mounts) = mounts::read(&place) else {
                continue;
            };
            pins.add(&mounts, &prefix(&place), false);
            let missing = pins.missing(&mounts).into_iter();
            let held = missing.filter(|mount| self.held_on.contains(&mount.device));
            lost.extend(held.map(unreachable));
            for directory in ["root", "cwd"] {
                adopt(pins, &Path::new("/proc").join(&place).join(directory));
            }
        }
        lost.retain(|(device, _)| !pins.covers(*device));
        lost.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Removes the markers once all is durable; keeps them when `failed`.
    pub(super) fn clear(&mut self, failed: bool) -> Result<(), String> {
        let markers = std::mem::take(&mut self.markers);
        if failed {
            return Ok(());
        }
        // The one in the target first: it is the one that travels.
        for marker in markers.into_iter().rev() {
            marker.clear().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl Ledger for Run {
    fn engage(&mut self) -> Result<(), String> {
        self.engage_all()
    }

    fn unmount(&mut self, mount: u64) {
        let Some(pin) = self.pins.take(mount) else {
            return;
        };
        self.unmounted.push(Outcome::of(&pin, commit::sync(&pin)));
        let durable = self.unmounted.last().is_some_and(|outcome| outcome.result.is_ok());
        let at = self.markers.iter().position(|marker| mount_id(marker.file()) == Some(mount));
        if let Some(marker) = at.filter(|at| *at > 0).map(|at| self.markers.remove(at))
            && durable
        {
            // A marker that stays says too much, not too little.
            let _ = marker.clear();
        }
    }

    fn held_on(&mut self, device: DeviceId, (thread, fd): (u32, i32)) {
        if !self.held_on.insert(device) || self.pins.covers(device) {
            return;
        }
        // Mounted before the run, but not open to us: the caller's file leads there.
        let mount = self.mounts.iter().find(|mount| mount.device == device && mount.writable);
        let Some(mount) = mount else { return };
        let path = format!("/proc/{thread}/fd/{fd}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) {
            self.pins.adopt(mount, file);
        }
    }
}

/// Pins the file system that the directory `path` is on, which a chroot's
/// mountinfo does not show.
fn adopt(pins: &mut Pins, path: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = mounts::at(path).filter(|mount| mount.writable && !pins.covers(mount.device));
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

fn unreachable(mount: &Mount) -> (DeviceId, Outcome) {
    let denied = std::io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error());
    let outcome = Outcome {
        point: mount.point.clone(),
        type_name: mount.type_name.clone(),
        source: mount.source.clone(),
        result: Err(Failure::Sync(denied)),
    };
    (mount.device, outcome)
}

fn committed(outcome: Outcome) -> Committed {
    let error = outcome.result.as_ref().err().map(ToString::to_string);
    Committed {
        mount_point: outcome.point,
        type_name: outcome.type_name,
        source: outcome.source,
        micros: outcome.result.ok().map(|time| time.as_micros() as u64),
        error,
    }
}
