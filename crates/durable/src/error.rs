//! One error type: an act, a path, and the errno.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An act on a path that failed.
#[derive(Debug)]
pub struct Error {
    act: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Error {
    /// `act` ("cannot create") on `path` failed with `source`.
    pub fn new(act: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { act, path: path.to_owned(), source: source.into() }
    }

    /// What was tried.
    pub fn act(&self) -> &'static str {
        self.act
    }

    /// On what.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cause.
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.act, self.path.display(), self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Names the act and the path of a failing call.
pub trait Context<T> {
    /// Adds `act` and `path` to the error.
    ///
    /// # Errors
    /// The same, named.
    fn on(self, act: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn on(self, act: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::new(act, path, error))
    }
}
