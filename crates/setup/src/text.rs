//! Texts and their lines.

use crate::error::Fault;

/// Edits `text` without the carriage returns of its line ends, and puts them back:
/// neither of the editors writes them. `None` when there is nothing to change.
pub(crate) fn edit(
    text: &str,
    edit: impl FnOnce(&str) -> Result<Option<String>, Fault>,
) -> Result<Option<String>, Fault> {
    if !text.contains("\r\n") {
        return edit(text);
    }
    let is_plain = |line: &str| line.ends_with('\n') && !line.ends_with("\r\n");
    if let Some(at) = text.split_inclusive('\n').position(is_plain) {
        let remedy = "give all its lines the same end, such as by dos2unix";
        return Err(Fault::new("its lines end in two ways", remedy).on_line(at + 1));
    }
    let edited = edit(&text.replace("\r\n", "\n"))?;
    Ok(edited.map(|edited| edited.replace('\n', "\r\n")))
}

/// The line, counted from 1, in which the byte `offset` of `text` is.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
