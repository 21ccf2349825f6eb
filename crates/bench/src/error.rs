//! The errors of a benchmark, each with its act, its path and the system's reason.

use crate::failure::CommandFailure;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_sys::reason;

/// Why a benchmark stopped.
#[derive(Debug)]
pub enum Error {
    /// A system call on a path failed.
    Io {
        /// The attempted act, a verb: "open", "unmount".
        act: &'static str,
        /// The path of the act.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A variant's exit code was not 0.
    Variant {
        /// The variant's name.
        variant: String,
        /// The phase it failed in, as text: "round 3".
        phase: String,
        /// The variant's command, and how it ended.
        failure: Box<CommandFailure>,
    },
    /// A command that prepares or clears the fixture failed.
    Helper {
        /// The purpose of the command: "unpack the base".
        purpose: String,
        /// The command, and how it ended.
        failure: Box<CommandFailure>,
    },
    /// The host or a path does not suit the scenario.
    Unsuitable {
        /// What does not suit.
        what: String,
        /// Why.
        reason: String,
    },
    /// Another user can change the work directory.
    Foreign {
        /// The work directory.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// Every user can rename what is in this directory.
    Exposed(PathBuf),
    /// No variant of the given name exists.
    UnknownVariant {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// Every variant is filtered out or lacks its tools.
    NothingToMeasure {
        /// The variants that were left out, as "name (reason)".
        left_out: Vec<String>,
    },
    /// SIGINT, SIGTERM or SIGHUP arrived; every command is stopped and every mount is
    /// unmounted.
    Interrupted {
        /// The number of the signal, so that the caller can end with the same signal.
        signal: i32,
    },
}

impl Error {
    /// For `map_err`: names the act and the path of an I/O error.
    pub(crate) fn io<E: Into<io::Error>>(
        act: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { act, path, source: source.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { act, path, source } => {
                write!(f, "cannot {act} {}: {}", path.display(), reason(source))
            }
            Self::Variant { variant, phase, failure } => {
                write!(f, "variant {variant} failed in {phase}: {failure}")
            }
            Self::Helper { purpose, failure } => write!(f, "cannot {purpose}: {failure}"),
            Self::Unsuitable { what, reason } => write!(f, "cannot use {what}: {reason}"),
            Self::Foreign { path, reason } => {
                write!(f, "cannot use {}: {reason}", path.display())
            }
            Self::Exposed(path) => {
                write!(f, "cannot use {}: every user can rename what is in it", path.display())
            }
            Self::UnknownVariant { name, known } => {
                write!(f, "no variant {name}; there are {}", known.join(", "))
            }
            Self::NothingToMeasure { left_out } => {
                write!(f, "nothing to measure; left out: {}", left_out.join("; "))
            }
            Self::Interrupted { .. } => write!(f, "interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
