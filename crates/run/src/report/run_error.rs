//! Why a run failed, and what the user can do about it.

use crate::call::rules::RuleError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::text;
use synconce_sys::reason;
use synconce_sys::seccomp::is_filtered;

/// A failed operation on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAct {
    /// The operation, such as "cannot open".
    pub act: String,
    /// The path of the operation.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// errno(3).
    pub errno: i32,
}

/// What helps if a process, or the system, has too many open files.
pub const RAISE_OPEN_FILES: &str = "raise the limit of open files (ulimit -n)";

/// What helps if a filter around the run refuses a call.
const REFUSED_CALL: &str = "a seccomp profile refuses this call; a unit of systemd allows it by \
                            SystemCallFilter=; without Docker's profile: \
                            docker run --security-opt seccomp=unconfined";

/// What helps if a file would be larger than the limit of the process.
const FILE_SIZES: &str = "raise the limit of file sizes (ulimit -f)";

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunError {
    /// An outer filter answers syncs without doing them, and no outer run commits.
    SyncsSwallowed,
    /// Neither `XDG_STATE_HOME` nor `HOME` is set, so there is no directory for the marker.
    NoStateDirectory,
    /// The mounts cannot be read: errno(3).
    Mounts(i32),
    /// A path of `--commit-only`, or what is to be committed, cannot be opened.
    Path(FailedAct),
    /// What cannot be done, because the path in it is not on a disk file system.
    NoDisk(String),
    /// The file system mounted here is a volatile overlay, on which nothing becomes durable.
    VolatileOverlay(#[serde(serialize_with = "text::path")] PathBuf),
    /// A sealed run would work on a FUSE file system, which no commit reaches.
    FuseInSealed {
        /// The object, such as "the working directory /mnt".
        what: String,
        /// The file system's type and mount point.
        fuse: String,
    },
    /// The marker cannot be written.
    MarkerUnwritable(FailedAct),
    /// The marker below `--root` cannot be written.
    RootUnwritable(FailedAct),
    /// A process, thread or descriptor cannot be created: the operation, and errno(3).
    SetUp(String, i32),
    /// The filter cannot be installed: errno(3) of `seccomp(2)`.
    Filter(i32),
    /// A filter around us kills each process that syncs.
    DeadlyFilter,
    /// The command could not be executed.
    Exec {
        /// The command's name.
        command: String,
        /// The errno of `execve(2)`.
        errno: i32,
    },
    /// The marker could not be made durable, so no call was held.
    Marker(FailedAct),
    /// The marker below `--root` could not be made durable, so no call was held.
    RootMarker(FailedAct),
    /// Not everything became durable; see the commit report.
    Commit,
    /// A checkpoint was asked for in a run that commits nothing.
    CommitsNothing,
    /// The process that asked for a checkpoint is neither of the user of the run nor of root, by
    /// the ids in the supervisor's user namespace.
    NotAllowed,
    /// A checkpoint was asked for in a run whose command has ended.
    Over,
    /// The marker of a committed run could not be removed.
    Clear(FailedAct),
    /// A path of `--only` or `--except` cannot be used.
    Rule(RuleError),
    /// The run cannot follow `--only` and `--except`.
    Rules(NoRules),
    /// Another program listens to this process already, so no call can be timed.
    ForeignListener,
    /// The supervisor was killed.
    SupervisorDied {
        /// Whether the command had started.
        started: bool,
    },
}

/// Why a run cannot follow `--only` and `--except`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoRules {
    /// The run is sealed: a filter sees descriptors, not files.
    Sealed,
    /// Another run is around this one, and decides about all of its calls.
    Inside,
    /// The container engine holds this build step.
    BuildStep,
    /// Another program supervises the calls of this process, so the run would be sealed.
    ForeignListener,
}

impl RunError {
    pub(crate) fn set_up(act: &str, error: &io::Error) -> Self {
        Self::SetUp(act.to_owned(), number(error))
    }

    /// Returns the variant of the error for a marker that failed before any call was held: the
    /// command continues with real syncs, or was not started.
    pub(crate) fn before_any_hold(self) -> Self {
        match self {
            Self::Marker(act) => Self::MarkerUnwritable(act),
            Self::RootMarker(act) => Self::RootUnwritable(act),
            other => other,
        }
    }

    /// Returns the errno that decides about the remedy, or 0.
    fn errno(&self) -> i32 {
        match self {
            Self::SetUp(_, errno) | Self::Filter(errno) | Self::Mounts(errno) => *errno,
            Self::Path(act)
            | Self::MarkerUnwritable(act)
            | Self::RootUnwritable(act)
            | Self::Marker(act)
            | Self::RootMarker(act) => act.errno,
            _ => 0,
        }
    }

