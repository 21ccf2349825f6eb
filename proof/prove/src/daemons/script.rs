//! What is recorded: steps, and the images that have to be listed after each.

use super::engine::Act;
use std::collections::BTreeSet;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The hold and the daemon start for the first time.
    Begin,
    /// The daemon acts.
    Act(Act),
    /// The daemon and the hold stop and start again, in order.
    Restart,
    /// All is killed and the disk is mounted again, as after a crash; then the hold is
    /// recovered, and both start.
    Crash,
    /// The hold is settled: what was set aside is removed.
    Settle,
}

/// Imports, container starts, removals and garbage collection, an orderly restart, and a crash
/// with its recovery.
pub(super) const SCRIPT: [Step; 19] = [
    Step::Begin,
    Step::Act(Act::Add(0)),
    Step::Act(Act::Add(1)),
    Step::Act(Act::Start(0)),
    Step::Act(Act::Start(1)),
    Step::Act(Act::Add(2)),
    Step::Act(Act::End),
    Step::Act(Act::Remove(1)),
    Step::Act(Act::Collect),
    Step::Act(Act::Add(3)),
    Step::Act(Act::Remove(0)),
    Step::Act(Act::Add(1)),
    Step::Restart,
    Step::Act(Act::Add(0)),
    Step::Act(Act::Start(3)),
    Step::Act(Act::End),
    Step::Crash,
    Step::Act(Act::Add(1)),
    Step::Settle,
];

/// Builds of which nothing is removed.
pub(super) const BUILDS: [Step; 6] = [
    Step::Begin,
    Step::Act(Act::Add(0)),
    Step::Act(Act::Add(1)),
    Step::Restart,
    Step::Act(Act::Add(2)),
    Step::Act(Act::Add(3)),
];

/// The images that are listed.
pub(super) type Images = BTreeSet<usize>;

/// Returns the images before the first step of `script` and after each; after a crash none is left
/// if `is_wiped`.
pub(super) fn states(script: &[Step], is_wiped: bool) -> Vec<Images> {
    let mut all = vec![Images::new()];
    for step in script {
        let mut next = all[all.len() - 1].clone();
        match step {
            Step::Act(Act::Add(image)) => drop(next.insert(*image)),
            Step::Act(Act::Remove(image)) => drop(next.remove(image)),
            Step::Crash if is_wiped => next.clear(),
            _ => {}
        }
        all.push(next);
    }
    all
}
