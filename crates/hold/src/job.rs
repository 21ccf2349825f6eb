//! Stopping with the command, and going on with it.

use crate::process_tree::{self, Job};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::os::fd::OwnedFd;
use std::time::Duration;
use synconce_sys::signals;

/// The command `pid` was stopped by `signal`: so are we, for the shell to see,
/// until the shell has us go on. Not if the command goes on already: then the
/// stop reached the whole job, us among it.
///
/// A command may be a process group of its own (an interactive shell that
/// suspends itself): the shell hands the terminal to ours, and we hand it on.
/// Needs SIGTTOU blocked. Says whether we were stopped.
pub(crate) fn stop_with(pid: u32, signal: i32) -> bool {
    if !is_stopped(pid, LOOKS_AT_STOP) {
        return false;
    }
    let own_group = own_group(pid);
    let terminal = terminal().filter(|terminal| tcgetpgrp(terminal).ok() == own_group);
    signals::stop_by(signal);
    if let Some(terminal) = terminal
        && let Some(group) = own_group
        && tcgetpgrp(&terminal) == Ok(getpgrp())
    {
        // Where it fails the command's next read says so.
        let _ = tcsetpgrp(&terminal, group);
    }
    go_on(pid);
    true
}

/// Whether `pid` is stopped, or will be within `looks` more of one that runs: a
/// thread that its tracer has let go has its way into the stop before it. One that
/// the supervisor traces is waited for.
fn is_stopped(pid: u32, mut looks: u32) -> bool {
    for _ in 0..TRACED_LOOKS {
        match process_tree::job(pid) {
            Job::Stopped => return true,
            Job::GoesOn => return false,
            Job::Runs if looks == 0 => return false,
            Job::Runs => looks -= 1,
            Job::Traced => {}
        }
        std::thread::sleep(MOMENT);
    }
    false
}

/// Of one that the supervisor has seen to stop.
const LOOKS_AT_STOP: u32 = 20;
/// Of one that may go on already: a stop that comes meanwhile would be undone.
const LOOKS_AT_CONTINUATION: u32 = 2;
const TRACED_LOOKS: u32 = 100;
const MOMENT: Duration = Duration::from_millis(1);

/// Continues the command `pid`, unless it goes on already: a shell continues
/// the whole job, and a second signal would be one too many.
pub(crate) fn go_on(pid: u32) {
    if !is_stopped(pid, LOOKS_AT_CONTINUATION) {
        return;
    }
    // An error means that there is nobody left to continue.
    match own_group(pid) {
        Some(group) => drop(kill_process_group(group, Signal::CONT)),
        None => drop(signals::send(pid, Signal::CONT.as_raw())),
    }
}

/// The process group of `pid`, when it is not ours.
fn own_group(pid: u32) -> Option<Pid> {
    let group = getpgid(Pid::from_raw(pid.cast_signed())).ok()?;
    (group != getpgrp()).then_some(group)
}

fn terminal() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()
}
