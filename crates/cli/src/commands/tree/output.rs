//! What a verb prints: text, or JSON for `--json[=FILE]`.

use super::failure::VerbFailure;
use crate::commands::json::{Sink, Stream};
use serde::Serialize;
use std::path::Path;

/// The output of a verb.
pub struct Output(Option<Sink>);

impl Output {
    /// Opens the output of `--json[=FILE]`.
    pub fn open(json: Option<&Path>, stream: Stream) -> Result<Self, VerbFailure> {
        Ok(Self(Sink::open(json, stream)?))
    }

    /// Whether JSON goes to standard output.
    pub fn is_standard_json(&self) -> bool {
        matches!(self.0, Some(Sink::Standard(_)))
    }

    /// Returns the sink of JSON, if JSON is asked for.
    pub fn into_sink(self) -> Option<Sink> {
        self.0
    }

    /// Writes `value` if JSON is asked for, and the text of `text` otherwise.
    pub fn write_or(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> Result<(), VerbFailure>,
    ) -> Result<(), VerbFailure> {
        match self.0 {
            Some(sink) => Ok(sink.write(value)?),
            None => text(),
        }
    }

    /// Writes `value` if JSON is asked for.
    pub fn write(self, value: &impl Serialize) -> Result<(), VerbFailure> {
        self.write_or(value, || Ok(()))
    }
}
