//! Byte order marks, line ends, line numbers and comments of texts.

use crate::error::NotEdited;

/// Returns `text` without the byte order mark at its start, which dockerd from 23 on and
/// containerd skip.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Edits `text` without its byte order mark and the carriage returns of its line ends, and
/// restores them afterwards, because the editor of TOML does not write them. Returns `None` when
/// nothing changes.
pub(crate) fn edit(
    text: &str,
    edit: impl FnOnce(&str) -> Result<Option<String>, NotEdited>,
) -> Result<Option<String>, NotEdited> {
    let rest = without_mark(text);
    let mark = text.strip_suffix(rest).unwrap_or_default();
    Ok(edit_lines(rest, edit)?.map(|edited| format!("{mark}{edited}")))
}

fn edit_lines(
    text: &str,
    edit: impl FnOnce(&str) -> Result<Option<String>, NotEdited>,
) -> Result<Option<String>, NotEdited> {
    if !text.contains("\r\n") {
        return edit(text);
    }
    let is_plain = |line: &str| line.ends_with('\n') && !line.ends_with("\r\n");
    if let Some(at) = text.split_inclusive('\n').position(is_plain) {
        let remedy = "give all its lines the same end, such as by dos2unix";
        return Err(NotEdited::new("its lines end in two ways", remedy).on_line(at + 1));
    }
    let edited = edit(&text.replace("\r\n", "\n"))?;
    Ok(edited.map(|edited| edited.replace('\n', "\r\n")))
}

/// Returns the line, counted from 1, of the byte `offset` in `text`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns `text` without its comments, for TOML and systemd; dockerd's JSON has none.
pub(crate) fn without_comments(text: &str) -> String {
    text.lines().flat_map(|line| [before_comment(line), "\n"]).collect()
}

fn before_comment(line: &str) -> &str {
    if line.trim_start().starts_with(';') {
        return "";
    }
    let (mut quote, mut is_word) = (None, false);
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match quote {
            Some('"') if c == '\\' => drop(chars.next()),
            Some(open) if c == open => quote = None,
            Some(_) => {}
            // Within a word, systemd does not treat the character as a comment.
            None if c == '#' && !is_word => return &line[..at],
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
        is_word = !c.is_whitespace();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_and_line_ends_are_restored() {
        let longer = |text: &str| Ok(Some(format!("{text}b\n")));
        for (before, after) in [
            ("\u{feff}a\n", "\u{feff}a\nb\n"),
            ("\u{feff}a\r\n", "\u{feff}a\r\nb\r\n"),
            ("a\r\n", "a\r\nb\r\n"),
            ("", "b\n"),
        ] {
            assert_eq!(edit(before, longer).unwrap().as_deref(), Some(after), "{before:?}");
        }
        assert_eq!(edit("\u{feff}a", |_| Ok(None)).unwrap(), None);
    }

    #[test]
    fn a_comment_begins_where_a_line_or_a_word_would_and_in_no_quotes() {
        for (text, code) in [
            ("# a", ""),
            ("  ; a", "  "),
            ("a = 1 # b", "a = 1 "),
            ("A=x#y", "A=x#y"),
            ("a = \"# b\" # c", "a = \"# b\" "),
            ("a = \"\\\" # b\"", "a = \"\\\" # b\""),
            ("a = '\\' # b", "a = '\\' "),
            ("don't\n# b", "don't\n"),
        ] {
            assert_eq!(without_comments(text).trim_end(), code.trim_end(), "{text}");
        }
    }
}
