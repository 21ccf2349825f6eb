//! What a finding tells the reader to do.

use serde::Serialize;

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
