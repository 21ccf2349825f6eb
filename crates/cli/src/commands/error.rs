//! Why a command failed, and what the user can do.

use crate::exit;
use crate::text::{name_for_sudo, say, shell};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::process::ExitCode;

/// Why a command failed, and a hint.
#[derive(Debug, Deserialize, Serialize)]
pub struct CommandError {
    /// What is wrong.
    pub lines: Vec<String>,
    hint: Option<String>,
    /// The signal that ends the command: the caller of an interrupted program expects a death by
    /// the signal.
    signal: Option<i32>,
    /// Whether the reader of the output has ended, as `head` does.
    reader_ended: bool,
}

impl CommandError {
    /// Returns the error with a message of several lines.
    pub fn in_lines(message: &str) -> Self {
        let lines = message.lines().map(str::to_owned).collect();
        Self { lines, hint: None, signal: None, reader_ended: false }
    }

    /// Returns the error of a write.
    pub(super) fn unwritten(message: String, reader_ended: bool) -> Self {
        Self { reader_ended, ..Self::from(message) }
    }

    /// Adds a line that says what to do.
    #[must_use]
    pub fn hint(self, hint: impl fmt::Display) -> Self {
        self.with_remedy(Some(hint.to_string()))
    }

    /// Sets the line that says what to do, if there is anything to do.
    #[must_use]
    pub fn with_remedy(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// Adds the message of `other`, and its hint if there is none. [`CommandError::end`] prints the
    /// messages then, unless both errors say that the reader of the output has ended.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.lines.extend(other.lines);
        self.hint = self.hint.or(other.hint);
        self.reader_ended &= other.reader_ended;
        self
    }

    /// Sets the signal that has interrupted the command, if one has. Cleanup is done.
    #[must_use]
    pub fn ended_by(self, signal: Option<i32>) -> Self {
        Self { signal, ..self }
    }

    /// Prints the reason and the hint, and ends by the signal or returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.lines.iter().for_each(|line| say(line));
        if let Some(hint) = &self.hint {
            say(&format!("hint: {hint}"));
        }
        self.signal.map_or_else(|| exit::FAILED.into(), exit::by_signal)
    }

    /// Like [`CommandError::report`]; but ends by SIGPIPE, quietly, as other programs do, if the
    /// reader of the output has ended.
    pub fn end(&self) -> ExitCode {
        if self.reader_ended { exit::by_signal(Signal::PIPE.as_raw()) } else { self.report() }
    }
}

impl From<String> for CommandError {
    fn from(message: String) -> Self {
        Self { lines: vec![message], ..Self::in_lines("") }
    }
}

impl From<&str> for CommandError {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

/// Returns the one of `names` from which `name` differs least, by at most a third of its letters.
pub(super) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().map(|other| (strsim::osa_distance(name, other), other));
    let near = near.filter(|(distance, _)| 3 * distance <= name.chars().count());
    near.min_by_key(|(distance, _)| *distance).map(|(_, other)| other)
}

/// Returns the command line of this process, to be typed by an ordinary user.
pub fn as_root() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    format!("sudo {} {}", name_for_sudo(), shell(&words.collect::<Vec<_>>()))
}
