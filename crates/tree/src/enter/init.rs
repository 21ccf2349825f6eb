//! The first process of the pid namespace: mounts the root, starts the command, reaps, and
//! exits when the command has ended. The kernel then kills all processes inside.

use super::report::{ChildReport, Teller};
use super::terminal::Devpts;
use super::user::{self, User};
use super::{EnterSpec, Personality, environment, furnish};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fchown};
use rustix::io::Errno;
use rustix::process::{
    Gid, Pid, Signal, Uid, chdir, getpid, kill_process_group, set_parent_process_death_signal,
    setpgid,
};
use rustix::termios::tcsetpgrp;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::{env, fs};
use synconce_durable::error::{Context, Error};
use synconce_sys::launch::{Executed, execute_in_place};
use synconce_sys::namespace::{UnshareFlags, unshare};
use synconce_sys::process::{
    ChildChange, FAILED, Side, WaitFor, Whose, emulate_32_bit, exit_now, fork, give_up_inherited,
    wait,
};
use synconce_sys::reason;
use synconce_sys::search;
use synconce_sys::signals::{self, SignalReader, SignalSet};

/// The most bytes that are read of a list of accounts.
const LONGEST: u64 = 64 << 20;

/// Runs the command and reports the outcome to `outside`. `life` is closed when the process
/// outside ends.
pub(super) fn run(
    spec: &EnterSpec,
    before: SignalSet,
    devpts: Devpts,
    (outside, life): (&Teller, &PipeReader),
) {
    if let Err(report) = try_run(spec, before, devpts, (outside, life)) {
        outside.tell(&report);
    }
}

fn try_run(
    spec: &EnterSpec,
    before: SignalSet,
    devpts: Devpts,
    (outside, life): (&Teller, &PipeReader),
) -> Result<(), ChildReport> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    if has_ended(life) {
        return Ok(());
    }
    // The process outside does not see these mounts, so that it can remove the mount points
    // afterwards.
    unshare(UnshareFlags::NEWNS).map_err(failed)?;
    let root = furnish::furnish(spec, &devpts).map_err(refused)?;
    furnish::change_root(root.as_fd()).map_err(refused)?;
    let [passwd, group] = ["/etc/passwd", "/etc/group"].map(read_accounts);
    let user = user::find(spec.user.as_deref(), &passwd, &group);
    let user = user.map_err(|why| {
        let words = spec.user.as_deref().unwrap_or_default();
        ChildReport::Refused(format!("cannot use --user {words}: {why}"))
    })?;
    let has_terminal = devpts.has_terminal();
    devpts.take().map_err(failed)?;
    let mut watched = signals::passed_on();
    watched.push(Signal::CHILD.as_raw());
    let set = SignalSet::from_numbers(&watched);
    set.block();
    let reader = SignalReader::new(&set).map_err(failed)?;
    match fork().map_err(failed)? {
        Side::Child => {
            drop(reader);
            if has_terminal && let Err(error) = take_the_foreground(&user) {
                outside.tell(&failed(error));
                exit_now(FAILED);
            }
            let code = become_command(spec, &user, before, outside);
            exit_now(code)
        }
        Side::Parent(pid) => {
            if !has_terminal {
                give_up_inherited(None);
            }
            let group = if has_terminal { Some(pid) } else { None };
            attend(pid, group, &reader, outside).map_err(failed)?;
        }
    }
    if has_terminal {
        // The terminal is hung up when this process ends; what it holds is shown before.
        let mut fds = [PollFd::new(life, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None)).map_err(failed)?;
    }
    Ok(())
}

