//! A failed command: its words, how it ended, and its last lines of output.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Lines of output shown.
const LINES: usize = 12;
/// Bytes read for these lines.
const BYTES: u64 = 8 << 10;

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// The command.
    pub command: Vec<String>,
    /// How it ended: "exit status: 100", or what the check found.
    pub ending: String,
    /// Everything it printed.
    pub log: PathBuf,
    /// The last lines of the log.
    pub tail: Vec<String>,
}

impl CommandFailure {
    /// Describes a command that has ended; reads the end of its log.
    pub(crate) fn new(
        command: &[impl AsRef<str>],
        ending: impl Into<String>,
        log: &Path,
    ) -> Box<Self> {
        Box::new(Self {
            command: command.iter().map(|word| word.as_ref().to_owned()).collect(),
            ending: ending.into(),
            log: log.to_path_buf(),
            tail: tail(log).unwrap_or_default(),
        })
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.command.iter().map(|word| shown(word)).collect();
        write!(
            f,
            "{} ({}); its output is in {}",
            words.join(" "),
            self.ending,
            self.log.display()
        )?;
        for line in &self.tail {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// Returns a word of a command, quoted if it is empty or contains blanks.
fn shown(word: &str) -> String {
    let plain = !word.is_empty() && !word.contains(char::is_whitespace);
    if plain { word.to_owned() } else { format!("{word:?}") }
}

fn tail(log: &Path) -> io::Result<Vec<String>> {
    let mut file = File::open(log)?;
    let start = file.metadata()?.len().saturating_sub(BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line is incomplete if the read started inside the log.
    let lines = text.lines().skip(usize::from(start > 0));
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    Ok(lines[lines.len().saturating_sub(LINES)..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_shows_the_last_lines_of_a_long_log() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let log = dir.path().join("log");
        let text: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&log, text).expect("a file can be written");
        let failure = CommandFailure::new(&["sh", "-c", "make -j2"], "exit status: 2", &log);
        assert_eq!(failure.tail.len(), LINES);
        let shown = failure.to_string();
        let start = "sh -c \"make -j2\" (exit status: 2); its output is in ";
        assert!(shown.starts_with(start) && shown.ends_with("\n  line 5000"), "{shown}");
    }

    #[test]
    fn a_command_that_printed_nothing_has_no_tail() {
        let failure = CommandFailure::new(&["false"], "exit status: 1", Path::new("/no/log"));
        assert_eq!(failure.to_string(), "false (exit status: 1); its output is in /no/log");
    }
}
