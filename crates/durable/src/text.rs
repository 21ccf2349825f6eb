//! Paths as text, for people to read and for shells.
//!
//! serde refuses to serialise a path that is not UTF-8. Without the functions here, this error
//! would end a run whose record or last message contains such a path.

use serde::{Serialize, Serializer};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Serialises `path` as text in which bytes that are not UTF-8 are replaced.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

/// Serialises an optional path, as [`path`] does.
pub fn path_if_any<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// Serialises several paths, as [`path`] does.
pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Serialises a path as text, or as its bytes if it is not UTF-8, so that no byte is lost.
pub(crate) mod exact_path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => text.serialize(to),
            None => path.as_os_str().as_bytes().serialize(to),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::Text(path) => path,
            Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

/// Returns `name`, or `''` if it is empty, so that a message shows an empty name.
pub fn shown(name: &str) -> &str {
    if name.is_empty() { "''" } else { name }
}

/// Returns `path` as one word of a POSIX shell that is safe to show and to type. Bytes that are not
/// UTF-8, and characters that a terminal acts on, become the output of printf(1) in the word. Only
/// line breaks at the end of the path are written as they are.
pub fn quote(path: &Path) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(byte);
    let bytes = path.as_os_str().as_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return path.to_string_lossy().into_owned();
    }
    let mut word = String::from("'");
    // The bytes that printf(1) will print. A command substitution removes line breaks at the end of
    // its output (POSIX, 2.6.3), so the character after a line break is printed, too.
    let mut printed = Vec::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if is_obeyed(letter) || printed.ends_with(b"\n") {
                printed.extend(letter.to_string().into_bytes());
                continue;
            }
            print(&mut word, &mut printed);
            match letter {
                '\'' => word += r"'\''",
                letter => word.push(letter),
            }
        }
        printed.extend(chunk.invalid());
    }
    let breaks = printed.iter().rev().take_while(|byte| **byte == b'\n').count();
    printed.truncate(printed.len() - breaks);
    print(&mut word, &mut printed);
    word + &"\n".repeat(breaks) + "'"
}

/// Adds a command that prints `printed` to `word`, which ends within single quotes. Empties
/// `printed`.
fn print(word: &mut String, printed: &mut Vec<u8>) {
    if !printed.is_empty() {
        let octal: String = printed.drain(..).map(|byte| format!("\\{byte:03o}")).collect();
        *word += &format!("'\"$(printf '{octal}')\"'");
    }
}

/// Returns `text`, which may come from another user, with characters escaped on which a terminal
/// acts ([`is_obeyed`]).
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_obeyed(letter) { safe.extend(letter.escape_default()) } else { safe.push(letter) }
    }
    safe
}

/// Whether a terminal acts on `letter`: a control character, or one that breaks a line or changes
/// the direction of text.
pub fn is_obeyed(letter: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
    letter.is_control()
        || turns.contains(&letter)
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::process::Command;

    #[test]
    fn a_shell_reads_back_the_same_bytes() {
        let names = [
            &b"/a-b.c"[..],
            b"",
            b"/a b",
            b"/it's",
            b"/$(x)`y`\"*",
            b"/line\n",
            b"/\xe9\xffz\n",
            b"/\\",
            b"/a\tb",
            b"/a\n\nb\tc\n'd",
            "/a\u{202e}\n\u{9b}\u{e9}".as_bytes(),
        ];
        for name in names {
            let path = Path::new(OsStr::from_bytes(name));
            let script = format!("printf %s {}", quote(path));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, name, "{script}");
            assert!(!quote(path).trim_end_matches(['\'', '\n']).contains(is_obeyed), "{script}");
        }
        assert_eq!(quote(Path::new("/a-b.c")), "/a-b.c");
    }
}
