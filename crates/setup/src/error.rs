//! Errors: a call that failed, or a file that synconce refuses to change.

use std::fmt;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error as Failed;

/// Why a set-up failed. Either nothing was changed, or the changes are in the journal.
#[derive(Debug)]
pub enum Error {
    /// A call failed.
    Failed(Failed),
    /// synconce refuses to change a file.
    Refused(Box<Refusal>),
}

impl Error {
    /// Returns what the user can do about the error, if that is known.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.fault.remedy),
            Self::Failed(failed) => match failed.io().kind() {
                std::io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
                    Some("look for files that are immutable: lsattr -d FILE")
                }
                std::io::ErrorKind::StorageFull => Some("free space on that disk, and try again"),
                std::io::ErrorKind::ReadOnlyFilesystem => {
                    Some("make the file system writable, or set up the image that it comes from")
                }
                _ => None,
            },
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failed) => failed.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// A file that is not changed, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    path: PathBuf,
    fault: NotEdited,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.fault.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.fault.reason)
    }
}

/// Why a text is not edited.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotEdited {
    line: Option<usize>,
    reason: String,
    remedy: String,
}

impl NotEdited {
    /// `reason` ends the sentence that the file's name begins; `remedy` is a hint.
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { line: None, reason: reason.into(), remedy: remedy.into() }
    }

    /// Sets the line, counted from 1.
    pub(crate) fn on_line(mut self, line: impl Into<Option<usize>>) -> Self {
        self.line = line.into();
        self
    }

    /// Sets the file.
    pub(crate) fn in_file(self, path: &Path) -> Refusal {
        Refusal { path: path.to_owned(), fault: self }
    }

    #[cfg(test)]
    pub(crate) fn line(&self) -> Option<usize> {
        self.line
    }

    #[cfg(test)]
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}
