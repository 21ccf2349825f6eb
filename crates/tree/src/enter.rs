//! Into a tree: a command in a root that is furnished as a chroot builder expects.
//!
//! - `/proc` is that of a new pid namespace: when the command ends, so does everything
//!   that it has left, and nothing writes any more.
//! - `/sys` is the host's, read-only.
//! - `/dev` is in memory: null, zero, full, random, urandom, tty, and for root console;
//!   pts of its own with ptmx, shm, and the links to `/proc/self/fd`. What the tree
//!   itself has in `/dev` is not seen, and stays as it is.
//! - `/etc/resolv.conf` is the host's, read-only, mounted over the tree's own. Where
//!   there is none, or a link that leads nowhere, a file is there while the command
//!   runs (where the link leads), and is gone afterwards.
//! - `/run` and `/tmp` are the tree's own, as in a chroot: what is left there is kept.
//! - Directories and files that had to be made to mount on are removed when the command
//!   has ended, and the times of the directory that they were in put back. Only in
//!   what was mounted by a bind they stay.
//! - System V IPC is of its own, and goes with the command. Network, host name and
//!   users are the host's.
//!
//! The processes: the caller waits and passes signals on; its child is the init of the
//! pid namespace, which reaps; the command is that one's child, in the caller's process
//! group, so that it has the terminal as any other job has.

mod environment;
mod furnish;
mod init;
mod places;
mod report;
mod user;

pub use self::environment::Environment;

use self::places::{Kind, Places};
use self::report::{Report, Reports, Teller};
use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_sys::process::{Side, WaitFor, Whose, exit_now, fork, wait};
use synconce_sys::signals::{self, Reader, Set};

/// What to execute, where, and as whom. As JSON it holds any path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnterSpec {
    /// The root: a directory, mounted or not.
    pub root: OsString,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// A user of the tree by name or number, with `:` and a group; root unless said. A
    /// number that the tree's `/etc/passwd` does not have is the group's number too.
    #[serde(default)]
    pub user: Option<String>,
    /// What of the host is seen inside, in the order in which it is mounted.
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// Where the command works, inside; `/` unless said.
    #[serde(default)]
    pub directory: Option<OsString>,
    /// What of our environment it gets.
    #[serde(default)]
    pub environment: Environment,
}

/// A directory or file of the host in the tree, with all that is mounted below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Its path outside.
    pub source: OsString,
    /// Its path inside.
    pub target: OsString,
    /// Whether nothing is written to it.
    #[serde(default)]
    pub read_only: bool,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It was never started: no such program (`ENOENT`: exit code 127), or one that
    /// cannot be executed (126).
    NotExecuted {
        /// Its name.
        command: String,
        /// Why.
        errno: i32,
    },
}

/// Signals that are for the command, not for us. Those of the terminal reach it in
/// any case, being for the whole process group.
const PASSED_ON: [i32; 9] = [
    Signal::HUP.as_raw(),
    Signal::INT.as_raw(),
    Signal::QUIT.as_raw(),
    Signal::USR1.as_raw(),
    Signal::USR2.as_raw(),
    Signal::TERM.as_raw(),
    Signal::TSTP.as_raw(),
    Signal::TTIN.as_raw(),
    Signal::TTOU.as_raw(),
];

/// Executes the command of `spec` in its root, and waits for its end. The calling
/// process must have one thread, `CAP_SYS_ADMIN`, and nothing else to do but to end as
/// the command did: its mounts, its children's pid namespace and its signal mask are
/// changed for good. It is killed when its parent ends, and all inside with it.
///
/// # Errors
/// Something could not be mounted or made, the user is unknown: the command was not
/// started.
pub fn enter(spec: &EnterSpec) -> Result<Ending, Error> {
    let root = Path::new(&spec.root);
    set_parent_process_death_signal(Some(Signal::KILL)).on("cannot follow the parent of", root)?;
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    unshare(flags).on("cannot make namespaces for", root)?;
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", private).on("cannot make mounts private below", Path::new("/"))?;
    let mut places = Places::of(root)?;
    for (path, kind) in wanted_places(spec)? {
        places.make(&path, kind)?;
    }
    let before = Set::of(&PASSED_ON).block();
    // The signals stay blocked: one that was meant for the command must not end us now.
    let ending = attended(spec, before).on("cannot run a command in", root)?;
    // Everything inside is dead.
    drop(places);
    ending.map_err(|why| Error::new("cannot enter", root, io::Error::other(why)))
}

/// What is mounted on, as far as it is in the tree itself.
fn wanted_places(spec: &EnterSpec) -> Result<Vec<(PathBuf, Kind)>, Error> {
    let mut wanted: Vec<(PathBuf, Kind)> =
        ["/proc", "/sys", "/dev"].map(|path| (path.into(), Kind::Directory)).into();
    if furnish::has_resolver() {
        wanted.push((furnish::RESOLVER.into(), Kind::File));
    }
    for bind in &spec.binds {
        let target = Path::new(&bind.target);
        // Those below /dev and the like are made there.
        if !["/proc", "/sys", "/dev"].iter().any(|mounted| target.starts_with(mounted)) {
            wanted.push((target.to_owned(), Kind::of(Path::new(&bind.source))?));
        }
    }
    Ok(wanted)
}

/// Starts the init and looks after it; the inner error is what it says.
fn attended(spec: &EnterSpec, before: Set) -> io::Result<Result<Ending, String>> {
    let reader = Reader::new(&Set::of(&PASSED_ON))?;
    let (reports, telling) = io::pipe()?;
    let (life, alive) = io::pipe()?;
    match fork()? {
        Side::Child => {
            drop((reports, alive, reader));
            init::run(spec, before, &Teller::of(telling), &life);
            exit_now(0)
        }
        Side::Parent(pid) => {
            drop((telling, life));
            let ending = attend(pid, reports, &reader)?;
            wait(Whose::Id(pid), WaitFor { ends: true, block: true, ..WaitFor::default() })?;
            drop(alive);
            Ok(ending)
        }
    }
}

/// Passes signals on until the init has said how the command ended, and is gone.
fn attend(pid: u32, reports: PipeReader, signals: &Reader) -> io::Result<Result<Ending, String>> {
    let mut reports = Reports::of(reports);
    let mut ending = None;
    loop {
        let mut fds =
            [PollFd::new(reports.descriptor(), PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        if !reports.has_more() {
            rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        }
        let heard = reports.has_more() || !fds[0].revents().is_empty();
        while let Some(received) = signals.next() {
            if received.by_process {
                signals::send(pid, received.signal);
            }
        }
        match heard.then(|| reports.next()).transpose()? {
            None => {}
            Some(None) => {
                // The init of the pid namespace was killed, and with it the command: it did
                // not end by itself, and what it did is half of something.
                let killed = || Ok(Ending::Killed(Signal::KILL.as_raw()));
                return Ok(ending.unwrap_or_else(killed));
            }
            Some(Some(Report::Stopped(signal))) => {
                signals::stop_by(signal);
                signals::send(pid, Signal::CONT.as_raw());
            }
            // What comes first is the cause of what comes then.
            Some(Some(report)) => ending = ending.or_else(|| Some(report.into_ending())),
        }
    }
}
