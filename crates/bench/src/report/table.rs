//! Plain text tables with computed widths.

/// The blanks between two columns.
const GAP: usize = 2;
/// The last column is not made narrower than this.
const NARROWEST: usize = 12;

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
    /// Columns that are left out, in this order, until the table fits.
    spare: &'static [&'static str],
}

impl Table {
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns.map(|(name, align)| (name.to_owned(), align)).collect(),
            rows: Vec::new(),
            spare: &[],
        }
    }

    /// Sets the columns that are left out, in this order, until the table fits.
    pub(super) fn spare(self, names: &'static [&'static str]) -> Self {
        Self { spare: names, ..self }
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

    /// Returns the text, one line per row, without trailing blanks. If the table is wider than
    /// `limit`, spare columns are left out and named below, and the words of the last column wrap;
    /// numbers are never cut.
    pub(super) fn render(&self, limit: Option<usize>) -> String {
        let mut left_out = Vec::new();
        let mut fitting = self.clone();
        for name in self.spare {
            let at = fitting.columns.iter().position(|(column, _)| column == name);
            if let Some(at) = at.filter(|_| limit.is_some_and(|limit| !fitting.fits(limit))) {
                fitting.columns.remove(at);
                fitting.rows.iter_mut().flatten().filter(|row| at < row.len()).for_each(|row| {
                    row.remove(at);
                });
                left_out.push(*name);
            }
        }
        let text = fitting.whole(limit);
        match &left_out[..] {
            [] => text,
            names => {
                format!("{text}\nonly a wider terminal and --json show: {}\n", names.join(", "))
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let all = || std::iter::once(&head).chain(self.rows.iter().flatten());
        let widest = |column| all().map(|row| width(row, column)).max().unwrap_or(0);
        (0..self.columns.len()).map(widest).collect()
    }

    /// Whether all columns fit into `limit`, if the last one is made as narrow as [`NARROWEST`].
    fn fits(&self, limit: usize) -> bool {
        let widths = self.widths();
        let Some((last, others)) = widths.split_last() else { return true };
        let others: usize = others.iter().map(|width| width + GAP).sum();
        others + (*last).min(NARROWEST) <= limit
    }

    fn whole(&self, limit: Option<usize>) -> String {
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut widths = self.widths();
        if let (Some(limit), Some((last, others))) = (limit, widths.split_last_mut()) {
            let others: usize = others.iter().map(|width| width + GAP).sum();
            *last = (*last).min(limit.saturating_sub(others).max(NARROWEST));
        }
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        let mut text = self.lines(&head, &widths) + &self.lines(&rule, &widths);
        for row in &self.rows {
            match row {
                Some(cells) => text.push_str(&self.lines(cells, &widths)),
                None => text.push('\n'),
            }
        }
        text
    }

    /// Returns the lines of a row: several if the last cell is wider than its column.
    fn lines(&self, cells: &[String], widths: &[usize]) -> String {
        let Some(limit) = widths.last() else { return String::new() };
        let last = cells.get(widths.len() - 1).map_or("", String::as_str);
        let mut parts = wrapped(last, *limit).into_iter();
        let mut row = cells.to_vec();
        row.resize(widths.len(), String::new());
        row[widths.len() - 1] = parts.next().unwrap_or_default();
        let mut text = self.line(&row, widths);
        for part in parts {
            let mut row = vec![String::new(); widths.len()];
            row[widths.len() - 1] = part;
            text.push_str(&self.line(&row, widths));
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
        filled.join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
    }
}

/// Breaks `text` between words into lines of at most `limit` characters. A longer word is a line.
fn wrapped(text: &str, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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
        assert_eq!(table.render(None), expected);
    }

    #[test]
    fn the_words_of_the_last_column_wrap_where_the_table_is_too_wide() {
        let mut table = Table::new([("a", Align::Left), ("note", Align::Left)]);
        table.row(row(&["x", "higher than the baseline by much"]));
        table.row(row(&["y", "lower"]));
        let expected = "\
a  note
-  -----------------
x  higher than the
   baseline by much
y  lower
";
        assert_eq!(table.render(Some(20)), expected);
        assert!(table.render(None).contains("higher than the baseline by much\n"));
    }

    #[test]
    fn a_narrow_table_leaves_out_spare_columns_and_names_them() {
        let columns = [("a", Align::Left), ("p", Align::Right), ("q", Align::Right)];
        let mut table = Table::new(columns).spare(&["p", "none", "q"]);
        table.column("note", Align::Left);
        table.row(row(&["x", "0.333", "7", "lower"]));
        table.row(row(&["y", "1"]));
        assert!(table.render(Some(18)).starts_with("a      p  q  note\n"));
        let narrow = "\
a  q  note
-  -  -----
x  7  lower
y

only a wider terminal and --json show: p
";
        assert_eq!([table.render(Some(17)), table.render(Some(11))], [narrow, narrow]);
        assert!(table.render(Some(10)).starts_with("a  note\n"));
    }

    #[test]
    fn letters_beyond_ascii_count_as_one_column_each() {
        let mut table = Table::new([("a", Align::Right), ("b", Align::Left)]);
        table.row(row(&["µµ", "x"]));
        assert_eq!(table.render(None), " a  b\n--  -\nµµ  x\n");
    }

    #[test]
    fn a_short_row_leaves_its_last_cells_empty() {
        let mut table = Table::new([("a", Align::Left), ("b", Align::Left)]);
        table.row(row(&["only"]));
        assert_eq!(table.render(None), "a     b\n----  -\nonly\n");
    }
}