/// Returns the text of `path`, a list of accounts of the tree; empty if there is no such file. The
/// tree's author may have put a FIFO, a device or a link to a file of /proc there, which never
/// ends.
fn read_accounts(path: &str) -> String {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut text = Vec::new();
    if fs::metadata(path).is_ok_and(|there| there.is_file())
        && let Ok(file) = fs::File::options().read(true).custom_flags(flags).open(path)
    {
        let _ = file.take(LONGEST).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Makes this process a job of its own in the foreground of the terminal, which is the user's.
fn take_the_foreground(user: &User) -> rustix::io::Result<()> {
    setpgid(None, None)?;
    // SIGTTOU is blocked.
    tcsetpgrp(io::stdin(), getpid())?;
    fchown(io::stdin(), Some(Uid::from_raw(user.uid)), None)
}

/// Returns whether the process at the other end of the pipe has ended.
fn has_ended(life: &PipeReader) -> bool {
    !poll_at_once(life, PollFlags::IN).is_empty()
}

/// Returns whether the terminal was hung up.
fn is_hung_up() -> bool {
    poll_at_once(io::stdin(), PollFlags::empty()).contains(PollFlags::HUP)
}

fn poll_at_once(fd: impl AsFd, wanted: PollFlags) -> PollFlags {
    let mut fds = [PollFd::new(&fd, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut fds, Some(&at_once));
    polled.map_or(PollFlags::empty(), |_| fds[0].revents())
}

/// Reaps until the command has ended. `group` is the process group of the command, if the command
/// has one of its own.
fn attend(
    command: u32,
    group: Option<u32>,
    signals: &SignalReader,
    outside: &Teller,
) -> io::Result<()> {
    let group = group.and_then(|group| Pid::from_raw(group.cast_signed()));
    loop {
        let mut fds = [PollFd::new(signals, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        while let Some(received) = signals.next() {
            // Signals from outside the pid namespace have sender 0. The terminal's signals are
            // skipped: they reach the command anyway.
            let from_outside = received.by_process && received.sender == 0;
            // The kernel sends the SIGHUP of a hang-up to this process alone, which leads the
            // session of the terminal. A SIGHUP from outside may be pending then, and stands for
            // both.
            let is_hang_up =
                group.is_some() && received.signal == Signal::HUP.as_raw() && is_hung_up();
            let is_meant = from_outside || is_hang_up;
            if !is_meant || received.signal == Signal::CHILD.as_raw() {
                continue;
            }
            let job = group.zip(Signal::from_named_raw(received.signal));
            match job.filter(|(_, signal)| is_hang_up || *signal == Signal::CONT) {
                // A job is one process group. A key that stops the command stops its whole job, so
                // SIGCONT goes to the whole job. A shell sends the SIGHUP of a hang-up to the whole
                // job, too.
                Some((group, signal)) => drop(kill_process_group(group, signal)),
                None => drop(signals::send(command, received.signal)),
            }
        }
        while let Some((pid, change)) = wait(Whose::Any, ANY_CHANGE)? {
            let report = match change {
                _ if pid != command => continue,
                ChildChange::Exited(code) => ChildReport::Exited(code),
                ChildChange::Killed(signal) => ChildReport::Killed(signal),
                ChildChange::Stopped(signal) => ChildReport::Stopped(signal),
                ChildChange::Continued | ChildChange::Trapped(_) => continue,
            };
            let goes_on = matches!(report, ChildReport::Stopped(_));
            outside.tell(&report);
            if !goes_on {
                return Ok(());
            }
        }
    }
}

const ANY_CHANGE: WaitFor = WaitFor {
    ends: true,
    stops: true,
    continues: false,
    peek: false,
    block: false,
    tracees: false,
};

fn failed(error: impl Into<io::Error>) -> ChildReport {
    ChildReport::Failed(reason(&error.into()))
}

fn refused(error: Error) -> ChildReport {
    ChildReport::Refused(error.to_string())
}

/// Executes the command. On failure returns an exit code.
fn become_command(spec: &EnterSpec, user: &User, before: SignalSet, outside: &Teller) -> i32 {
    let directory = spec.directory.as_deref().unwrap_or(OsStr::new("/"));
    let emulated = match spec.personality {
        Personality::Linux => Ok(()),
        Personality::Linux32 => {
            emulate_32_bit().on("cannot run, as 32-bit code,", directory.as_ref())
        }
    };
    let prepared = emulated.and_then(|()| become_user(user, &spec.user)).and_then(|()| {
        chdir(directory).on("cannot change to the directory of the tree", Path::new(directory))
    });
    if let Err(error) = prepared {
        outside.tell(&refused(error));
        return FAILED;
    }
    let environment = environment::made(env::vars_os(), user, directory);
    before.set();
    let error = match command(&spec.command, &environment) {
        Ok(command) => execute_in_place(&command),
        Err(error) => error,
    };
    let name = spec.command.first().map_or_else(Default::default, |name| name.to_string_lossy());
    outside.tell(&ChildReport::NotExecuted {
        command: name.into_owned(),
        errno: error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()),
    });
    FAILED
}

fn become_user(user: &User, words: &Option<String>) -> Result<(), Error> {
    let become_it = || {
        let groups: Vec<_> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        match set_thread_groups(&groups) {
            // In a user namespace that its owner made without privileges, all processes keep the
            // groups of their owner.
            Err(Errno::PERM) if groups_stay() => {}
            set => set?,
        }
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)
    };
    become_it().on("cannot become the user", Path::new(words.as_deref().unwrap_or("root")))
}

/// Returns whether setgroups(2) is denied in this user namespace (user_namespaces(7)).
fn groups_stay() -> bool {
    fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "deny")
}

/// Returns what to execute for `words`, searching PATH like execvp(3).
fn command(words: &[OsString], environment: &[(OsString, OsString)]) -> io::Result<Executed> {
    let name = words.first().ok_or(io::ErrorKind::InvalidInput)?;
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, value)| value.as_os_str());
    let candidates = search::candidates(name, path).map(OsString::from).collect();
    let c_strings = |list: Vec<OsString>| {
        list.into_iter().map(|word| CString::new(word.into_vec())).collect::<Result<Vec<_>, _>>()
    };
    let variables = environment.iter().map(|(name, value)| {
        [name.as_os_str(), OsStr::new("="), value].into_iter().collect::<OsString>()
    });
    Ok(Executed {
        candidates: c_strings(candidates)?,
        arguments: c_strings(words.to_vec())?,
        environment: c_strings(variables.collect())?,
    })
}
