//! Reports from the init of the pid namespace to the process outside, one line each.

use super::Ending;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChildReport {
    /// A step before the command's start failed.
    Failed(String),
    /// As `Failed`, in words that say which act it was, on which object.
    Refused(String),
    NotExecuted {
        command: String,
        errno: i32,
    },
    Stopped(i32),
    Exited(i32),
    Killed(i32),
}

/// The sending end.
pub(super) struct Teller(PipeWriter);

impl ChildReport {
    pub(super) fn into_ending(self) -> Result<Ending, String> {
        match self {
            Self::Failed(why) => Err(why),
            Self::Refused(why) => Ok(Ending::Refused(why)),
            Self::NotExecuted { command, errno } => Ok(Ending::NotExecuted { command, errno }),
            Self::Exited(code) => Ok(Ending::Exited(code)),
            Self::Killed(signal) | Self::Stopped(signal) => Ok(Ending::Killed(signal)),
        }
    }
}

impl Teller {
    pub(super) fn new(pipe: PipeWriter) -> Self {
        Self(pipe)
    }

    pub(super) fn tell(&self, report: &ChildReport) {
        let mut line = serde_json::to_vec(report).expect("plain text and numbers");
        line.push(b'\n');
        // If the process outside has ended, the kernel kills this process at once.
        let _ = (&self.0).write_all(&line);
    }
}

/// The receiving end.
pub(super) struct Reports(BufReader<PipeReader>);

impl Reports {
    pub(super) fn new(pipe: PipeReader) -> Self {
        Self(BufReader::new(pipe))
    }

    pub(super) fn descriptor(&self) -> &PipeReader {
        self.0.get_ref()
    }

    /// Returns whether a report was read ahead.
    pub(super) fn has_more(&self) -> bool {
        !self.0.buffer().is_empty()
    }

    /// Returns the next report, or `None` when the sender has exited.
    pub(super) fn next(&mut self) -> io::Result<Option<ChildReport>> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}
