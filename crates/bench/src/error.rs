//! What can go wrong, each with its act, its path and the system's reason.

use crate::failure::Failure;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a benchmark stopped.
#[derive(Debug)]
pub enum Error {
    /// A system call on a path failed.
    Io {
        /// What was tried, as a verb: "open", "unmount".
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A variant ended with something else than exit code 0.
    Variant {
        /// Its name.
        variant: String,
        /// The phase it failed in, as text: "round 3".
        phase: String,
        /// Its command, and how that ended.
        failure: Box<Failure>,
    },
    /// A command that sets the stage failed.
    Helper {
        /// What it was for: "unpack the base".
        purpose: String,
        /// The command, and how it ended.
        failure: Box<Failure>,
    },
    /// The host or a path does not suit the scenario.
    Unsuitable {
        /// What does not suit.
        what: String,
        /// Why.
        reason: String,
    },
    /// No variant of the given name exists.
    UnknownVariant {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Nothing is left to measure: every variant is filtered out or lacks its tools.
    NothingToMeasure {
        /// What was left out, as "name (reason)".
        left_out: Vec<String>,
    },
    /// SIGINT, SIGTERM or SIGHUP arrived; everything is stopped and unmounted.
    Interrupted {
        /// Which, so that the caller can end by it.
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
                write!(f, "cannot {act} {}: {source}", path.display())
            }
            Self::Variant { variant, phase, failure } => {
                write!(f, "variant {variant} failed in {phase}: {failure}")
            }
            Self::Helper { purpose, failure } => write!(f, "cannot {purpose}: {failure}"),
            Self::Unsuitable { what, reason } => write!(f, "cannot use {what}: {reason}"),
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
