//! A daemon that serves the commands of a benchmark.

use crate::launcher::Launcher;
use crate::{CommandFailure, Error};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use synconce_sys::process::FAILED;

/// How long a daemon may take to start answering or to exit.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A daemon; killed when dropped.
pub(crate) struct Daemon {
    name: &'static str,
    socket: &'static str,
    running: Option<Child>,
}

impl Daemon {
    /// Returns the daemon `name`, which will answer at `socket`. Starts no process.
    pub(crate) fn new(name: &'static str, socket: &'static str) -> Self {
        Self { name, socket, running: None }
    }

    /// Returns the pid of the running daemon, by its socket: under a hold the started process is
    /// the daemon's parent.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.running.as_ref()?;
        let socket = UnixStream::connect(self.socket).ok()?;
        socket_peercred(&socket).ok().map(|peer| peer.pid)
    }

    /// Starts the daemon by the command `words`, and waits until `answers` returns true.
    pub(crate) fn start(
        &mut self,
        words: &[String],
        launcher: &Launcher,
        mut answers: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let log = launcher.log(self.name);
        let child = self.running.insert(launcher.start(words, &log)?);
        let start = Instant::now();
        while !answers()? {
            launcher.check()?;
            let ended = child.try_wait().map_err(Error::io("wait for", self.name))?.is_some();
            if ended || start.elapsed() > TIMEOUT {
                let why = if ended { "it ended" } else { "it does not answer" };
                let failure = CommandFailure::new(words, why, &log);
                return Err(Error::Helper { purpose: format!("start {}", self.name), failure });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Terminates the daemon if it runs, and kills the processes that outlive the daemon. Returns
    /// an error if a hold could not be stopped.
    pub(crate) fn stop(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let Some(child) = &mut self.running else { return Ok(()) };
        let ended = terminate(child).map_err(Error::io("end", self.name));
        self.kill();
        launcher.kill_leftovers();
        let status = ended?;
        if status.code() != Some(FAILED) {
            return Ok(());
        }
        let failure =
            CommandFailure::new(&[self.name], status.to_string(), &launcher.log(self.name));
        Err(Error::Helper { purpose: format!("stop {}", self.name), failure })
    }

    /// Kills the daemon if it runs.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Terminates `child` and waits for its end; kills `child` after [`TIMEOUT`].
fn terminate(child: &mut Child) -> io::Result<ExitStatus> {
    let start = Instant::now();
    if child.try_wait()?.is_none() {
        kill_process(Pid::from_child(child), Signal::TERM)?;
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > TIMEOUT {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
