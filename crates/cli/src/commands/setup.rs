//! `synconce setup`

use crate::arguments::{Configured, Setup};
use crate::exit;
use crate::text::say;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::error::{Context, Error as Failed};
use synconce_durable::standard_paths;
use synconce_setup::error::Error;
use synconce_setup::host::Host;
use synconce_setup::plan::{Act, Change};
use synconce_setup::{Engine, apply, diff, kubernetes, plan, still_in_use, undo, version};

/// The program that is installed as the OCI runtime.
const RUNTIME: &str = "synconce-oci";
const PLACES: [&str; 2] = ["/usr/local/bin/synconce-oci", "/usr/bin/synconce-oci"];

/// Sets an engine up, or undoes a set-up.
pub fn setup(arguments: &Setup) -> ExitCode {
    let result = match engine(arguments.engine) {
        None => manifest(arguments),
        Some(engine) => host(arguments).and_then(|host| match arguments.undo {
            true => roll_back(engine, &host, arguments),
            false => set_up(engine, &host, arguments),
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            if let Some(remedy) = error.remedy() {
                say(&format!("hint: {remedy}"));
            }
            exit::FAILED.into()
        }
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

fn set_up(engine: Engine, host: &Host, arguments: &Setup) -> Result<(), Error> {
    let name = engine.name();
    let plan = plan(engine, host)?;
    if plan.changes.is_empty() {
        say(&format!("{name} is set up already: nothing was changed"));
        return Ok(());
    }
    if arguments.dry_run {
        apply::check(&plan, host, engine)?;
        print(&diff::of_plan(&plan, host))?;
        plan.notes.iter().for_each(|note| say(note));
        say("dry run: nothing was written");
        return Ok(());
    }
    apply::apply(&plan, host, engine)?;
    for Change { path, act } in &plan.changes {
        let done = match act {
            Act::Edit { .. } => "edited",
            Act::Create(_) | Act::Own(_) | Act::Link(_) => "wrote",
        };
        say(&format!("{done} {}", host.real(path).display()));
    }
    plan.notes.iter().for_each(|note| say(note));
    say(engine.restart());
    Ok(())
}

fn roll_back(engine: Engine, host: &Host, arguments: &Setup) -> Result<(), Error> {
    let (name, force) = (engine.name(), arguments.force);
    let Some(undo) = undo::plan(host, engine, force)? else {
        say(&format!("{name} was not set up by synconce: there is nothing to undo"));
        return Ok(());
    };
    // `--force` skips this check: it fails if the engine's configuration cannot be read.
    if !force && let Some(refusal) = still_in_use(engine, host)? {
        return Err(refusal);
    }
    if arguments.dry_run {
        print(&undo.diff(host))?;
        for undo::Step { path, saved, .. } in &undo.steps {
            if let Some(saved) = saved {
                let (path, saved) = (host.real(path), saved.display());
                say(&format!("what {} is now would be saved as {saved}", path.display()));
            }
        }
        say("dry run: nothing was written");
        return Ok(());
    }
    undo::carry_out(&undo, host, engine)?;
    for step in &undo.steps {
        let done = if step.before.is_some() { "put back" } else { "removed" };
        say(&format!("{done} {}", host.real(&step.path).display()));
        if let Some(saved) = &step.saved {
            say(&format!("what it was until now is saved as {}", saved.display()));
        }
    }
    say(engine.restart());
    say("keep synconce-oci until the containers that it started are gone");
    Ok(())
}

/// Prints the manifest for the cluster. Each node is set up by `synconce setup containerd`.
fn manifest(arguments: &Setup) -> Result<(), Error> {
    if !arguments.undo {
        print(kubernetes::MANIFEST)?;
    }
    kubernetes::NOTES.iter().for_each(|note| say(note));
    Ok(())
}

fn print(text: &str) -> Result<(), Failed> {
    io::stdout().write_all(text.as_bytes()).on("cannot write to", Path::new("standard output"))
}
