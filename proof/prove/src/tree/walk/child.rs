//! The hidden command `prove run-child`: runs a command, kills the command or one of its
//! processes, and returns only when no process of the command is left.

use super::super::kills::Trigger;
use crate::Result;
use rustix::process::{Pid, WaitOptions, set_child_subreaper, waitpid};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

/// Far longer than any verb takes here.
const LIMIT: Duration = Duration::from_secs(60);

/// Microseconds by which a command is delayed at each directory; there are some dozens.
const DELAY: u32 = 15_000;

/// Run a command, and kill it or slow it down
#[derive(Debug, clap::Args)]
pub(crate) struct RunChild {
    /// Kill the command or one of its processes; N seeds the choice
    #[arg(long, value_name = "N")]
    kill: Option<u64>,
    /// Delay each open of a directory by 15 ms
    #[arg(long, conflicts_with = "kill")]
    slow: bool,
    /// Choose the moment of the kill within MILLIS milliseconds
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    span: u64,
    /// Run this command with its arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// How the command ended; written as JSON to standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WalkReport {
    /// The pid of the command.
    pub pid: u32,
    /// The exit code, unless a signal ended the command.
    pub code: Option<i32>,
    /// How the command was killed, if a kill was requested and the command did not end with 0.
    pub killed: Option<String>,
    /// Which processes of the command still run at the time limit.
    pub still_running: Option<String>,
    pub stdout: String,
    pub stderr: String,
}

pub(crate) fn perform(arguments: &RunChild) -> Result<()> {
    // Orphans become children of this process, which reaps them.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let span = Duration::from_millis(arguments.span);
    let trigger = arguments.kill.map(|seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        Trigger::random(&mut random, span)
    });
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    if let Some(trigger) = &trigger {
        command = trigger.traced(command);
    } else if arguments.slow {
        command = slowed(&arguments.command);
    }
    let group = Group::spawn(&mut command)?;
    if let Some(trigger) = &trigger {
        trigger.fire(&group);
    }
    let ended = group.wait(patiently(LIMIT))?;
    let mut report = WalkReport {
        pid: group.pid(),
        code: ended.and_then(|status| status.code()),
        stdout: group.stdout()?,
        stderr: group.stderr()?,
        ..WalkReport::default()
    };
    if ended.is_none() {
        report.still_running = Some("the command itself".to_owned());
    }
    let trigger = trigger.filter(|trigger| trigger.took_effect(ended));
    report.killed = trigger.map(|trigger| format!("{trigger:?}"));
    if report.killed.is_some() {
        report.still_running = report.still_running.or_else(|| left_by(group.pid()));
    }
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn slowed(command: &[String]) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat2"]);
    traced.args(["-e", &format!("inject=openat2:delay_exit={DELAY}")]).args(command);
    traced
}

/// Waits until this process has no child but `command`; returns the children that are left at
/// the time limit.
fn left_by(command: u32) -> Option<String> {
    let own = std::process::id();
    let end = Instant::now() + patiently(LIMIT);
    loop {
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
        let left: Vec<Pid> =
            pids.filter(|pid| *pid as u32 != command).filter_map(Pid::from_raw).collect();
        if left.is_empty() {
            return None;
        }
        if Instant::now() > end {
            let words = |pid: &Pid| {
                let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
                std::fs::read_to_string(path).unwrap_or_default().replace('\0', " ")
            };
            return Some(left.iter().map(words).collect::<Vec<_>>().join("; "));
        }
        for pid in left {
            // A child that still runs is looked at again.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
