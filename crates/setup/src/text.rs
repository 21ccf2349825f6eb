//! Line ends, line numbers and comments of texts.

use crate::error::NotEdited;

/// Edits `text` without the carriage returns of its line ends, and restores them afterwards,
/// because the editor of TOML does not write them. Returns `None` when nothing changes.
pub(crate) fn edit(
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
