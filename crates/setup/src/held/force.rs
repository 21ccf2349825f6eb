//! Holds that are in force.

use super::units;
use crate::engine::HeldDaemon;
use crate::error::{Error, NotEdited};
use crate::host::Host;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::boot::kernel_boot_id;
use synconce_durable::error::Context;
use synconce_sys::search::UNIT_DIRECTORIES;

/// Returns an error if the hold of `daemon` is in force, or was interrupted: without its files,
/// `synconce` could neither stop it nor recover the databases.
///
/// # Errors
/// A marker that cannot be read, or a unit.
pub(crate) fn in_force(host: &Host, daemon: HeldDaemon) -> Result<Option<Error>, Error> {
    let name = daemon.name();
    let marker = marker(host, daemon);
    let text = match fs::read(&marker) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.on("cannot read", &marker)?,
    };
    // Both answers refuse; only the hint depends on the boot.
    let boot = kernel_boot_id().unwrap_or_default();
    let of_marker = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
    let stop = stop(host, daemon)?;
    let (state, hint) = if !host.is_running() {
        let hint = format!("start that system, and there: {stop}synconce hold stop {name}");
        (host.place(), hint)
    } else if of_marker["boot"] == boot {
        ("that is in force".to_owned(), format!("{stop}synconce hold stop {name}"))
    } else {
        ("that a crash interrupted".to_owned(), format!("{stop}synconce hold recover {name}"))
    };
    let why = format!("is the marker of a hold of {name} {state}; nothing was changed");
    Ok(Some(NotEdited::new(why, hint + "; then undo again").in_file(&marker).into()))
}

fn marker(host: &Host, daemon: HeldDaemon) -> PathBuf {
    host.state().join("holds").join(format!("{}.json", daemon.name()))
}

/// Returns the command that stops the daemon and its hold, where units start them.
fn stop(host: &Host, daemon: HeldDaemon) -> Result<String, Error> {
    let Some(unit) = units::find_unit(host, daemon)?.filter(|_| host.has_systemd()) else {
        return Ok(format!("end {} first; then: ", daemon.program()));
    };
    let own = units::name(daemon.name());
    // A connection to the socket would start dockerd again.
    let socket = match daemon {
        HeldDaemon::Docker if has_socket(host) => "docker.socket ",
        _ => "",
    };
    Ok(format!("systemctl stop {socket}{unit} {own}; "))
}

fn has_socket(host: &Host) -> bool {
    UNIT_DIRECTORIES.iter().any(|path| host.exists(&Path::new(path).join("docker.socket")))
}