    /// Returns what the user can do about the error, if anything.
    pub fn remedy(&self) -> Option<Cow<'static, str>> {
        let text = match (self, Errno::from_io_error(&error(self.errno()))) {
            (_, Some(Errno::MFILE | Errno::NFILE)) => RAISE_OPEN_FILES,
            (Self::SetUp(..), Some(Errno::AGAIN)) => {
                "raise the limit of processes (ulimit -u, or pids.max of the control group)"
            }
            (Self::SetUp(..), Some(Errno::PERM | Errno::NOSYS | Errno::ACCESS))
                if is_filtered() =>
            {
                REFUSED_CALL
            }
            (Self::Filter(_), Some(Errno::NOMEM)) => return None,
            (Self::Mounts(_), Some(Errno::NOENT)) => "mount -t proc proc /proc",
            (Self::Mounts(_), _) => "let the sandbox read /proc",
            (Self::Filter(_), _) => {
                "the kernel or a container's profile refuses seccomp(2); a unit of systemd allows \
                 it by SystemCallFilter=seccomp"
            }
            (Self::SyncsSwallowed, _) => {
                "use --no-commit when the result is thrown away, or start synconce outside"
            }
            (Self::DeadlyFilter, _) => {
                "a unit of systemd allows syncs by SystemCallFilter= without ~@sync"
            }
            (Self::VolatileOverlay(_), _) => {
                "use --no-commit in an image build or when the result is thrown away, or \
                 --commit-only PATH"
            }
            (Self::FuseInSealed { .. }, _) => {
                "leave --sealed out, or use --no-commit when the result is thrown away"
            }
            (Self::NoStateDirectory, _) => "SYNCONCE_STATE_DIR names a directory for the marker",
            (Self::MarkerUnwritable(_) | Self::Marker(_), errno) => match errno {
                Some(Errno::NOSPC | Errno::DQUOT) => {
                    "free some space there, or name another directory by SYNCONCE_STATE_DIR"
                }
                Some(Errno::FBIG) => FILE_SIZES,
                _ => "the marker needs a writable disk; SYNCONCE_STATE_DIR names another directory",
            },
            (Self::CommitsNothing, _) => {
                "start the run without --no-commit; for a tree: `synconce tree commit`, after the \
                 command"
            }
            (Self::NotAllowed, _) => "run `synconce commit` as the user of the run",
            (Self::Over, _) => "the run makes its own commit now; `synconce status` shows it",
            (Self::Rule(error), _) => return error.remedy(),
            (Self::Rules(NoRules::Sealed), _) => "leave --sealed out",
            (Self::Rules(NoRules::BuildStep), _) => "leave them out",
            (Self::Rules(NoRules::Inside), _) => {
                "give them to the outer run, or use `synconce real -- COMMAND` for real syncs"
            }
            (Self::Rules(NoRules::ForeignListener), _) => {
                "leave them out, or start the run outside the other program"
            }
            (Self::ForeignListener, _) => "start the command outside the other program",
            (Self::RootUnwritable(act) | Self::RootMarker(act), errno) => {
                return remedy_in_root(act, errno);
            }
            _ => return None,
        };
        Some(text.into())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SyncsSwallowed => f.write_str(
                "cannot commit: a filter around us answers syncs without doing them \
                 (systemd-nspawn --suppress-sync, a held container, or a sealed run that is over)",
            ),
            Self::NoStateDirectory => {
                f.write_str("cannot find a state directory: neither XDG_STATE_HOME nor HOME is set")
            }
            Self::Mounts(errno) => {
                write!(f, "cannot read /proc/self/mountinfo: {}", words(*errno))
            }
            Self::Path(act) | Self::MarkerUnwritable(act) | Self::RootUnwritable(act) => act.fmt(f),
            Self::NoDisk(act) => write!(f, "{act}: it is on no disk file system"),
            Self::VolatileOverlay(point) => write!(
                f,
                "cannot commit {}: it is a volatile overlay, on which nothing becomes durable",
                point.display()
            ),
            Self::FuseInSealed { what, fuse } => write!(
                f,
                "cannot commit a sealed run: {what} is on a FUSE file system ({fuse}), \
                 and no commit reaches its server"
            ),
            Self::SetUp(act, errno) => write!(f, "{act}: {}", words(*errno)),
            Self::Filter(errno) => {
                write!(f, "cannot install the seccomp filter: {}", words(*errno))
            }
            Self::DeadlyFilter => f.write_str(
                "cannot hold syncs: a seccomp filter around us kills each process that syncs",
            ),
            Self::Exec { command, errno } => {
                write!(f, "cannot execute {}: {}", text::shown(command), words(*errno))
            }
            Self::Marker(act) | Self::RootMarker(act) => {
                write!(f, "{act}; no sync was held, and the command was asked to end")
            }
            Self::Commit => f.write_str("not everything is durable"),
            Self::CommitsNothing => {
                f.write_str("cannot commit: the run makes no commit (--no-commit, or `tree run`)")
            }
            Self::NotAllowed => {
                f.write_str("cannot commit: only the user of the run and root may do that")
            }
            Self::Over => f.write_str("cannot commit: the command of the run has ended"),
            Self::Clear(act) => write!(f, "everything is durable, but {act}"),
            Self::Rule(error) => error.fmt(f),
            Self::Rules(why) => write!(f, "cannot use --only or --except: {why}"),
            Self::ForeignListener => f.write_str(
                "cannot time the calls of the command: another program supervises the system \
                 calls here",
            ),
            Self::SupervisorDied { started: false } => {
                f.write_str("the supervisor was killed before the command started")
            }
            Self::SupervisorDied { started: true } => {
                f.write_str("the supervisor was killed after the command had started")
            }
        }
    }
}

