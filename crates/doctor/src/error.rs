//! Failures of the examination itself.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_sys::reason;

/// Why a place could not be examined.
#[derive(Debug)]
pub enum Error {
    /// The place is mounted read-only.
    ReadOnly(PathBuf),
    /// The path names a file.
    NotDirectory(PathBuf),
    /// This user may not write in the directory.
    NotAllowed(PathBuf),
    /// A call failed.
    Io {
        /// What was done.
        act: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// An engine does not answer.
    Engine {
        /// The engine's program.
        program: &'static str,
        /// Its socket; none if the program is started.
        at: Option<PathBuf>,
        /// Why.
        error: io::Error,
    },
    /// This engine's program runs in another container or on another host, so its directories are
    /// not here.
    Elsewhere(&'static str),
    /// The file is not a record of a command.
    NoRecord,
    /// A record cannot be read.
    Unreadable(io::Error),
    /// A signal has arrived; the temporary files are removed.
    Interrupted(i32),
}

impl Error {
    pub(crate) fn unreadable(error: io::Error) -> Self {
        match error.kind() {
            // Not text.
            io::ErrorKind::InvalidData => Self::NoRecord,
            _ => Self::Unreadable(error),
        }
    }

    /// Returns a function that makes the failure of `act` with the file `path`.
    pub(crate) fn io<E: Into<io::Error>>(act: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| {
            let error = error.into();
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::ROFS) => Self::ReadOnly(path),
                Some(Errno::ACCESS | Errno::PERM) if act == "write in" => Self::NotAllowed(path),
                Some(Errno::NOTDIR) => Self::NotDirectory(path),
                _ => Self::Io { act, path, error },
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly(path) => {
                write!(f, "cannot measure in {}: the file system is read-only", path.display())
            }
            Self::NotDirectory(path) => {
                write!(f, "cannot measure in {}: not a directory", path.display())
            }
            Self::NotAllowed(path) => {
                write!(f, "cannot write in {}: Permission denied", path.display())
            }
            Self::Io { act, path, error } => {
                write!(f, "cannot {act} {}: {}", path.display(), reason(error))
            }
            Self::Engine { program, at, error } => {
                write!(f, "cannot ask {program}")?;
                if let Some(at) = at {
                    write!(f, " at {}", at.display())?;
                }
                write!(f, ": {}", reason(error))
            }
            Self::Elsewhere(program) => {
                let why = "it runs in another container or on another host";
                write!(f, "cannot measure the disk of {program}: {why}")
            }
            Self::NoRecord => f.write_str("not a record of `synconce doctor -o`"),
            Self::Unreadable(error) => f.write_str(&reason(error)),
            Self::Interrupted(signal) => write!(f, "interrupted by signal {signal}"),
        }
    }
}
