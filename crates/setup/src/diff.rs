//! Unified diffs of changes.

use crate::host::{Host, PathState};
use crate::plan::{Plan, PlannedAct};
use similar::TextDiff;
use std::path::Path;

/// Returns what `plan` would change, as unified diffs.
pub fn of_plan(plan: &Plan, host: &Host) -> String {
    let shown = plan.changes.iter().map(|change| {
        let real = host.real(&change.path);
        match &change.act {
            PlannedAct::Edit { before, after } => unified(&real, Some(before), Some(after)),
            PlannedAct::Create(content) => unified(&real, None, Some(content)),
            PlannedAct::Own(content) => {
                let now = host.look(&change.path).ok();
                unified(&real, now.as_ref().and_then(text).as_deref(), Some(content))
            }
            PlannedAct::Link(target) => unified(&real, None, Some(&link(target))),
        }
    });
    shown.collect()
}

/// Returns the diff from `from` to `to`; `None` means that there is no file.
pub(crate) fn unified(path: &Path, from: Option<&str>, to: Option<&str>) -> String {
    let name =
        |there: bool| if there { path.display().to_string() } else { "/dev/null".to_owned() };
    let (old, new) = (name(from.is_some()), name(to.is_some()));
    let diff = TextDiff::from_lines(from.unwrap_or_default(), to.unwrap_or_default());
    let shown = diff.unified_diff().context_radius(3).header(&old, &new).to_string();
    // An empty file has no lines to show.
    if shown.is_empty() && from.is_some() != to.is_some() {
        return format!("--- {old}\n+++ {new}\n");
    }
    shown
}

/// Returns `found` as text; bytes that are no UTF-8 are replaced.
pub(crate) fn text(found: &PathState) -> Option<String> {
    match found {
        PathState::Absent => None,
        PathState::File(bytes, _) => Some(String::from_utf8_lossy(bytes).into_owned()),
        PathState::Link(target) => Some(link(target)),
    }
}

/// Returns a link as text.
pub(crate) fn link(target: &Path) -> String {
    format!("symbolic link to {}\n", target.display())
}
