//! Lines of reports at the width of a screen.

use crate::commands::output::Stream;
use crate::table::wrapped;
use crate::text::printable;
use std::borrow::Cow;
use std::env;
use std::io::{stderr, stdout};

/// The width where neither COLUMNS nor a terminal has one.
const WIDTH: usize = 80;

/// Returns `report` with its long lines broken at the width of `stream`, and control characters
/// escaped: names of files, mounts, groups and programs may come from another user.
pub(super) fn fit(report: &str, stream: Stream) -> String {
    broken(report, width(stream))
}

/// Returns the width that COLUMNS says, or the width of the terminal.
fn width(stream: Stream) -> usize {
    let named = env::var("COLUMNS").ok().and_then(|value| value.parse().ok());
    let size = match stream {
        Stream::Output => rustix::termios::tcgetwinsize(stdout()),
        Stream::Errors => rustix::termios::tcgetwinsize(stderr()),
    };
    let of_terminal = size.ok().map(|size| usize::from(size.ws_col));
    // Both are 0 where the width is not known.
    [named, of_terminal].into_iter().flatten().find(|width| *width > 0).unwrap_or(WIDTH)
}

fn broken(report: &str, width: usize) -> String {
    let mut text = String::new();
    for line in report.lines().map(printable) {
        for part in parts(&line, width) {
            text += part.trim_end();
            text.push('\n');
        }
    }
    text
}

fn parts(line: &str, width: usize) -> Vec<Cow<'_, str>> {
    let label = line.trim_start();
    // A command that is broken cannot be copied. A terminal shows all of it.
    if line.starts_with(' ') && (label.starts_with("do ") || label.starts_with("undo ")) {
        return vec![line.into()];
    }
    // Blanks up to the column of the values: `   cause     ` of a finding, `  fsync        `.
    let blanks = match line.len() - label.len() {
        0 => 2,
        3 => 13,
        _ => 15,
    };
    wrapped(line, width, blanks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_goes_on_below_its_value_and_loses_no_word() {
        let report = "/srv: a verdict of many words\n  fsync        p50   1 ms  p99 2 ms\n   cause     \
                      one two three\n";
        let wanted = "/srv: a verdict of\n  many words\n  fsync        p50   1\n               ms  \
                      p99\n               2 ms\n   cause     one two\n             three\n";
        assert_eq!(broken(report, 22), wanted);
        assert_eq!(broken(report, 80), report);
    }

    #[test]
    fn a_command_and_a_long_name_stay_whole() {
        let report = "   do        synconce run -- apt-get install\n/a/very/long/name/of/a/file\n";
        assert_eq!(broken(report, 20), report);
    }

    #[test]
    fn control_characters_of_names_are_escaped() {
        assert_eq!(broken("/a\u{1b}[2J: x\n", 80), "/a\\u{1b}[2J: x\n");
    }
}
