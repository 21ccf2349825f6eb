//! `synconce doctor --docker`, `--podman`, `--containerd` and `--buildkit`

use crate::arguments::doctor::Doctor;
use crate::commands::setup::{Checked, check_host};
use crate::text::{name_for_sudo, shell};
use std::env;
use std::ffi::OsString;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use synconce_doctor::{
    ContainerEngine, Error, SetUp, ask_buildkit, ask_containerd, ask_docker, ask_podman,
};
use synconce_probe::docker::SOCKET;
use synconce_setup::host::RUNTIME_NAME;
use synconce_setup::{Engine as Configured, HeldDaemon};

/// An engine on the command line.
#[derive(Clone, Copy)]
struct Asked {
    flag: &'static str,
    program: &'static str,
    set_up: Configured,
    /// What has the databases that can be held.
    databases: Option<HeldDaemon>,
    /// The variable that names its socket, and the socket without it; none without a daemon.
    socket: Option<(&'static str, &'static str)>,
    start: &'static str,
}

const DOCKER: Asked = Asked {
    flag: "--docker",
    program: "dockerd",
    set_up: Configured::Docker,
    databases: Some(HeldDaemon::Docker),
    socket: Some(("DOCKER_HOST", SOCKET)),
    start: "start dockerd: systemctl start docker",
};
const PODMAN: Asked = Asked {
    flag: "--podman",
    program: "podman",
    set_up: Configured::Podman,
    databases: None,
    socket: None,
    start: "install podman, or add its directory to PATH",
};
const CONTAINERD: Asked = Asked {
    flag: "--containerd",
    program: "containerd",
    set_up: Configured::Containerd,
    databases: Some(HeldDaemon::Containerd),
    socket: Some(("CONTAINERD_ADDRESS", "/run/containerd/containerd.sock")),
    start: "start containerd: systemctl start containerd",
};
const BUILDKIT: Asked = Asked {
    flag: "--buildkit",
    program: "buildkitd",
    set_up: Configured::Buildkit,
    databases: Some(HeldDaemon::Buildkit),
    socket: Some(("BUILDKIT_HOST", "/run/buildkit/buildkitd.sock")),
    start: "start buildkitd: systemctl start buildkit; of Docker: synconce doctor --docker",
};

/// Asks the engine that `arguments` name; returns `None` if they name none.
///
/// # Errors
/// The engine does not answer.
pub(super) fn ask(arguments: &Doctor) -> Result<Option<ContainerEngine>, Error> {
    let Some(asked) = asked(arguments) else { return Ok(None) };
    let mut engine = match asked.set_up {
        Configured::Docker => ask_docker(&asked.socket()?)?,
        Configured::Containerd => ask_containerd(&asked.socket()?)?,
        Configured::Buildkit => ask_buildkit(&asked.socket()?)?,
        Configured::Podman | Configured::Held(_) => ask_podman()?,
    };
    // The check looks at the system's daemons. dockerd's runtime shows whether it is another one.
    let other = asked.other().filter(|_| !arguments.docker);
    if let Some((variable, usual)) = other {
        let why = format!("{variable} names another socket than the system's {usual}");
        engine.add_not_measured("set-up", why);
    } else if engine.can_be_set_up() {
        // The check reports a file that cannot be read.
        engine.step_roots_are_volatile =
            synconce_oci::are_step_roots_volatile(Path::new("/")).unwrap_or(true);
        engine.set_up = Some(check(asked.set_up, engine.default_runtime.as_deref()));
        engine.databases = asked.databases.map(|daemon| check(Configured::Held(daemon), None));
    }
    Ok(Some(engine))
}

/// Checks the set-up of `engine`, whose answer named the runtime `runs`, if it names one.
pub(super) fn check(engine: Configured, runs: Option<&str>) -> SetUp {
    let Checked { is_made, mut faults, notes, has_default } = match check_host(engine) {
        Ok(checked) => checked,
        Err(error) => {
            let lines = vec![error.to_string()];
            return SetUp { is_in_force: false, is_made: false, lines };
        }
    };
    // The check looks at the system's daemon, which need not be the one that was asked.
    let is_well = is_made && faults.is_empty() && has_default;
    if let Some(other) = runs.filter(|name| is_well && *name != RUNTIME_NAME) {
        faults.push(format!("the default runtime of the daemon that was asked is {other}"));
    }
    SetUp { is_in_force: is_made && faults.is_empty(), is_made, lines: [faults, notes].concat() }
}

