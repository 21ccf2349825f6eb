//! Checkpoints: commits that a run makes before its end.
//!
//! A checkpoint shares the descriptors of the run's pins. So it gets every write-back error
//! since the pins were opened, and the commit at the end does not get these errors again. The
//! failures of checkpoints are kept, and the commit at the end reports them.
//!
//! One checkpoint is made at a time. Its syncs run without the lock of the run. Calls are held
//! meanwhile, and their data are left to the commit at the end.

use super::Active;
use super::commit::early;
use super::coverage::Coverage;
use super::sealed_scope::SealedScope;
use super::turn::{Checkpoints, Turn};
use super::unmount_sync::UnmountSync;
use crate::commit::directory::DirectoryDevice;
use crate::process::process_tree;
use crate::report::protocol::{CommitReport, Committed, CommittedEverything, Notice};
use crate::report::run_error::RunError;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use synconce_durable::commit::{FileSystemOutcome, Progress, commit};
use synconce_durable::everything::Everything;
use synconce_durable::mutant;
use synconce_durable::pins::Pins;
use synconce_durable::synced::SyncFailure;

/// The file systems that a checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those that the commit at the end would cover now.
    Held,
    /// Those, and the file systems that were pinned before the command started: a user asks
    /// for everything that was written, also where no call was held.
    Written,
}

/// What a checkpoint syncs.
pub(crate) struct Checkpoint {
    turn: Turn,
    coverage: Coverage,
    pins: Pins,
    everything: Option<Everything>,
    /// What is synced if a covered file system has no pin.
    left: Everything,
    unmounts: Vec<Arc<UnmountSync>>,
    is_sealed: bool,
    patience: Duration,
}

impl Active {
    /// Returns the checkpoints of this run.
    ///
    /// # Errors
    /// The run commits nothing.
    pub(crate) fn checkpoints(&self) -> Result<Checkpoints, RunError> {
        if !self.options.commit {
            return Err(RunError::CommitsNothing);
        }
        Ok(self.checkpoints.clone())
    }

    /// Returns, once, whether calls may have been held since the last checkpoint. A sealed
    /// filter does not report held calls.
    pub(crate) fn take_held(&mut self) -> bool {
        std::mem::take(&mut self.held_since) || self.scope.sealed.is_some()
    }

    /// Returns the checkpoint that covers the calls that were held until now, and the file
    /// system of the working `directory` of the process that asked.
    ///
    /// # Errors
    /// The file system of `directory` cannot be covered.
    pub(crate) fn checkpoint(
        &mut self,
        turn: Turn,
        extent: Extent,
        directory: Option<DirectoryDevice>,
    ) -> Result<Checkpoint, RunError> {
        let mut pins = self.pins.clone();
        pins.drop_closed();
        // With --commit-only no other file system is covered.
        if let Some(found) = directory.filter(|_| self.scope.only.is_none()) {
            self.cover(found, &mut pins)?;
        }
        self.held_since = false;
        let mut coverage = self.coverage();
        if extent == Extent::Written {
            let early = self.pins.iter().filter(|pin| pin.early);
            coverage.scope.extend(early.map(|pin| pin.device).chain(self.early_taken.clone()));
        }
        Ok(Checkpoint {
            turn,
            pins,
            everything: self.scope.takes_all().then(|| self.everything()),
            left: Everything::for_supervised(self.written_before.clone()),
            unmounts: self.unmounts.clone(),
            is_sealed: self.scope.sealed.is_some(),
            patience: self.options.patience,
            coverage,
        })
    }

    /// Adds `found` to `pins`, and to the file systems that are committed. The run itself gets
    /// no pin: a file system without one is named in the marker before the first call there is
    /// held.
    fn cover(&mut self, found: DirectoryDevice, pins: &mut Pins) -> Result<(), RunError> {
        pins.join(found.pins);
        let pin = pins.find(found.device).ok_or(found.error)?;
        if pin.volatile {
            return Err(RunError::VolatileOverlay(found.point));
        }
        self.scope.add(found.device, pins);
        Ok(())
    }
}

impl Checkpoint {
    /// Makes everything durable that was written before on the covered file systems. Returns
    /// the result, and the notice about what no commit reaches.
    pub(crate) fn perform(
        self,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> (CommitReport, Option<Notice>) {
        let began = Instant::now();
        let Self { turn, mut coverage, mut pins, everything, left, unmounts, is_sealed, patience } =
            self;
        let checkpoints = turn.checkpoints();
        coverage.add_root();
        let early = early(&pins);
        pins.retain(|device| coverage.keeps(device));
        let mut sealed = is_sealed.then(SealedScope::default);
        let is_complete = coverage.scope.iter().all(|device| pins.covers(*device));
        if coverage.takes_all || !is_complete {
            let others = process_tree::descendants(std::process::id());
            coverage.add_late(&mut pins, &others, sealed.as_mut());
        }
        coverage.add_below(&mut pins, early);
        let everything = everything.or_else(|| coverage.leaves(&pins).then_some(left));
        // Their syncs are waited for below.
        let taken_over: HashSet<_> = unmounts
            .iter()
            .filter(|unmount| unmount.takes_over())
            .map(|unmount| unmount.device)
            .collect();
        pins.retain(|device| !checkpoints.has_lost(device) && !taken_over.contains(&device));
        pins.drop_volatile();
        let skipped = mutant::is("checkpoint-skipped");
        let (pins, everything) = if skipped { Default::default() } else { (pins, everything) };
        let devices: Vec<_> = pins.iter().map(|pin| pin.device).collect();
        let report = commit(pins, everything, patience, progress);
        let has_begun =
            |outcome: &FileSystemOutcome| !matches!(outcome.result, Err(SyncFailure::NotBegun(_)));
        let begun: Vec<_> = report.file_systems.iter().map(has_begun).collect();
        let synced: Vec<_> = report.file_systems.into_iter().map(Committed::from).collect();
        let everything = report.everything.map(CommittedEverything::from);
        let found = devices.into_iter().zip(synced.iter().cloned()).zip(begun);
        let found = found.filter(|((_, one), has_begun)| one.error.is_some() && *has_begun);
        let lost = found.map(|(found, _)| found).collect();
        let earlier = checkpoints.failures();
        checkpoints.note(lost, everything.as_ref());
        // An unmount waits for the turn, so this waits for unmounts without it.
        drop(turn);
        let unmounted = unmounts.iter().filter_map(|unmount| {
            unmount.wait();
            unmount.outcome().filter(|outcome| outcome.error.is_some())
        });
        let report = CommitReport {
            file_systems: unmounted.chain(earlier.file_systems()).chain(synced).collect(),
            everything: earlier.everything.or(everything),
            micros: began.elapsed().as_micros() as u64,
        };
        (report, sealed.and_then(|sealed| sealed.uncommitted_fuse()))
    }
}
