//! Holds of daemons' files, among the runs.

use super::Shown;
use crate::commands::hold::{HoldReport, reports};
use crate::table::fit;
use crate::text::{printable, say};
use synconce_hold::state_directory;
use synconce_hold::status::HoldState;

/// Returns the holds that are in force or interrupted, and whether all could be read; says why
/// not to root. Only root makes holds, and may hide them from users.
pub(super) fn noteworthy() -> (Vec<HoldReport>, bool) {
    let (mut holds, errors) = reports().unwrap_or_else(|error| (Vec::new(), vec![error]));
    holds.retain(|hold| hold.status.state != HoldState::Off);
    if !rustix::process::geteuid().is_root() {
        return (holds, true);
    }
    errors.iter().flat_map(|error| &error.lines).for_each(|line| say(line));
    (holds, errors.is_empty())
}

/// Returns the hold with the fields of a run: a reader of the JSON finds each interrupted hold as
/// the reader finds each interrupted run. Holds are root's.
pub(super) fn shown(hold: HoldReport) -> Shown {
    Shown {
        id: hold.status.name.clone(),
        state: hold.status.state.word(),
        owner: 0,
        marker: Some(state_directory::marker(&hold.status.name)),
        advice: hold.advice.iter().cloned().collect(),
        hold: Some(hold),
        counts: true,
        ..Shown::default()
    }
}

/// Returns the lines of the holds, broken where they are wider than `width`.
pub(super) fn render(holds: &[HoldReport], width: Option<usize>) -> String {
    let render = |hold: &HoldReport| {
        let status = &hold.status;
        let since = status.started.as_deref().unwrap_or("an unknown time");
        let state = status.state.word();
        let cost = printable(&hold.cost());
        let first = format!("hold {}: {state} since {since}; after a crash: {cost}", status.name);
        [fit(&first, width)].into_iter().chain(hold.lines(width)).collect::<Vec<_>>().join("\n")
            + "\n"
    };
    holds.iter().map(render).collect()
}
