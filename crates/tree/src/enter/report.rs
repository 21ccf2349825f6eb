//! What the init of the pid namespace says to the process outside, a line each.

use super::Ending;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// Something failed before the command was started.
    Failed(String),
    NotExecuted {
        command: String,
        errno: i32,
    },
    Stopped(i32),
    Exited(i32),
    Killed(i32),
}

/// Where reports go.
pub(super) struct Teller(PipeWriter);

impl Report {
    pub(super) fn into_ending(self) -> Result<Ending, String> {
        match self {
            Self::Failed(why) => Err(why),
            Self::NotExecuted { command, errno } => Ok(Ending::NotExecuted { command, errno }),
            Self::Exited(code) => Ok(Ending::Exited(code)),
            Self::Killed(signal) | Self::Stopped(signal) => Ok(Ending::Killed(signal)),
        }
    }
}

impl Teller {
    pub(super) fn of(pipe: PipeWriter) -> Self {
        Self(pipe)
    }

    pub(super) fn tell(&self, report: &Report) {
        let mut line = serde_json::to_vec(report).expect("plain text and numbers");
        line.push(b'\n');
        // Without anybody outside we are killed at once.
        let _ = (&self.0).write_all(&line);
    }
}

/// Where they come from.
pub(super) struct Reports(BufReader<PipeReader>);

impl Reports {
    pub(super) fn of(pipe: PipeReader) -> Self {
        Self(BufReader::new(pipe))
    }

    pub(super) fn descriptor(&self) -> &PipeReader {
        self.0.get_ref()
    }

    /// Whether there is a report that was read ahead.
    pub(super) fn has_more(&self) -> bool {
        !self.0.buffer().is_empty()
    }

    /// The next report; none when nobody is left to make one.
    pub(super) fn next(&mut self) -> io::Result<Option<Report>> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}
