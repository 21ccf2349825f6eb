//! `synconce setup`

mod apt;
mod check;

use self::check::Probing;
use crate::arguments::{Configured, Setup};
use crate::cancellation::cancelled_by;
use crate::commands::error::{CommandError, as_root};
use crate::commands::output::{Output, Stream, print};
use crate::commands::root;
use crate::exit;
use crate::text::{notice, say, set_quiet};
use clap::ValueEnum;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::error::Context;
use synconce_durable::in_root;
use synconce_durable::standard_paths::{self, STATE_BELOW_ROOT};
use synconce_setup::error::Error;
use synconce_setup::host::Host;
use synconce_setup::lock::SystemLock;
use synconce_setup::plan::{PathChange, PlannedAct};
use synconce_setup::{
    Engine, HeldDaemon, apply, diff, in_force, kubernetes, not_installed, plan, plan_builds_only,
    running, still_in_use, undo, undo_of_hold, version,
};

/// The program that is installed as the OCI runtime.
const RUNTIME: &str = "synconce-oci";
/// The program that units start.
const SYNCONCE: &str = "synconce";
/// The last note of a dry run.
const DRY_RUN: &str = "dry run: nothing was written";
/// Where programs are in another system.
const PLACES: [&str; 2] = ["/usr/local/bin", "/usr/bin"];

/// What was changed, as JSON.
#[derive(Default, Serialize)]
struct SetupReport {
    /// Whether nothing was written, by `--dry-run`.
    dry_run: bool,
    /// With `--check`: whether nothing would be changed.
    set_up: Option<bool>,
    changes: Vec<Changed>,
    /// What a dry run or a check would change: a unified diff; of apt, a line for each program.
    diff: Option<String>,
    /// The manifest for a cluster.
    manifest: Option<&'static str>,
    /// What was chosen, and why, and what has to be done.
    notes: Vec<String>,
    /// What a check found wrong, each with what mends it.
    faults: Vec<String>,
}

/// A changed path.
#[derive(Serialize)]
struct Changed {
    /// edited, wrote, diverted, renewed, restored or removed.
    act: &'static str,
    path: String,
    /// Where the user's edits were saved.
    saved: Option<String>,
}

/// Sets an engine up, or undoes a set-up.
///
/// # Errors
/// Why nothing was changed, or not everything.
pub fn setup(arguments: &Setup) -> Result<ExitCode, CommandError> {
    set_quiet(arguments.quiet);
    root::check_any(arguments.root.as_deref())?;
    let output = Output::open(arguments.json.json.as_deref(), Stream::Output)?;
    let report = carry_out(arguments)?;
    // Only the probe containers of a check handle signals.
    if let Some(signal) = cancelled_by() {
        return Err(CommandError::in_lines(&report.faults.join("\n")).ended_by(Some(signal)));
    }
    let is_well = report.set_up != Some(false) && report.faults.is_empty();
    output.write_or(&report, || report.print())?;
    Ok(if is_well { ExitCode::SUCCESS } else { exit::NOT_SET_UP.into() })
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        // A refused undo has the edit in its message.
        Self::in_lines(&error.to_string()).with_remedy(remedy(&error))
    }
}

/// Returns what the user can do about `error`.
fn remedy(error: &Error) -> Option<String> {
    match (error.remedy(), error) {
        (None, Error::Failed(failed)) if failed.io().kind() == ErrorKind::PermissionDenied => {
            Some(as_root())
        }
        (remedy, _) => remedy.map(str::to_owned),
    }
}

fn carry_out(arguments: &Setup) -> Result<SetupReport, CommandError> {
    let host = host(arguments.root.as_deref(), arguments.runtime.as_deref())?;
    if arguments.builds_only && arguments.engine != Configured::Docker {
        let name = name(arguments.engine);
        let error = format!("cannot set up builds only: {name} has no such choice");
        return Err(CommandError::from(error).hint(host.setup(&name)));
    }
    let is_apt = arguments.engine == Configured::Apt && !arguments.hold;
    let engine = engine(arguments, &host)?;
    let writes = (is_apt || engine.is_some()) && !arguments.dry_run && !arguments.check;
    let waits = || notice("waiting for another set-up or undo on this system");
    let _lock = if writes { SystemLock::take(&host, &waits)? } else { None };
    if is_apt {
        return apt::carry_out(arguments, &host);
    }
    Ok(match engine {
        None => manifest(arguments),
        Some(engine) if arguments.undo => roll_back(engine, &host, arguments)?,
        Some(engine) => set_up(engine, &host, arguments)?,
    })
}

