//! Tables for people: as wide as their cells, with fewer columns where the terminal is narrower.

use std::borrow::Cow;
use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use textwrap::{Options, WordSplitter, WrapAlgorithm, wrap};

/// The blanks between two columns.
const GAP: usize = 2;

/// Returns the width of the terminal `out`: `COLUMNS`, or what the terminal reports; `None` if
/// `out` is no terminal.
pub fn width_of(out: impl AsFd + IsTerminal) -> Option<usize> {
    if !out.is_terminal() {
        return None;
    }
    let named = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let reported = || rustix::termios::tcgetwinsize(out).ok().map(|size| size.ws_col.into());
    named.or_else(reported).filter(|width| *width > 0)
}

/// Returns the rows in aligned columns. If the table is wider than `limit`, columns of `spare` are
/// left out, the first of them first. A cell is never cut: half a name cannot be typed.
pub fn render<const N: usize>(
    rows: &[[String; N]],
    limit: Option<usize>,
    spare: &[usize],
) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut shown: Vec<usize> = (0..N).collect();
    let total = |shown: &[usize]| {
        let cells: usize = shown.iter().map(|column| widths[*column]).sum();
        cells + GAP * shown.len().saturating_sub(1)
    };
    for spared in spare {
        if limit.is_some_and(|limit| total(&shown) > limit) {
            shown.retain(|column| column != spared);
        }
    }
    let line = |row: &[String; N]| {
        let cells = shown.iter().map(|column| format!("{:1$}", row[*column], widths[*column]));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns `line` broken between words where it is longer than `limit`. The blanks at its begin,
/// and two more, begin each further line.
pub fn fit(line: &str, limit: Option<usize>) -> String {
    let Some(limit) = limit else { return line.to_owned() };
    let blanks = line.len() - line.trim_start().len();
    wrapped(line, limit, blanks + 2).join("\n")
}

/// Breaks `line` between words where it is longer than `width`. `indent` blanks begin each further
/// line.
pub fn wrapped(line: &str, width: usize, indent: usize) -> Vec<Cow<'_, str>> {
    let indent = " ".repeat(indent);
    let options = Options::new(width)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    wrap(line, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_only_where_a_terminal_is_narrower() {
        let line = "  hold docker: held since today; a-very-long-word-of-the-cost";
        assert_eq!([fit(line, None), fit(line, Some(80))], [line, line]);
        let broken = "  hold docker:\n    held since\n    today;\n    a-very-long-word-of-the-cost";
        assert_eq!(fit(line, Some(15)), broken);
    }

    fn table(limit: Option<usize>) -> String {
        let row = |name: &str, size: &str| [name.to_owned(), size.to_owned(), "x".to_owned()];
        let rows = [row("NAME", "SIZE"), row("a-very-long-name-of-a-tree", "1.5 KiB")];
        render(&rows, limit, &[2, 1])
    }

    #[test]
    fn a_table_leaves_out_columns_where_a_terminal_is_narrower() {
        let whole =
            "NAME                        SIZE     x\na-very-long-name-of-a-tree  1.5 KiB  x\n";
        assert_eq!(table(None), whole);
        assert_eq!(table(Some(38)), whole);
        let narrow = "NAME                        SIZE\na-very-long-name-of-a-tree  1.5 KiB\n";
        assert_eq!([table(Some(37)), table(Some(35))], [narrow, narrow]);
        let narrowest = "NAME\na-very-long-name-of-a-tree\n";
        assert_eq!([table(Some(34)), table(Some(3))], [narrowest, narrowest]);
    }
}
