//! The steps of image builds: their syncs are the daemon's, and count apart from the command's.

use super::entries::{RecordedCall, StepEnd, StepStart};
use super::tally::{CallTally, Sums};
use super::waits::{NotCovered, Waits};
use serde::{Deserialize, Serialize};
use synconce_durable::step_watch::WatchedStep;

/// The calls of steps that no report counts: the profile of a step lets them through to the kernel.
const NOT_SEEN: &str = "in steps: openat2 and open_by_handle_at with O_SYNC or O_DSYNC; \
                                   transfers with RWF_SYNC or RWF_DSYNC; syncs by aio, ioctl and \
                                   quotactl; unmounts";

/// The largest number of steps that have counts of their own.
const KEPT: usize = 1_000;

/// What is known about steps so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StepsTally {
    steps: Vec<StepTally>,
    /// All calls of steps.
    all: CallTally,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StepTally {
    number: u32,
    about: WatchedStep,
    /// Microseconds since the start of the command.
    began: u64,
    ended: Option<u64>,
    timed: Sums,
    untimed: u64,
}

impl StepsTally {
    pub fn begin(&mut self, start: StepStart) {
        if self.steps.len() < KEPT {
            let StepStart { step: number, at: began, about } = start;
            let timed = Sums::default();
            self.steps.push(StepTally { number, about, began, ended: None, timed, untimed: 0 });
        }
    }

    pub fn end(&mut self, end: &StepEnd) {
        if let Some(step) = self.find(end.step_end) {
            step.ended = Some(end.at);
        }
    }

    /// Adds a call of the step `number`.
    pub fn add(&mut self, number: u32, call: RecordedCall) {
        if let Some(step) = self.find(number) {
            match call.wait {
                Some(wait) => step.timed.add(wait),
                None => step.untimed += 1,
            }
        }
        self.all.add(call);
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the seconds from the start of the command to the last known moment of a step.
    pub fn last(&self) -> f64 {
        let ends = self.steps.iter().map(|step| step.ended.unwrap_or(step.began));
        self.all.last.max(ends.max().unwrap_or(0) as f64 / 1e6)
    }

    fn find(&mut self, number: u32) -> Option<&mut StepTally> {
        self.steps.iter_mut().rfind(|step| step.number == number)
    }
}

/// A step of an image build.
#[derive(Clone, Debug, Serialize)]
pub struct StepWaits {
    /// Its number, in the order in which the steps began.
    pub number: u32,
    /// docker, buildkit or podman.
    pub engine: String,
    /// The image that it was made from, where the engine said it.
    pub image: Option<String>,
    /// The words of its command.
    pub command: String,
    /// Why its syncs were not seen.
    pub unseen: Option<String>,
    /// Seconds from the start of its container to the end of its last process.
    pub seconds: f64,
    /// The number of its timed syncs.
    pub calls: u64,
    /// The sum of all waits, in seconds.
    pub waits: f64,
    /// Calls that sync, or can make later writes sync, and have no time.
    pub untimed: u64,
}

/// The steps of image builds that began while the command ran.
#[derive(Clone, Debug, Serialize)]
pub struct BuildSteps {
    /// Each step.
    pub steps: Vec<StepWaits>,
    /// The syncs of all steps.
    pub waits: Waits,
    /// The calls of steps that were not timed.
    pub not_covered: Vec<NotCovered>,
    /// The calls that cannot be seen in a step.
    pub not_seen: &'static str,
}

impl BuildSteps {
    /// Returns the steps of a command that ended after `seconds`; `None` if there are none.
    pub(super) fn from_tally(tally: &StepsTally, seconds: f64) -> Option<Self> {
        if tally.steps.is_empty() {
            return None;
        }
        let since = |micros: u64| micros as f64 / 1e6;
        let steps = tally.steps.iter().map(|step| StepWaits {
            number: step.number,
            engine: step.about.engine.clone(),
            image: step.about.image.clone(),
            command: step.about.command.clone(),
            unseen: step.about.unseen.clone(),
            seconds: (step.ended.map_or(seconds, since) - since(step.began)).max(0.0),
            calls: step.timed.calls,
            waits: step.timed.seconds,
            untimed: step.untimed,
        });
        let (waits, not_covered) =
            (Waits::from_tally(&tally.all), NotCovered::from_tally(&tally.all));
        Some(Self { steps: steps.collect(), waits, not_covered, not_seen: NOT_SEEN })
    }

    /// Returns how many steps were seen.
    pub(crate) fn seen(&self) -> usize {
        self.steps.iter().filter(|step| step.unseen.is_none()).count()
    }
}

impl StepWaits {
    /// Returns the command without the shell that starts it.
    pub(crate) fn words(&self) -> &str {
        ["/bin/sh -c ", "/bin/bash -c "]
            .iter()
            .find_map(|shell| self.command.strip_prefix(shell))
            .unwrap_or(&self.command)
            .trim_start()
    }
}

#[cfg(test)]
mod tests;
