//! Escapes file names, which are bytes, as text for JSON and for display.

use std::fmt::Write;

/// Returns text that is different for any two byte strings and needs no quotes on a terminal.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_stay_different() {
        assert_eq!(escape("größe".as_bytes()), "größe");
        assert_eq!(escape(b"a\xffb"), r"a\xffb");
        assert_eq!(escape(br"a\xffb"), r"a\\xffb");
        assert_eq!(escape(b"two\nlines"), r"two\nlines");
    }
}
