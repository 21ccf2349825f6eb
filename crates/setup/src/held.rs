//! Holds of daemons: `synconce setup containerd --hold` writes the file that describes the
//! hold, the unit that starts it before the daemon, and a drop-in file for the daemon's unit.
//!
//! The crate `hold` reads the description (`/etc/synconce/hold.d/NAME.toml`). This crate only
//! writes text.

mod buildkit;
mod configuration;
mod containerd;
mod description;
mod docker;
mod force;
mod place;
mod snapshotters;
mod units;

pub(crate) use force::in_force;
pub(crate) use units::find_unit;

use crate::engine::{Engine, HeldDaemon};
use crate::error::Error;
use crate::host::Host;
use crate::plan::{PathChange, Plan, PlannedAct};
use description::Description;
use std::path::Path;

/// Plans the hold of `daemon`.
pub(crate) fn plan(host: &Host, daemon: HeldDaemon) -> Result<Plan, Error> {
    host.check_synconce(Engine::Held(daemon).command())?;
    let mut plan = Plan::default();
    let description = match daemon {
        HeldDaemon::Containerd => containerd::describe(host, &mut plan)?,
        HeldDaemon::Docker => docker::describe(host, &mut plan)?,
        HeldDaemon::Buildkit => buildkit::describe(host, &mut plan)?,
    };
    write(host, &mut plan, &description)?;
    Ok(plan)
}

/// Plans the files of a hold.
fn write(host: &Host, plan: &mut Plan, description: &Description) -> Result<(), Error> {
    let daemon = description.daemon;
    let unit = find_unit(host, daemon)?;
    let name = daemon.name();
    let text = description.text(host, unit.as_deref());
    plan.own(host, Path::new(&format!("/etc/synconce/hold.d/{name}.toml")), text)?;
    let run = without_systemd(daemon);
    match &unit {
        Some(unit) => units::write(host, plan, description, unit)?,
        None => {
            let program = daemon.program();
            let place = host.place();
            plan.notes.push(format!("{program} has no unit {place}: start it by `{run}`"));
        }
    }
    if unit.is_some() && !host.has_systemd() {
        plan.notes.push(format!("systemd does not run here: without it, use `{run}`"));
    }
    plan.notes.push(format!("after a crash of the machine: {}", description.cost));
    Ok(())
}

/// Returns how many databases `plan` adds to the description of a hold, if it changes nothing else.
pub(crate) fn new_databases(plan: &Plan, host: &Host) -> Option<usize> {
    let [PathChange { path, act: PlannedAct::Own(after) }] = &plan.changes[..] else { return None };
    let (_, before) = host.text(path).ok()?;
    description::added(&before?, after)
}

/// Returns what makes the changes of a set-up of `daemon`, or of its undo, take effect.
pub(crate) fn restart(host: &Host, daemon: HeldDaemon) -> String {
    let program = daemon.program();
    if !host.is_running() {
        // systemctl would restart the daemon of the running system.
        let place = host.place();
        return format!(
            "{program} {place} reads the changed files at its next start: if it is running, restart \
             it there"
        );
    }
    match find_unit(host, daemon) {
        Ok(Some(unit)) if host.has_systemd() => {
            format!("restart {program}: systemctl daemon-reload && systemctl restart {unit}")
        }
        // A unit that cannot be read has no name to give.
        Ok(_) | Err(_) => format!("restart {program}"),
    }
}

/// Returns the command line that runs the daemon under its hold, without systemd.
fn without_systemd(daemon: HeldDaemon) -> String {
    format!("synconce hold run {} -- {}", daemon.name(), daemon.program())
}
