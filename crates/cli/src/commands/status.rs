//! `synconce status`

mod accounts;
mod apart;
mod as_user;
mod clear;
mod holds;
pub mod id;
mod mend;
mod metrics;
pub mod others;
mod steps;
mod target;

use self::accounts::name_of;
use crate::arguments::{Format, StatusArguments};
use crate::commands::advice::{advice, advice_for_root, advice_for_unknown};
use crate::commands::error::CommandError;
use crate::commands::hold::HoldReport;
use crate::commands::output::{Output, Stream, print};
use crate::commands::run::not_durable;
use crate::exit;
use crate::table::{fit, width_of};
use crate::text::{name_for_sudo, notice, printable, say, shell};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::record::{Private, RunRecord};
use synconce_durable::recovery::{self, FoundMarker, MarkerState, RunKey};
use synconce_durable::standard_paths;
use synconce_durable::text;
use synconce_oci::held_steps::{self, HeldSteps};
use synconce_run::{
    CommitReport, Live, Phase, Process, RunCounts, RunError, descendants, failed_commit, live,
    processes_of,
};
use synconce_sys::reason;

/// One run, as `status` shows it; or in JSON a hold, or an engine's held build steps.
#[derive(Debug, Default, Serialize)]
struct Shown {
    id: String,
    /// in-flight, committing, serving or interrupted; of a hold its own state.
    state: &'static str,
    /// The user that owns the run.
    owner: u32,
    run: Option<RunRecord>,
    /// The path of the marker.
    #[serde(serialize_with = "text::path_if_any")]
    marker: Option<PathBuf>,
    /// Processes that are served after the run.
    survivors: Vec<Process>,
    /// Processes of an interrupted run that are still running.
    running: Vec<Process>,
    /// How the commit of an interrupted run failed, if that was in this boot.
    commit: Option<CommitReport>,
    /// What to do about an interrupted run.
    advice: Vec<String>,
    /// What `hold status` shows; `None` for a run.
    hold: Option<HoldReport>,
    /// The held build steps of an engine; `None` for a run.
    steps: Option<HeldSteps>,
    /// Whether the run counts for the exit code: root's runs do not count for a user.
    #[serde(skip)]
    counts: bool,
    /// Whether only a marker in `--root` names the run. Then no word of that marker is printed as a
    /// command.
    #[serde(skip)]
    is_unknown: bool,
}

impl Shown {
    fn run(&self) -> RunKey {
        (self.owner, self.id.clone())
    }

    fn private(&self) -> Option<&Private> {
        self.run.as_ref()?.private.as_ref()
    }

    fn is_of_another(&self) -> bool {
        self.owner != rustix::process::geteuid().as_raw()
    }
}

/// Shows or clears runs.
///
/// # Errors
/// What cannot be shown, cleared or mended.
pub fn status(arguments: &StatusArguments) -> Result<ExitCode, CommandError> {
    // A mistyped target must not look like a target in which nothing was interrupted.
    arguments.root.as_deref().map_or(Ok(()), target::check)?;
    match &arguments.mend {
        Some(id) => mend::mend(arguments, id),
        None if !arguments.clear.is_empty() => clear::clear(arguments),
        None => show(arguments),
    }
}

/// Returns the markers in the user's own state directory.
fn markers() -> Result<Vec<FoundMarker>, CommandError> {
    let missing = || {
        let error = RunError::NoStateDirectory;
        CommandError::from(error.to_string()).with_remedy(error.remedy().map(Cow::into_owned))
    };
    let state = standard_paths::state().ok_or_else(missing)?;
    recovery::markers(&state).map_err(|error| error.to_string().into())
}

/// Returns the living runs; `None`, with a notice, if the run files cannot be read.
fn living() -> Option<Vec<Live>> {
    let error = match live() {
        Ok(runs) => return Some(runs),
        Err(error) => error,
    };
    let directory = standard_paths::runtime().unwrap_or_default();
    let reason = reason(&error);
    say(&format!("cannot read the run files in {}: {reason}", directory.display()));
    // su and sudo may keep the variable of the calling user.
    if error.kind() == ErrorKind::PermissionDenied && !standard_paths::is_runtime_named() {
        say("hint: env --unset=XDG_RUNTIME_DIR synconce status");
    }
    None
}

/// What `status` finds.
struct FoundState {
    runs: Vec<Shown>,
    holds: Vec<HoldReport>,
    steps: Vec<HeldSteps>,
    /// The held steps of root's engines, which another user sees, too.
    steps_of_root: Vec<HeldSteps>,
    /// Whether everything could be read.
    is_whole: bool,
}

