//! Bracket expressions of patterns: `[a-z]` and `[!a-z]` match one byte (glob(7)).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What is wrong with the bracket expressions of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// No `]` closes a `[` within its name; the path with a backslash before it.
    Unclosed(PathBuf),
    /// This expression matches no byte, such as `[z-a]`.
    Empty(String),
}

/// Returns what is wrong with the first bracket expression of `typed` that is wrong.
pub(super) fn wrong(typed: &Path) -> Option<Wrong> {
    let bytes = typed.as_os_str().as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let name = bytes[at..].split(|byte| *byte == b'/').next().unwrap_or_default();
        at += match name {
            [b'\\', ..] => 2,
            [b'[', ..] => match set(name, 0) {
                Some((length, _)) if is_empty(name) => {
                    return Some(Wrong::Empty(String::from_utf8_lossy(&name[..length]).into()));
                }
                Some((length, _)) => length,
                None => {
                    let escaped = [&bytes[..at], b"\\", &bytes[at..]].concat();
                    return Some(Wrong::Unclosed(OsString::from_vec(escaped).into()));
                }
            },
            _ => 1,
        };
    }
    None
}

/// Whether the bracket expression at the start of `glob` matches no byte that a name may have.
fn is_empty(glob: &[u8]) -> bool {
    let matches = |byte| set(glob, byte).is_some_and(|(_, matches)| matches);
    !(1..=u8::MAX).filter(|byte| *byte != b'/').any(matches)
}

/// Returns the length of the bracket expression at the start of `glob`, and whether `byte` is
/// in it; `None` without a closing bracket.
pub(super) fn set(glob: &[u8], byte: u8) -> Option<(usize, bool)> {
    let is_negated = matches!(glob.get(1), Some(b'!' | b'^'));
    let first = if is_negated { 2 } else { 1 };
    let (mut at, mut is_in) = (first, false);
    loop {
        let from = *glob.get(at)?;
        if from == b']' && at > first {
            return Some((at + 1, is_in != is_negated));
        }
        match (glob.get(at + 1), glob.get(at + 2)) {
            (Some(b'-'), Some(to)) if *to != b']' => {
                is_in |= (from..=*to).contains(&byte);
                at += 3;
            }
            _ => {
                is_in |= from == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unclosed_bracket_is_found_and_escaped() {
        for (typed, escaped) in [
            ("/a/[b", Some(r"/a/\[b")),
            ("/a/[b/c]", Some(r"/a/\[b/c]")),
            ("/[a]/[]", Some(r"/[a]/\[]")),
            (r"/a/\[b", None),
            ("/a/[]]", None),
            ("/a/[!a-z]x", None),
        ] {
            assert_eq!(
                wrong(Path::new(typed)),
                escaped.map(|path| Wrong::Unclosed(path.into())),
                "{typed}"
            );
        }
    }

    #[test]
    fn an_expression_that_matches_no_byte_is_found() {
        for (typed, empty) in [
            ("/a/[z-a]", Some("[z-a]")),
            ("/a/x[z-a9-0]y/b", Some("[z-a9-0]")),
            ("/a/[!\u{1}-\u{7f}]", None),
            ("/a/[z-ab]", None),
            ("/a/[!z-a]", None),
        ] {
            let empty = empty.map(|text| Wrong::Empty(text.to_owned()));
            assert_eq!(wrong(Path::new(typed)), empty, "{typed}");
        }
    }
}
