//! Paths as words of a shell.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns `path` as one word of a POSIX shell. Bytes that are not UTF-8 are printed by the
/// shell itself, so that the word is text.
pub(crate) fn quote(path: &Path) -> String {
    let mut word = String::from("'");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
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
        let names = [&b"/a b"[..], b"/it's", b"/$(x)`y`\"*", b"/line\n", b"/\xe9\xffz\n", b"/\\"];
        for name in names {
            let path = Path::new(OsStr::from_bytes(name));
            let script = format!("printf %s {}", quote(path));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, name, "{script}");
        }
    }
}
