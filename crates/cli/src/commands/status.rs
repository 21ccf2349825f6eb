//! `synconce status`

mod accounts;
mod ask;
mod others;

use self::accounts::name_of;
use crate::arguments::Status;
use crate::commands::advice::{advice, advice_for_root};
use crate::commands::root;
use crate::exit;
use crate::text::{printable, printable_json, say, shell};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::error::Error;
use synconce_durable::places;
use synconce_durable::record::{Record, boot_id};
use synconce_durable::recovery::{self, Found, State};
use synconce_durable::text;
use synconce_hold::{Live, Phase, Process, descendants, live, processes_of};

/// One run, as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    /// in-flight, committing, serving or interrupted.
    state: &'static str,
    /// The user that the run belongs to.
    owner: u32,
    run: Option<Record>,
    /// Where the marker is.
    #[serde(serialize_with = "text::path_if_any")]
    marker: Option<PathBuf>,
    /// Processes that are served after the run.
    survivors: Vec<String>,
    /// Processes that an interrupted run has left, which go on.
    running: Vec<Process>,
    /// What to do about an interrupted run.
    advice: Vec<String>,
    /// Whether it counts for the exit code: root's runs do not for a user.
    #[serde(skip)]
    counts: bool,
}

impl Shown {
    fn is_of_another(&self) -> bool {
        self.owner != rustix::process::geteuid().as_raw()
    }
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
    let state = places::state()
        .ok_or("cannot find a state directory: neither XDG_STATE_HOME nor HOME is set")?;
    for directory in [state].into_iter().chain(below_root) {
        found.extend(recovery::markers(&directory).map_err(|error: Error| error.to_string())?);
    }
    Ok(found)
}

fn show(arguments: &Status) -> Result<ExitCode, String> {
    // Living runs first: one that ends between the two looks is in neither, not in the wrong one.
    let living = live().map_err(|error| format!("cannot read the run files: {error}"))?;
    let markers = markers(arguments)?;
    let mut runs = merge(living, markers);
    // A user's run with --root has a marker in the root, too.
    let others = others::of_every_user().into_iter().map(interrupted);
    let new: Vec<_> = others.filter(|other| !runs.iter().any(|run| run.id == other.id)).collect();
    runs.extend(new);
    let of_root = others::of_root().into_iter().map(interrupted);
    runs.extend(of_root.map(|run| Shown { counts: false, ..run }));
    runs.sort_by(|a, b| a.id.cmp(&b.id));
    advise(&mut runs, arguments.root.as_deref());
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(&runs).map_err(|error| error.to_string())?;
        printable_json(&json) + "\n"
    } else {
        runs.iter().map(render).collect()
    };
    io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot write: {error}"))?;
    let any = |state: &str| runs.iter().any(|run| run.counts && run.state == state);
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
            runs.push(Shown { state: "in-flight", ..interrupted(found) });
        }
    }
    runs
}

fn interrupted(found: Found) -> Shown {
    Shown {
        id: found.id,
        state: "interrupted",
        owner: found.owner,
        run: found.record,
        marker: Some(found.path),
        survivors: Vec::new(),
        running: Vec::new(),
        advice: Vec::new(),
        counts: true,
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
        owner: run.record.user,
        run: Some(run.record),
        marker: None,
        survivors: survivors.iter().map(ToString::to_string).collect(),
        running: Vec::new(),
        advice: Vec::new(),
        counts: true,
    }
}

/// Adds to interrupted runs what is left of them, and what to do. `root` is the target that
/// was looked at as well.
fn advise(runs: &mut [Shown], root: Option<&Path>) {
    let boot = boot_id();
    let is_of_this_boot = |run: &Shown| run.run.as_ref().is_some_and(|record| record.boot == boot);
    let cut_short = runs.iter().filter(|run| run.state == "interrupted");
    let recent = cut_short.filter(|run| is_of_this_boot(run));
    let users: HashMap<_, _> = recent.map(|run| (run.id.clone(), run.owner)).collect();
    let mut left = processes_of(&users);
    for run in runs.iter_mut().filter(|run| run.state == "interrupted") {
        run.running = left.remove(&run.id).unwrap_or_default();
        run.advice = match () {
            () if !run.counts => vec!["root sees what it was: sudo synconce status".to_owned()],
            () if run.is_of_another() => advice_for_root(&run.id, root, &run.running),
            () => advice(run.run.as_ref(), &run.id, root, &run.running),
        };
    }
}

fn render(run: &Shown) -> String {
    let record = run.run.as_ref();
    let private = record.and_then(|record| record.private.as_ref());
    let command = private.map_or_else(
        || "(a command that only its user and root may see)".to_owned(),
        |private| shell(&private.command),
    );
    let mut lines = vec![format!("{} {} {command}", run.id, run.state)];
    if let Some(record) = record {
        let place = private.map(|private| format!(" in {}", private.directory.display()));
        lines.push(format!("  started {}{}", record.started, place.unwrap_or_default()));
    }
    if run.is_of_another() {
        let marker = run.marker.as_ref().map(|path| format!(", marked in {}", path.display()));
        lines.push(format!("  of {}{}", name_of(run.owner), marker.unwrap_or_default()));
    }
    if !run.survivors.is_empty() {
        lines.push(format!("  real syncs again for: {}", run.survivors.join(", ")));
    }
    if !run.running.is_empty() {
        let processes: Vec<_> = run.running.iter().map(ToString::to_string).collect();
        lines.push(format!("  still running: {}", processes.join(", ")));
    }
    lines.extend(run.advice.iter().map(|line| format!("  {line}")));
    lines.iter().map(|line| printable(line) + "\n").collect()
}

fn clear(arguments: &Status, id: &str) -> Result<ExitCode, String> {
    let mut found = markers(arguments)?;
    found.retain(|found| found.id == id);
    found.extend(in_its_root(&found)?);
    if found.iter().any(|found| found.state == State::InFlight) {
        return Err(format!("the run {id} is in flight, not interrupted"));
    }
    if others::clear(id) == 0 && found.is_empty() {
        let is_roots = others::of_root().iter().any(|found| found.id == id);
        return Err(match is_roots {
            true => format!("the run {id} is root's; type: sudo synconce status --clear {id}"),
            false => format!("there is no run {id}; `synconce status` lists them"),
        });
    }
    for one in &found {
        recovery::clear(one).map_err(|error| error.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The marker in the `--root` of a run whose other marker is `found`, if it is there still.
fn in_its_root(found: &[Found]) -> Result<Vec<Found>, String> {
    let private = |found: &Found| found.record.as_ref()?.private.clone();
    let Some(root) = found.iter().find_map(private).and_then(|private| private.root) else {
        return Ok(Vec::new());
    };
    let markers = recovery::markers(&root.join(places::STATE_BELOW_ROOT));
    let mut markers = markers.map_err(|error| error.to_string())?;
    let is_new = |marker: &Found| found.iter().all(|known| known.path != marker.path);
    markers.retain(|marker| marker.id == found[0].id && is_new(marker));
    Ok(markers)
}
