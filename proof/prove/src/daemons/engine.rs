//! What a row does to a daemon, whichever it is.

use super::fixture::ImageArchives;
use super::hold::Hold;
use super::script::{BUILDS, SCRIPT, ScriptStep, StepAct};
use super::world::World;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished, Group};

/// How long one command of a client may take.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a daemon may take to start.
const STARTING: Duration = Duration::from_secs(60);
/// The lines of a panic of Go that are shown: its reason, and most of the first goroutine.
const PANIC: usize = 40;

/// How a row treats the syncs of the daemon's databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseSyncs {
    /// `synconce hold` holds the files.
    Held,
    /// The daemon as it is.
    Plain,
    /// The daemon with an own option for more syncs: a syncfs for each layer.
    SyncFs,
    /// The daemon's own option leaves out syncs, and nothing recovers.
    NoSync,
    /// The daemon as it is; steps of builds have such a root.
    Steps(StepRootKind),
}

/// The root of a step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepRootKind {
    /// By runc.
    AsMounted,
    /// By synconce.
    Volatile,
    /// By a mutant of synconce, which does not sync at the end of a step.
    Unsynced,
}

impl DatabaseSyncs {
    /// Whether the row is of the product.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Held | Self::Steps(StepRootKind::Volatile))
    }

    /// Whether files of the daemon are held.
    pub(super) fn has_hold(self) -> bool {
        self == Self::Held
    }

    /// Returns what is recorded.
    pub(super) fn script(self) -> &'static [ScriptStep] {
        match self {
            Self::Steps(_) => &BUILDS,
            _ => &SCRIPT,
        }
    }

    /// Whether the daemon's own option leaves out syncs.
    pub(super) fn leaves_out(self) -> bool {
        self == Self::NoSync
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Held => "hold",
            Self::Plain => "plain",
            Self::SyncFs => "sync_fs",
            Self::NoSync => "no_sync",
            Self::Steps(StepRootKind::AsMounted) => "steps by runc",
            Self::Steps(StepRootKind::Volatile) => "steps with volatile roots",
            Self::Steps(StepRootKind::Unsynced) => "steps with unsynced roots",
        }
    }
}

/// What a daemon shows.
#[derive(Debug, Default)]
pub(super) struct SeenImages {
    /// The images that are listed, by number.
    pub listed: BTreeSet<usize>,
    /// What is listed and not whole.
    pub faults: Vec<String>,
    /// Records of a step's engine that no image has and whose layer is missing. The engine does not
    /// sync a new directory before it records the layer.
    pub strays: Vec<String>,
}

/// A daemon of one kind.
pub(super) trait DaemonKind: Sync {
    /// Returns the name in the table.
    fn name(&self) -> String;

    /// Whether the images stay when the held files are set aside.
    fn keeps_images(&self) -> bool {
        false
    }

    /// Returns what the hold of the daemon in `world` holds.
    fn hold(&self, world: &World, program: &Path) -> Hold;

    /// Makes what a recording starts from; a sync follows.
    fn prepare(&self, _world: &World, _fixture: &ImageArchives) -> Result<()> {
        Ok(())
    }

    /// Returns the daemon's directory on its disk.
    fn root(&self, world: &World) -> PathBuf;

    /// Starts the daemon, and waits until it answers and shows no fault.
    ///
    /// # Errors
    /// Why it does not answer.
    fn start<'a>(&'a self, world: &'a World) -> Result<Box<dyn RunningDaemon + 'a>>;
}

/// A daemon that runs.
pub(super) trait RunningDaemon {
    /// Acts; the daemon has to succeed.
    fn act(&self, act: StepAct, fixture: &ImageArchives) -> Result<()>;

    /// Looks at everything that the daemon lists.
    fn examine(&self, fixture: &ImageArchives) -> Result<SeenImages>;

