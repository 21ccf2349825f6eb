//! A cause of slowness, and what it tells the reader to do.

use serde::Serialize;

/// A cause, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name, which stays the same in later versions.
    pub name: &'static str,
    /// The least seconds that the remedy saves of the workload; `None` without a figure.
    pub seconds: Option<f64>,
    /// The workload of `seconds`.
    pub workload: Option<String>,
    /// The cause, in one sentence without a full stop.
    pub cause: String,
    /// What shows it.
    pub evidence: String,
    /// What to do.
    pub remedy: Action,
    /// What takes the remedy back.
    pub undo: Action,
    /// What the remedy risks.
    pub risk: String,
}

/// A remedy that saves fewer seconds is no finding.
pub(super) const WORTH: f64 = 3.0;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Action {
    /// A command line that can be typed as it is. Words in capitals stand for the reader's own.
    Command(String),
    /// In words, which may have commands in them.
    Words(String),
}

/// Undo of what changes no setting.
pub(crate) const NO_UNDO: &str = "not needed: no setting is changed";

impl Action {
    pub(crate) fn command(line: impl Into<String>) -> Self {
        Self::Command(line.into())
    }

    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self::Words(text.into())
    }

    /// Returns the command line, or the words.
    pub fn text(&self) -> &str {
        match self {
            Self::Command(text) | Self::Words(text) => text,
        }
    }
}
