//! The error type: an act, a path, and the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_sys::reason;

/// A failed act on a path.
#[derive(Debug)]
pub struct Error {
    act: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Error {
    /// Returns the error of `act`, such as "cannot create", on `path`, with the cause `source`.
    pub fn new(act: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { act, path: path.to_owned(), source: source.into() }
    }

    /// Returns the act, such as "cannot create".
    pub fn act(&self) -> &'static str {
        self.act
    }

    /// Returns the path of the act.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the cause.
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.act, self.path.display(), reason(&self.source))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Adds the act and the path to the error of a call.
pub trait Context<T> {
    /// Adds `act`, such as "cannot create", and `path` to the error.
    ///
    /// # Errors
    /// That of `self`, with `act` and `path`.
    fn on(self, act: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn on(self, act: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::new(act, path, error))
    }
}
