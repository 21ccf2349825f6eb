//! Bar charts as SVG: in the page of `doctor`, and the chart of README.md. Pure: figures in, text
//! out.
#![forbid(unsafe_code)]

use askama::Template;
use std::fmt;
use synconce_durable::text::printable;

/// Text from any source, for a chart or a page. Control characters, and characters that change the
/// direction of text, are escaped here. The template escapes what HTML takes for markup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(printable(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Text {
    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text, without its middle if it has more than `most` characters: the ends of a
    /// path say most about it.
    pub fn shortened(&self, most: usize) -> Self {
        let count = self.0.chars().count();
        if count <= most {
            return self.clone();
        }
        let before = most / 3;
        let after = most.saturating_sub(before + 3);
        let first = self.0.chars().take(before);
        Self(first.chain("...".chars()).chain(self.0.chars().skip(count - after)).collect())
    }
}

/// How a note is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoteKind {
    /// Without a judgement.
    #[default]
    Neutral,
    /// As good.
    Good,
    /// As bad.
    Bad,
}

impl NoteKind {
    fn class(self) -> &'static str {
        match self {
            Self::Neutral => "note",
            Self::Good => "good",
            Self::Bad => "bad",
        }
    }
}

/// A bar, below its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// What the bar is about.
    pub name: Text,
    /// Its length.
    pub value: f64,
    /// The length of a fainter bar behind it.
    pub faint: Option<f64>,
    /// What stands at its end.
    pub shown: Text,
    /// What stands at the right edge, in the line of the name.
    pub note: Text,
    /// How the note is shown.
    pub kind: NoteKind,
    /// Whether the bar stands out.
    pub is_marked: bool,
}

/// A chart of horizontal bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// What the chart is about.
    pub title: Text,
    /// What the bars are, and what the notes at the right edge are.
    pub heads: Option<(Text, Text)>,
    /// The bars, from the top down.
    pub bars: Vec<Bar>,
}

impl BarChart {
    /// Returns the chart as an element of a page, as wide as its place. The page has the style of
    /// the classes `head`, `name`, `note`, `shown`, `bar` and `faint`.
    pub fn inline(&self) -> String {
        self.drawing(None)
    }

    /// Returns the chart as a file of its own, `width` pixels wide, with this CSS.
    pub fn file(&self, width: u32, style: &str) -> String {
        self.drawing(Some(Alone { width, style }))
    }

    fn drawing(&self, alone: Option<Alone<'_>>) -> String {
        let head = if self.heads.is_some() { HEAD } else { 0 };
        let top = if alone.is_some() { TITLE + head } else { head };
        let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
        let longest = self.bars.iter().flat_map(|bar| [bar.value, bar.faint.unwrap_or(0.0)]);
        let longest = longest.map(finite).fold(0.0, f64::max);
        // The text at the end of the longest bar needs a place.
        let is_shown = self.bars.iter().any(|bar| !bar.shown.is_empty());
        let whole = if is_shown { 80.0 } else { 100.0 };
        let percent = |value: f64| {
            let part = if longest > 0.0 { finite(value) / longest } else { 0.0 };
            // A bar of no length would not be seen.
            format!("{:.2}", (whole * part).clamp(0.3, whole))
        };
        let row = |(y, bar)| Row {
            bar,
            name: Bar::name(bar),
            bold: if bar.is_marked { " bold" } else { "" },
            y,
            length: percent(bar.value),
            faint: bar.faint.map(percent),
        };
        let rows: Vec<_> = (top..).step_by(STEP as usize).zip(&self.bars).map(row).collect();
        let height = top + STEP * rows.len() as u32;
        // The template calls nothing that fails, and a write to a string cannot fail.
        Drawing { chart: self, rows, alone, top, height }.render().unwrap_or_default()
    }
}

impl Bar {
    /// Returns the name, short enough for a narrow page.
    fn name(&self) -> Text {
        self.name.shortened(NAME)
    }
}

/// Characters of a name.
const NAME: usize = 36;
/// Pixels of the title, of the line of heads, and from a bar to the next.
const TITLE: u32 = 40;
const HEAD: u32 = 30;
const STEP: u32 = 44;

/// Pixels at the left and right of a file.
const MARGIN: u32 = 16;

/// What a file has, and an element of a page has not.
struct Alone<'a> {
    width: u32,
    style: &'a str,
}

struct Row<'a> {
    bar: &'a Bar,
    name: Text,
    bold: &'static str,
    y: u32,
    /// In percent of the width.
    length: String,
    faint: Option<String>,
}

#[derive(Template)]
#[template(path = "bars.svg", escape = "html")]
struct Drawing<'a> {
    chart: &'a BarChart,
    rows: Vec<Row<'a>>,
    alone: Option<Alone<'a>>,
    top: u32,
    height: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, value: f64) -> Bar {
        Bar { name: name.into(), value, note: "a note".into(), ..Bar::default() }
    }

    fn chart(bars: Vec<Bar>) -> BarChart {
        BarChart { title: "a <title>".into(), heads: None, bars }
    }

    #[test]
    fn the_longest_bar_fills_the_width_and_the_others_are_parts_of_it() {
        let drawn = chart(vec![bar("a", 4.0), bar("b", 1.0), bar("c", 0.0)]).inline();
        for width in ["100.00%", "25.00%", "0.30%"] {
            assert_eq!(drawn.matches(&format!("width=\"{width}\"")).count(), 1, "{drawn}");
        }
        assert!(drawn.contains("width=\"100%\" height=\"132\" role=\"img\""), "{drawn}");
        assert!(drawn.contains("<title>a &#60;title&#62;</title>"), "{drawn}");
        // A longer bar behind it.
        let behind = Bar { faint: Some(8.0), ..bar("a", 4.0) };
        let drawn = chart(vec![behind]).inline();
        assert!(drawn.contains("class=\"faint\" x=\"0\" y=\"20\" width=\"100.00%\""), "{drawn}");
        assert!(drawn.contains("class=\"bar\" x=\"0\" y=\"20\" width=\"50.00%\""), "{drawn}");
    }

    #[test]
    fn figures_that_are_no_numbers_draw_a_bar_all_the_same() {
        for value in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let drawn = chart(vec![bar("a", value), bar("b", 1.0)]).inline();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{value}: {drawn}");
        }
    }

    #[test]
    fn a_hostile_name_is_no_markup_and_moves_no_other_text() {
        let name = "</text><script>\"'&\u{1b}[2J\u{202e}\n";
        let drawn = chart(vec![bar(name, 1.0)]).inline();
        assert_eq!(drawn.matches('<').count(), drawn.matches('>').count());
        assert!(!drawn.contains("<script"), "{drawn}");
        assert!(!drawn.contains(['\u{1b}', '\u{202e}']), "{drawn}");
        assert!(drawn.contains("\\u{1b}[2J\\u{202e}\\n</text>"), "{drawn}");
        let long = chart(vec![bar(&"x".repeat(5_000), 1.0)]).inline();
        assert!(long.len() < 600, "{}", long.len());
    }

    #[test]
    fn a_file_has_size_and_style_of_its_own() {
        let file = chart(vec![Bar { shown: "4 s".into(), ..bar("a", 4.0) }]).file(840, ".bar{}");
        assert!(file.contains("width=\"840\" height=\"84\" viewBox=\"-16 0 840 84\""), "{file}");
        assert!(file.contains("<style>.bar{}</style>"), "{file}");
        assert!(file.contains("x=\"80.00%\" dx=\"8\" y=\"71\">4 s</text>"), "{file}");
    }
}
