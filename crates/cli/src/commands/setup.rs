//! `synconce setup`

use crate::arguments::{Configured, Setup};
use crate::commands::json::{Sink, Stream};
use crate::commands::root;
use crate::exit;
use crate::text::{notice, say, set_quiet};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::error::Context;
use synconce_durable::standard_paths;
use synconce_setup::error::Error;
use synconce_setup::host::Host;
use synconce_setup::plan::{Act, Change};
use synconce_setup::{Engine, apply, diff, kubernetes, plan, still_in_use, undo, version};

/// The program that is installed as the OCI runtime.
const RUNTIME: &str = "synconce-oci";
/// The last note of a dry run.
const DRY_RUN: &str = "dry run: nothing was written";
const PLACES: [&str; 2] = ["/usr/local/bin/synconce-oci", "/usr/bin/synconce-oci"];

/// What was changed, as JSON.
#[derive(Default, Serialize)]
struct Report {
    /// Whether nothing was written, by `--dry-run`.
    dry_run: bool,
    changes: Vec<Changed>,
    /// The unified diff of a dry run.
    diff: Option<String>,
    /// The manifest for a cluster.
    manifest: Option<&'static str>,
    /// What was chosen, and why, and what has to be done.
    notes: Vec<String>,
}

/// A changed path.
#[derive(Serialize)]
struct Changed {
    /// edited, wrote, restored or removed.
    act: &'static str,
    path: String,
    /// Where the user's edits were saved.
    saved: Option<String>,
}

/// Sets an engine up, or undoes a set-up.
pub fn setup(arguments: &Setup) -> ExitCode {
    set_quiet(arguments.quiet);
    let to_make = |root| format!("check the name; to make the directory: mkdir --parents {root}");
    if let Some(lines) = arguments.root.as_deref().and_then(|it| root::unusable(it, to_make)) {
        lines.iter().for_each(|line| say(line));
        return exit::FAILED.into();
    }
    let json = match Sink::open(arguments.json.json.as_deref(), Stream::Output) {
        Ok(json) => json,
        Err(error) => {
            say(&error);
            return exit::FAILED.into();
        }
    };
    let result = match engine(arguments.engine) {
        None => Ok(manifest(arguments)),
        Some(engine) => host(arguments).and_then(|host| match arguments.undo {
            true => roll_back(engine, &host, arguments),
            false => set_up(engine, &host, arguments),
        }),
    };
    let error = match result {
        Ok(report) => match report.write(json) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => {
                say(&error);
                return exit::FAILED.into();
            }
        },
        Err(error) => error,
    };
    say(&error.to_string());
    if let Some(remedy) = error.remedy() {
        say(&format!("hint: {remedy}"));
    }
    exit::FAILED.into()
}

impl Report {
    /// Writes JSON if it is asked for. Otherwise prints the diff or the manifest on standard
    /// output, and the rest as notices.
    fn write(&self, json: Option<Sink>) -> Result<(), String> {
        if let Some(sink) = json {
            return sink.write(self);
        }
        let text = self.diff.as_deref().or(self.manifest).unwrap_or_default();
        Sink::Standard(Stream::Output).write_text(text)?;
        for Changed { act, path, saved } in &self.changes {
            if !self.dry_run {
                notice(&format!("{act} {path}"));
            }
            match saved {
                Some(saved) if self.dry_run => {
                    notice(&format!("{path} as it is now would be saved as {saved}"));
                }
                Some(saved) => notice(&format!("{path} as it was until now is saved as {saved}")),
                None => {}
            }
        }
        self.notes.iter().for_each(|note| notice(note));
        Ok(())
    }
}

fn engine(configured: Configured) -> Option<Engine> {
    match configured {
        Configured::Docker => Some(Engine::Docker),
        Configured::Podman => Some(Engine::Podman),
        Configured::Buildkit => Some(Engine::Buildkit),
        Configured::Containerd => Some(Engine::Containerd),
        Configured::Kubernetes => None,
    }
}