impl SetupReport {
    /// Prints the diff or the manifest on standard output, and the rest as notices.
    fn print(&self) -> Result<(), CommandError> {
        print(self.diff.as_deref().or(self.manifest).unwrap_or_default())?;
        for Changed { act, path, saved } in &self.changes {
            if !self.dry_run {
                notice(&format!("{act} {path}"));
            }
            match saved {
                Some(saved) if self.dry_run => {
                    notice(&format!("the current {path} would be saved as {saved}"));
                }
                Some(saved) => say(&format!("the previous {path} is saved as {saved}")),
                None => {}
            }
        }
        self.notes.iter().for_each(|note| notice(note));
        self.faults.iter().flat_map(|fault| fault.lines()).for_each(notice);
        Ok(())
    }
}

/// Returns the set-up that is asked for; `None` for Kubernetes, which has no files here, and for
/// apt, which has no journal.
fn engine(arguments: &Setup, host: &Host) -> Result<Option<Engine>, CommandError> {
    if arguments.hold {
        return Ok(Some(Engine::Held(held_daemon(arguments.engine)?)));
    }
    Ok(match arguments.engine {
        Configured::Docker => Some(Engine::Docker),
        Configured::Podman => Some(Engine::Podman),
        Configured::Buildkit => Some(Engine::Buildkit),
        Configured::Containerd => Some(Engine::Containerd),
        Configured::Kubernetes if arguments.check => {
            let setup = host.setup(Engine::Containerd.command());
            return Err(CommandError::from("cannot check kubernetes: it has no files here")
                .hint(format!("check each node: {setup} --check")));
        }
        Configured::Kubernetes | Configured::Apt => None,
    })
}

/// Returns the daemon whose databases `--hold` holds.
fn held_daemon(configured: Configured) -> Result<HeldDaemon, CommandError> {
    Ok(match configured {
        Configured::Docker => HeldDaemon::Docker,
        Configured::Buildkit => HeldDaemon::Buildkit,
        Configured::Containerd => HeldDaemon::Containerd,
        Configured::Podman | Configured::Kubernetes | Configured::Apt => {
            let name = name(configured);
            let hint = "docker, buildkit and containerd have databases that can be held";
            let error = format!("cannot hold the databases of {name}: none is a cache");
            return Err(CommandError::from(error).hint(hint));
        }
    })
}