impl fmt::Display for NoRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sealed => "a sealed run cannot distinguish files",
            Self::Inside => "the run around this one decides what is held",
            Self::BuildStep => "this build step is held as a whole",
            Self::ForeignListener => {
                "another program supervises the system calls here, which seals the run"
            }
        })
    }
}

impl From<&Error> for FailedAct {
    fn from(error: &Error) -> Self {
        let (act, path) = (error.act().to_owned(), error.path().to_owned());
        Self { act, path, errno: number(error.io()) }
    }
}

impl fmt::Display for FailedAct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.act, self.path.display(), words(self.errno))
    }
}

impl FailedAct {
    pub(crate) fn new(act: &str, path: &Path, error: &io::Error) -> Self {
        Self { act: act.to_owned(), path: path.to_owned(), errno: number(error) }
    }
}

/// Returns what helps if the marker below `--root` cannot be written: `act` failed with `errno`.
fn remedy_in_root(act: &FailedAct, errno: Option<Errno>) -> Option<Cow<'static, str>> {
    let in_the_way = |what| {
        let path = text::quote(&act.path);
        format!("the path of the second marker has {what} in place of a directory: namei {path}")
    };
    Some(match errno? {
        Errno::NOSPC | Errno::DQUOT => {
            "free some space on the disk of --root: a second marker is kept there".into()
        }
        Errno::FBIG => FILE_SIZES.into(),
        Errno::ROFS | Errno::ACCESS | Errno::PERM => {
            "a second marker is kept below --root, which has to be writable".into()
        }
        Errno::LOOP => in_the_way("a link that leads nowhere").into(),
        Errno::NOTDIR => in_the_way("a file").into(),
        _ => return None,
    })
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn words(errno: i32) -> String {
    reason(&error(errno))
}

/// Returns the errno of `error`, or EIO if it is not an error of the kernel.
pub(crate) fn number(error: &io::Error) -> i32 {
    Errno::from_io_error(error).unwrap_or(Errno::IO).raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_no_profile_is_named() {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::ACCESS] {
            assert_eq!(RunError::set_up("cannot make a process", &errno.into()).remedy(), None);
        }
    }

    #[test]
    fn each_cause_why_root_takes_no_marker_has_a_hint_of_its_own() {
        let large = "raise the limit of file sizes (ulimit -f)";
        let full = "free some space on the disk of --root: a second marker is kept there";
        for error in [RunError::RootUnwritable, RunError::RootMarker] {
            let remedy = |errno: Errno| {
                let (act, path) = ("cannot write".to_owned(), "/target".into());
                error(FailedAct { act, path, errno: errno.raw_os_error() }).remedy()
            };
            assert_eq!(remedy(Errno::NOSPC).as_deref(), Some(full));
            assert_eq!(remedy(Errno::DQUOT).as_deref(), Some(full));
            assert_eq!(remedy(Errno::FBIG).as_deref(), Some(large));
            for refused in [Errno::ROFS, Errno::ACCESS, Errno::PERM] {
                assert!(remedy(refused).unwrap().ends_with("has to be writable"));
            }
            for (errno, what) in
                [(Errno::LOOP, "a link that leads nowhere"), (Errno::NOTDIR, "a file")]
            {
                let hint = remedy(errno).unwrap();
                assert!(hint.contains(what) && hint.ends_with(": namei /target"), "{hint}");
            }
            assert_eq!(remedy(Errno::IO), None);
        }
    }
}