impl FoundState {
    /// Reads runs, holds and held build steps. `root` is the target of `--root`.
    fn read(root: Option<&Path>) -> Result<Self, CommandError> {
        // Living runs are read first: a run that ends between the two reads is then in neither
        // list and not in the wrong one.
        let living = living();
        let could_look = living.is_some();
        let mut runs = merge(living.unwrap_or_default(), markers()?);
        add(&mut runs, others::of_every_user().into_iter().map(interrupted));
        let of_root = others::of_root().into_iter().map(interrupted);
        let of_root: Vec<_> = of_root.map(|run| Shown { counts: false, ..run }).collect();
        let in_target = root.map(target::markers).transpose()?.unwrap_or_default();
        let in_root: HashSet<_> = in_target.iter().map(FoundMarker::run).collect();
        let known: HashSet<_> = of_root.iter().map(Shown::run).collect();
        let is_unknown = |run: &Shown| !known.contains(&run.run());
        let in_target = in_target.into_iter().map(marked);
        let in_target = in_target.map(|run| Shown { is_unknown: is_unknown(&run), ..run });
        add(&mut runs, in_target);
        runs.extend(of_root);
        runs.sort_by(|a, b| (&a.id, a.owner).cmp(&(&b.id, b.owner)));
        advise(&mut runs, root, &in_root);
        let (holds, all_holds) = holds::noteworthy();
        Ok(Self {
            runs,
            holds,
            steps: held_steps::read(),
            steps_of_root: held_steps::read_of_root(),
            is_whole: could_look && all_holds,
        })
    }

    /// Returns what `status --json` prints.
    fn rows(self) -> Vec<Shown> {
        let holds = self.holds.into_iter().map(holds::shown);
        let own = self.steps.into_iter().map(steps::shown);
        let of_root = self.steps_of_root.into_iter().map(steps::shown);
        let of_root = of_root.map(|steps| Shown { owner: 0, ..steps });
        self.runs.into_iter().chain(holds).chain(own).chain(of_root).collect()
    }
}

/// Returns what `status --json` prints.
///
/// # Errors
/// As for [`status`].
pub fn rows() -> Result<impl Serialize, CommandError> {
    Ok(FoundState::read(None)?.rows())
}

