//! Child processes that may hang.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks at a child that runs.
pub const POLL: Duration = Duration::from_millis(20);
/// The time that a child has to clean up after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// A child that is killed when its value is dropped.
#[derive(Debug)]
pub struct RunningChild(pub Child);

impl Drop for RunningChild {
    fn drop(&mut self) {
        // Fails if the child has ended, which is meant.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the exit status and the output of `command`. A child that does not end in the time
/// `patience`, or before `is_cancelled`, gets SIGTERM, and 5 seconds later SIGKILL.
///
/// # Errors
/// The program cannot be started; it did not end in time (`TimedOut`); `is_cancelled`
/// (`Interrupted`).
pub fn output_within(
    command: &mut Command,
    patience: Duration,
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<Output> {
    // A file, because a pipe is full after 64 KiB, and its end waits for children of the program.
    let file = || memfd_create("synconce", MemfdFlags::CLOEXEC).map(File::from);
    let (output, errors) = (file()?, file()?);
    command.stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let mut running = RunningChild(command.spawn()?);
    let why = match wait(&mut running.0, patience, is_cancelled)? {
        Some(status) => {
            return Ok(Output { status, stdout: whole(output)?, stderr: whole(errors)? });
        }
        None if is_cancelled() => interrupted(),
        None => {
            let why = format!("no answer within {} s", patience.as_secs_f64());
            io::Error::new(ErrorKind::TimedOut, why)
        }
    };
    kill_process(Pid::from_child(&running.0), Signal::TERM)?;
    wait(&mut running.0, GRACE, &|| false)?;
    Err(why)
}

/// Returns the error of work that a signal has cancelled.
#[must_use]
pub fn interrupted() -> io::Error {
    io::Error::new(ErrorKind::Interrupted, "interrupted by a signal")
}

/// Waits until `child` ends. Returns `None` if it still runs after `patience`, or if
/// `is_cancelled`.
fn wait(
    child: &mut Child,
    patience: Duration,
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || is_cancelled() || Instant::now() >= deadline {
            return Ok(ended);
        }
        thread::sleep(POLL);
    }
}

/// Returns a file in memory with `bytes`, for the standard input of a child.
///
/// # Errors
/// Those of memfd_create(2) and write(2).
pub fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("synconce", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn whole(mut file: File) -> io::Result<Vec<u8>> {
    // The program has moved the offset, which is shared.
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_cancelled_can_clean_up() {
        let directory = tempfile::tempdir().unwrap();
        let [ready, cleaned] = ["ready", "cleaned"].map(|name| directory.path().join(name));
        let script = "trap 'touch cleaned; exit 0' TERM; touch ready; while :; do sleep 0.01; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(directory.path());
        let cancelled = output_within(&mut command, Duration::from_secs(60), &|| ready.exists());
        assert_eq!(cancelled.unwrap_err().to_string(), "interrupted by a signal");
        assert!(cleaned.exists());
    }
}