fn asked(arguments: &Doctor) -> Option<Asked> {
    let all = [
        (arguments.docker, DOCKER),
        (arguments.podman, PODMAN),
        (arguments.containerd, CONTAINERD),
        (arguments.buildkit, BUILDKIT),
    ];
    all.into_iter().find_map(|(is_given, asked)| is_given.then_some(asked))
}

/// Returns the flag that names an engine.
pub(super) fn flag(arguments: &Doctor) -> Option<&'static str> {
    asked(arguments).map(|asked| asked.flag)
}

impl Asked {
    /// Returns the variable that names another socket, and its value, if it is set.
    fn variable(&self) -> Option<(&'static str, OsString)> {
        let (name, _) = self.socket?;
        env::var_os(name).filter(|value| !value.is_empty()).map(|value| (name, value))
    }

    /// Returns the variable that names another socket than the usual, and the usual socket.
    fn other(&self) -> Option<(&'static str, &'static str)> {
        let (name, usual) = self.socket?;
        (self.socket().ok()? != Path::new(usual)).then_some((name, usual))
    }

    /// Returns the socket of its daemon.
    fn socket(&self) -> Result<PathBuf, Error> {
        let Some((_, value)) = self.variable() else {
            return Ok(self.socket.map_or_else(PathBuf::new, |(_, usual)| usual.into()));
        };
        let text = value.to_str().unwrap_or_default();
        match text.strip_prefix("unix://") {
            Some(path) => Ok(path.into()),
            // The clients of containerd take a path, too; those of the others do not.
            None if text.starts_with('/') && self.program == CONTAINERD.program => Ok(value.into()),
            None => Err(Error::Engine {
                program: self.program,
                at: Some(value.into()),
                error: IoError::new(ErrorKind::Unsupported, "only unix://PATH can be asked"),
            }),
        }
    }
}

/// Returns the hint for an engine that does not answer, or whose directory cannot be measured.
pub(super) fn hint(error: &Error, arguments: &Doctor) -> Option<String> {
    let asked = asked(arguments)?;
    let value = asked.variable().and_then(|(_, value)| value.into_string().ok());
    let is_in_docker = value.as_ref().is_some_and(|it| it.starts_with("docker-container://"));
    // containerd's clients take a path.
    let path = value.filter(|it| it.starts_with('/') && asked.program != CONTAINERD.program);
    let variable = asked.variable().map(|(name, _)| name);
    let mut again = format!("doctor {}", asked.flag);
    if let Some(context) = &arguments.context {
        again += &format!(" --context {}", shell(&[context.display().to_string()]));
    }
    let kind = match error {
        Error::Engine { error, .. } => error.kind(),
        Error::NotAllowed(_) => ErrorKind::PermissionDenied,
        Error::Elsewhere(_) => ErrorKind::Unsupported,
        _ => return None,
    };
    let has_daemon = asked.socket.is_some();
    Some(match (kind, variable) {
        (ErrorKind::PermissionDenied, _) if !has_daemon => return None,
        // sudo drops the variable, and then the system's daemon would be asked.
        (ErrorKind::PermissionDenied, Some(name)) => {
            format!("sudo --preserve-env={name} {} {again}", name_for_sudo())
        }
        (ErrorKind::PermissionDenied, None) => format!("sudo {} {again}", name_for_sudo()),
        (ErrorKind::Unsupported, _) if is_in_docker => {
            "synconce doctor --docker: its volumes have the cache".to_owned()
        }
        (ErrorKind::Unsupported, Some(name)) if path.is_some() => {
            let socket = shell(&[format!("unix://{}", path.unwrap_or_default())]);
            format!("{name}={socket} synconce {again}")
        }
        (ErrorKind::Unsupported, _) => format!("synconce {again}, where the engine runs"),
        (ErrorKind::InvalidInput, _) if arguments.docker => "synconce doctor --podman".to_owned(),
        (ErrorKind::InvalidInput, _) => {
            "synconce doctor DIRECTORY, with the directory of its data".to_owned()
        }
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, Some(name)) => {
            format!("start the {} that {name} names, or unset {name}", asked.program)
        }
        (ErrorKind::NotFound, None) => asked.start.to_owned(),
        (ErrorKind::ConnectionRefused, None) if has_daemon => asked.start.to_owned(),
        _ => return None,
    })
}