fn host(arguments: &Setup) -> Result<Host, Error> {
    let root = match &arguments.root {
        None => PathBuf::from("/"),
        Some(root) => root.canonicalize().on("cannot find", root)?,
    };
    let state = standard_paths::system(arguments.root.as_ref().map(|_| root.as_path()));
    let runtime = match &arguments.runtime {
        Some(runtime) => runtime.clone(),
        None => default_runtime(&root),
    };
    Ok(Host::new(&root, &state, &runtime, Box::new(version::ask)))
}

/// Returns the runtime beside this binary, unless `root` is another system.
fn default_runtime(root: &Path) -> PathBuf {
    let beside = std::env::current_exe().ok().map(|ourselves| ourselves.with_file_name(RUNTIME));
    match beside {
        Some(beside) if root == Path::new("/") && beside.is_file() => beside,
        _ => {
            let there = |path: &&&str| root.join(path.trim_start_matches('/')).is_file();
            PathBuf::from(PLACES.iter().find(there).unwrap_or(&PLACES[0]))
        }
    }
}

fn set_up(engine: Engine, host: &Host, arguments: &Setup) -> Result<Report, Error> {
    let plan = plan(engine, host)?;
    if plan.changes.is_empty() {
        let note = format!("{} is set up already: nothing was changed", engine.name());
        return Ok(Report { notes: vec![note], ..Report::default() });
    }
    let changed = |Change { path, act }: &Change| Changed {
        act: match act {
            Act::Edit { .. } => "edited",
            Act::Create(_) | Act::Own(_) | Act::Link(_) => "wrote",
        },
        path: host.real(path).display().to_string(),
        saved: None,
    };
    let mut report = Report {
        dry_run: arguments.dry_run,
        changes: plan.changes.iter().map(changed).collect(),
        notes: plan.notes.clone(),
        ..Report::default()
    };
    if arguments.dry_run {
        apply::check(&plan, host, engine)?;
        report.diff = Some(diff::of_plan(&plan, host));
        report.notes.push(DRY_RUN.to_owned());
    } else {
        apply::apply(&plan, host, engine)?;
        report.notes.push(engine.restart().to_owned());
    }
    Ok(report)
}

fn roll_back(engine: Engine, host: &Host, arguments: &Setup) -> Result<Report, Error> {
    let (name, force) = (engine.name(), arguments.force);
    let Some(undo) = undo::plan(host, engine, force)? else {
        let note = format!("{name} was not set up by synconce: there is nothing to undo");
        return Ok(Report { notes: vec![note], ..Report::default() });
    };
    // `--force` skips this check: it fails if the engine's configuration cannot be read.
    if !force && let Some(refusal) = still_in_use(engine, host)? {
        return Err(refusal);
    }
    let changed = |step: &undo::Step| Changed {
        act: if step.before.is_some() { "restored" } else { "removed" },
        path: host.real(&step.path).display().to_string(),
        saved: step.saved.as_ref().map(|path| path.display().to_string()),
    };
    let mut report = Report {
        dry_run: arguments.dry_run,
        changes: undo.steps.iter().map(changed).collect(),
        ..Report::default()
    };
    if arguments.dry_run {
        report.diff = Some(undo.diff(host));
        report.notes.push(DRY_RUN.to_owned());
    } else {
        undo::carry_out(&undo, host, engine)?;
        report.notes.push(engine.restart().to_owned());
        let keep = "keep synconce-oci until the containers that it started are gone";
        report.notes.push(keep.to_owned());
    }
    Ok(report)
}

/// Returns the manifest for the cluster. Each node is set up by `synconce setup containerd`.
fn manifest(arguments: &Setup) -> Report {
    Report {
        manifest: (!arguments.undo).then_some(kubernetes::MANIFEST),
        notes: kubernetes::NOTES.iter().map(|note| (*note).to_owned()).collect(),
        ..Report::default()
    }
}
