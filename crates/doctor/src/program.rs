//! Programs that doctor starts, which may hang.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;
use synconce_sys::child::output_within;
pub(crate) use synconce_sys::child::{POLL, RunningChild};

/// The time that a program has to answer. `podman info` takes seconds on a busy disk.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let ended = output_within(command, patience, &|| false)?;
    if !ended.status.success() {
        let text = String::from_utf8_lossy(&ended.stderr);
        let last = text.lines().next_back().unwrap_or("it fails without a message");
        return Err(io::Error::other(last.to_owned()));
    }
    Ok(ended.stdout)
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
