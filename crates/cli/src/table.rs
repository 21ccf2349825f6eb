//! Tables for people: as wide as their cells, or cut to the width of the terminal.

use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// The blanks between two columns.
const GAP: usize = 2;
/// No column is cut below this width.
const NARROWEST: usize = 8;

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

/// Returns the rows in aligned columns. If the table is wider than `limit`, the widest columns
/// are cut, and their cut cells end with an ellipsis.
pub fn render<const N: usize>(rows: &[[String; N]], limit: Option<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    if let Some(limit) = limit {
        narrow(&mut widths, limit);
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{:width$}", cut(cell, width)));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn narrow<const N: usize>(widths: &mut [usize; N], limit: usize) {
    while widths.iter().sum::<usize>() + GAP * N.saturating_sub(1) > limit {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return,
        }
    }
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(limit: Option<usize>) -> String {
        let row = |name: &str, size: &str| [name.to_owned(), size.to_owned(), "x".to_owned()];
        render(&[row("NAME", "SIZE"), row("a-very-long-name-of-a-tree", "1.5 KiB")], limit)
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells_unless_a_terminal_is_narrower() {
        let whole =
            "NAME                        SIZE     x\na-very-long-name-of-a-tree  1.5 KiB  x\n";
        assert_eq!(table(None), whole);
        assert_eq!(table(Some(38)), whole);
        let narrow = "NAME          SIZE     x\na-very-long…  1.5 KiB  x\n";
        assert_eq!(table(Some(24)), narrow);
        assert!(table(Some(3)).starts_with("NAME      SIZE"), "columns keep a width to be read");
    }
}
