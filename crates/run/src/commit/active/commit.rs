//! The commit of a run.

use super::Active;
use super::coverage::Coverage;
use crate::process::process_tree::Process;
use crate::report::protocol::{CommitReport, Committed, CommittedEverything};
use crate::request::runfile::Phase;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_durable::commit::{self, Progress};
use synconce_durable::everything::Everything;
use synconce_durable::mutant;
use synconce_durable::pins::Pins;
use synconce_probe::device;
use synconce_probe::mounts::DeviceId;

/// How often progress is reported.
const TICK: Duration = Duration::from_millis(250);

impl Active {
    /// Makes everything durable on the file systems that were named and on those on which a
    /// call was held. Returns `None` if there are none. A file system that failed in a
    /// checkpoint fails here as well.
    pub(crate) fn commit(
        &mut self,
        survivors: &[Process],
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Option<CommitReport> {
        let began = Instant::now();
        self.wait_for_checkpoint(progress);
        let failures = self.checkpoints.failures();
        let mut coverage = self.coverage();
        let mut pins = std::mem::take(&mut self.pins);
        if coverage.is_empty() && failures.is_empty() {
            return None;
        }
        self.enter(Phase::Committing);
        self.wait_for_unmounts(progress);
        coverage.ended = self.ended(&pins);
        if mutant::is("pins-late") {
            pins = Pins::default();
        }
        coverage.add_root();
        pins.drop_closed();
        let early = early(&pins);
        pins.retain(|device| coverage.keeps(device));
        coverage.add_late(&mut pins, survivors, self.scope.sealed.as_mut());
        coverage.add_hidden(&mut pins);
        coverage.add_below(&mut pins, early);
        let takes_all = self.scope.takes_all() || coverage.leaves(&pins);
        let everything = takes_all.then(|| self.everything());
        // A failed sync is never repeated: the second sync would succeed although data was
        // lost.
        pins.retain(|device| !self.is_lost(device));
        pins.drop_volatile();
        let left = self.unmounts.iter().filter_map(|unmount| unmount.outcome());
        let left: Vec<_> = left.chain(failures.file_systems()).collect();
        let (pins, everything) = mutated(pins, everything);
        let report = commit::commit(pins, everything, self.options.patience, progress);
        let report = CommitReport {
            micros: began.elapsed().as_micros() as u64,
            file_systems: left
                .into_iter()
                .chain(report.file_systems.into_iter().map(Committed::from))
                .collect(),
            everything: failures.everything.or(report.everything.map(CommittedEverything::from)),
        };
        if !report.is_durable()
            && let Some(file) = &self.run_file
        {
            file.note(&report);
        }
        Some(report)
    }

    /// Returns what a commit covers now.
    pub(super) fn coverage(&self) -> Coverage {
        Coverage {
            only: self.scope.only.clone(),
            takes_all: self.scope.takes_all() || self.options.commit_all,
            scope: self.scope.devices.clone(),
            root: self.markers.root.clone(),
            ended: self.ended(&self.pins),
            by_sync: self.by_sync.clone(),
            upperless: self.upperless.clone(),
        }
    }

    /// Returns the file systems that were synced before their last unmount, and not used since.
    fn ended(&self, pins: &Pins) -> HashSet<DeviceId> {
        let synced = self.unmounts.iter().filter(|unmount| unmount.is_durable());
        let devices = synced.map(|unmount| unmount.device);
        devices.filter(|device| !pins.covers(*device)).collect()
    }

    /// Returns what a commit of everything syncs beside the pins: a sealed filter answered calls on
    /// any file system, a held sync() covers all disks, and a covered file system that is in use
    /// may have no pin ([`Coverage::leaves`]).
    pub(super) fn everything(&self) -> Everything {
        let written_before = self.written_before.clone();
        if self.scope.sealed.is_some() {
            Everything::for_sealed(written_before)
        } else {
            Everything::for_supervised(written_before)
        }
    }

    /// Waits for file systems that are being synced for an unmount. Each sync has its own
    /// timeout.
    fn wait_for_unmounts(&self, progress: &mut dyn FnMut(&Progress<'_>)) {
        for unmount in &self.unmounts {
            while !unmount.is_over_within(TICK) {
                report_wait(&unmount.point, progress);
            }
        }
    }

    /// Waits for a checkpoint in progress, whose syncs have their own timeouts.
    fn wait_for_checkpoint(&mut self, progress: &mut dyn FnMut(&Progress<'_>)) {
        while !self.checkpoints.is_idle_within(TICK) {
            self.enter(Phase::Committing);
            report_wait(Path::new("what an earlier commit syncs"), progress);
        }
    }
}

/// Returns the pins from before the command started.
pub(super) fn early(pins: &Pins) -> Pins {
    let mut early = pins.clone();
    early.take(|pin| !pin.early);
    early
}

fn report_wait(point: &Path, progress: &mut dyn FnMut(&Progress<'_>)) {
    let (waiting, dirty) = (vec![point], device::dirty_bytes());
    progress(&Progress { waiting, still: Vec::new(), dirty });
}

/// Returns what is committed: everything except what a mutant leaves out.
fn mutated(pins: Pins, everything: Option<Everything>) -> (Pins, Option<Everything>) {
    #[cfg(feature = "mutants")]
    if mutant::is("commit-by-write-back") {
        pins.iter().for_each(|pin| synconce_sys::write_back::all_below(&pin.point));
    }
    let skipped = mutant::is("commit-skipped") || mutant::is("commit-by-write-back");
    if skipped { (Pins::default(), None) } else { (pins, everything) }
}
