//! Holds of daemons' files, among the runs.

use crate::commands::hold::{Report, reports};
use crate::text::{printable, say};
use synconce_daemon::status::State;

/// Returns the holds that are in force or interrupted, and whether all could be read; says why
/// not to root. Only root makes holds, and may hide them from users.
pub(super) fn noteworthy() -> (Vec<Report>, bool) {
    let (mut holds, messages) = match reports() {
        Ok((holds, troubles)) => {
            (holds, troubles.into_iter().map(|trouble| trouble.message).collect())
        }
        Err(error) => (Vec::new(), vec![error]),
    };
    holds.retain(|hold| hold.status.state != State::Off);
    if !rustix::process::geteuid().is_root() {
        return (holds, true);
    }
    messages.iter().flat_map(|message| message.lines()).for_each(say);
    (holds, messages.is_empty())
}

/// Returns the lines of the holds.
pub(super) fn render(holds: &[Report]) -> String {
    let render = |hold: &Report| {
        let status = &hold.status;
        let since = status.started.as_deref().unwrap_or("an unknown time");
        let state = status.state.word();
        let cost = printable(&hold.cost());
        let first = format!("hold {}: {state} since {since}; a crash now: {cost}", status.name);
        [first].into_iter().chain(hold.lines()).collect::<Vec<_>>().join("\n") + "\n"
    };
    holds.iter().map(render).collect()
}
