//! The lines of a record: one JSON object each. `synconce-doctor` reads them.

use super::callers::Caller;
use crate::options::RunOptions;
use crate::report::protocol::Ending;
use serde::Serialize;
use synconce_durable::step_watch::WatchedStep;

/// The first line.
#[derive(Serialize)]
pub(super) struct Start {
    /// The version of the format.
    record: u32,
    command: Vec<String>,
    /// Whether steps of image builds are listed.
    watches_steps: bool,
}

impl Start {
    pub(super) fn new(options: &RunOptions) -> Self {
        let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
        Self { record: 1, command: words.collect(), watches_steps: options.watch_steps }
    }
}

/// What `synconce run` would do with a call.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Would {
    Hold,
    Pass,
    Refuse,
}

/// A call.
#[derive(Serialize)]
pub(super) struct Call {
    pub call: &'static str,
    /// When the call began, in microseconds since the command started.
    pub at: u64,
    pub thread: u32,
    #[serde(flatten)]
    pub caller: Caller,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The bytes of the file that were not on the disk when the call began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long the sync took, in nanoseconds; absent for a call that was left to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// Why the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    pub would: Would,
    /// The number of the step of an image build; absent for a call of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

/// The beginning of a step of an image build.
#[derive(Serialize)]
pub(super) struct StepStart<'a> {
    pub step: u32,
    /// Microseconds since the command started.
    pub at: u64,
    #[serde(flatten)]
    pub about: &'a WatchedStep,
}

/// The end of the last process of a step.
#[derive(Serialize)]
pub(super) struct StepEnd {
    pub step_end: u32,
    /// Microseconds since the command started.
    pub at: u64,
}

/// Why no steps of image builds are seen.
#[derive(Serialize)]
pub(super) struct UnseenSteps<'a> {
    pub unseen_steps: &'a str,
}

/// The last line.
#[derive(Serialize)]
pub(super) struct LastLine {
    pub end: Ending,
    /// Microseconds since the command started.
    pub at: u64,
    /// How often the processes were looked at while a sync was waited for.
    pub looks: u64,
    /// How often of these no other thread of the command ran or was about to run.
    pub alone: u64,
    /// The sum over the looks of the lost part of their time, in thousandths.
    pub lost: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emulated: Vec<Emulated>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Client>,
}

/// What dpkg has started to handle triggers of a package (deb-triggers(5)).
#[derive(Clone, Serialize)]
pub(super) struct Trigger {
    pub package: String,
    pub runs: u64,
    /// The least time of all runs in microseconds, and of the longest.
    pub micros: u64,
    pub longest: u64,
}

/// Programs of another architecture.
#[derive(Serialize)]
pub(super) struct Emulated {
    /// The program of the emulator.
    pub by: String,
    /// How often a process that it runs was found running.
    pub looks: u64,
    /// How often any process of the command was found running.
    pub of: u64,
}

/// A client of an engine: the engine's daemon does the work.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Client {
    pub program: &'static str,
    /// Whether a word of its command line is `build`.
    pub builds: bool,
}
