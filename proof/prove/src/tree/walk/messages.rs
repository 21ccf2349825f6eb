//! Compares the commands' reports of interrupted sessions with the kills, and counts the
//! commands.

use super::super::check::Defect;
use super::super::store::Reported;
use std::collections::BTreeMap;
use std::fmt;

/// Numbers of commands.
#[derive(Debug, Default)]
pub(super) struct CommandCounts {
    pub done: usize,
    pub refused: usize,
    pub killed: usize,
}

impl fmt::Display for CommandCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, refused, killed } = self;
        let all = done + refused + killed;
        write!(f, "{all} commands ({done} done, {refused} refused, {killed} killed)")
    }
}

/// The interruptions that may be reported, and those that must be.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Number of commands that were or will be killed, by the tree that they are reported for.
    pub may: BTreeMap<String, i64>,
    /// Number of sessions that were seen to be cut short, by tree.
    pub must: BTreeMap<String, i64>,
}

impl Messages {
    /// Counts the reports of one command; returns a fault if a report is wrong.
    pub(super) fn count(&mut self, reported: &Reported) -> Option<Defect> {
        if !reported.lost.is_empty() {
            return Some((
                "false alarm",
                format!("{:?} reported as lost with the power", reported.lost),
            ));
        }
        for name in &reported.interrupted {
            let may = self.may.entry(name.clone()).or_default();
            *may -= 1;
            if *may < 0 {
                let what = "is reported as interrupted, and no session of it was";
                return Some(("false alarm", format!("{name} {what}")));
            }
            let must = self.must.entry(name.clone()).or_default();
            *must = (*must - 1).max(0);
        }
        None
    }

    /// Returns a fault if an interruption was never reported.
    pub(super) fn unreported(&self) -> Option<Defect> {
        let (name, count) = self.must.iter().find(|(_, count)| **count > 0)?;
        Some((
            "interruption not reported",
            format!("{count} sessions of {name} that were cut short"),
        ))
    }
}
