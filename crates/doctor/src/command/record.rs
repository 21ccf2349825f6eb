//! The record of a command: JSON lines that `synconce-run` writes.

use super::entries::{
    Client, CommandEnding, Emulated, RecordedCall, StepEnd, StepStart, TriggerRuns,
};
use super::steps::StepsTally;
use super::tally::CallTally;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, Write};

/// The version of the format.
const VERSION: u32 = 1;

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Start {
        record: u32,
        command: Vec<String>,
        #[serde(default)]
        watches_steps: bool,
    },
    End(LastLine),
    Call(RecordedCall),
    StepEnd(StepEnd),
    StepStart(StepStart),
    UnseenSteps {
        unseen_steps: String,
    },
}

#[derive(Deserialize)]
struct LastLine {
    end: CommandEnding,
    at: u64,
    looks: u64,
    alone: u64,
    lost: u64,
    #[serde(default)]
    triggers: Vec<TriggerRuns>,
    #[serde(default)]
    emulated: Vec<Emulated>,
    #[serde(default)]
    clients: Vec<Client>,
}

/// A whole record, or its beginning. Its size does not grow with the number of calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CommandRecord {
    pub command: Vec<String>,
    pub tally: CallTally,
    pub ended: Option<CommandEnding>,
    /// The end of the command, in microseconds since its start.
    at: u64,
    /// How often the processes of the command were looked at during a wait.
    pub looks: u64,
    /// At how many of these looks no other thread of the command could run.
    pub alone: u64,
    /// The sum over all looks of the share of time that the waits cost, in thousandths.
    pub lost: u64,
    pub triggers: Vec<TriggerRuns>,
    pub emulated: Vec<Emulated>,
    #[serde(default)]
    pub clients: Vec<Client>,
    #[serde(default)]
    pub steps: StepsTally,
    /// Whether steps of image builds are among the lines.
    #[serde(default)]
    pub watches_steps: bool,
    /// Why no steps of image builds are seen.
    #[serde(default)]
    pub unseen_steps: Option<String>,
}

/// The only line of a record that has sums instead of calls.
#[derive(Serialize, Deserialize)]
struct SumsLine<R> {
    sums: R,
}

impl CommandRecord {
    /// Reads the lines of `text`, up to the end of the command. A last line that was cut is
    /// ignored.
    pub fn read(text: impl BufRead) -> Result<Self, Error> {
        // A line can be cut inside of a character.
        let mut lines = text.split(b'\n');
        let first = lines.next().transpose().map_err(Error::unreadable)?;
        let first = first.ok_or(Error::NoRecord)?;
        if let Ok(SumsLine { sums }) = serde_json::from_slice(&first) {
            return Ok(sums);
        }
        let mut record = Self::begin(&first).ok_or(Error::NoRecord)?;
        for line in lines {
            if !record.add(&line.map_err(Error::unreadable)?) {
                break;
            }
        }
        Ok(record)
    }

    /// Returns a record with the first line only; `None` if `line` is not a first line.
    fn begin(line: &[u8]) -> Option<Self> {
        match serde_json::from_slice(line) {
            Ok(Line::Start { record: VERSION, command, watches_steps }) => {
                Some(Self { command, watches_steps, ..Self::default() })
            }
            _ => None,
        }
    }

    /// Adds a line. Returns whether more lines may follow.
    fn add(&mut self, line: &[u8]) -> bool {
        match serde_json::from_slice(line) {
            Ok(Line::Call(call)) => {
                match call.step {
                    Some(step) => self.steps.add(step, call),
                    None => self.tally.add(call),
                }
                true
            }
            Ok(Line::StepStart(start)) => {
                self.steps.begin(start);
                true
            }
            Ok(Line::StepEnd(end)) => {
                self.steps.end(&end);
                true
            }
            Ok(Line::UnseenSteps { unseen_steps: why }) => {
                self.unseen_steps = Some(why);
                true
            }
            Ok(Line::End(last)) => {
                (self.ended, self.at) = (Some(last.end), last.at);
                (self.looks, self.alone, self.lost) = (last.looks, last.alone, last.lost);
                (self.triggers, self.emulated) = (last.triggers, last.emulated);
                self.clients = last.clients;
                false
            }
            Ok(Line::Start { .. }) | Err(_) => false,
        }
    }

    /// Returns the seconds from the start to the end, or to the end of the last call.
    pub fn seconds(&self) -> f64 {
        self.tally.last.max(self.steps.last()).max(self.at as f64 / 1e6)
    }
}

/// Returns the calls of the record `text`, up to the end of the command. A record of sums has no
/// calls.
pub(super) fn calls(
    text: impl BufRead,
) -> Result<impl Iterator<Item = Result<RecordedCall, Error>>, Error> {
    let mut lines = text.split(b'\n');
    let first = lines.next().transpose().map_err(Error::unreadable)?;
    CommandRecord::begin(&first.unwrap_or_default()).ok_or(Error::NoRecord)?;
    // The outer value is none at the end, the inner one of the lines about a step.
    let call = |line: io::Result<Vec<u8>>| match line {
        Ok(line) => match serde_json::from_slice(&line) {
            Ok(Line::Call(call)) => Some(Some(Ok(call))),
            Ok(Line::StepStart(_) | Line::StepEnd(_) | Line::UnseenSteps { .. }) => Some(None),
            _ => None,
        },
        Err(error) => Some(Some(Err(Error::unreadable(error)))),
    };
    Ok(lines.map_while(call).flatten())
}

/// Adds up the lines of a record that are written to it, and keeps none of them. A flush writes
/// the sums to a file, which [`examine_record`](super::examine_record) reads.
#[derive(Debug)]
pub struct RecordSums {
    file: File,
    /// None before the first line.
    record: Option<CommandRecord>,
    /// The line that is being written.
    line: Vec<u8>,
}

impl RecordSums {
    /// Returns sums that are written to `file`.
    pub fn to(file: File) -> Self {
        Self { file, record: None, line: Vec::new() }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match &mut self.record {
            Some(record) => _ = record.add(&line),
            None => self.record = CommandRecord::begin(&line),
        }
    }
}

impl Write for RecordSums {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(rest) => {
                    self.line.extend_from_slice(rest);
                    self.end_line();
                }
                None => self.line.extend_from_slice(part),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.record {
            Some(sums) => self.file.write_all(&serde_json::to_vec(&SumsLine { sums })?),
            None => Ok(()),
        }
    }
}
