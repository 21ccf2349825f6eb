//! The running daemon of an engine: whether it has what was set up.

pub(crate) mod process;

use self::process::{DaemonOwner, DaemonProcess, Lack, SLACK};
use crate::engine::{Engine, HeldDaemon};
use crate::error::Error;
use crate::host::Host;
use crate::journal::Journal;
use crate::systemd::Service;
use crate::{buildkit, containerd, docker, held, podman};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::text::quote;
use synconce_probe::docker::{SOCKET, connect};
use synconce_sys::peer::Peer;
use synconce_sys::search::name_for_sudo;

/// What was found about a running daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum DaemonFinding {
    /// The daemon has what was set up.
    InUse(String),
    /// The daemon does not run, which is no fault.
    NotRunning(String),
    /// What is wrong, with the command that mends it.
    Fault(String),
}

/// Returns whether the running daemon of `engine` has what was set up. Returns `None` for a system
/// that is not the running one, and for an engine without a daemon. `unheld` returns why the hold
/// of a name does not hold, or `None`.
///
/// # Errors
/// The engine's files cannot be read. [`Error::Refused`] if a file of the calling user overrides
/// the set-up.
pub fn look(
    engine: Engine,
    host: &Host,
    unheld: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<DaemonFinding>, Error> {
    if engine == Engine::Podman && host.is_running() {
        podman::users::check(host)?;
        return Ok(None);
    }
    let Some(daemon) = engine.daemon().filter(|_| host.is_running()) else { return Ok(None) };
    let (process, lack) = match find(host, daemon)? {
        None => {
            let elsewhere = elsewhere(engine, host).map(DaemonFinding::Fault);
            let not_running = || DaemonFinding::NotRunning(not_running(host, daemon));
            return Ok(Some(elsewhere.unwrap_or_else(not_running)));
        }
        Some((process, Some(other))) => (process, Some(other)),
        Some((process, None)) => {
            let lack = match engine {
                Engine::Held(daemon) => unheld(daemon.name()).map(Lack::Old),
                Engine::Docker if process.words("environ").is_none() => {
                    let synconce = quote(&name_for_sudo());
                    let check = format!("sudo {synconce} setup {} --check", engine.command());
                    Some(Lack::Unknown(format!("only root may read its environment; {check}")))
                }
                Engine::Docker => docker::lacks(host, &process)?,
                _ => is_later(host, engine, &process)?.map(Lack::Old),
            };
            (process, lack)
        }
    };
    let name = format!("{} (pid {})", daemon.program(), process.pid);
    Ok(Some(match lack {
        None => DaemonFinding::InUse(format!("{name} has it")),
        Some(Lack::Old(why)) => DaemonFinding::Fault(format!(
            "{name} does not have it: {why}; {}",
            engine.restart(host)
        )),
        Some(Lack::Variable(why, setting)) => DaemonFinding::Fault(format!(
            "{name} does not have it: {why}; {} with {setting} in its environment",
            engine.restart(host)
        )),
        Some(Lack::Unknown(why)) => DaemonFinding::Fault(format!("{name}: {why}")),
    }))
}

/// Whether the daemon of `engine` runs on `host`, which is the running system.
pub(crate) fn is_running(engine: Engine, host: &Host) -> bool {
    let runs = |daemon: HeldDaemon| DaemonProcess::find(daemon.program()).next().is_some();
    host.is_running() && engine.daemon().is_some_and(runs)
}

/// Returns a line if no dockerd runs here, and one of another container or of another host answers:
/// a set-up here does not reach it.
pub fn elsewhere(engine: Engine, host: &Host) -> Option<String> {
    if !host.is_running() || engine.daemon()? != HeldDaemon::Docker || is_running(engine, host) {
        return None;
    }
    // A process of this pid namespace has made the socket of systemd, or of another daemon.
    let maker = connect(Path::new(SOCKET)).and_then(Peer::read).ok()?;
    let there = host.setup(engine.command());
    let place = "in another container or on another host";
    (maker.pid == 0).then(|| format!("the dockerd at {SOCKET} runs {place}; there: {there}"))
}

/// Returns which settings of an undone set-up a running dockerd still uses, with the command that
/// mends it.
///
/// # Errors
/// As for [`look`].
pub fn still_has(engine: Engine, host: &Host) -> Result<Option<String>, Error> {
    let is_undone = || Journal::read(host, engine).is_ok_and(|journal| journal.is_none());
    if engine != Engine::Docker || !host.is_running() || !is_undone() {
        return Ok(None);
    }
    let Some((process, _)) = find(host, HeldDaemon::Docker)? else { return Ok(None) };
    let why = docker::still_has(host, &process)?;
    let (pid, restart) = (process.pid, engine.restart(host));
    Ok(why.map(|why| format!("dockerd (pid {pid}) still has it: {why}; {restart}")))
}

/// Returns a line for the running daemons that build images and that the set-up of `engine` does
/// not reach: a daemon in a container (as of docker buildx), a daemon of a user (such as a rootless
/// dockerd), and a dockerd that reads another file (such as the dockerd of a snap).
pub fn out_of_reach(engine: Engine, host: &Host) -> Vec<String> {
    let programs: &[&str] = match engine {
        Engine::Docker if host.is_running() => &["dockerd", "buildkitd"],
        Engine::Buildkit if host.is_running() => &["buildkitd"],
        _ => &[],
    };
    let mut pids: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for program in programs {
        for (process, owner) in DaemonProcess::find_all(program) {
            let of = match owner {
                DaemonOwner::System if *program == "dockerd" => other_file(host, &process),
                DaemonOwner::System => None,
                DaemonOwner::Container => Some("of a container".to_owned()),
                DaemonOwner::User(user) => Some(format!("of user {user}")),
            };
            if let Some(of) = of {
                pids.entry((owner, of, program)).or_default().push(process.pid.to_string());
            }
        }
    }
    let line = |((_, of, program), pids): ((_, String, _), Vec<String>)| {
        let pids = pids.join(", ");
        format!(
            "not reached by the set-up: {program} (pid {pids}) {of}; hold its steps in the Dockerfile"
        )
    };
    pids.into_iter().map(line).collect()
}

/// Returns that `process`, a dockerd, reads another file than the one that the set-up edits.
fn other_file(host: &Host, process: &DaemonProcess) -> Option<String> {
    let given = PathBuf::from(process.values(&docker::FLAGS).into_iter().next()?);
    let service = Service::read(host, "docker", Path::new("")).ok()?;
    let edited = docker::daemon_json(host, &service).ok()?;
    let is_edited = given == edited || host.is_same(&given, &edited);
    (!is_edited).then(|| format!("that reads {}", given.display()))
}

fn not_running(host: &Host, daemon: HeldDaemon) -> String {
    let start = match held::find_unit(host, daemon) {
        Ok(Some(unit)) if host.has_systemd() => format!(": systemctl start {unit}"),
        Ok(_) | Err(_) => String::new(),
    };
    format!(
        "{} is not running; it reads the changed files at its next start{start}",
        daemon.program()
    )
}

/// Finds the process of `daemon`. If each such process reads another configuration file than the
/// system's (the containerd of k3s or RKE2), returns one of them, and what to do.
pub(crate) fn find(
    host: &Host,
    daemon: HeldDaemon,
) -> Result<Option<(DaemonProcess, Option<Lack>)>, Error> {
    let mut processes = DaemonProcess::find(daemon.program());
    if daemon != HeldDaemon::Containerd {
        return Ok(processes.next().map(|process| (process, None)));
    }
    let main = containerd::main(host, &Service::read(host, "containerd", Path::new(""))?)?;
    let mut other = None;
    for process in processes {
        let file = process.configuration();
        if file == main || host.is_same(&file, &main) {
            return Ok(Some((process, None)));
        }
        // A containerd that dockerd has started has a configuration of dockerd's.
        if !file.ends_with("docker/containerd/containerd.toml") {
            let (file, main) = (file.display(), main.display());
            let why = format!("it reads {file}, and the set-up is for {main}");
            other = Some((
                process,
                Some(Lack::Unknown(format!("{why}; edit that file, or its template, by hand"))),
            ));
        }
    }
    Ok(other)
}

/// Returns the program that the unit of the engine's daemon starts.
///
/// # Errors
/// A unit that cannot be read.
pub(crate) fn program(engine: Engine, host: &Host) -> Result<Option<String>, Error> {
    let service = match engine.daemon() {
        None => return Ok(None),
        Some(HeldDaemon::Docker) => Service::read(host, "docker", Path::new("")),
        Some(HeldDaemon::Buildkit) => buildkit::service(host),
        Some(HeldDaemon::Containerd) => Service::read(host, "containerd", Path::new("")),
    };
    Ok(service?.program().map(str::to_owned))
}

/// Returns a fault if a file of the set-up is later than the start of `process`, which has read the
/// files at its start.
fn is_later(host: &Host, engine: Engine, process: &DaemonProcess) -> Result<Option<String>, Error> {
    let Some(journal) = Journal::read(host, engine)? else { return Ok(None) };
    let Some(start) = process.start() else { return Ok(None) };
    let changed = |path: &Path| fs::symlink_metadata(host.real(path)).ok()?.modified().ok();
    let later = journal.files.iter().find(|entry| {
        // A directory that was copied can have later times than its files.
        changed(&entry.path).is_some_and(|changed| changed > start + SLACK)
    });
    Ok(later.map(|entry| format!("it started before {} was written", entry.path.display())))
}
