//! Commands whose output is shown while they run, and kept.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long the output is awaited after the end of the command: a process that it has left
/// behind may keep the pipes open.
const AFTER_END: Duration = Duration::from_secs(2);

/// What a command printed, and whether its exit status was 0.
pub(crate) struct Ended {
    pub passed: bool,
    /// The lines of standard output and standard error, as they came.
    pub output: String,
}

/// Returns a command for `program` that ends with this process.
pub(crate) fn new(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// Runs `command` to its end and shows its output, on standard error.
pub(crate) fn run(command: &mut Command) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = command.get_program().display();
            return Ended { passed: false, output: format!("cannot run {program}: {error}\n") };
        }
    };
    let (to, lines) = channel();
    copy(child.stdout.take(), to.clone());
    copy(child.stderr.take(), to);
    let ended = std::thread::spawn(move || child.wait());
    let mut output = String::new();
    while !ended.is_finished() && receive(&lines, Duration::from_millis(100), &mut output) {}
    let passed = ended.join().is_ok_and(|status| status.is_ok_and(|status| status.success()));
    while receive(&lines, AFTER_END, &mut output) {}
    Ended { passed, output }
}

/// Waits for a line until `limit`; returns whether more may come.
fn receive(lines: &Receiver<String>, limit: Duration, output: &mut String) -> bool {
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
    match lines.recv_timeout(limit) {
        Ok(line) => {
            eprintln!("{line}");
            output.push_str(&line);
            output.push('\n');
            true
        }
        Err(Timeout) => limit < AFTER_END,
        Err(Disconnected) => false,
    }
}

/// Sends the lines of `from` to `to`, on a thread of its own.
fn copy(from: Option<impl Read + Send + 'static>, to: Sender<String>) {
    std::thread::spawn(move || {
        let lines = from.into_iter().flat_map(|from| BufReader::new(from).split(b'\n'));
        for line in lines.map_while(Result::ok) {
            if to.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_a_command_leaves_behind_is_not_awaited() {
        let mut shell = new("sh");
        let ended = run(shell.args(["-c", "echo first; echo second >&2; sleep 600 & exit 3"]));
        assert!(!ended.passed);
        let mut lines: Vec<_> = ended.output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["first", "second"]);
    }
}
