//! Private mount namespaces and, for ordinary users, user namespaces with all ids that the
//! user may map.

mod free;
mod ranges;

use self::free::Range;
pub use self::ranges::first_of_user;
use self::ranges::of_user;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{no_new_privs, set_thread_res_gid, set_thread_res_uid};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;
use synconce_durable::error::Error;
use synconce_sys::namespace::{UnshareFlags, unshare};
use synconce_sys::process::{Side, WaitFor, Whose, exit_now, fork, wait};
use synconce_sys::reason;

/// Why a namespace cannot be made.
#[derive(Debug)]
pub struct NamespaceRefusal {
    /// What failed.
    pub error: Error,
    /// What the user can do about the failure.
    pub remedy: Option<String>,
}

impl fmt::Display for NamespaceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NamespaceRefusal {}

impl NamespaceRefusal {
    fn new(act: &'static str, path: &str, cause: impl Into<io::Error>, remedy: &str) -> Self {
        let remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
        Self { error: Error::new(act, Path::new(path), cause), remedy }
    }
}

/// Moves the calling process, which must have one thread, to a mount namespace of its own.
/// Other processes do not see its mounts; unmounts elsewhere propagate to the new namespace.
/// An ordinary user becomes root of a user namespace in which 0 is the user, and 1 and up are
/// the user's ranges of `/etc/subuid` and `/etc/subgid`. Descriptors that were opened before
/// refer to the old mounts: see [`crate::overlay`].
///
/// # Errors
/// See [`NamespaceRefusal`]. The process may then be in a user namespace without ids, and should
/// end.
pub fn enter_private() -> Result<(), NamespaceRefusal> {
    if geteuid().is_root() {
        unshare(UnshareFlags::NEWNS).map_err(|errno| {
            let remedy = "it takes CAP_SYS_ADMIN; in a container, run that with --privileged";
            NamespaceRefusal::new(
                "cannot make a mount namespace in",
                "/proc/self/ns/mnt",
                errno,
                remedy,
            )
        })?;
    } else {
        enter_user_namespace()?;
    }
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|errno| {
        let remedy = match errno {
            Errno::INVAL => {
                "this is a chroot whose directory DIR is no mount point; outside of it: mount \
                 --rbind DIR DIR, then chroot DIR"
            }
            Errno::PERM => "a sandbox forbids mount(2); run it outside of the sandbox",
            _ => "",
        };
        NamespaceRefusal::new("cannot make mounts private below", "/", errno, remedy)
    })
}

fn enter_user_namespace() -> Result<(), NamespaceRefusal> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let [uids, gids] = of_user(uid)?;
    let mapper = Mapper::start(uid, &uids, gid, &gids)?;
    let unshared = unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS);
    mapper.finish(unshared.map_err(cannot_unshare))?;
    let become_root = || {
        set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
    };
    become_root().map_err(|errno| {
        NamespaceRefusal::new("cannot become root in", "/proc/self/ns/user", errno, "")
    })
}

fn cannot_unshare(error: io::Error) -> NamespaceRefusal {
    let remedy = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => "user.max_user_namespaces (sysctl) is too low",
        Some(Errno::PERM) => {
            "in a chroot only root can do this; elsewhere user namespaces are switched off: see \
             kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns \
             (sysctl), or a container's profile"
        }
        _ => "",
    };
    NamespaceRefusal::new("cannot make a user namespace in", "/proc/self/ns/user", error, remedy)
}

/// A child that stays in the old namespace, where it may map the ids of this process.
struct Mapper {
    pid: u32,
    /// The parent writes a byte here once it is in the new namespace.
    go: io::PipeWriter,
    /// The child writes its error message here, or nothing on success.
    outcome: io::PipeReader,
}

impl Mapper {
    fn start(uid: u32, uids: &[Range], gid: u32, gids: &[Range]) -> Result<Self, NamespaceRefusal> {
        let failed =
            |error| NamespaceRefusal::new("cannot start a process to", "newuidmap", error, "");
        let (waiting, go) = io::pipe().map_err(failed)?;
        let (outcome, telling) = io::pipe().map_err(failed)?;
        let target = std::process::id().to_string();
        match fork().map_err(failed)? {
            Side::Parent(pid) => Ok(Self { pid, go, outcome }),
            Side::Child => {
                drop((go, outcome));
                map_when_told(waiting, telling, &target, [(uid, uids), (gid, gids)]);
                exit_now(0)
            }
        }
    }

    /// Maps the ids if this process is in the new namespace, and reaps the child.
    fn finish(mut self, unshared: Result<(), NamespaceRefusal>) -> Result<(), NamespaceRefusal> {
        if unshared.is_ok() {
            // If the child is dead, the outcome is empty and the id map unchanged.
            let _ = self.go.write_all(b"!");
        }
        drop(self.go);
        let mut said = String::new();
        let heard = self.outcome.read_to_string(&mut said);
        let _ =
            wait(Whose::Id(self.pid), WaitFor { ends: true, block: true, ..WaitFor::default() });
        unshared?;
        heard.map_err(|error| NamespaceRefusal::new("cannot hear from", "newuidmap", error, ""))?;
        match said.strip_prefix("ok") {
            Some(_) => Ok(()),
            None => {
                let (said, remedy) = match said.strip_prefix(MISSING) {
                    Some(said) => {
                        (said, "install newuidmap and newgidmap (apt-get install uidmap)")
                    }
                    // Such a process gains no rights by a setuid program (prctl(2)).
                    None if no_new_privs().unwrap_or(false) => (
                        &said[..],
                        "no_new_privs is set, by a sandbox or by NoNewPrivileges= of a unit; run it \
                         outside of that",
                    ),
                    None => (
                        &said[..],
                        "newuidmap and newgidmap must be setuid root, or have their capabilities",
                    ),
                };
                let cause = io::Error::other(said.trim().to_owned());
                Err(NamespaceRefusal::new("cannot map the ids of", "/etc/subuid", cause, remedy))
            }
        }
    }
}

/// Precedes the message of the child if newuidmap or newgidmap is not installed.
const MISSING: &str = "missing: ";

fn map_when_told(
    mut waiting: io::PipeReader,
    mut telling: io::PipeWriter,
    target: &str,
    [uids, gids]: [(u32, &[Range]); 2],
) {
    if waiting.read_exact(&mut [0]).is_err() {
        return;
    }
    let mapped = map("newuidmap", target, uids.0, uids.1)
        .and_then(|()| map("newgidmap", target, gids.0, gids.1));
    let said = match mapped {
        Ok(()) => "ok".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{MISSING}{error}"),
        Err(error) => error.to_string(),
    };
    // If the parent is gone, nothing reads the outcome.
    let _ = telling.write_all(said.as_bytes());
}

/// Maps 0 to `own`, and 1 and up to `ranges`, one range after the other.
fn map(program: &str, target: &str, own: u32, ranges: &[Range]) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args([target, "0", &own.to_string(), "1"]);
    let mut inside = 1;
    for range in ranges {
        command.args([inside, range.start, range.count].map(|number| number.to_string()));
        inside += range.count;
    }
    let output = command.output().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot execute {program}: {}", reason(&error)))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}", said.trim())))
}
