//! `setup ENGINE --check`: whether the files, the running daemon and the wrapper are as set up.

use crate::cancellation::{cancelled_by, handle_signals};
use crate::commands::setup::{SetupReport, remedy};
use crate::text::name_for_sudo;
use rustix::process::geteuid;
use std::path::Path;
use synconce_hold::status::{HoldState, Look, status};
use synconce_oci::probe::{Container, is_held};
use synconce_setup::error::Error;
use synconce_setup::host::Host;
use synconce_setup::plan::Plan;
use synconce_setup::probe::{Probed, Removed, Tried, probe};
use synconce_setup::running::{self, DaemonFinding};
use synconce_setup::{Engine, apply, diff, new_databases};

/// Whether a check runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probing {
    /// It runs a build step and an ordinary container, if the engine is in use.
    Containers,
    /// It only reads.
    None,
}

/// Adds to `report` what a check of `engine` finds, for which `plan` has what a set-up would
/// change.
///
/// # Errors
/// The engine's files cannot be read.
pub(super) fn check(
    mut report: SetupReport,
    plan: &Plan,
    engine: Engine,
    host: &Host,
    root: &Path,
    probing: Probing,
) -> Result<SetupReport, Error> {
    let name = plan.command(engine);
    let setup = setup_command(host, name);
    report.set_up = Some(plan.changes.is_empty());
    if !plan.changes.is_empty() {
        report.diff = Some(diff::of_plan(plan, host));
    }
    match new_databases(plan, host) {
        _ if plan.changes.is_empty() => report.notes.push(format!("{name} is set up")),
        Some(1) => {
            report.faults.push(format!("{name} is set up; 1 database is new: {setup} takes it in"));
        }
        Some(count) => {
            let new = format!("{count} databases are new: {setup} takes them in");
            report.faults.push(format!("{name} is set up; {new}"));
        }
        None => {
            // A set-up would refuse a file that was edited since.
            let why = match apply::check(plan, host, engine) {
                Ok(()) => format!("it would be by {setup}"),
                Err(error) => fault(&error),
            };
            report.faults.push(format!("{name} is not set up: {why}"));
            let read_only = apply::read_only(plan, host).map(|path| path.display().to_string());
            report.faults.extend(
                read_only.map(|path| {
                    format!("{path} is read-only: make its file system writable first")
                }),
            );
            report.faults.extend(running::elsewhere(engine, host));
            match running::still_has(engine, host) {
                Ok(found) => report.faults.extend(found),
                Err(error @ Error::Refused(_)) => report.faults.push(fault(&error)),
                Err(error) => return Err(error),
            }
            report.notes.extend(running::out_of_reach(engine, host));
            return Ok(report);
        }
    }
    let mut is_in_use = false;
    match running::look(engine, host, &unheld) {
        Ok(Some(DaemonFinding::InUse(text))) => {
            is_in_use = true;
            report.notes.push(text);
        }
        Ok(Some(DaemonFinding::NotRunning(text))) => report.notes.push(text),
        Ok(Some(DaemonFinding::Fault(text))) => report.faults.push(text),
        Ok(None) => is_in_use = true,
        Err(error @ Error::Refused(_)) => {
            report.faults.push(fault(&error));
            return Ok(report);
        }
        Err(error) => return Err(error),
    }
    let probe = || match probing {
        Probing::Containers if is_in_use => run_probe(engine, host),
        Probing::Containers | Probing::None => Ok(None),
    };
    containers(&mut report, engine, host, root, &probe);
    step_roots(&mut report, engine, root);
    report.notes.extend(running::out_of_reach(engine, host));
    Ok(report)
}

/// Returns the command line that sets `name` up, for the calling user.
pub(super) fn setup_command(host: &Host, name: &str) -> String {
    if host.is_running() && !geteuid().is_root() {
        format!("sudo {} setup {name}", name_for_sudo())
    } else {
        host.setup(name)
    }
}

/// Adds what a set-up would refuse: the check has found a fault.
///
/// # Errors
/// The error, if it is no refusal.
pub(super) fn refused(mut report: SetupReport, error: Error) -> Result<SetupReport, Error> {
    if !matches!(error, Error::Refused(_)) {
        return Err(error);
    }
    report.dry_run = true;
    report.set_up = Some(false);
    report.faults.push(fault(&error));
    Ok(report)
}

fn fault(error: &Error) -> String {
    let remedy = remedy(error).map(|remedy| format!("; {remedy}"));
    format!("{error}{}", remedy.unwrap_or_default())
}

/// Returns why the databases of the hold `name` are not held, or `None` if they are.
fn unheld(name: &str) -> Option<String> {
    let status = match status(name, None, &Look::default()) {
        Ok(Some(status)) => status,
        Ok(None) => return Some("its databases are not held".to_owned()),
        Err(error) => {
            return Some(format!("it is not known whether its databases are held: {error}"));
        }
    };
    let missing = status.missing.first().map(|path| format!("{} is not mounted", path.display()));
    match status.state {
        HoldState::Held => None,
        HoldState::Off => Some("its databases are not held".to_owned()),
        HoldState::Incomplete | HoldState::Failed | HoldState::Interrupted => {
            let why = status.reason.or(missing).unwrap_or_default();
            Some(format!("the hold of its databases is {}: {why}", status.state.word()))
        }
    }
}

