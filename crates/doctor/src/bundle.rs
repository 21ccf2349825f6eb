//! Takes names out of a report, so that a stranger may read the report. Pure: values in, values
//! out.
//!
//! A word of a text stays only if `bundle/words.txt` lists the word: it has the words that synconce
//! itself uses. Every other word becomes a placeholder, so no list of secrets has to be complete.
//! In a text a number of more than three digits is such a word, too. Figures are no texts, and
//! stay.
//!
//! Some listed words are names of people, too: `may`, `ruby`, `will`. Messages need them, so they
//! stay. In a path below `/home`, `/media` or `/run/media` each name is hidden by its place
//! instead. Only listed names with a dot at the start stay there, such as `.cache`.

use serde::Serialize;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Words of the messages of synconce, system calls, file systems, mount options, usual programs,
/// directories and devices.
const WORDS: &str = include_str!("bundle/words.txt");
/// Interpreters and compilers, whose names can end with a version: `python3.11`, `gcc-12`.
const VERSIONED: [&str; 14] = [
    "clang", "cpp", "gcc", "gfortran", "ghc", "guile", "lua", "nodejs", "perl", "php", "pip",
    "pypy", "python", "ruby",
];
/// The directories with the directories of users.
const HOMES: [&str; 2] = ["/home/", "/media/"];
/// Fields whose text stays whole: the release of the kernel, and times.
const PLAIN: [&str; 3] = ["kernel", "made", "started"];
/// The field with the first line that a program prints about its version.
const PROGRAM_VERSION: &str = "version";
/// The field with a distribution, whose version can end with a name of the user's own.
const DISTRIBUTION: &str = "distribution";
/// Fields with the number of a user.
const USERS: [&str; 2] = ["owner", "user"];
/// The field with the words of a command, of which the first stays: the program. Of a build step,
/// which has them in one text, none stays: the first is a shell.
const COMMAND: &str = "command";
/// The field with commands to repeat, which have the words of commands.
const ADVICE: &str = "advice";

/// Returns `report` with a placeholder in place of each word that synconce does not use itself. A
/// word has the same placeholder everywhere in the report.
///
/// # Errors
/// `report` has no JSON.
pub fn redacted(report: &impl Serialize) -> serde_json::Result<Value> {
    let mut report = serde_json::to_value(report)?;
    let mut redaction =
        Redaction { kept: WORDS.split_whitespace().collect(), placeholders: HashMap::new() };
    redaction.value(&mut report);
    Ok(report)
}

struct Redaction {
    kept: HashSet<&'static str>,
    /// The placeholder of each word.
    placeholders: HashMap<String, String>,
}

impl Redaction {
    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            // Names of fields: no report has a map whose keys are data.
            Value::Object(fields) => {
                fields.remove(ADVICE);
                match fields.get_mut(COMMAND) {
                    Some(Value::Array(words)) => words.truncate(1),
                    Some(Value::String(words)) => words.clear(),
                    _ => {}
                }
                for (name, value) in fields {
                    match value {
                        Value::String(text) if name == PROGRAM_VERSION => {
                            *text = self.version(text);
                        }
                        Value::Number(user) if USERS.contains(&name.as_str()) => {
                            let user = user.to_string();
                            // Root has no name to be hidden.
                            if user != "0" {
                                *value = self.placeholder(&user).into();
                            }
                        }
                        _ if PLAIN.contains(&name.as_str()) => {}
                        value if name == DISTRIBUTION => {
                            cut_version(value);
                            self.value(value);
                        }
                        value => self.value(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut hidden = String::new();
        let mut rest = text;
        let mut is_in_home = false;
        while let Some(start) = rest.find(is_of_word) {
            let (between, after) = rest.split_at(start);
            hidden += between;
            let before = &text[..text.len() - after.len()];
            is_in_home &= !between.contains(ends_path);
            is_in_home |= HOMES.iter().any(|homes| before.ends_with(homes));
            if let Some((address, after)) = split_address(after) {
                hidden += &self.placeholder(address);
                rest = after;
                continue;
            }
            let end = after.find(|c| !is_of_word(c)).unwrap_or(after.len());
            let (word, after) = after.split_at(end);
            let is_hidden = is_in_home && !word.starts_with('.');
            hidden += &if is_hidden { self.hide(word) } else { self.word(word) };
            rest = after;
        }
        hidden + rest
    }

    /// Like [`Redaction::text`], but what begins with a digit stays: a program may be a script that
    /// prints more than its version.
    fn version(&mut self, text: &str) -> String {
        let is_version =
            |word: &str| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit());
        let words =
            text.split(' ').map(|it| if is_version(it) { it.to_owned() } else { self.text(it) });
        words.collect::<Vec<_>>().join(" ")
    }

    fn word(&mut self, word: &str) -> String {
        let core = core(word);
        let is_letter = core.len() == 1 && core.is_ascii();
        let is_known = self.kept.contains(core) || is_versioned(core);
        if is_letter || is_number(core) || is_known { word.to_owned() } else { self.hide(word) }
    }

    fn hide(&mut self, word: &str) -> String {
        let core = core(word);
        if core.is_empty() {
            return word.to_owned();
        }
        // The same word with a full stop behind it is the same word.
        word.replacen(core, &self.placeholder(core), 1)
    }

    fn placeholder(&mut self, word: &str) -> String {
        let number = self.placeholders.len() + 1;
        let placeholder = || format!("name{number}");
        self.placeholders.entry(word.to_owned()).or_insert_with(placeholder).clone()
    }
}

/// Leaves the digits at the start of the version of `distribution`, with dots between them.
fn cut_version(distribution: &mut Value) {
    if let Some(Value::String(version)) = distribution.get_mut(PROGRAM_VERSION) {
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
        version.truncate(end.unwrap_or(version.len()));
    }
}

/// Splits the address of a network interface or host from the start of `text`: hexadecimal numbers
/// with at least two colons between them.
fn split_address(text: &str) -> Option<(&str, &str)> {
    let is_of_address = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
    let (address, after) = text.split_at(text.find(|c| !is_of_address(c)).unwrap_or(text.len()));
    let is_address = address.matches(':').count() >= 2 && !after.starts_with(is_of_word);
    is_address.then_some((address, after))
}

/// Whether `c` is a character of words. Dots and dashes are: the name of a file or a host is one
/// word. Every character outside of ASCII is.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') || !c.is_ascii()
}

/// Whether a path ends before `c`, in a message or in a list of options.
fn ends_path(c: char) -> bool {
    c.is_whitespace() || matches!(c, ':' | ',' | ';' | '\'' | '"' | '`')
}

/// Returns `word` without a full stop and without the dashes of an option.
fn core(word: &str) -> &str {
    word.trim_end_matches('.').trim_matches('-')
}

/// Whether `word` is the name of an interpreter or compiler, with or without a version.
fn is_versioned(word: &str) -> bool {
    VERSIONED.iter().filter_map(|name| word.strip_prefix(name)).any(|version| {
        let version = version.strip_prefix('-').unwrap_or(version);
        version.is_empty() || version.split('.').all(is_short)
    })
}

/// Whether `word` is a number of at most three digits on each side of its point.
fn is_number(word: &str) -> bool {
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    is_short(whole) && is_short(part)
}

fn is_short(digits: &str) -> bool {
    (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
