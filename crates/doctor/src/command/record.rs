//! The record of a command: JSON lines that `synconce-run` writes.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::BufRead;

/// The version of the format.
const VERSION: u32 = 1;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
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
pub(super) struct Call {
    pub call: String,
    /// Microseconds.
    pub at: u64,
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
}

impl Call {
    /// Returns how long the caller waited, in seconds.
    pub fn seconds(&self) -> f64 {
        self.wait.unwrap_or(0) as f64 / 1e9
    }

    /// Whether the call was timed.
    pub fn is_timed(&self) -> bool {
        self.wait.is_some()
    }

    /// Whether the call waited for a file system whose syncs `synconce run` holds.
    pub fn is_saved(&self) -> bool {
        self.is_timed() && self.would == Would::Hold
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Start { record: u32, command: Vec<String> },
    End { end: Ending, at: u64, looks: u64, alone: u64, lost: u64 },
    Call(Call),
}

/// A whole record, or its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub command: Vec<String>,
    pub calls: Vec<Call>,
    pub ended: Option<Ending>,
    /// Microseconds at the end.
    at: u64,
    /// How often the processes of the command were looked at during a wait.
    pub looks: u64,
    /// How often of these nothing else could run.
    pub alone: u64,
    /// The sum of the lost parts of their time, in thousandths.
    pub lost: u64,
}

impl Record {
    /// Reads the lines of `text`, up to the end of the command. A last line that was cut is
    /// ignored.
    pub fn read(text: impl BufRead) -> Result<Self, Error> {
        let mut lines = text.lines();
        let first = lines.next().transpose().map_err(Error::unreadable)?;
        let mut record = match first.and_then(|line| serde_json::from_str(&line).ok()) {
            Some(Line::Start { record: VERSION, command }) => Self { command, ..Self::default() },
            _ => return Err(Error::NoRecord),
        };
        for line in lines {
            match serde_json::from_str(&line.map_err(Error::unreadable)?) {
                Ok(Line::Call(call)) => record.calls.push(call),
                Ok(Line::End { end, at, looks, alone, lost }) => {
                    (record.ended, record.at) = (Some(end), at);
                    (record.looks, record.alone, record.lost) = (looks, alone, lost);
                    break;
                }
                Ok(Line::Start { .. }) | Err(_) => break,
            }
        }
        Ok(record)
    }

    /// Returns the seconds from the start to the end, or to the end of the last call.
    pub fn seconds(&self) -> f64 {
        let ends = self.calls.iter().map(|call| call.at as f64 / 1e6 + call.seconds());
        ends.fold(self.at as f64 / 1e6, f64::max)
    }

    /// Returns the calls by `key`.
    pub fn by<K: Eq + std::hash::Hash>(
        &self,
        key: impl Fn(&Call) -> Option<K>,
    ) -> HashMap<K, Vec<&Call>> {
        let mut groups: HashMap<K, Vec<&Call>> = HashMap::new();
        for call in self.calls.iter().filter(|call| call.is_timed()) {
            if let Some(key) = key(call) {
                groups.entry(key).or_default().push(call);
            }
        }
        groups
    }
}
