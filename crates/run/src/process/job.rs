//! Stopping together with the command, and continuing it.

use crate::process::process_tree::{self, JobState};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::os::fd::OwnedFd;
use std::time::Duration;
use synconce_sys::{process, signals};

/// Stops this process by `signal`, which stopped the command `pid`, until the shell continues it.
/// Does not stop if the command has been continued already: then the stop reached the whole job,
/// including this process. The leader of a session without a terminal does not stop either. Its
/// terminal may have been closed: then the hang-up has already sent SIGCONT, and nothing sends it
/// again (`tty_signal_session_leader`, drivers/tty/tty_jobctrl.c, takes the terminal away first).
/// Returns whether this process was stopped.
///
/// A command may be in a process group of its own (an interactive shell that suspends itself).
/// The shell gives the terminal to this process's group, and this function passes the terminal
/// on to the command's group. Needs SIGTTOU blocked.
pub(crate) fn stop_with(pid: u32, signal: i32) -> bool {
    if !is_stopped(pid, POLLS_FOR_STOP) {
        return false;
    }
    let own_group = own_group(pid);
    let terminal = terminal();
    if terminal.is_none() && signals::leads_session() {
        return false;
    }
    let terminal = terminal.filter(|terminal| tcgetpgrp(terminal).ok() == own_group);
    signals::stop_by(signal);
    if let Some(terminal) = terminal
        && let Some(group) = own_group
        && process::is_in_foreground(&terminal)
    {
        // If this fails, the command's next read fails.
        let _ = tcsetpgrp(&terminal, group);
    }
    go_on(pid);
    true
}

/// Polls until `pid` is stopped, at most `polls` times while it runs: a just-detached thread
/// needs a moment to re-enter its stop. Waits up to `TRACED_POLLS` polls in total while the
/// supervisor traces the thread.
fn is_stopped(pid: u32, mut polls: u32) -> bool {
    for _ in 0..TRACED_POLLS {
        match process_tree::job(pid) {
            JobState::Stopped => return true,
            JobState::GoesOn => return false,
            JobState::Runs if polls == 0 => return false,
            JobState::Runs => polls -= 1,
            JobState::Traced => {}
        }
        std::thread::sleep(MOMENT);
    }
    false
}

/// For a process whose stop the supervisor has seen.
const POLLS_FOR_STOP: u32 = 20;
/// For a process that may have been continued already: continuing it would undo a later stop.
const POLLS_FOR_CONTINUATION: u32 = 2;
const TRACED_POLLS: u32 = 100;
const MOMENT: Duration = Duration::from_millis(1);

/// Passes a SIGCONT on to the command `pid`. A command that is not stopped gets the signal only
/// outside a shell's job: the command may wait for a process that has stopped while the command
/// itself has not.
pub(crate) fn pass_continuation(pid: u32) {
    if !go_on(pid) && !process::is_job_of_a_shell() {
        signals::send(pid, Signal::CONT.as_raw());
    }
}

/// Continues the command `pid`, unless it has been continued already: a shell continues the
/// whole job, and a second SIGCONT could undo a new stop. Returns whether `pid` was stopped.
fn go_on(pid: u32) -> bool {
    if !is_stopped(pid, POLLS_FOR_CONTINUATION) {
        return false;
    }
    // An error means that no process is left to continue.
    match own_group(pid) {
        Some(group) => drop(kill_process_group(group, Signal::CONT)),
        None => drop(signals::send(pid, Signal::CONT.as_raw())),
    }
    true
}

/// Returns the process group of `pid`, if it is not the group of this process.
fn own_group(pid: u32) -> Option<Pid> {
    let group = process::group_of(pid)?;
    (Some(group) != process::group_of(0)).then_some(group).and_then(Pid::from_raw)
}

fn terminal() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()
}
