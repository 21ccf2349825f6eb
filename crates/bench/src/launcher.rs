//! Starts every command of a benchmark.

use crate::interrupt::SignalWatch;
use crate::processes::OwnProcesses;
use crate::{CommandFailure, Error, files};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use synconce_sys::process;

/// The variable in every command's environment that identifies the benchmark.
const MARK: &str = "SYNCONCE_BENCH";

/// Starts commands, waits for them and for Ctrl-C, and keeps their logs.
pub struct Launcher {
    watch: SignalWatch,
    own: OwnProcesses,
    logs: tempfile::TempDir,
}

/// How a command ended and what it cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandOutcome {
    /// Time from before the start to after the wait.
    pub(crate) wall: Duration,
    /// User time of the command and of the descendants it waited for.
    pub(crate) user: Duration,
    /// System time of the same processes.
    pub(crate) system: Duration,
    /// How it ended.
    pub(crate) status: ExitStatus,
}

impl CommandOutcome {
    /// Returns the sum of both costs, with the later status.
    #[must_use]
    pub(crate) fn plus(&self, later: &Self) -> Self {
        Self {
            wall: self.wall + later.wall,
            user: self.user + later.user,
            system: self.system + later.system,
            status: later.status,
        }
    }
}

impl Launcher {
    /// Watches for signals from now on. Logs go to a new directory under TMPDIR, which is
    /// removed unless `Launcher::keep_logs` is called.
    ///
    /// # Errors
    /// The directory cannot be made or the signals cannot be handled.
    pub fn new() -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        let logs = tempfile::Builder::new()
            .prefix("synconce-bench-")
            .tempdir_in(&parent)
            .map_err(Error::io("make a log directory in", &parent))?;
        let own = OwnProcesses { mark: format!("{MARK}={}", logs.path().display()), spared: None };
        Ok(Self { watch: SignalWatch::new()?, own, logs })
    }

    /// Spares `program` on an interrupt: only the commands that `program` runs are killed. Then
    /// `program` ends by itself, because synconce must clear its marker.
    #[must_use]
    pub(crate) fn sparing(mut self, program: &Path) -> Self {
        let file = std::fs::metadata(program).ok();
        self.own.spared = file.map(|metadata| (metadata.dev(), metadata.ino()));
        self
    }

    /// Keeps the logs and returns their directory.
    pub(crate) fn keep_logs(mut self) -> PathBuf {
        self.logs.disable_cleanup(true);
        self.logs.path().to_path_buf()
    }

    /// Returns the log file of the given name.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.path().join(format!("{name}.log"))
    }

    /// Fails if a signal has arrived.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.watch.check()
    }

    /// Sleeps for `time`, or until a signal arrives.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn pause(&self, time: Duration) -> Result<(), Error> {
        let milliseconds = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.watch.wait(None, Some(milliseconds)).map(|_| ())
    }

    /// Kills the processes that outlived the commands that started them.
    pub(crate) fn kill_leftovers(&self) {
        self.own.end(None);
    }

    /// Runs a command to its end, with no input and its output appended to `log`.
    ///
    /// The environment is this process's own, without LD_PRELOAD and with a mark that
    /// identifies this benchmark.
    ///
    /// # Errors
    /// The command cannot be started or waited for; or an interrupt, after the command and its
    /// descendants were killed. A failure of the command itself is no error.
    pub(crate) fn run(
        &self,
        command: &[impl AsRef<str>],
        log: &Path,
    ) -> Result<CommandOutcome, Error> {
        self.run_in(None, command, log, None)
    }

    /// Like [`Launcher::run`]; returns the standard output, too.
    pub(crate) fn output(
        &self,
        command: &[impl AsRef<str>],
        log: &Path,
    ) -> Result<(CommandOutcome, String), Error> {
        let out = log.with_extension("out");
        let outcome = self.run_in(None, command, log, Some(&out))?;
        Ok((outcome, files::read(&out)?))
    }

    /// Like [`Launcher::run`], in the directory `dir`; if `stdout` is given, it receives the
    /// standard output.
    pub(crate) fn run_in(
        &self,
        dir: Option<&Path>,
        command: &[impl AsRef<str>],
        log: &Path,
        stdout: Option<&Path>,
    ) -> Result<CommandOutcome, Error> {
        self.watch.check()?;
        let (program, mut prepared) = self.prepare(command, log, stdout)?;
        if let Some(dir) = dir {
            prepared.current_dir(dir);
        }
        let before = times_of_children()?;
        let start = Instant::now();
        let mut child = prepared.spawn().map_err(Error::io("run", &program))?;
        let status = self.wait(&mut child, &program)?;
        let wall = start.elapsed();
        let after = times_of_children()?;
        let [user, system] = [0, 1].map(|kind| after[kind].saturating_sub(before[kind]));
        Ok(CommandOutcome { wall, user, system, status })
    }

    /// Starts a daemon in the same environment, with its output appended to `log`.
    ///
    /// # Errors
    /// The daemon cannot be started, or an interrupt.
    pub(crate) fn start(&self, command: &[impl AsRef<str>], log: &Path) -> Result<Child, Error> {
        self.watch.check()?;
        let (program, mut prepared) = self.prepare(command, log, None)?;
        prepared.spawn().map_err(Error::io("run", &program))
    }

    /// Runs a command that makes or clears the fixture; its failure is an error with the
    /// `purpose`: "unpack the base".
    pub(crate) fn run_helper(
        &self,
        purpose: &str,
        command: &[impl AsRef<str>],
    ) -> Result<(), Error> {
        self.run_helper_in(None, purpose, command)
    }

    /// Like [`Launcher::run_helper`], in the directory `dir`.
    pub(crate) fn run_helper_in(
        &self,
        dir: Option<&Path>,
        purpose: &str,
        command: &[impl AsRef<str>],
    ) -> Result<(), Error> {
        let log = self.log(&purpose.replace([' ', '/'], "-"));
        let outcome = self.run_in(dir, command, &log, None)?;
        if outcome.status.success() {
            return Ok(());
        }
        let failure = CommandFailure::new(command, outcome.status.to_string(), &log);
        Err(Error::Helper { purpose: purpose.to_owned(), failure })
    }

    /// Returns the program's name, and the command ready to be started.
    fn prepare(
        &self,
        command: &[impl AsRef<str>],
        log: &Path,
        stdout: Option<&Path>,
    ) -> Result<(String, Command), Error> {
        let appended = OpenOptions::new().create(true).append(true).open(log);
        let appended = appended.map_err(Error::io("open", log))?;
        let standard = match stdout {
            Some(path) => File::create(path).map_err(Error::io("create", path))?,
            None => appended.try_clone().map_err(Error::io("duplicate the descriptor of", log))?,
        };
        let mut words = command.iter().map(AsRef::as_ref);
        let program = words.next().unwrap_or_default().to_owned();
        let mut prepared = Command::new(&program);
        prepared
            .args(words)
            .env_remove("LD_PRELOAD")
            .env(MARK, self.logs.path())
            .stdin(Stdio::null())
            .stdout(standard)
            .stderr(appended);
        Ok((program, prepared))
    }

    fn wait(&self, child: &mut Child, program: &str) -> Result<ExitStatus, Error> {
        let pid = Pid::from_child(child);
        let ended = pidfd_open(pid, PidfdFlags::empty())
            .map_err(Error::io("watch", program))
            .and_then(|pidfd| self.watch.wait(Some(pidfd.as_fd()), None));
        if ended.is_err() {
            self.own.end(Some(pid));
        }
        let status = child.wait().map_err(Error::io("wait for", program))?;
        ended?;
        if !status.success() {
            // A Ctrl-C also reaches the command, whose end may be noticed first.
            self.watch.wait(None, Some(50))?;
        }
        Ok(status)
    }
}

fn times_of_children() -> Result<[Duration; 2], Error> {
    process::times_of_children().map_err(Error::io("read the usage of", "child processes"))
}
