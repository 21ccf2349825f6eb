//! The crate's error: it names the act, the path and the errno.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The result of every function of this crate that touches the system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    Io {
        /// The attempted act, a verb: "open", "detach".
        act: &'static str,
        /// The path or object of the act.
        path: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
    /// A program ran and failed.
    Program {
        /// The program and its arguments.
        command: String,
        /// The program's exit status and its stderr.
        outcome: String,
    },
    /// The request cannot be met here; the text is the reason.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { act, path, source } => {
                write!(f, "cannot {act} {}: {source}", path.display())
            }
            Self::Program { command, outcome } => write!(f, "`{command}` failed: {outcome}"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Program { .. } | Self::Refused(_) => None,
        }
    }
}

/// Adds the act and the path to a bare errno.
pub(crate) trait Context<T> {
    fn context(self, act: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, act: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::Io {
            act,
            path: path.as_ref().to_owned(),
            source: error.into(),
        })
    }
}

/// Runs a program to its end and returns its stdout; an error contains its stderr.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("run", command.get_program())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(Error::Program { command: line(command), outcome: outcome(&output) })
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn outcome(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    match stderr.trim() {
        "" => output.status.to_string(),
        message => format!("{}: {message}", output.status),
    }
}