/// Runs probe containers. A signal cancels them, and does not end the process before they are
/// removed.
fn run_probe(engine: Engine, host: &Host) -> Result<Option<Tried>, String> {
    let _ = handle_signals();
    probe(engine, host, &|| cancelled_by().is_some())
}

/// Adds whether the containers are held that are to be held, and no others: by the rules, and if
/// they hold them, by `probe`.
fn containers(
    report: &mut SetupReport,
    engine: Engine,
    host: &Host,
    root: &Path,
    probe: &dyn Fn() -> Result<Option<Tried>, String>,
) {
    let (container, what) = match engine {
        Engine::Docker | Engine::Buildkit => (Container::BuildKitStep, "a build step"),
        Engine::Podman => (Container::BuildahStep, "a build step"),
        Engine::Containerd => (Container::Annotated, "a container that requests a hold"),
        Engine::Held(_) => return,
    };
    let other = match (is_held(root, container), is_held(root, Container::Ordinary)) {
        (Ok((true, _)), Ok((true, why))) => Some(why),
        (Ok((true, _)), Ok((false, _))) => None,
        (Ok((false, why)), _) => {
            report.faults.push(format!("{what} is not held: {why}; {EDIT}"));
            return;
        }
        (Err(error), _) | (_, Err(error)) => {
            report.faults.push(format!("no container starts: {error}; {EDIT}"));
            return;
        }
    };
    let tried = probe().unwrap_or_else(|why| {
        report.notes.push(why);
        None
    });
    let (probed, removed) = match tried {
        Some(Tried { probed, last, by_hand, removed }) => {
            (probed.map(Some).map_err(|why| (why, last, by_hand)), removed)
        }
        None => (Ok(None), Removed::default()),
    };
    match probed {
        Ok(Some(probed)) => shown(report, engine, host, other, probed),
        failed => {
            let held = format!("by the files of the set-up, {what} is held");
            report.notes.push(match other {
                None => format!("{held}, an ordinary container is not"),
                Some(why) => format!("{held}, and so is an ordinary container: {why}"),
            });
            if let Err((why, what, by_hand)) = failed {
                report.faults.push(match cancelled_by() {
                    Some(_) => format!("cannot run a probe {what}: {why}"),
                    None => format!("cannot run a probe {what}: {why}; try: {by_hand}"),
                });
            }
        }
    }
    report.faults.extend(removed.left);
    report.notes.extend(removed.notes);
}

const EDIT: &str = "edit /etc/synconce/oci.toml";

/// Adds what probe containers have `shown`. `other` says why an ordinary container is to be held.
fn shown(
    report: &mut SetupReport,
    engine: Engine,
    host: &Host,
    other: Option<String>,
    shown: Probed,
) {
    let again = match engine {
        // Podman reads its files anew each time.
        Engine::Podman => EDIT.to_owned(),
        // ctr names the runtime, so synconce-oci was called. A rule keeps the container from being
        // held: a rule of this file, or of another file that a variable of the daemon names.
        Engine::Containerd => format!("{EDIT}, or {}", engine.restart(host)),
        _ => engine.restart(host),
    };
    let Probed { real, is_ordinary_held } = shown;
    let is_held = real.is_empty();
    for builder in real {
        report.faults.push(match engine {
            Engine::Containerd => {
                format!("a probe container that requests a hold was not held; {again}")
            }
            _ => format!("a probe step of {builder} was not held; {again}"),
        });
    }
    let probed = match engine {
        Engine::Containerd => "a probe container that requests a hold",
        _ => "a probe step",
    };
    match (is_ordinary_held, other) {
        (None, _) if is_held => report.notes.push(format!("{probed} was held")),
        (Some(false), None) if is_held => {
            report.notes.push(format!("{probed} was held, a probe container was not"));
        }
        (Some(true), Some(why)) if is_held => {
            report.notes.push(format!("{probed} was held, and so was a container: {why}"));
        }
        (Some(true), None) => report.faults.push(format!("an ordinary container was held; {EDIT}")),
        (Some(false), Some(why)) => {
            report.faults.push(format!("an ordinary container was not held: {why}; {again}"));
        }
        (None | Some(false), None) | (None | Some(true), Some(_)) => {}
    }
}

/// Adds what is configured for the roots of build steps.
fn step_roots(report: &mut SetupReport, engine: Engine, root: &Path) {
    // Podman and Buildah mount their roots as volatile themselves.
    if !matches!(engine, Engine::Docker | Engine::Buildkit | Engine::Containerd) {
        return;
    }
    let note = match synconce_oci::are_step_roots_volatile(root) {
        Ok(true) => "overlay roots of build steps are volatile",
        Ok(false) => {
            "overlay roots of build steps are not volatile: step-root = \"as-mounted\" is in \
             /etc/synconce/oci.toml"
        }
        // `containers` reports the error.
        Err(_) => return,
    };
    report.notes.push(note.to_owned());
}
