//! What a record has of a command: its calls, how it ended, what dpkg and emulators did.

use super::spread::wilson;
use serde::{Deserialize, Serialize};
use synconce_durable::step_watch::WatchedStep;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnding {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// Unknown.
    Unknown,
}

/// What `synconce run` does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Would {
    /// Answers the call without doing it, or takes its sync flag away.
    Hold,
    /// Leaves the call to the kernel.
    Pass,
    /// Answers an error, so that the program falls back.
    Refuse,
}

/// A call. Times are since the start of the command.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RecordedCall {
    pub call: String,
    /// Microseconds.
    pub at: u64,
    #[serde(default)]
    pub thread: u32,
    #[serde(default)]
    pub process: u32,
    #[serde(default)]
    pub program: String,
    #[serde(default)]
    pub ancestry: Vec<String>,
    pub file: Option<String>,
    pub bytes: Option<u64>,
    /// Nanoseconds; none if the call was left to the kernel.
    pub wait: Option<u64>,
    pub errno: Option<i32>,
    pub would: Would,
    /// The number of the step of an image build; none of a call of the command.
    pub step: Option<u32>,
}

/// The beginning of a step of an image build.
#[derive(Debug, Deserialize)]
pub(super) struct StepStart {
    pub step: u32,
    /// Microseconds since the start of the command.
    pub at: u64,
    #[serde(flatten)]
    pub about: WatchedStep,
}

/// The end of the last process of a step.
#[derive(Debug, Deserialize)]
pub(super) struct StepEnd {
    pub step_end: u32,
    /// Microseconds since the start of the command.
    pub at: u64,
}

impl RecordedCall {
    /// Returns how long the caller waited, in seconds.
    pub fn seconds(&self) -> f64 {
        self.wait.unwrap_or(0) as f64 / 1e9
    }
}

/// What dpkg has started to handle triggers of a package (deb-triggers(5)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerRuns {
    /// The package.
    pub package: String,
    /// How often its script was started with `triggered`.
    pub runs: u64,
    /// The least microseconds of all runs.
    pub micros: u64,
    /// The least microseconds of the longest.
    pub longest: u64,
}

/// A client of an engine among the processes of the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Client {
    pub program: String,
    /// Whether a word of its command line is `build`.
    pub builds: bool,
}

/// Programs of another architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Emulated {
    /// The program of the emulator.
    pub by: String,
    /// How often a process in this emulator was found running.
    pub looks: u64,
    /// How often any process of the command was found running.
    pub of: u64,
}

impl TriggerRuns {
    /// Returns the least seconds of all runs.
    pub(crate) fn seconds(&self) -> f64 {
        self.micros as f64 / 1e6
    }
}

impl Emulated {
    /// Returns the share of the work, and the least share at 95 % confidence.
    pub(crate) fn share(&self) -> (f64, f64) {
        let (share, least, _) = wilson(self.looks, self.of);
        (share, least)
    }
}
