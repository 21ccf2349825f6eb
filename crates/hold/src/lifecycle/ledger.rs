//! What a run has written down, pinned and held.

use super::in_memory::place_in_memory;
use super::leaving::Leaving;
use super::sealed_scope::SealedScope;
use crate::families::Process;
use crate::judge::Ledger;
use crate::options::Options;
use crate::protocol::{CommitReport, Committed, CommittedEverything, Notice, Trouble};
use crate::runfile::{Phase, RunFile};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use synconce_durable::commit::{self, Outcome, Progress};
use synconce_durable::earlier::News;
use synconce_durable::everything::Everything;
use synconce_durable::marker::Marker;
use synconce_durable::mutant;
use synconce_durable::pins::{Pins, mount_id};
use synconce_durable::places;
use synconce_durable::record::Record;
use synconce_durable::synced::Synced;
use synconce_probe::device::{self, Writes};
use synconce_probe::mounts::{self, DeviceId, Mount};

/// The books of a run.
pub(super) struct Run {
    record: Record,
    pins: Pins,
    markers: Vec<Marker>,
    /// Where the markers are, when none of them is on a disk; until that is told.
    in_memory: Option<PathBuf>,
    run_file: Option<RunFile>,
    /// Whether there will be a commit; without one everything may be held.
    commits: bool,
    /// The only file systems that are committed, with `--commit-only`.
    only: Option<HashSet<DeviceId>>,
    /// The root that has a marker of its own.
    root: Option<PathBuf>,
    /// Interrupted runs that the user is to be told of.
    earlier: Option<News>,
    /// File systems that are synced because they are unmounted.
    leaving: Vec<Arc<Leaving>>,
    patience: Duration,
    /// What the disks had been asked to write before the command started.
    written_before: Writes,
    /// Whether a sync() was held, so that the commit makes one.
    holds_sync: bool,
    /// Set once the filter answers alone.
    sealed: Option<SealedScope>,
}

impl Run {
    pub(super) fn new(
        options: &Options,
        record: Record,
        pins: Pins,
        markers: Vec<Marker>,
        run_file: Option<RunFile>,
    ) -> Self {
        let only =
            (!options.commit_only.is_empty()).then(|| pins.iter().map(|pin| pin.device).collect());
        let root = (markers.len() > 1).then(|| options.root.clone()).flatten();
        let in_memory = place_in_memory(&markers);
        let commits = options.commit;
        Self {
            record,
            pins,
            markers,
            in_memory,
            run_file,
            commits,
            only,
            root,
            earlier: None,
            leaving: Vec::new(),
            patience: options.patience,
            written_before: if commits { Writes::now() } else { Writes::default() },
            holds_sync: false,
            sealed: None,
        }
    }

    /// The same run, which has found `earlier` ones.
    pub(super) fn after(self, earlier: Option<News>) -> Self {
        Self { earlier, ..self }
    }

    /// Returns, once, that an earlier run was interrupted.
    pub(super) fn news_of_earlier(&mut self) -> Option<Notice> {
        self.earlier.take().map(|news| news.note()).map(|()| Notice::EarlierInterrupted)
    }

    /// From now on the filter answers alone, on whatever file system a call is made: the
    /// scope of the commit becomes everything that the run can reach.
    ///
    /// # Errors
    /// The run would work on a file system that no commit reaches.
    pub(super) fn seal(&mut self, options: &Options) -> Result<(), Trouble> {
        if self.commits {
            self.sealed = Some(SealedScope::new(options, &mut self.pins)?);
        }
        Ok(())
    }

    /// FUSE file systems whose syncs a sealed run held and did not commit.
    pub(super) fn uncommitted_fuse(&self) -> Option<Notice> {
        self.sealed.as_ref()?.uncommitted_fuse()
    }

