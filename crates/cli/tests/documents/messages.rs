//! Messages that docs/troubleshooting.md quotes.

use crate::PROJECT;
use crate::markdown::Document;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

/// Returns the messages in the first column of the tables that no string of the sources has. Of
/// a shell script, each line counts as a string.
pub fn unknown() -> Vec<String> {
    let strings: Vec<_> = sources(&Path::new(PROJECT).join("crates"))
        .iter()
        .flat_map(|source| {
            let text = fs::read_to_string(source).expect("a source");
            if source.extension().is_some_and(|extension| extension == "sh") {
                text.lines().map(|line| line.replace("${", "{").replace('"', " ")).collect()
            } else {
                strings(&text)
            }
        })
        .collect();
    assert!(strings.len() > 1000, "the sources are found");
    let page = Document::read("docs/troubleshooting.md");
    let quoted: Vec<_> =
        page.prose.iter().filter_map(|(line, text)| Some((line, quoted(text)?))).collect();
    assert!(quoted.len() > 30, "the messages of the page are found");
    let strings: Vec<_> = strings.iter().map(|string| words(string)).collect();
    let is_unknown = |message: &str| {
        let message = words(message);
        !strings.iter().any(|string| contains(string, &message))
    };
    let unknown = quoted.iter().filter(|(_, message)| is_unknown(message));
    unknown.map(|(line, message)| format!("{}:{line}: {message}", page.name)).collect()
}

/// Returns the message in the first cell of a row of a table.
fn quoted(line: &str) -> Option<&str> {
    let (cell, _) = line.strip_prefix("| `")?.split_once("` | ")?;
    // A span whose content has backticks is between two on each side.
    Some(cell.strip_prefix('`').map_or(cell, |cell| cell.trim_end_matches('`')).trim())
}

/// Returns all files of Rust and all shell scripts below the directories `src` of `crates`.
pub fn sources(crates: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).expect("a directory of sources");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let (mut found, mut waiting) = (Vec::new(), Vec::new());
    waiting.extend(entries(crates).iter().map(|name| name.join("src")));
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(entries(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "sh") {
            found.push(path);
        }
    }
    found
}

/// Returns the string literals of a source, without their escapes.
fn strings(source: &str) -> Vec<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut characters = code.chars().peekable();
    let mut strings = Vec::new();
    let mut before = [' '; 2];
    while let Some(c) = characters.next() {
        match (before, c) {
            // A character, such as '"', or a lifetime.
            (_, '\'') => {
                characters.next_if_eq(&'\\');
                characters.next();
            }
            ([.., 'r'] | ['r', '#'], '"') => strings.push(raw(&mut characters, before[1] == '#')),
            (_, '"') => strings.push(plain(&mut characters)),
            _ => (),
        }
        before = [before[1], c];
    }
    strings
}

/// Returns the rest of a string.
fn plain(characters: &mut Peekable<Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = characters.next().filter(|c| *c != '"') {
        match c {
            '\\' => match characters.next() {
                // The string goes on at the next word.
                Some('\n') => while characters.next_if(|c| c.is_whitespace()).is_some() {},
                Some('n') => text.push('\n'),
                other => text.extend(other),
            },
            _ => text.push(c),
        }
    }
    text
}

/// Returns the rest of a raw string.
fn raw(characters: &mut Peekable<Chars<'_>>, has_hash: bool) -> String {
    let mut text = String::new();
    while let Some(c) = characters.next() {
        if c == '"' && (!has_hash || characters.next_if_eq(&'#').is_some()) {
            break;
        }
        text.push(c);
    }
    text
}

fn words(text: &str) -> Vec<&str> {
    // A string with a command of a shell has messages in quotes.
    let words = text.split(|c: char| c.is_whitespace() || c == '"');
    words.filter(|word| !word.is_empty()).collect()
}

/// Whether `message` is in the format string `string`. A word in capitals of the message stands
/// for what `{}` prints.
fn contains(string: &[&str], message: &[&str]) -> bool {
    let fits = |words: &[&str]| words.iter().zip(message).all(|(word, shown)| fits(word, shown));
    string.windows(message.len()).any(fits)
}

fn fits(word: &str, shown: &str) -> bool {
    let Some((fixed, rest)) = word.split_once('{') else { return word == shown };
    let (Some(shown), Some((_, rest))) = (shown.strip_prefix(fixed), rest.split_once('}')) else {
        return false;
    };
    let longest = shown.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').count();
    (1..=longest).any(|length| fits(rest, &shown[length..]))
}
