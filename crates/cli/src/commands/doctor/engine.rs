//! `synconce doctor --docker` and `--podman`

use crate::arguments::doctor::Doctor;
use crate::commands::setup::{Checked, check_host};
use std::env;
use std::ffi::OsString;
use std::io::{Error as IoError, ErrorKind};
use std::path::PathBuf;
use synconce_doctor::{Engine, Error, SetUp, ask_docker, ask_podman};
use synconce_probe::docker::SOCKET;
use synconce_setup::host::RUNTIME_NAME;

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
    if engine.can_be_set_up() {
        engine.set_up = Some(check(set_up, engine.default_runtime.as_deref()));
    }
    Ok(Some(engine))
}

/// Checks the set-up of `engine`, whose answer named the runtime `runs`, if it names one.
fn check(engine: synconce_setup::Engine, runs: Option<&str>) -> SetUp {
    let Checked { is_made, mut faults, notes } = match check_host(engine) {
        Ok(checked) => checked,
        Err(error) => {
            let lines = vec![error.to_string()];
            return SetUp { is_in_force: false, is_made: false, lines };
        }
    };
    // The check looks at the system's daemon, which need not be the one that was asked.
    if let Some(other) = runs.filter(|name| is_made && faults.is_empty() && *name != RUNTIME_NAME) {
        faults.push(format!("the default runtime of the daemon that was asked is {other}"));
    }
    SetUp { is_in_force: is_made && faults.is_empty(), is_made, lines: [faults, notes].concat() }
}

/// Returns the flag that names an engine.
pub(super) fn flag(arguments: &Doctor) -> Option<&'static str> {
    let flags = [(arguments.docker, "--docker"), (arguments.podman, "--podman")];
    flags.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
}

/// Returns the value of DOCKER_HOST, if it is set.
fn host() -> Option<OsString> {
    env::var_os("DOCKER_HOST").filter(|host| !host.is_empty())
}

/// Returns the socket of dockerd.
fn socket() -> Result<PathBuf, Error> {
    let Some(host) = host() else { return Ok(SOCKET.into()) };
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
    let is_named = arguments.docker && host().is_some();
    // sudo drops the variable, and then the system's dockerd would be asked.
    let root = if is_named { "sudo --preserve-env=DOCKER_HOST" } else { "sudo" };
    let again = format!("synconce doctor {}", flag(arguments)?);
    let kind = match error {
        Error::Engine { error, .. } => error.kind(),
        Error::NotAllowed(_) => ErrorKind::PermissionDenied,
        Error::Elsewhere(_) => ErrorKind::Unsupported,
        _ => return None,
    };
    Some(match (kind, arguments.docker) {
        (ErrorKind::PermissionDenied, true) => format!("{root} {again}"),
        (ErrorKind::Unsupported, _) => format!("{again}, where the engine runs"),
        (ErrorKind::InvalidInput, true) => "synconce doctor --podman".to_owned(),
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, true) if is_named => {
            "start the dockerd that DOCKER_HOST names, or unset DOCKER_HOST".to_owned()
        }
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, true) => {
            "start dockerd: systemctl start docker".to_owned()
        }
        (ErrorKind::NotFound, false) => "install podman, or add its directory to PATH".to_owned(),
        _ => return None,
    })
}
