//! What `synconce doctor -- COMMAND` and `synconce-oci` say to each other about the steps of an
//! image build that are watched and not held.
//!
//! doctor listens on a socket in the directory of run files. A `synconce-oci` that makes the
//! container of a step connects, sends [`ASK`] and a line with the [`WatchedStep`], and gets one
//! byte. The connection stays open until the step's own process starts: doctor serves at least as
//! long. After [`WATCH`] the runtime connects, too, and hands over the listener of the step's
//! filter, in the form that the runtime specification gives (`config-linux.md`, *The Container
//! Process State*).

use crate::standard_paths;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first byte of a connection by synconce-oci. That of a runtime is the `{` of its JSON.
pub const ASK: u8 = b'?';
/// The answer: doctor watches the step, by the listener that the runtime hands over.
pub const WATCH: u8 = b'w';
/// The answer: the step descends from the command that doctor watches, and so is seen already. It
/// is not held.
pub const LEAVE: u8 = b'l';

/// The most characters of the command of a step.
const COMMAND: usize = 400;

/// A step of an image build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedStep {
    /// docker, buildkit or podman (also for Buildah).
    pub engine: String,
    /// The image that the step was made from, where the engine says it to the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The words of its command, with blanks between them.
    pub command: String,
    /// Why its syncs are not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<String>,
}

impl WatchedStep {
    /// Returns the step with the beginning of a long command.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        if let Some((end, _)) = self.command.char_indices().nth(COMMAND) {
            self.command.truncate(end);
            self.command.push_str("...");
        }
        self
    }
}

/// Returns the path of doctor's socket, which is that of one doctor at a time.
pub fn socket() -> Option<PathBuf> {
    standard_paths::runtime().map(|directory| directory.join("doctor"))
}