    /// Ends the daemon in order.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Runs a client's command to its end, which has to be a success.
pub(super) fn succeed(command: &mut Command) -> Result<Finished> {
    let finished = process::run(command, patiently(LIMIT))?;
    if finished.status.success() {
        return Ok(finished);
    }
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    Err(format!("{}: {}: {}", words.join(" "), finished.status, super::hold::output(&finished))
        .into())
}

/// Starts a daemon, and waits until `answers` is true.
pub(super) fn spawn(command: &mut Command, answers: impl Fn() -> bool) -> Result<Group> {
    let daemon = Group::spawn(command)?;
    let end = Instant::now() + patiently(STARTING);
    while !answers() {
        let has_ended = daemon.wait(Duration::ZERO)?.is_some();
        if has_ended || Instant::now() > end {
            let what = if has_ended { "ended" } else { "does not answer" };
            return Err(format!("the daemon {what}: {}", last_lines(&daemon)).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(daemon)
}

/// Returns `error` of a client, with the last lines of the daemon if the daemon has ended.
pub(super) fn with_end(daemon: &Group, error: Error) -> Error {
    // The client sees the end of the connection before the process can be waited for.
    match daemon.wait(Duration::from_millis(500)) {
        Ok(Some(status)) => {
            format!("{error}; the daemon ended, {status}: {}", last_lines(daemon)).into()
        }
        _ => error,
    }
}

/// Returns what a daemon has printed last: a panic of Go with its first goroutine, or three lines.
fn last_lines(daemon: &Group) -> String {
    let text = daemon.stderr().unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let is_panic = |line: &&str| line.starts_with("panic: ") || line.starts_with("fatal error: ");
    let from = lines.iter().position(is_panic).unwrap_or(lines.len().saturating_sub(3));
    lines[from..].iter().take(PANIC).copied().collect::<Vec<_>>().join(" | ")
}

/// Ends a daemon by SIGTERM, as an init system does.
pub(super) fn terminate(daemon: &Group) -> Result<()> {
    daemon.signal(rustix::process::Signal::TERM)?;
    match daemon.wait(patiently(LIMIT))? {
        Some(_) => Ok(()),
        None => Err("the daemon does not end".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What dockerd 20.10 with a damaged `buildkit/cache.db` printed at the end of a build.
    const PANIC_IN_A_BUILD: &str = "\
time=\"2026-11-29T17:27:31Z\" level=info msg=\"API listen on /run/docker.sock\"
panic: invalid page type: 10: 10

goroutine 198 [running]:
go.etcd.io/bbolt.(*Cursor).search(0xc000f9f9e8, {0xc0001fab00, 0x1f, 0x20}, 0xc000f9f940?)
";

    fn daemon(script: &str, printed: &str) -> Group {
        Group::spawn(Command::new("sh").arg("-c").arg(script).env("PRINTED", printed)).unwrap()
    }

    fn lost_connection() -> Error {
        "build: exit status: 1: unexpected EOF".into()
    }

    #[test]
    fn the_error_of_a_client_has_the_panic_of_a_daemon_that_ended() {
        let daemon = daemon("printf '%s' \"$PRINTED\" >&2; exit 2", PANIC_IN_A_BUILD);
        assert_eq!(
            with_end(&daemon, lost_connection()).to_string(),
            "build: exit status: 1: unexpected EOF; the daemon ended, exit status: 2: \
             panic: invalid page type: 10: 10 |  | goroutine 198 [running]: | \
             go.etcd.io/bbolt.(*Cursor).search(0xc000f9f9e8, {0xc0001fab00, 0x1f, 0x20}, \
             0xc000f9f940?)"
        );
    }

    #[test]
    fn the_error_of_a_client_has_the_last_lines_of_a_daemon_that_was_killed() {
        let daemon = daemon("printf '%s' \"$PRINTED\" >&2; kill -KILL $$", "1\n2\n3\n4\n");
        let error = with_end(&daemon, lost_connection()).to_string();
        assert!(error.ends_with("the daemon ended, signal: 9 (SIGKILL): 2 | 3 | 4"), "{error}");
    }

    #[test]
    fn the_error_of_a_client_is_unchanged_while_the_daemon_runs() {
        let daemon = daemon("exec sleep 60", "");
        assert_eq!(with_end(&daemon, lost_connection()).to_string(), lost_connection().to_string());
    }

    #[test]
    fn a_daemon_that_ends_before_it_answers_is_an_error_with_its_last_lines() {
        let mut command = Command::new("sh");
        command.arg("-c").arg("printf '%s' \"$PRINTED\" >&2; exit 2");
        let error = spawn(command.env("PRINTED", PANIC_IN_A_BUILD), || false).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("the daemon ended: panic: invalid page type: 10: 10 |"),
            "{error}"
        );
    }
}
