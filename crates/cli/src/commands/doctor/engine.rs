//! `synconce doctor --docker` and `--podman`

use crate::arguments::doctor::Doctor;
use crate::commands::setup::{Checked, check_host};
use std::env;
use std::io::{Error as IoError, ErrorKind};
use std::path::PathBuf;
use synconce_doctor::{Engine, Error, SetUp, ask_docker, ask_podman};
use synconce_probe::docker::SOCKET;

/// Asks the engine that `arguments` name; returns `None` if they name none.
///
/// # Errors
/// The engine does not answer.
pub(super) fn ask(arguments: &Doctor) -> Result<Option<Engine>, Error> {
    let (mut engine, set_up) = match flag(arguments) {
        Some("--docker") => (ask_docker(&socket()?)?, synconce_setup::Engine::Docker),
        Some(_) => (ask_podman()?, synconce_setup::Engine::Podman),
        None => return Ok(None),
    };
    engine.set_up = Some(match check_host(set_up) {
        Ok(Checked { is_made, faults, notes }) => SetUp {
            is_in_force: is_made && faults.is_empty(),
            is_made,
            lines: [faults, notes].concat(),
        },
        Err(error) => SetUp { is_in_force: false, is_made: false, lines: vec![error.to_string()] },
    });
    Ok(Some(engine))
}

/// Returns the flag that names an engine.
pub(super) fn flag(arguments: &Doctor) -> Option<&'static str> {
    let flags = [(arguments.docker, "--docker"), (arguments.podman, "--podman")];
    flags.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
}

/// Returns the socket of dockerd.
fn socket() -> Result<PathBuf, Error> {
    let Some(host) = env::var_os("DOCKER_HOST").filter(|host| !host.is_empty()) else {
        return Ok(SOCKET.into());
    };
    match host.to_str().and_then(|host| host.strip_prefix("unix://")) {
        Some(path) => Ok(path.into()),
        None => Err(Error::Engine {
            program: "dockerd",
            at: Some(host.into()),
            error: IoError::new(ErrorKind::Unsupported, "it is not on this host"),
        }),
    }
}

/// Returns the hint for an engine that does not answer, or whose directory cannot be measured.
pub(super) fn hint(error: &Error, arguments: &Doctor) -> Option<String> {
    let again = format!("synconce doctor {}", flag(arguments)?);
    let kind = match error {
        Error::Engine { error, .. } => error.kind(),
        Error::NotAllowed(_) => ErrorKind::PermissionDenied,
        Error::Elsewhere(_) => ErrorKind::Unsupported,
        _ => return None,
    };
    Some(match (kind, arguments.docker) {
        (ErrorKind::PermissionDenied, _) => format!("sudo {again}"),
        (ErrorKind::Unsupported, _) => format!("{again}, on the host of the engine"),
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, true) => {
            "start dockerd: systemctl start docker".to_owned()
        }
        (ErrorKind::NotFound, false) => "apt-get install podman".to_owned(),
        _ => return None,
    })
}
