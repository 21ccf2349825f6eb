//! Plain text tables with computed widths.

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<(String, Align)>,
    /// `None` is an empty line.
    rows: Vec<Option<Vec<String>>>,
}

impl Table {
    /// Returns a table with the given columns and no rows.
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns.map(|(name, align)| (name.to_owned(), align)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a column on the right.
    pub(super) fn column(&mut self, name: &str, align: Align) {
        self.columns.push((name.to_owned(), align));
    }

    /// Adds a row; missing cells are empty and extra ones are not shown.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(Some(cells));
    }

    /// Adds an empty line.
    pub(super) fn gap(&mut self) {
        self.rows.push(None);
    }

    /// Returns the text, one line per row, without trailing blanks.
    pub(super) fn render(&self) -> String {
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let all = || std::iter::once(&head).chain(self.rows.iter().flatten());
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| all().map(|row| width(row, i)).max().unwrap_or(0))
            .collect();
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        let mut text = self.line(&head, &widths) + &self.line(&rule, &widths);
        for row in &self.rows {
            match row {
                Some(cells) => text.push_str(&self.line(cells, &widths)),
                None => text.push('\n'),
            }
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let filled: Vec<String> = widths
            .iter()
            .zip(&self.columns)
            .enumerate()
            .map(|(i, (width, (_, align)))| {
                let cell = cells.get(i).map_or("", String::as_str);
                match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                }
            })
            .collect();
        filled.join("  ").trim_end().to_owned() + "\n"
    }
}

fn width(row: &[String], column: usize) -> usize {
    row.get(column).map_or(0, |cell| cell.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn every_column_is_as_wide_as_its_widest_cell_and_no_line_ends_in_blanks() {
        let mut table = Table::new([("variant", Align::Left), ("ms", Align::Right)]);
        table.column("note", Align::Left);
        table.row(row(&["plain", "1,234", ""]));
        table.gap();
        table.row(row(&["synconce-sealed", "9", "lower"]));
        let expected = "\
variant             ms  note
---------------  -----  -----
plain            1,234

synconce-sealed      9  lower
";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn letters_beyond_ascii_count_as_one_column_each() {
        let mut table = Table::new([("a", Align::Right), ("b", Align::Left)]);
        table.row(row(&["µµ", "x"]));
        assert_eq!(table.render(), " a  b\n--  -\nµµ  x\n");
    }

    #[test]
    fn a_short_row_leaves_its_last_cells_empty() {
        let mut table = Table::new([("a", Align::Left), ("b", Align::Left)]);
        table.row(row(&["only"]));
        assert_eq!(table.render(), "a     b\n----  -\nonly\n");
    }
}
