//! Escapes names for JSON: bytes that are no UTF-8 become `\xNN`, and a backslash is doubled.

use std::fmt::Write;

pub(super) fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns the name of an escaped text; the result for other texts is unspecified.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            name.push(*first);
            continue;
        }
        let byte = tail.strip_prefix(b"x").and_then(|digits| {
            let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        match byte {
            Some(byte) => {
                name.push(byte);
                rest = &tail[3..];
            }
            None => {
                name.push(b'\\');
                rest = tail.strip_prefix(b"\\").unwrap_or(tail);
            }
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn a_name_comes_back_whatever_bytes_it_has() {
        for name in [&b"plain"[..], b"\\", b"\\x41", b"a\\\\b\xff\xfe", "ü\n\"".as_bytes(), b""] {
            assert_eq!(unescape(&escape(name)), name, "{name:?}");
        }
        assert_eq!(escape(b"a\xffb\\"), "a\\xffb\\\\");
    }
}
