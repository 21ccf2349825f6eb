//! `synconce status --clear ID...`

use super::{id, markers, names, others, target};
use crate::arguments::StatusArguments;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream};
use crate::text::{name_for_sudo, notice, say};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::recovery::{self, FoundMarker, MarkerState, RunKey};
use synconce_run::{forget_failed_commit, processes_of};

pub(super) fn clear(arguments: &StatusArguments) -> Result<ExitCode, CommandError> {
    let output = Output::open(arguments.json.json.as_deref(), Stream::Output)?;
    let mut cleared = Vec::new();
    let mut failure: Option<CommandError> = None;
    for typed in &arguments.clear {
        if cleared.contains(typed) {
            continue;
        }
        match clear_run(arguments, typed) {
            Ok((id, runs)) => {
                if !output.is_json() {
                    notice(&format!("cleared {id}"));
                }
                for left in processes_of(&runs).into_values().filter(|left| !left.is_empty()) {
                    say(&format!("processes of {id} still run: {}", names(&left)));
                }
                cleared.push(id);
            }
            Err(error) => {
                failure = Some(match failure {
                    Some(earlier) => earlier.and(error),
                    None => error,
                });
            }
        }
    }
    output.write(&serde_json::json!({ "cleared": cleared }))?;
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Removes the markers of the run whose ID `typed` is or begins. Returns the whole ID, and the runs
/// of that ID.
fn clear_run(
    arguments: &StatusArguments,
    typed: &str,
) -> Result<(String, HashSet<RunKey>), CommandError> {
    let (own, mut in_targets) = (markers()?, Vec::new());
    if let Some(root) = &arguments.root {
        in_targets.push((root.clone(), target::markers(root)?));
    }
    let known = own.iter().chain(in_targets.iter().flat_map(|(_, found)| found));
    let id = &id::complete(typed, known.map(|found| found.id.clone()).collect())?;
    let of_id = |mut found: Vec<FoundMarker>| {
        found.retain(|found| found.id == *id);
        found
    };
    let own = of_id(own);
    let own_runs: HashSet<RunKey> = own.iter().map(FoundMarker::run).collect();
    let mut in_targets: Vec<_> =
        in_targets.into_iter().map(|(root, found)| (root, of_id(found))).collect();
    // The target that a marker names is not trusted: only the user's own markers name one
    // here.
    if let Some(root) =
        own.iter().find_map(root_of).filter(|it| Some(it) != arguments.root.as_ref())
    {
        let mut found = of_id(target::markers(&root)?);
        found.retain(|found| own_runs.contains(&found.run()));
        in_targets.push((root, found));
    }
    let found = || in_targets.iter().flat_map(|(_, found)| found).chain(&own);
    if found().any(|found| found.state == MarkerState::InFlight) {
        return Err(format!("the run {id} is in flight, not interrupted").into());
    }
    let others = others::clear(id, &found().map(|found| found.owner).collect())?;
    if others.is_empty() && found().next().is_none() {
        let is_roots = others::of_root().iter().any(|found| found.id == *id);
        let why = if is_roots {
            format!("the run {id} is root's; type: sudo {} status --clear {id}", name_for_sudo())
        } else {
            format!("there is no run {id}; `synconce status` lists them")
        };
        return Err(why.into());
    }
    for (root, found) in &in_targets {
        target::clear(root, &found.iter().map(FoundMarker::run).collect())?;
    }
    // The user's own markers name the target: if this process is killed before, a repetition finds
    // the target again.
    for one in &own {
        recovery::clear(one).map_err(|error| error.to_string())?;
        forget_failed_commit(id);
    }
    Ok((id.clone(), own.iter().chain(&others).map(FoundMarker::run).collect()))
}

/// Returns the `--root` of the run of `found`.
fn root_of(found: &FoundMarker) -> Option<PathBuf> {
    found.record.as_ref()?.private.as_ref()?.target().map(Path::to_owned)
}