fn show(arguments: &StatusArguments) -> Result<ExitCode, CommandError> {
    let output = Output::open(arguments.json.json.as_deref(), Stream::Output)?;
    let found = FoundState::read(arguments.root.as_deref())?;
    let FoundState { runs, holds, steps, is_whole, .. } = &found;
    let is_hold_interrupted = holds.iter().any(HoldReport::is_interrupted);
    let any = |state: &str| runs.iter().any(|run| run.counts && run.state == state);
    if arguments.format == Some(Format::Prometheus) {
        // What is not known is no 0 in a metric. The reason is printed.
        if !is_whole {
            return Ok(exit::FAILED.into());
        }
        print(metrics::text(runs, holds, steps, RunCounts::read()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let code = if any("interrupted") || is_hold_interrupted {
        exit::INTERRUPTED.into()
    } else if any("in-flight") || any("committing") {
        exit::IN_FLIGHT.into()
    } else if !is_whole {
        exit::FAILED.into()
    } else {
        ExitCode::SUCCESS
    };
    if output.is_json() {
        output.write(&found.rows())?;
    } else if !arguments.quiet {
        let text = text_of(&found);
        if text.is_empty() && *is_whole {
            notice("no run in flight or interrupted, no hold, no held build step");
        }
        print(text)?;
    }
    Ok(code)
}

fn text_of(found: &FoundState) -> String {
    let FoundState { runs, holds, steps, steps_of_root, .. } = found;
    let owners: HashSet<_> = runs.iter().map(|run| run.owner).collect();
    let names = owners.into_iter().map(|owner| (owner, name_of(owner))).collect();
    let width = width_of(stdout());
    let text: String = runs.iter().map(|run| render(run, &names, width)).collect();
    text + &holds::render(holds, width)
        + &steps::render(steps, "", width)
        + &steps::render(steps_of_root, " of root", width)
}

/// Adds those of `others` that are not in `runs` yet. An interrupted run is kept beside a
/// living run of the same id: its marker may be in a copy of what the living run works on.
fn add(runs: &mut Vec<Shown>, others: impl Iterator<Item = Shown>) {
    let is_interrupted = |run: &Shown| run.state == "interrupted";
    let mut seen: HashSet<_> = runs.iter().map(|run| (run.run(), is_interrupted(run))).collect();
    for other in others {
        let is_new = !seen.contains(&(other.run(), true))
            && (is_interrupted(&other) || !seen.contains(&(other.run(), false)));
        if is_new {
            seen.insert((other.run(), is_interrupted(&other)));
            runs.push(other);
        }
    }
}

fn merge(living: Vec<Live>, markers: Vec<FoundMarker>) -> Vec<Shown> {
    let mut seen = HashSet::new();
    let mut runs: Vec<Shown> = Vec::new();
    let (cut_short, in_flight): (Vec<_>, Vec<_>) =
        markers.into_iter().partition(|found| found.state == MarkerState::Interrupted);
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
    for found in in_flight {
        if seen.insert(found.id.clone()) {
            runs.push(marked(found));
        }
    }
    runs
}

fn marked(found: FoundMarker) -> Shown {
    let state = match found.state {
        MarkerState::InFlight => "in-flight",
        MarkerState::Interrupted => "interrupted",
    };
    Shown { state, ..interrupted(found) }
}

fn interrupted(found: FoundMarker) -> Shown {
    Shown {
        id: found.id,
        state: "interrupted",
        owner: found.owner,
        run: found.record,
        marker: Some(found.path),
        counts: true,
        ..Shown::default()
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
        survivors,
        counts: true,
        ..Shown::default()
    }
}

/// Adds to interrupted runs their remaining processes and the advice. `root` is the target of
/// `--root`, and `in_root` are the runs whose markers it has.
fn advise(runs: &mut [Shown], root: Option<&Path>, in_root: &HashSet<RunKey>) {
    let cut_short = runs.iter().filter(|run| run.state == "interrupted" && !run.is_unknown);
    // With runs of earlier boots: a container that is made anew has another boot id on the same
    // kernel.
    let mut left = processes_of(&cut_short.map(Shown::run).collect());
    for run in runs.iter_mut().filter(|run| run.state == "interrupted") {
        run.running = left.remove(&run.run()).unwrap_or_default();
        if !run.is_unknown && !run.is_of_another() {
            run.commit = failed_commit(&run.id);
        }
        run.advice = if run.is_unknown {
            advice_for_unknown(&run.id, root)
        } else if !run.counts {
            vec![format!("root sees what it was: sudo {} status", name_for_sudo())]
        } else if run.is_of_another() {
            advice_for_root(&run.id, root, &run.running)
        } else {
            continue;
        };
    }
    let is_own = |run: &&mut Shown| run.state == "interrupted" && run.advice.is_empty();
    let marked = |run: &Shown| root.filter(|_| in_root.contains(&run.run()));
    let look = |run: &Shown| {
        let old = run.private().and_then(|private| target::old(private, &run.run()));
        advice(run.run.as_ref(), &run.id, root, marked(run), old.as_ref(), &run.running)
    };
    // The advice depends on files of the target, whose file system may not answer. Without a target
    // it needs no other process, which a limit may refuse.
    let has_target = |run: &&mut Shown| {
        let target = run.private().and_then(Private::target);
        marked(run).is_some() || target.is_some_and(|it| it != Path::new("/"))
    };
    let own = runs.iter_mut().filter(is_own);
    let (mut with_target, without): (Vec<_>, Vec<_>) = own.partition(has_target);
    for run in without {
        run.advice = look(run);
    }
    let advised = apart::each(with_target.iter().map(|run| || look(run)).collect());
    for (run, lines) in with_target.iter_mut().zip(advised) {
        run.advice = lines.unwrap_or_else(|why| vec![target::unanswered(run.run.as_ref(), &why)]);
    }
}

fn names(processes: &[Process]) -> String {
    processes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns lines for the terminal, broken where they are wider than `width`; `users` are the names
/// of the owners. Commands stay whole, to be copied.
fn render(run: &Shown, users: &HashMap<u32, String>, width: Option<usize>) -> String {
    let record = run.run.as_ref();
    let private = run.private();
    let command = match private {
        Some(private) => shell(&private.command),
        // The marker is damaged, or the file beside the marker is gone.
        None if record.is_none() || rustix::process::geteuid().is_root() => {
            "(its command is not known)".to_owned()
        }
        None => "(a command that only its user and root may see)".to_owned(),
    };
    let first = format!("{} {} {command}", run.id, run.state);
    let mut lines = Vec::new();
    if let Some(record) = record {
        let place = private.map(|private| format!(" in {}", private.directory.display()));
        lines.push(format!("  started {}{}", record.started, place.unwrap_or_default()));
    }
    if run.is_of_another() || run.is_unknown {
        let marker = run.marker.as_ref().map(|path| format!(", marked in {}", path.display()));
        lines.push(format!("  of {}{}", users[&run.owner], marker.unwrap_or_default()));
    }
    let causes = run.commit.iter().flat_map(not_durable);
    lines.extend(causes.map(|cause| format!("  {cause}")));
    if !run.survivors.is_empty() {
        lines.push(format!("  real syncs again for: {}", names(&run.survivors)));
    }
    if !run.running.is_empty() {
        lines.push(format!("  still running: {}", names(&run.running)));
    }
    let lines = lines.iter().map(|line| fit(&printable(line), width));
    let advice = run.advice.iter().map(|line| printable(&format!("  {line}")));
    let lines = [printable(&first)].into_iter().chain(lines).chain(advice);
    lines.map(|line| line + "\n").collect()
}