    /// Pins the file system `device` by the file at `path`, if it is on it.
    fn adopt(&mut self, thread: u32, device: DeviceId, path: &Path) {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return };
        let mount = mount_through(thread, path, mount_id(&file));
        if let Some(mount) = mount.filter(|mount| mount.device == device) {
            self.pins.adopt(&mount, file);
        }
    }

    /// Writes the root's marker again, which went with an unmount that failed.
    fn mark_root_again(&mut self) -> bool {
        let Some(root) = self.root.as_ref().filter(|_| self.markers.len() == 1) else {
            return true;
        };
        let state = root.join(places::STATE_BELOW_ROOT);
        let marker = Marker::arm(&state, &self.record, Some(root));
        let engaged = marker.and_then(|mut marker| marker.engage().map(|()| marker));
        engaged.map(|marker| self.markers.push(marker)).is_ok()
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

    /// That the marker goes with the power, once, if there is a disk that does not.
    pub(super) fn news_of_marker(&mut self) -> Option<Notice> {
        if self.in_memory.is_none() || self.pins.iter().all(|pin| pin.in_memory) {
            return None;
        }
        self.in_memory.take().map(Notice::MarkerInMemory)
    }

    /// The run was cut short: its markers stay, unlocked, and its pins go.
    pub(super) fn abandon(&mut self) {
        self.markers.clear();
        self.pins = Pins::default();
    }

    /// Makes everything durable that the run could have written.
    pub(super) fn commit(
        &mut self,
        survivors: &[Process],
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> CommitReport {
        let began = Instant::now();
        self.enter(Phase::Committing);
        self.wait_for_unmounts(progress);
        let mut pins = std::mem::take(&mut self.pins);
        if mutant::is("pins-late") {
            pins = Pins::default();
        }
        self.add_late(&mut pins, survivors);
        // What has failed is not tried again.
        pins.retain(|device| !self.is_lost(device));
        let left: Vec<_> =
            self.leaving.iter().filter_map(|leaving| leaving.take_outcome()).collect();
        let (pins, everything) = mutated(pins, self.everything());
        let report = commit::commit(pins, everything, self.patience, progress);
        let report = CommitReport {
            micros: began.elapsed().as_micros() as u64,
            file_systems: left.into_iter().chain(report.file_systems).map(committed).collect(),
            everything: report.everything.map(committed_everything),
        };
        if !report.is_durable() {
            self.run_file.iter().for_each(|file| file.note(&report));
        }
        report
    }

    /// What the commit does beside the pins: a sealed filter has answered calls on whatever
    /// they were made, and a held sync() was about all disks.
    fn everything(&mut self) -> Option<Everything> {
        let is_sealed = self.sealed.is_some();
        let before = std::mem::take(&mut self.written_before);
        (is_sealed || self.holds_sync).then(|| Everything::new(before, is_sealed))
    }

    /// Waits for file systems that are being synced for an unmount, each of which
    /// has a patience of its own.
    fn wait_for_unmounts(&self, progress: &mut dyn FnMut(&Progress<'_>)) {
        let began = Instant::now();
        for leaving in &self.leaving {
            while !leaving.is_over_within(Duration::from_millis(250)) {
                let waiting = vec![leaving.point.as_path()];
                let dirty = device::dirty_bytes();
                progress(&Progress { elapsed: began.elapsed(), waiting, dirty });
            }
        }
    }

    /// Whether `device` is being synced for an unmount, or that failed.
    fn is_lost(&self, device: DeviceId) -> bool {
        self.leaving.iter().any(|leaving| leaving.device == device && !leaving.is_durable())
    }

    /// Pins what was mounted during the run and still is, here or where a
    /// survivor lives. What was unmounted, the kernel has written back itself.
    fn add_late(&mut self, pins: &mut Pins, survivors: &[Process]) {
        let places = survivors.iter().map(|process| process.pid.to_string());
        let only = self.only.clone();
        let wanted = |mount: &Mount| only.as_ref().is_none_or(|only| only.contains(&mount.device));
        for place in ["self".to_owned()].into_iter().chain(places) {
            let Ok(mut mounts) = mounts::read(&place) else { continue };
            if let Some(sealed) = self.sealed.as_mut().filter(|_| place == "self") {
                sealed.add(&mounts, pins, false);
            }
            mounts.retain(wanted);
            pins.add(&mounts, &prefix(&place), false);
            if self.only.is_none() {
                for directory in ["root", "cwd"] {
                    adopt(pins, &Path::new("/proc").join(&place).join(directory));
                }
            }
        }
    }

    /// Removes the markers once all is durable; keeps them when `failed`.
    pub(super) fn clear(&mut self, failed: bool) -> Result<(), String> {
        let markers = std::mem::take(&mut self.markers);
        if failed {
            return Ok(());
        }
        // The one in the target first: it is the one that travels. One that cannot be
        // removed does not keep the other.
        let cleared: Vec<_> = markers.into_iter().rev().map(Marker::clear).collect();
        cleared.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())
    }
}

impl Ledger for Run {
    fn engage(&mut self) -> Result<Option<Notice>, String> {
        if mutant::is_at_first("marker-late") {
            return Ok(None);
        }
        self.engage_all()?;
        Ok(self.news_of_marker())
    }

    fn unmount(&mut self, mount: u64) -> Option<Box<dyn FnOnce() + Send>> {
        let Some(pin) = self.pins.take(mount) else {
            // Somebody else's unmount may have it.
            let leaving = self.leaving.iter().find(|leaving| leaving.mount == mount)?;
            let leaving = Arc::clone(leaving);
            return Some(Box::new(move || leaving.wait()));
        };
        let at = self.markers.iter().position(|marker| mount_id(marker.file()) == Some(mount));
        let marker = at.filter(|at| *at > 0).map(|at| self.markers.remove(at));
        let leaving = Arc::new(Leaving::of(&pin));
        self.leaving.push(Arc::clone(&leaving));
        let patience = self.patience;
        Some(Box::new(move || leaving.depart(pin, marker, patience)))
    }

    fn held_on(&mut self, device: DeviceId, (thread, fd): (u32, i32)) -> bool {
        if !self.commits || self.pins.covers(device) {
            return true;
        }
        // Mounted meanwhile, let go for an unmount that failed, or not open to us
        // at the start: the caller's own file leads there.
        let is_asked = self.only.as_ref().is_none_or(|only| only.contains(&device));
        if !is_asked || self.is_lost(device) {
            return false;
        }
        let process = Path::new("/proc").join(thread.to_string());
        let mut mounts = mounts::read(&thread.to_string()).unwrap_or_default();
        mounts.retain(|mount| mount.device == device);
        self.pins.add(&mounts, &process.join("root"), false);
        for path in
            [process.join("fd").join(fd.to_string()), process.join("cwd"), process.join("root")]
        {
            if !self.pins.covers(device) {
                self.adopt(thread, device, &path);
            }
        }
        if !self.pins.covers(device) {
            return false;
        }
        self.mark_root_again()
    }

    fn held_sync(&mut self) {
        // With --commit-only a sync() is for that file system alone, as was asked.
        self.holds_sync |= self.commits && self.only.is_none();
    }
}

/// The mount with `id`, by the caller's mounts, by ours, or by what the file
/// system at `path` says.
fn mount_through(thread: u32, path: &Path, id: Option<u64>) -> Option<Mount> {
    let known = [thread.to_string().as_str(), "self"].into_iter().find_map(|process| {
        let mounts = mounts::read(process).unwrap_or_default();
        mounts.into_iter().find(|mount| Some(mount.id) == id)
    });
    known.or_else(|| mounts::at(path))
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

fn committed_everything(synced: Synced) -> CommittedEverything {
    CommittedEverything {
        error: synced.as_ref().err().map(ToString::to_string),
        micros: synced.ok().map(|time| time.as_micros() as u64),
    }
}

/// What is committed: all, but for what a mutant leaves out.
fn mutated(pins: Pins, everything: Option<Everything>) -> (Pins, Option<Everything>) {
    #[cfg(feature = "mutants")]
    if mutant::is("commit-by-write-back") {
        pins.iter().for_each(|pin| synconce_sys::write_back::all_below(&pin.point));
    }
    let skipped = mutant::is("commit-skipped") || mutant::is("commit-by-write-back");
    if skipped { (Pins::default(), None) } else { (pins, everything) }
}
