//! Text and numbers for the terminal.

use crate::cancellation::{Cancellation, are_signals_handled, cancelled_by};
use rustix::event::PollFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use synconce_durable::text::is_obeyed;
pub use synconce_durable::text::printable;
use synconce_fs::wait_until_ready;
use synconce_sys::search;

/// Writes one line to standard error, prefixed with `synconce: `. Control characters are
/// escaped, because `line` may contain text of another user. A write error is ignored: a
/// closed standard error is not a failure of the run.
pub fn say(line: &str) {
    let line = format!("synconce: {}\n", printable(line));
    let _ = OutputStream::new(rustix::stdio::stderr()).write_all(line.as_bytes());
}

/// A standard stream or the file of a report. Another process may have made it non-blocking, as
/// Node.js does to streams that it shares: then a write waits until the stream takes more. A write
/// that waits for the reader of a pipe fails with `ECANCELED` once a signal cancels the verb.
pub struct OutputStream<'a> {
    stream: BorrowedFd<'a>,
    /// A description of the pipe that only this process has.
    own: Option<OwnedFd>,
}

impl<'a> OutputStream<'a> {
    /// Returns the output that writes to `stream`.
    pub fn new(stream: BorrowedFd<'a>) -> Self {
        // Without handlers a signal ends the process.
        let own = if are_signals_handled() { open_pipe(stream) } else { None };
        Self { stream, own }
    }
}

/// Opens `stream` anew without blocking, if `stream` is a pipe and may be opened: the flag of the
/// caller's own description is shared with other processes.
fn open_pipe(stream: BorrowedFd<'_>) -> Option<OwnedFd> {
    let is_pipe = FileType::from_raw_mode(fstat(stream).ok()?.st_mode) == FileType::Fifo;
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    is_pipe.then(|| openat(CWD, path, flags, Mode::empty()).ok())?
}

impl Write for OutputStream<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let stream = self.own.as_ref().map_or(self.stream, AsFd::as_fd);
        loop {
            match rustix::io::write(stream, text) {
                Err(Errno::AGAIN) => wait_for_reader(stream)?,
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a signal has ended a wait for a reader, so that output is missing.
static IS_CUT_OFF: AtomicBool = AtomicBool::new(false);

/// Whether output is missing because a signal has ended the wait for its reader.
pub fn is_output_cut_off() -> bool {
    IS_CUT_OFF.load(Ordering::Relaxed)
}

fn wait_for_reader(stream: BorrowedFd<'_>) -> io::Result<()> {
    wait_until_ready(stream, PollFlags::OUT, &Cancellation).inspect_err(|_| {
        IS_CUT_OFF.fetch_or(cancelled_by().is_some(), Ordering::Relaxed);
    })
}

/// Whether `--quiet` was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on [`notice`] prints nothing if `quiet` is set.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether `--quiet` was given.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Like [`say`], for a line that `--quiet` leaves out: neither an error nor a loss.
pub fn notice(line: &str) {
    if !is_quiet() {
        say(line);
    }
}

/// Like [`printable`], for JSON, where unescaped line breaks occur only between values.
pub fn printable_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_obeyed(c) {
            safe += &format!("\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Formats a number of bytes in the largest unit of which there is at least one.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats a number with a comma between groups of three digits.
pub fn whole(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        _ => format!("{},{:03}", whole(count / 1_000), count % 1_000),
    }
}

/// Formats microseconds as us, ms or s.
pub fn micros(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} us"),
        1_000..1_000_000 => format!("{:.1} ms", count as f64 / 1e3),
        _ => format!("{:.2} s", count as f64 / 1e6),
    }
}

/// Whether every shell reads the printed `word` back unchanged. Only some shells have an escape for
/// line breaks and other control characters.
pub fn is_typable(word: &str) -> bool {
    !word.starts_with('-') && !word.chars().any(is_obeyed)
}

/// Whether the command line has quotes or operators, which have a meaning for a shell only.
pub fn needs_a_shell(line: &str) -> bool {
    line.contains(|c: char| "'\"\\|&;<>()$`*?[]{}~#=\n".contains(c))
}

/// Returns what names this program in a command line of sudo.
pub fn name_for_sudo() -> String {
    synconce_durable::text::quote(&search::name_for_sudo())
}

/// Quotes `words` for a shell.
pub fn shell(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.chars().any(is_obeyed) {
        // The escapes that bash, zsh and POSIX.1-2024 share.
        let escaped = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            '\n' => "\\n".to_owned(),
            '\t' => "\\t".to_owned(),
            c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
            c if is_obeyed(c) => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        };
        format!("$'{}'", word.chars().map(escaped).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(micros(1_500), "1.5 ms");
        assert_eq!([999, 5_210, 1_000_007].map(whole), ["999", "5,210", "1,000,007"]);
    }

    #[test]
    fn words_are_quoted_only_where_a_shell_would_split_them() {
        let words = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned);
        assert_eq!(shell(&words), "sh -c 'echo '\\''a b'\\''' ''");
    }

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped_and_a_shell_reads_them_back() {
        assert_eq!(printable("a\u{1b}[2J\u{9b}\u{202e}\nö"), r"a\u{1b}[2J\u{9b}\u{202e}\nö");
        assert_eq!(printable_json("[\n\"\u{7f}ö\u{9b}\"\n]"), "[\n\"\\u007fö\\u009b\"\n]");
        let word = "it's\ta\nline \\ \u{1b}[2J \u{202e}".to_owned();
        let quoted = shell(std::slice::from_ref(&word));
        assert!(!quoted.chars().any(is_obeyed), "{quoted}");
        let mut bash = std::process::Command::new("bash");
        bash.env("LC_ALL", "C.UTF-8").args(["-c", &format!("printf %s {quoted}")]);
        assert_eq!(String::from_utf8(bash.output().unwrap().stdout).unwrap(), word);
    }
}