/// Returns the word for `configured` on the command line.
fn name(configured: Configured) -> String {
    let value = configured.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What `setup ENGINE --check` finds on this host.
pub(super) struct Checked {
    /// Whether a set-up would change nothing.
    pub is_made: bool,
    /// What is wrong.
    pub faults: Vec<String>,
    /// What is well.
    pub notes: Vec<String>,
    /// Whether the set-up changes the default runtime of dockerd.
    pub has_default: bool,
}

/// Checks the set-up of `engine` on this host.
pub(super) fn check_host(engine: Engine) -> Result<Checked, Error> {
    let host = host(None, None)?;
    let plan = plan(engine, &host)?;
    let report =
        check::check(SetupReport::default(), &plan, engine, &host, Path::new("/"), Probing::None)?;
    let SetupReport { set_up, faults, notes, .. } = report;
    let has_default = engine == Engine::Docker && !plan.builds_only();
    Ok(Checked { is_made: set_up == Some(true), faults, notes, has_default })
}

fn host(root: Option<&Path>, runtime: Option<&Path>) -> Result<Host, Error> {
    let (root, state) = match root {
        None => (PathBuf::from("/"), standard_paths::system()),
        Some(root) => {
            let root = root.canonicalize().on("cannot find", root)?;
            let below = Path::new(STATE_BELOW_ROOT);
            let state = in_root::resolve(&root, below).on("cannot find", &root.join(below))?;
            (root, state)
        }
    };
    let ourselves = std::env::current_exe().ok().filter(|_| root == Path::new("/"));
    let beside = ourselves.as_ref().map(|path| path.with_file_name(RUNTIME));
    let runtime = match runtime {
        Some(runtime) => runtime.to_owned(),
        None => beside.filter(|path| path.is_file()).unwrap_or_else(|| program(&root, RUNTIME)),
    };
    // In units: a link by which synconce-oci was called is followed.
    let synconce = ourselves.unwrap_or_else(|| program(&root, SYNCONCE));
    let host = Host::new(&root, &state, &runtime, Box::new(version::ask));
    Ok(host.with_synconce(&synconce))
}

/// Returns the first path of the program `name` below `root`, within that system.
fn program(root: &Path, name: &str) -> PathBuf {
    let places = PLACES.map(|place| Path::new(place).join(name));
    let is_there =
        |path: &&PathBuf| path.strip_prefix("/").is_ok_and(|path| root.join(path).is_file());
    places.iter().find(is_there).unwrap_or(&places[0]).clone()
}

fn set_up(engine: Engine, host: &Host, arguments: &Setup) -> Result<SetupReport, Error> {
    let missing = match running::elsewhere(engine, host) {
        // A fault that the check itself names.
        Some(_) if arguments.check => None,
        Some(elsewhere) => Some(elsewhere),
        None => not_installed(engine, host)?,
    };
    // Without JSON it is the first line, before what is written.
    if arguments.json.json.is_none()
        && let Some(note) = &missing
    {
        notice(note);
    }
    let missing = missing.filter(|_| arguments.json.json.is_some());
    let report = SetupReport { notes: missing.into_iter().collect(), ..SetupReport::default() };
    let plan = if arguments.builds_only { plan_builds_only(host) } else { plan(engine, host) };
    let plan = match plan {
        Err(error) if arguments.check => return check::refused(report, error),
        plan => plan?,
    };
    if plan.changes.is_empty() && !arguments.check {
        let note = format!("{} is set up already: nothing was changed", plan.command(engine));
        return Ok(SetupReport {
            notes: report.notes.into_iter().chain([note]).chain(plan.instead).collect(),
            ..SetupReport::default()
        });
    }
    let changed = |PathChange { path, act }: &PathChange| Changed {
        act: match act {
            PlannedAct::Edit { .. } => "edited",
            PlannedAct::Create(_) | PlannedAct::Own(_) | PlannedAct::Link(_) => "wrote",
        },
        path: host.real(path).display().to_string(),
        saved: None,
    };
    let mut report = SetupReport {
        dry_run: arguments.dry_run || arguments.check,
        changes: plan.changes.iter().map(changed).collect(),
        ..report
    };
    if arguments.check {
        let root = arguments.root.as_deref().unwrap_or(Path::new("/"));
        return check::check(report, &plan, engine, host, root, Probing::Containers);
    }
    report.notes.extend(plan.notes.iter().cloned());
    report.notes.extend(running::out_of_reach(engine, host));
    if arguments.dry_run {
        apply::check(&plan, host, engine)?;
        report.diff = Some(diff::of_plan(&plan, host));
        report.notes.push(DRY_RUN.to_owned());
    } else {
        apply::apply(&plan, host, engine)?;
        report.notes.push(engine.restart(host));
    }
    Ok(report)
}

/// Returns what an undo does with edits.
fn edits(arguments: &Setup) -> undo::Edits {
    if arguments.force { undo::Edits::Overwrite } else { undo::Edits::Refuse }
}

fn roll_back(engine: Engine, host: &Host, arguments: &Setup) -> Result<SetupReport, Error> {
    let name = engine.command();
    let Some(undo) = undo::plan(host, engine, edits(arguments))? else {
        let hold = undo_of_hold(engine, host)?;
        let hold = hold.map(|undo| format!("; for the hold of its databases: {undo}"));
        let note = format!(
            "{name} was not set up by synconce: there is nothing to undo{}",
            hold.unwrap_or_default()
        );
        return Ok(SetupReport { notes: vec![note], ..SetupReport::default() });
    };
    if let Some(refusal) = in_force(engine, host)? {
        return Err(refusal);
    }
    // `--force` skips this check: it fails if the engine's configuration cannot be read.
    if !arguments.force
        && let Some(refusal) = still_in_use(engine, host)?
    {
        return Err(refusal);
    }
    let changed = |step: &undo::UndoStep| Changed {
        act: match &step.before {
            _ if step.keeps_edits => "edited",
            Some(_) => "restored",
            None => "removed",
        },
        path: host.real(&step.path).display().to_string(),
        saved: step.saved.as_ref().map(|path| path.display().to_string()),
    };
    let mut report = SetupReport {
        dry_run: arguments.dry_run,
        changes: undo.steps.iter().map(changed).collect(),
        notes: kept(&undo, host),
        ..SetupReport::default()
    };
    if arguments.dry_run {
        report.diff = Some(undo.diff(host));
        report.notes.push(DRY_RUN.to_owned());
    } else {
        undo::carry_out(&undo, host, engine)?;
        report.notes.push(engine.restart(host));
        if !matches!(engine, Engine::Held(_)) {
            let keep = "keep synconce-oci until the containers that it started are gone";
            report.notes.push(keep.to_owned());
        }
    }
    Ok(report)
}

/// Returns which edits of others `undo` keeps.
fn kept(undo: &undo::Undo, host: &Host) -> Vec<String> {
    let edited = undo.steps.iter().filter(|step| step.keeps_edits).map(|step| &step.path);
    let edited = edited.map(|path| (path, "only synconce's part is taken out"));
    let whole = undo.kept.iter().map(|path| (path, "has nothing of synconce now, and stays"));
    let said = |(path, what): (&PathBuf, &str)| {
        format!("{} was edited since `setup`: {what}", host.real(path).display())
    };
    edited.chain(whole).map(said).collect()
}

/// Returns the manifest for the cluster. Each node is set up by `synconce setup containerd`.
fn manifest(arguments: &Setup) -> SetupReport {
    let notes = if arguments.undo { &kubernetes::UNDO_NOTES[..] } else { &kubernetes::NOTES };
    SetupReport {
        manifest: (!arguments.undo).then_some(kubernetes::MANIFEST),
        notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        ..SetupReport::default()
    }
}
