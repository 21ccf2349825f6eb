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
pub(crate) fn fill(command: &[String], values: &BTreeMap<String, String>) -> Vec<String> {
    command
        .iter()
        .map(|word| {
            values
                .iter()
                .fold(word.clone(), |word, (key, value)| word.replace(&format!("{{{key}}}"), value))
        })
        .collect()
}
