//! Programs that doctor starts, which may hang.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a program has to answer. `podman info` takes seconds on a busy disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at a program that runs.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// A child that is killed when its value is dropped.
pub(crate) struct RunningChild(pub(crate) Child);

impl Drop for RunningChild {
    fn drop(&mut self) {
        // Fails if the child has ended, which is meant.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the standard output of `command`.
///
/// # Errors
/// The program cannot be started, fails, or does not end within a minute. A failure is described
/// by the last line of the program's standard error.
pub(crate) fn stdout_of(command: &mut Command) -> io::Result<Vec<u8>> {
    stdout_for(command, Stdio::null())
}

/// Returns the standard output of `command`, whose standard input is `input`.
///
/// # Errors
/// See [`stdout_of`].
pub(crate) fn stdout_for(command: &mut Command, input: Stdio) -> io::Result<Vec<u8>> {
    stdout_within(command.stdin(input), PATIENCE)
}

/// Like [`stdout_of`], with another time to answer.
pub(crate) fn stdout_within(command: &mut Command, patience: Duration) -> io::Result<Vec<u8>> {
    // A file, because a pipe is full after 64 KiB, and its end waits for children of the program.
    let file = || memfd_create("synconce-doctor", MemfdFlags::CLOEXEC).map(File::from);
    let (output, errors) = (file()?, file()?);
    command.stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let mut running = RunningChild(command.spawn()?);
    let deadline = Instant::now() + patience;
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            let why = format!("no answer within {} s", patience.as_secs_f64());
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        thread::sleep(POLL);
    };
    if !status.success() {
        let text = String::from_utf8_lossy(&whole(errors)?).into_owned();
        let last = text.lines().next_back().unwrap_or("it fails without a message");
        return Err(io::Error::other(last.to_owned()));
    }
    whole(output)
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

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_fails_says_why() {
        let hung = stdout_within(&mut sh("exec sleep 30"), Duration::from_millis(20));
        assert_eq!(hung.unwrap_err().to_string(), "no answer within 0.02 s");
        // Its child keeps standard output open.
        let left = stdout_of(&mut sh("sleep 30 & echo $!")).unwrap();
        let child = String::from_utf8(left).unwrap();
        assert!(sh(&format!("kill {child}")).status().unwrap().success());
        let failed = stdout_of(&mut sh("echo first >&2; echo last >&2; exit 1"));
        assert_eq!(failed.unwrap_err().to_string(), "last");
        let mute = stdout_of(&mut sh("exit 1"));
        assert_eq!(mute.unwrap_err().to_string(), "it fails without a message");
    }
}
