//! Paths as text, for people to read and for shells.
//!
//! serde refuses to serialise a path that is not UTF-8. The error would end a run whose record
//! or last message contains such a path.

use serde::{Serialize, Serializer};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Serialises `path`, and replaces bytes that are not UTF-8.
///
/// # Errors
/// Those of `serializer`.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

/// Serialises an optional path, as [`path`] does.
///
/// # Errors
/// Those of `serializer`.
pub fn path_if_any<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// Serialises several paths, as [`path`] does.
///
/// # Errors
/// Those of `serializer`.
pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Returns `path` as one word of a POSIX shell. Bytes that are not UTF-8 are printed by the
/// shell itself, so that the word is text.
pub fn quote(path: &Path) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(byte);
    let bytes = path.as_os_str().as_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return path.to_string_lossy().into_owned();
    }
    let mut word = String::from("'");
    for chunk in bytes.utf8_chunks() {
        word += &chunk.valid().replace('\'', r"'\''");
        for byte in chunk.invalid() {
            word += &format!("'\"$(printf '\\{byte:03o}')\"'");
        }
    }
    word.push('\'');
    word
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
        ];
        for name in names {
            let path = Path::new(OsStr::from_bytes(name));
            let script = format!("printf %s {}", quote(path));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, name, "{script}");
        }
        assert_eq!(quote(Path::new("/a-b.c")), "/a-b.c");
    }
}
