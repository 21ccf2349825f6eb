//! What is recorded: steps, and the images that have to be listed after each.

use std::collections::BTreeSet;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptStep {
    /// The hold and the daemon start for the first time.
    Begin,
    /// The daemon acts.
    Act(StepAct),
    /// The daemon and the hold stop and start again, in order.
    Restart,
    /// All is killed and the disk is mounted again, as after a crash; then the hold is
    /// recovered, and both start.
    Crash,
    /// The hold is settled: what was set aside is removed.
    Settle,
}

/// What a daemon does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepAct {
    /// Import or build an image.
    Add(usize),
    /// Start a container of an image, which keeps running.
    Start(usize),
    /// Kill and remove all containers.
    End,
    /// Remove the name of an image.
    Remove(usize),
    /// Remove what nothing refers to.
    Collect,
}

/// Imports, container starts, removals and garbage collection, an orderly restart, and a crash
/// with its recovery.
pub(super) const SCRIPT: [ScriptStep; 19] = [
    ScriptStep::Begin,
    ScriptStep::Act(StepAct::Add(0)),
    ScriptStep::Act(StepAct::Add(1)),
    ScriptStep::Act(StepAct::Start(0)),
    ScriptStep::Act(StepAct::Start(1)),
    ScriptStep::Act(StepAct::Add(2)),
    ScriptStep::Act(StepAct::End),
    ScriptStep::Act(StepAct::Remove(1)),
    ScriptStep::Act(StepAct::Collect),
    ScriptStep::Act(StepAct::Add(3)),
    ScriptStep::Act(StepAct::Remove(0)),
    ScriptStep::Act(StepAct::Add(1)),
    ScriptStep::Restart,
    ScriptStep::Act(StepAct::Add(0)),
    ScriptStep::Act(StepAct::Start(3)),
    ScriptStep::Act(StepAct::End),
    ScriptStep::Crash,
    ScriptStep::Act(StepAct::Add(1)),
    ScriptStep::Settle,
];

/// Builds, without a removal.
pub(super) const BUILDS: [ScriptStep; 6] = [
    ScriptStep::Begin,
    ScriptStep::Act(StepAct::Add(0)),
    ScriptStep::Act(StepAct::Add(1)),
    ScriptStep::Restart,
    ScriptStep::Act(StepAct::Add(2)),
    ScriptStep::Act(StepAct::Add(3)),
];

/// The images that are listed.
pub(super) type Images = BTreeSet<usize>;

/// Returns the images before the first step of `script` and after each; after a crash none is left
/// if `is_wiped`.
pub(super) fn states(script: &[ScriptStep], is_wiped: bool) -> Vec<Images> {
    let mut all = vec![Images::new()];
    for step in script {
        let mut next = all[all.len() - 1].clone();
        match step {
            ScriptStep::Act(StepAct::Add(image)) => drop(next.insert(*image)),
            ScriptStep::Act(StepAct::Remove(image)) => drop(next.remove(image)),
            ScriptStep::Crash if is_wiped => next.clear(),
            _ => {}
        }
        all.push(next);
    }
    all
}
