//! Clients of engines, by which probe containers are run.

use super::program::REAL;
use super::requests::PATIENCE;
use crate::host::Host;
use crate::running::process::DaemonProcess;
use rustix::process::Signal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use synconce_durable::error::Context;
use synconce_sys::child::{interrupted, output_within};

/// The directories in which clients are installed.
const DIRECTORIES: [&str; 2] = ["/usr/local/bin", "/usr/bin"];

/// The words by which the messages of runtimes begin.
const RUNTIMES: [&str; 3] = ["crun", "runc", "synconce-oci"];

/// Finds the client `name` beside the program of `process`, or where it is installed.
///
/// # Errors
/// A note that it is missing.
pub(crate) fn find(host: &Host, process: &DaemonProcess, name: &str) -> Result<PathBuf, String> {
    let beside = process.program().and_then(|program| Some(program.parent()?.to_owned()));
    let directories = beside.into_iter().chain(DIRECTORIES.map(PathBuf::from));
    let mut paths = directories.map(|directory| directory.join(name));
    let found = paths.find(|path| host.is_executable(path));
    found.ok_or_else(|| format!("no probe container was run: {name} is not installed"))
}

/// Runs the client `command`, which has no input, to its end. A signal from the terminal does not
/// reach the client: the removal after the signal needs clients, too.
///
/// # Errors
/// The client cannot be executed or does not end in time; a signal has ended it, or `is_cancelled`.
pub(crate) fn run(
    command: &mut Command,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Output, String> {
    run_with(command.stdin(Stdio::null()), is_cancelled)
}

/// Does what [`run`] does, for a client with an input.
pub(crate) fn run_with(
    command: &mut Command,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Output, String> {
    let ended = output_within(command.process_group(0), PATIENCE, is_cancelled);
    // One of the terminal also ends a client that has just started, and is not in its own group
    // yet.
    let of_terminal = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| Some(signal.as_raw()));
    let ended = ended.and_then(|ended| {
        if of_terminal.contains(&ended.status.signal()) { Err(interrupted()) } else { Ok(ended) }
    });
    let ended = ended.on("cannot execute", Path::new(command.get_program()));
    ended.map_err(|error| error.to_string())
}

/// Returns the output of a client that has to succeed; `what` is what it does.
pub(crate) fn succeed(ended: Output, what: &str) -> Result<String, String> {
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    Err(failed(&ended, what))
}

/// Returns whether a container was held. The client passes the exit code of the container's program
/// on.
///
/// # Errors
/// The container did not run.
pub(crate) fn is_held(ended: &Output, what: &str) -> Result<bool, String> {
    let said = String::from_utf8_lossy(&ended.stderr);
    // Podman's and BuildKit's words for a step.
    let is_real = |said: &str| {
        ["exit status", "exit code:"].iter().any(|words| said.ends_with(&format!("{words} {REAL}")))
    };
    match ended.status.code().map(i64::from) {
        Some(0) => Ok(true),
        Some(REAL) => Ok(false),
        _ if is_real(said.trim_end()) => Ok(false),
        _ => Err(failed(ended, what)),
    }
}

fn failed(ended: &Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&ended.stderr);
    let Some(last) = said.lines().rfind(|line| !line.trim().is_empty()) else {
        return format!("{what} fails: {}", ended.status);
    };
    // Podman and Buildah print the runtime's reason before an error that does not have it.
    let is_reason = |line: &&str| {
        RUNTIMES
            .iter()
            .any(|name| line.strip_prefix(name).is_some_and(|it| it.starts_with([':', ' '])))
    };
    let reason = said.lines().rev().find(is_reason).filter(|reason| *reason != last);
    let reason = reason.map(|reason| format!("{reason}; "));
    format!("{what} fails: {}{last}", reason.unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a client that is the shell `script`. A shell writes it: while this process has a file
    /// open to write, another test can start a child that has it open, too (ETXTBSY).
    pub(crate) fn fake(directory: &Path, script: &str) -> PathBuf {
        let path = directory.join("client");
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\"; chmod 755 \"$2\"",
            "sh",
            script,
        ]);
        assert!(shell.arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn a_signal_ends_the_wait_for_a_client() {
        let ended = run(Command::new("sleep").arg("60"), &|| true).unwrap_err();
        assert_eq!(ended, "cannot execute sleep: interrupted by a signal");
        // A signal that is ignored when a shell starts stays ignored.
        let script = ["--default-signal=INT", "sh", "-c", "kill -INT $$"];
        let ended = run(Command::new("env").args(script), &|| false).unwrap_err();
        assert_eq!(ended, "cannot execute env: interrupted by a signal");
    }

    #[test]
    fn a_client_passes_the_error_of_the_program_on() {
        let ended = |script: &str| {
            let ended = run(Command::new("sh").args(["-c", script]), &|| false).unwrap();
            is_held(&ended, "x build")
        };
        assert_eq!(ended("exit 0"), Ok(true));
        assert_eq!(ended("exit 9"), Ok(false));
        assert_eq!(ended("echo 'a step: exit status 9' >&2; exit 1"), Ok(false));
        assert_eq!(ended("echo 'not complete: exit code: 9' >&2; exit 1"), Ok(false));
        let other = ended("echo one >&2; echo two >&2; exit 1");
        assert_eq!(other, Err("x build fails: two".to_owned()));
        // What Podman and Buildah print of their runtime.
        let runtime = ended(
            "echo step; echo 'crun: no cgroups' >&2; echo 'Error: exit status 1' >&2; exit 1",
        );
        let said = "x build fails: crun: no cgroups; Error: exit status 1";
        assert_eq!(runtime, Err(said.to_owned()));
        let own = ended("echo 'crun: no cgroups' >&2; exit 1");
        assert_eq!(own, Err("x build fails: crun: no cgroups".to_owned()));
        // An empty line at the end; no word at all.
        let empty = ended("printf 'one\n\n' >&2; exit 1");
        assert_eq!(empty, Err("x build fails: one".to_owned()));
        let silent = ended("echo step; exit 125");
        assert_eq!(silent, Err("x build fails: exit status: 125".to_owned()));
        let killed = ended("kill -KILL $$");
        assert_eq!(killed, Err("x build fails: signal: 9 (SIGKILL)".to_owned()));
    }
}
