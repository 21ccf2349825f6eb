//! Why a run failed, and what its user can do about that.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::text;

/// An act on a path that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// "cannot open".
    pub act: String,
    /// On what.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// errno(3).
    pub errno: i32,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// A filter around us answers syncs without doing them, and no run commits for it.
    SyncsSwallowed,
    /// Neither `XDG_STATE_HOME` nor `HOME` says where the marker shall be.
    NoStateDirectory,
    /// The mounts cannot be read, or a path of `--commit-only` cannot be opened.
    Path(Act),
    /// A path of `--commit-only` is on no disk file system.
    NoDisk(#[serde(serialize_with = "text::path")] PathBuf),
    /// The file system mounted here is a volatile overlay, on which nothing becomes durable.
    VolatileOverlay(#[serde(serialize_with = "text::path")] PathBuf),
    /// A sealed run would work on a FUSE file system, which no commit reaches.
    FuseInSealed {
        /// "the working directory /mnt".
        what: String,
        /// Its type and mount point.
        fuse: String,
    },
    /// The marker cannot be written.
    MarkerUnwritable(Act),
    /// The marker below `--root` cannot be written.
    RootUnwritable(Act),
    /// A process, thread or descriptor cannot be had: the act, and errno(3).
    SetUp(String, i32),
    /// The filter cannot be installed: errno(3) of `seccomp(2)`.
    Filter(i32),
    /// The command could not be executed.
    Exec {
        /// The command's name.
        command: String,
        /// The errno of `execve(2)`.
        errno: i32,
    },
    /// The marker could not be made durable, so nothing was held any more.
    Marker(Act),
    /// Not everything became durable; see the commit report.
    Commit,
    /// The marker of a committed run could not be removed.
    Clear(Act),
    /// The supervisor was killed.
    SupervisorDied {
        /// Whether the command had started.
        started: bool,
    },
}

mod errno {
    pub(super) const AGAIN: i32 = 11;
    pub(super) const NOMEM: i32 = 12;
    pub(super) const NFILE: i32 = 23;
    pub(super) const MFILE: i32 = 24;
    pub(super) const FBIG: i32 = 27;
    pub(super) const NOSPC: i32 = 28;
    pub(super) const DQUOT: i32 = 122;
}

impl Trouble {
    pub(crate) fn set_up(act: &str, error: &io::Error) -> Self {
        Self::SetUp(act.to_owned(), number(error))
    }

    /// What the user can do about it, if there is anything.
    pub fn remedy(&self) -> Option<&'static str> {
        const FILES: &str = "raise the limit of open files (ulimit -n)";
        Some(match self {
            Self::SetUp(_, errno::MFILE | errno::NFILE)
            | Self::Filter(errno::MFILE | errno::NFILE) => FILES,
            Self::Path(act) if matches!(act.errno, errno::MFILE | errno::NFILE) => FILES,
            Self::SetUp(_, errno::AGAIN) => "raise the limit of processes (ulimit -u)",
            Self::Filter(errno::NOMEM) => return None,
            Self::Filter(_) => "the kernel or a container's profile refuses seccomp(2)",
            Self::VolatileOverlay(_) => {
                "use --no-commit when the result is thrown away, or --commit-only PATH"
            }
            Self::FuseInSealed { .. } => {
                "leave --sealed out, or use --no-commit when the result is thrown away"
            }
            Self::NoStateDirectory => "SYNCONCE_STATE_DIR names a directory for the marker",
            Self::MarkerUnwritable(act) | Self::Marker(act) => match act.errno {
                errno::NOSPC | errno::DQUOT => {
                    "free some space there, or name another directory by SYNCONCE_STATE_DIR"
                }
                errno::FBIG => "raise the limit of file sizes (ulimit -f)",
                errno::MFILE | errno::NFILE => FILES,
                _ => "the marker needs a writable disk; SYNCONCE_STATE_DIR names another directory",
            },
            Self::RootUnwritable(_) => {
                "a second marker is kept below --root, which has to be writable"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SyncsSwallowed => f.write_str(
                "cannot commit: a filter around us answers syncs without doing them \
                 (systemd-nspawn --suppress-sync, or a sealed run that is over)",
            ),
            Self::NoStateDirectory => {
                f.write_str("cannot find a state directory: neither XDG_STATE_HOME nor HOME is set")
            }
            Self::Path(act) | Self::MarkerUnwritable(act) | Self::RootUnwritable(act) => act.fmt(f),
            Self::NoDisk(path) => {
                write!(f, "cannot commit {}: it is on no disk file system", path.display())
            }
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
            Self::SetUp(act, errno) => write!(f, "{act}: {}", error(*errno)),
            Self::Filter(errno) => {
                write!(f, "cannot install the seccomp filter: {}", error(*errno))
            }
            Self::Exec { command, errno } => {
                write!(f, "cannot execute {command}: {}", error(*errno))
            }
            Self::Marker(act) => {
                write!(f, "{act}; no sync was held, and the command was asked to end")
            }
            Self::Commit => f.write_str("not everything is durable"),
            Self::Clear(act) => write!(f, "everything is durable, but {act}"),
            Self::SupervisorDied { started: false } => {
                f.write_str("the supervisor was killed before the command started")
            }
            Self::SupervisorDied { started: true } => {
                f.write_str("the supervisor was killed after the command had started")
            }
        }
    }
}

impl From<&Error> for Act {
    fn from(error: &Error) -> Self {
        let (act, path) = (error.act().to_owned(), error.path().to_owned());
        Self { act, path, errno: number(error.io()) }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.act, self.path.display(), error(self.errno))
    }
}

impl Act {
    pub(crate) fn new(act: &str, path: &Path, error: &io::Error) -> Self {
        Self { act: act.to_owned(), path: path.to_owned(), errno: number(error) }
    }
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The errno of `error`. One that has none is no answer of the kernel: EIO.
fn number(error: &io::Error) -> i32 {
    const EIO: i32 = 5;
    error.raw_os_error().unwrap_or(EIO)
}
