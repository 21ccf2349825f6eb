//! The unit that starts a hold before its daemon, and the drop-in file by which the daemon's
//! unit requires it.

use super::description::Description;
use crate::engine::{HeldDaemon, header};
use crate::error::Error;
use crate::host::Host;
use crate::plan::Plan;
use crate::systemd::Service;
use std::path::{Path, PathBuf};

/// Where the units of the operator are.
const DIRECTORY: &str = "/etc/systemd/system";
/// The name of the drop-in file.
const DROP_IN: &str = "50-synconce-hold.conf";
/// The directory of the markers.
const STATE: &str = "/var/lib/synconce";

/// Returns the unit of `daemon`, if the system has one.
pub(crate) fn find_unit(host: &Host, daemon: HeldDaemon) -> Result<Option<String>, Error> {
    let names: &[&str] = match daemon {
        HeldDaemon::Containerd => &["containerd"],
        HeldDaemon::Docker => &["docker"],
        // No distribution ships a unit, and both names are in use.
        HeldDaemon::Buildkit => &["buildkit", "buildkitd"],
    };
    for name in names {
        if exists(host, name)? {
            return Ok(Some(format!("{name}.service")));
        }
    }
    Ok(None)
}

/// Returns whether the system has a unit for the service `name`.
pub(super) fn exists(host: &Host, name: &str) -> Result<bool, Error> {
    Ok(Service::read(host, name, Path::new(""))?.is_there)
}

/// Returns whether the system has a unit for the service `name` that can be read. A masked unit
/// starts nothing.
pub(super) fn is_usable(host: &Host, name: &str) -> bool {
    exists(host, name).unwrap_or(false)
}

/// Returns the name of the unit of the hold `name`.
pub(super) fn name(name: &str) -> String {
    format!("synconce-hold-{name}.service")
}

/// Plans the unit, and the drop-in file for `unit`, the daemon's.
pub(super) fn write(
    host: &Host,
    plan: &mut Plan,
    description: &Description,
    unit: &str,
) -> Result<(), Error> {
    let own = name(description.daemon.name());
    let directory = Path::new(DIRECTORY);
    plan.own(host, &directory.join(own), service(host, description, unit))?;
    let drop_in = directory.join(format!("{unit}.d")).join(DROP_IN);
    plan.own(host, &drop_in, requirement(host, description))
}

/// Returns the text of the hold's unit. systemd stops units in the reverse order of their
/// start, so the daemon has ended before the hold is stopped; the hold also stops when the
/// daemon alone is stopped, so that a machine without the daemon holds nothing. The stop syncs the
/// file systems of the databases; a stop that systemd cuts short would cost the databases.
fn service(host: &Host, description: &Description, unit: &str) -> String {
    let header = header(description.engine);
    let (name, program) = (description.daemon.name(), description.daemon.program());
    let synconce = host.synconce();
    let mut directories = description.directories.clone();
    directories.push(PathBuf::from(STATE));
    directories.dedup();
    let mounts = directories.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let mounts = mounts.join(" ");
    format!(
        "{header}[Unit]\n\
         Description=Hold the disk syncs of {program}'s databases\n\
         Documentation=man:synconce-hold(1)\n\
         Before={unit} synconce-report.service\n\
         StopWhenUnneeded=yes\n\
         RequiresMountsFor={mounts}\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStartPre={synconce} hold recover {name}\n\
         ExecStart={synconce} hold start {name}\n\
         ExecStop={synconce} hold stop {name}\n\
         TimeoutStopSec=10min\n"
    )
}

/// Returns the text of the drop-in file: the daemon does not start without its hold, and what
/// was set aside is removed once the daemon has started.
fn requirement(host: &Host, description: &Description) -> String {
    let header = header(description.engine);
    let name = description.daemon.name();
    let (own, synconce) = (self::name(name), host.synconce());
    format!(
        "{header}[Unit]\n\
         Requires={own}\n\
         After={own}\n\
         \n\
         [Service]\n\
         ExecStartPost=-{synconce} hold settle {name}\n"
    )
}
