//! The words of commands.

use std::collections::BTreeMap;
use std::path::Path;

/// Returns owned words.
pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns a path as a word.
pub(crate) fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Replaces every `{key}` of a command by its value; other braces stay.
pub(crate) fn fill(command: &[String], values: &BTreeMap<&str, String>) -> Vec<String> {
    command
        .iter()
        .map(|word| {
            values
                .iter()
                .fold(word.clone(), |word, (key, value)| word.replace(&format!("{{{key}}}"), value))
        })
        .collect()
}

/// Returns the command with which sh(1) executes a line.
pub(crate) fn shell(line: &str) -> Vec<String> {
    words(&["sh", "-c", line])
}

/// Returns the program with which a line starts, if no shell is needed to find out.
pub(crate) fn program(line: &str) -> Option<&str> {
    let first = line.split_whitespace().find(|word| !word.contains('='))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
    first.chars().all(plain).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_from_assignments_before_it_and_not_guessed() {
        assert_eq!(program("CC=gcc make -j2 && true"), Some("make"));
        assert_eq!(program("(cd src; make)"), None);
        assert_eq!(program("./build.sh"), None);
        assert_eq!(program(""), None);
    }
}
