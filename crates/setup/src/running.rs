//! The running daemon of an engine: whether it has what was set up.

use crate::engine::{Engine, HeldDaemon};
use crate::error::Error;
use crate::host::Host;
use crate::journal::Journal;
use crate::systemd::Service;
use crate::{buildkit, containerd, docker, held};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use synconce_sys::procfs::{self, Stat};

/// The resolution of a process's start time, and of a file's time stamps.
const SLACK: Duration = Duration::from_millis(50);

/// What was found about a running daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum DaemonFinding {
    /// What is as it should be.
    Well(String),
    /// What is wrong, with the command that mends it.
    Fault(String),
}

/// What a running daemon lacks.
#[derive(Debug)]
pub(crate) enum Lack {
    /// A part of the set-up, which it has after a restart.
    Old(String),
    /// It is not known whether the daemon has the set-up, or it never will: with what mends that.
    Unknown(String),
}

/// A process of a daemon.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    pid: u32,
}

/// Returns whether the running daemon of `engine` has what was set up. Returns `None` for an engine
/// without a daemon, and for a system that is not the running one. `unheld` returns why the hold of
/// a name does not hold, or `None`.
///
/// # Errors
/// The engine's files cannot be read.
pub fn look(
    engine: Engine,
    host: &Host,
    unheld: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<DaemonFinding>, Error> {
    let daemon = match engine {
        Engine::Podman => return Ok(None),
        Engine::Docker => HeldDaemon::Docker,
        Engine::Buildkit => HeldDaemon::Buildkit,
        Engine::Containerd => HeldDaemon::Containerd,
        Engine::Held(daemon) => daemon,
    };
    if !host.is_running() {
        return Ok(None);
    }
    let (process, lack) = match find(host, daemon)? {
        None => return Ok(Some(DaemonFinding::Well(not_running(host, daemon)))),
        Some((process, Some(other))) => (process, Some(other)),
        Some((process, None)) => {
            let lack = match engine {
                Engine::Held(daemon) => unheld(daemon.name()).map(Lack::Old),
                Engine::Docker if process.words("environ").is_none() => {
                    Some(Lack::Unknown("only root may read its environment".to_owned()))
                }
                Engine::Docker => docker::lacks(host, &process)?,
                _ => is_later(host, engine, &process)?.map(Lack::Old),
            };
            (process, lack)
        }
    };
    let name = format!("{} (pid {})", daemon.program(), process.pid);
    Ok(Some(match lack {
        None => DaemonFinding::Well(format!("{name} has it")),
        Some(Lack::Old(why)) => DaemonFinding::Fault(format!(
            "{name} does not have it: {why}; {}",
            engine.restart(host)
        )),
        Some(Lack::Unknown(why)) => DaemonFinding::Fault(format!("{name}: {why}")),
    }))
}

fn not_running(host: &Host, daemon: HeldDaemon) -> String {
    let start = match held::unit_of(host, daemon) {
        Ok(Some(unit)) if host.has_systemd() => format!(": systemctl start {unit}"),
        Ok(_) | Err(_) => String::new(),
    };
    format!("{} is not running; it goes by it from its next start{start}", daemon.program())
}

/// Finds the process of `daemon`. If each such process reads another configuration file than the
/// system's (the containerd of k3s or RKE2), returns one of them, and what to do.
fn find(host: &Host, daemon: HeldDaemon) -> Result<Option<(DaemonProcess, Option<Lack>)>, Error> {
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
    let service = match engine {
        Engine::Podman => return Ok(None),
        Engine::Docker | Engine::Held(HeldDaemon::Docker) => {
            Service::read(host, "docker", Path::new(""))
        }
        Engine::Buildkit | Engine::Held(HeldDaemon::Buildkit) => buildkit::service(host),
        Engine::Containerd | Engine::Held(HeldDaemon::Containerd) => {
            Service::read(host, "containerd", Path::new(""))
        }
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

impl DaemonProcess {
    /// Returns root's processes of the program `name` in this pid namespace.
    fn find(name: &str) -> impl Iterator<Item = Self> {
        let ours = fs::read_link("/proc/self/ns/pid").ok();
        procfs::pids().map(|pid| Self { pid }).filter(move |process| {
            // Another user's process shows no namespace.
            let is_here = fs::read_link(process.file("ns/pid")).map_or(true, |it| Some(it) == ours);
            let is_root = || fs::metadata(process.file("")).is_ok_and(|it| it.uid() == 0);
            procfs::process_name(process.pid).is_ok_and(|own| own == name) && is_here && is_root()
        })
    }

    /// Returns the configuration file of a containerd, by its command line.
    fn configuration(&self) -> PathBuf {
        let words = self.words("cmdline").unwrap_or_default();
        let given = words.iter().enumerate().find_map(|(at, word)| {
            containerd::FLAGS.iter().find_map(|flag| match word.strip_prefix(flag)? {
                "" => words.get(at + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            })
        });
        PathBuf::from(given.unwrap_or(containerd::CONFIGURATION))
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join(name)
    }

    /// Returns the words of `cmdline` or `environ` (proc(5)); `None` if they cannot be read.
    pub(crate) fn words(&self, file: &str) -> Option<Vec<String>> {
        let bytes = fs::read(self.file(file)).ok()?;
        let words = bytes.split(|byte| *byte == 0);
        Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    }

    /// Returns when the process started, by the clock of now.
    fn start(&self) -> Option<SystemTime> {
        let ticks = Stat::of(self.pid)?.began()?;
        let since_boot =
            Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
        let uptime = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(UNIX_EPOCH + now.checked_sub(uptime.checked_sub(since_boot)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_starts_after_what_was_written_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = DaemonProcess { pid: child.id() }.start();
        fs::write(&file, "again").unwrap();
        let after = fs::metadata(&file).unwrap().modified().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let start = start.expect("a running process");
        assert!(before < start + SLACK && start < after + SLACK, "{before:?} {start:?} {after:?}");
    }
}
