//! `setup ENGINE --check`: whether the files, the running daemon and the wrapper are as set up.

use crate::commands::setup::{SetupReport, remedy};
use std::path::Path;
use synconce_hold::status::{HoldState, Look, status};
use synconce_oci::probe::{Container, is_held};
use synconce_setup::error::Error;
use synconce_setup::host::Host;
use synconce_setup::plan::Plan;
use synconce_setup::running::{self, DaemonFinding};
use synconce_setup::{Engine, apply, diff, new_databases};

/// Adds to `report` what a check of `engine` finds, for which `plan` has what a set-up would change.
///
/// # Errors
/// The engine's files cannot be read.
pub(super) fn check(
    mut report: SetupReport,
    plan: &Plan,
    engine: Engine,
    host: &Host,
    root: &Path,
) -> Result<SetupReport, Error> {
    let name = plan.command(engine);
    let setup = host.setup(name);
    report.set_up = Some(plan.changes.is_empty());
    if !plan.changes.is_empty() {
        report.diff = Some(diff::of_plan(plan, host));
    }
    match (plan.changes.is_empty(), new_databases(plan, host)) {
        (true, _) => report.notes.push(format!("{name} is set up")),
        (false, Some(1)) => {
            report.faults.push(format!("{name} is set up; 1 database is new: {setup} takes it in"));
        }
        (false, Some(count)) => {
            let new = format!("{count} databases are new: {setup} takes them in");
            report.faults.push(format!("{name} is set up; {new}"));
        }
        (false, None) => {
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
            report.faults.extend(running::still_has(engine, host)?);
            report.notes.extend(running::out_of_reach(engine, host));
            return Ok(report);
        }
    }
    match running::look(engine, host, &unheld)? {
        Some(DaemonFinding::Well(text)) => report.notes.push(text),
        Some(DaemonFinding::Fault(text)) => report.faults.push(text),
        None => {}
    }
    probe(&mut report, engine, root);
    step_roots(&mut report, engine, root);
    report.notes.extend(running::out_of_reach(engine, host));
    Ok(report)
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

/// Adds whether the containers would be held that are to be held, and no others.
fn probe(report: &mut SetupReport, engine: Engine, root: &Path) {
    let (container, what) = match engine {
        Engine::Docker | Engine::Buildkit => (Container::BuildKitStep, "a build step"),
        Engine::Podman => (Container::BuildahStep, "a build step"),
        Engine::Containerd => (Container::Annotated, "a container that asks for it"),
        Engine::Held(_) => return,
    };
    match (is_held(root, container), is_held(root, Container::Ordinary)) {
        (Ok((true, _)), Ok((false, _))) => {
            report.notes.push(format!("{what} is held, an ordinary container is not"));
        }
        (Ok((true, _)), Ok((true, why))) => {
            report.notes.push(format!("{what} is held, and so is an ordinary container: {why}"));
        }
        (Ok((false, why)), _) => {
            let file = "edit /etc/synconce/oci.toml";
            report.faults.push(format!("{what} is not held: {why}; {file}"));
        }
        (Err(error), _) | (_, Err(error)) => {
            report.faults.push(format!("no container is held: {error}"));
        }
    }
}

/// Adds what is configured for the roots of build steps.
fn step_roots(report: &mut SetupReport, engine: Engine, root: &Path) {
    // Podman and Buildah mount their roots as volatile themselves.
    if !matches!(engine, Engine::Docker | Engine::Buildkit | Engine::Containerd) {
        return;
    }
    let note = match synconce_oci::are_step_roots_volatile(root) {
        Ok(true) => "the roots of build steps are volatile",
        Ok(false) => {
            "the roots of build steps are not volatile: step-root = \"as-mounted\" is in \
             /etc/synconce/oci.toml"
        }
        // `probe` reports the error.
        Err(_) => return,
    };
    report.notes.push(note.to_owned());
}
