//! `synconce status`

use crate::arguments::Status;
use crate::commands::advice::advice;
use crate::commands::root;
use crate::exit;
use crate::text::{say, shell};
use serde::Serialize;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use synconce_durable::error::Error;
use synconce_durable::places;
use synconce_durable::record::Record;
use synconce_durable::recovery::{self, Found, State};
use synconce_durable::text;
use synconce_hold::{Live, Phase, descendants, live};

/// One run, as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    /// in-flight, committing, serving or interrupted.
    state: &'static str,
    run: Option<Record>,
    /// Where the marker is.
    #[serde(serialize_with = "text::path_if_any")]
    marker: Option<PathBuf>,
    /// Processes that are served after the run.
    survivors: Vec<String>,
    /// What to do about an interrupted run.
    advice: Vec<String>,
}

/// Shows or clears runs.
pub fn status(arguments: &Status) -> ExitCode {
    // A mistyped target must not look like one in which nothing was interrupted.
    let to_mount = |root| format!("mount its disk first; then: synconce status --root {root}");
    if arguments.root.as_deref().is_some_and(|root| !root::is_usable(root, to_mount)) {
        return exit::FAILED.into();
    }
    let result = match &arguments.clear {
        Some(id) => clear(arguments, id),
        None => show(arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say(&error);
            exit::FAILED.into()
        }
    }
}

fn markers(arguments: &Status) -> Result<Vec<Found>, String> {
    let below_root = arguments.root.as_ref().map(|root| root.join(places::STATE_BELOW_ROOT));
    let mut found = Vec::new();
    for directory in places::state().into_iter().chain(below_root) {
        found.extend(recovery::markers(&directory).map_err(|error: Error| error.to_string())?);
    }
    Ok(found)
}

fn show(arguments: &Status) -> Result<ExitCode, String> {
    // Living runs first: one that ends between the two looks is in neither, not in the wrong one.
    let living = live().map_err(|error| format!("cannot read the run files: {error}"))?;
    let markers = markers(arguments)?;
    let runs = merge(living, markers);
    let text = if arguments.json {
        serde_json::to_string_pretty(&runs).map_err(|error| error.to_string())? + "\n"
    } else {
        runs.iter().map(render).collect()
    };
    io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot write: {error}"))?;
    let any = |state: &str| runs.iter().any(|run| run.state == state);
    Ok(match () {
        () if any("interrupted") => exit::INTERRUPTED.into(),
        () if any("in-flight") || any("committing") => exit::IN_FLIGHT.into(),
        () => ExitCode::SUCCESS,
    })
}

fn merge(living: Vec<Live>, markers: Vec<Found>) -> Vec<Shown> {
    let mut seen = HashSet::new();
    let mut runs: Vec<Shown> = Vec::new();
    let (cut_short, marked): (Vec<_>, Vec<_>) =
        markers.into_iter().partition(|found| found.state == State::Interrupted);
    for found in cut_short {
        if seen.insert(found.id.clone()) {
            runs.push(interrupted(found));
        }
    }
    for run in living {
        if seen.insert(run.record.id.clone()) {
            runs.push(alive(run));
        }
    }
    // A run without a run file: its user has no runtime directory.
    for found in marked {
        if seen.insert(found.id.clone()) {
            runs.push(Shown { state: "in-flight", advice: Vec::new(), ..interrupted(found) });
        }
    }
    runs.sort_by(|a, b| a.id.cmp(&b.id));
    runs
}

fn interrupted(found: Found) -> Shown {
    let advice = advice(found.record.as_ref(), &found.id);
    Shown {
        id: found.id,
        state: "interrupted",
        run: found.record,
        marker: Some(found.path),
        survivors: Vec::new(),
        advice,
    }
}

fn alive(run: Live) -> Shown {
    let (state, survivors) = match run.phase {
        Phase::Running => ("in-flight", Vec::new()),
        Phase::Committing => ("committing", Vec::new()),
        Phase::Serving => ("serving", run.supervisor.map(descendants).unwrap_or_default()),
    };
    Shown {
        id: run.record.id.clone(),
        state,
        run: Some(run.record),
        marker: None,
        survivors: survivors.iter().map(ToString::to_string).collect(),
        advice: Vec::new(),
    }
}

fn render(run: &Shown) -> String {
    let command = run.run.as_ref().map_or("unknown command".into(), |run| shell(&run.command));
    let mut text = format!("{} {} {command}\n", run.id, run.state);
    if let Some(record) = &run.run {
        text += &format!("  started {} in {}\n", record.started, record.directory.display());
    }
    if !run.survivors.is_empty() {
        text += &format!("  real syncs again for: {}\n", run.survivors.join(", "));
    }
    for line in &run.advice {
        text += &format!("  {line}\n");
    }
    text
}

fn clear(arguments: &Status, id: &str) -> Result<ExitCode, String> {
    let found: Vec<Found> =
        markers(arguments)?.into_iter().filter(|found| found.id == id).collect();
    if found.is_empty() {
        return Err(format!("there is no run {id}; `synconce status` lists them"));
    }
    if found.iter().any(|found| found.state == State::InFlight) {
        return Err(format!("the run {id} is in flight, not interrupted"));
    }
    for one in &found {
        recovery::clear(one).map_err(|error| error.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
