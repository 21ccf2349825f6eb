//! State of both workers: the model, the findings and the recent commands.

use super::super::check::Defect;
use super::super::store::Store;
use super::messages::{CommandCounts, Messages};
use super::model::Model;
use crate::Result;
use crate::campaign::Findings;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use synconce_testkit::patiently;

/// Number of recent commands that are printed with a finding.
const RECENT: usize = 40;
/// Minimum number of kills in a walk.
const ENOUGH: usize = 3;

/// State shared by both workers.
pub(super) struct TreeWalk<'a> {
    pub store: &'a Store<'a>,
    pub until: Instant,
    /// The end of the walk in any case. On a busy machine the walk continues after `until`, until
    /// enough kills were in time; the control and a mutant continue until something is found.
    latest: Instant,
    until_found: bool,
    pub began: Instant,
    shared: Mutex<WalkState>,
}

/// The state behind the lock.
pub(super) struct WalkState {
    pub ended: WalkEnd,
    pub findings: Findings,
    pub counts: CommandCounts,
    recent: VecDeque<String>,
}

/// What both workers have left for the final check.
pub(super) struct WalkEnd {
    pub model: Model,
    pub messages: Messages,
}

impl<'a> TreeWalk<'a> {
    pub(super) fn new(
        store: &'a Store<'a>,
        model: Model,
        until: Instant,
        until_found: bool,
    ) -> Self {
        let ended = WalkEnd { model, messages: Messages::default() };
        let (findings, counts) = (Findings::default(), CommandCounts::default());
        let shared = WalkState { ended, findings, counts, recent: VecDeque::new() };
        let latest = until + patiently(Duration::from_secs(120));
        let (began, shared) = (Instant::now(), Mutex::new(shared));
        Self { store, until, latest, until_found, began, shared }
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, WalkState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the walk makes another step.
    pub(super) fn continues(&self) -> bool {
        let (now, findings) = (Instant::now(), &self.shared().findings);
        let is_enough = !self.until_found && findings.cuts >= ENOUGH;
        findings.broken() == 0 && (now < self.until || !is_enough && now < self.latest)
    }

    /// Returns the state after both workers have ended.
    pub(super) fn into_shared(self) -> Result<WalkState> {
        Ok(self.shared.into_inner().map_err(|_| "a worker panicked")?)
    }
}

impl WalkState {
    /// Keeps a line about a command.
    pub(super) fn record(&mut self, line: String) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
    }

    /// Adds a finding, with the lines about recent commands.
    pub(super) fn note(&mut self, (kind, detail): Defect) {
        let recent = self.recent.iter().map(|line| format!("\n    {line}")).collect::<String>();
        self.findings.note(kind, || format!("{detail}; before:{recent}"));
    }
}
