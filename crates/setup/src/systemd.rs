//! Reads how systemd starts an engine: the unit, its drop-in files, and its environment files
//! (systemd.unit(5), systemd.exec(5)).

use crate::error::{Error, NotEdited, Refusal};
use crate::host::Host;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use synconce_sys::search::UNIT_DIRECTORIES;

/// The default PATH of a service (systemd.exec(5)), on systems where /sbin may be a separate
/// directory.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A word of a file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub text: String,
    pub path: PathBuf,
    pub line: usize,
}

impl Said {
    /// Makes a refusal at the word's position.
    pub fn refuse(&self, host: &Host, reason: &str, remedy: &str) -> Refusal {
        NotEdited::new(reason, remedy).on_line(self.line).in_file(&host.real(&self.path))
    }
}

/// How a service is started.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Whether there is a unit.
    pub is_there: bool,
    /// The command line.
    command: Vec<Said>,
    /// `NAME=VALUE`, in order.
    environment: Vec<Said>,
    /// Lines that empty `Environment=`, in order.
    resets: Vec<Said>,
    /// `NAME=VALUE` from environment files, which override `environment`.
    variables: Vec<Said>,
}

impl Service {
    /// Reads the service `name`, without the drop-in file `except`.
    pub fn read(host: &Host, name: &str, except: &Path) -> Result<Self, Error> {
        let mut service = Self::default();
        let mut files = Vec::new();
        for path in files_of(host, name, except)? {
            let (_, text) = host.text(&path)?;
            let Some(text) = text else { continue };
            service.is_there |= path.extension().is_some_and(|suffix| suffix == "service");
            service.add(&path, &text, &mut files);
        }
        for file in files {
            // A leading dash means that the file may be missing.
            let path = PathBuf::from(file.text.trim_start_matches('-'));
            let (_, text) = host.text(&path)?;
            service.variables.extend(variables(&path, &text.unwrap_or_default()));
        }
        Ok(service)
    }

    fn add(&mut self, path: &Path, text: &str, files: &mut Vec<Said>) {
        for setting in settings(path, text) {
            let list = match setting.key.as_str() {
                "ExecStart" => &mut self.command,
                "Environment" => &mut self.environment,
                "EnvironmentFile" => &mut *files,
                _ => continue,
            };
            // An empty assignment resets the list.
            if setting.words.is_empty() {
                list.clear();
                if setting.key == "Environment" {
                    let (path, line) = (path.to_owned(), setting.line);
                    self.resets.push(Said { text: setting.key, path, line });
                }
            }
            list.extend(setting.words);
        }
    }

    /// Returns the program that is started.
    pub fn program(&self) -> Option<&str> {
        // The prefixes of ExecStart (systemd.service(5)).
        self.command.first().map(|word| word.text.trim_start_matches(['@', '-', ':', '+', '!']))
    }

    /// Refuses a program other than `name`: a wrapper script may add any flag and variable.
    pub(crate) fn check_program(&self, host: &Host, name: &str) -> Result<(), Error> {
        let (Some(said), Some(program)) = (self.command.first(), self.program()) else {
            return Ok(());
        };
        if Path::new(program).file_name().is_some_and(|found| found == name) {
            return Ok(());
        }
        let reason =
            format!("starts {program}, not {name} itself: the options of {name} are unknown");
        let remedy = format!("have ExecStart= execute {name}, and set up again");
        Err(said.refuse(host, &reason, &remedy).into())
    }

    /// Returns the file that one of the flags `names` gives, else `usual`. A relative path, or
    /// a path that systemd expands, is refused.
    pub fn file(&self, host: &Host, names: &[&str], usual: &str) -> Result<PathBuf, Error> {
        let Some((said, given)) = names.iter().find_map(|name| self.flag(name)) else {
            return Ok(usual.into());
        };
        let path = PathBuf::from(given.unwrap_or_default());
        if path.is_absolute() && !path.to_string_lossy().contains(['$', '%']) {
            return Ok(path);
        }
        let path = path.display();
        let reason = format!(
            "gives the configuration as {path}, which is not absolute, or has $ or % in it"
        );
        let remedy = "write its whole path out, and set up again";
        Err(said.refuse(host, &reason, remedy).into())
    }

    /// Returns the flag `name` and its value, from the command line or from a variable that
    /// may become part of it.
    pub fn flag(&self, name: &str) -> Option<(Said, Option<String>)> {
        let words: Vec<Said> = self.command.iter().cloned().chain(self.in_variables()).collect();
        let matches = |said: &Said| match said.text.strip_prefix(name) {
            Some("") => Some(None),
            Some(rest) => rest.strip_prefix('=').map(|value| Some(value.to_owned())),
            None => None,
        };
        let (at, value) =
            words.iter().enumerate().find_map(|(at, said)| Some((at, matches(said)?)))?;
        let value = value.or_else(|| words.get(at + 1).map(|next| next.text.clone()));
        Some((words[at].clone(), value))
    }

    fn in_variables(&self) -> impl Iterator<Item = Said> + '_ {
        self.environment.iter().chain(&self.variables).flat_map(|said| {
            let value = said.text.split_once('=').map_or("", |(_, value)| value);
            let words = words(value).into_iter();
            words.map(|text| Said { text, ..said.clone() })
        })
    }

    /// Returns the last value of the variable `name` in `Environment=`.
    pub fn variable(&self, name: &str) -> Option<Said> {
        last(&self.environment, name)
    }

    /// Returns the last line that empties `Environment=`.
    pub(crate) fn reset(&self) -> Option<&Said> {
        self.resets.last()
    }

    /// Returns the last value of the variable `name` in environment files, which override
    /// `Environment=`.
    pub(crate) fn variable_of_files(&self, name: &str) -> Option<Said> {
        last(&self.variables, name)
    }
}

fn last(list: &[Said], name: &str) -> Option<Said> {
    list.iter().rev().find_map(|said| {
        let (own, value) = said.text.split_once('=')?;
        (own == name).then(|| Said { text: value.to_owned(), ..said.clone() })
    })
}

/// Returns the unit and its drop-in files in order: sorted by name, whichever directory they
/// are in. Of two files with one name, the first directory's counts.
fn files_of(host: &Host, name: &str, except: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut drop_ins: BTreeMap<_, PathBuf> = BTreeMap::new();
    let mut unit = None;
    for directory in UNIT_DIRECTORIES.map(Path::new) {
        let path = directory.join(format!("{name}.service"));
        if unit.is_none() && host.text(&path)?.1.is_some() {
            unit = Some(path);
        }
        for path in host.list(&directory.join(format!("{name}.service.d")), ".conf")? {
            let own = path.file_name().unwrap_or_default().to_owned();
            if path != except {
                drop_ins.entry(own).or_insert(path);
            }
        }
    }
    Ok(unit.into_iter().chain(drop_ins.into_values()).collect())
}

struct Setting {
    key: String,
    line: usize,
    words: Vec<Said>,
}

/// Returns the settings of the section `[Service]` in `text`.
fn settings(path: &Path, text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut is_service = false;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() {
            continue;
        }
        if line.starts_with('[') {
            is_service = line == "[Service]";
            continue;
        }
        let mut whole = line.to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            // Comments between continued lines are skipped (systemd.syntax(7)).
            let next = lines.find(|(_, next)| !next.trim_start().starts_with(['#', ';']));
            whole.push_str(next.map_or("", |(_, next)| next.trim()));
        }
        let Some((key, value)) = whole.split_once('=').filter(|_| is_service) else { continue };
        let said = |text| Said { text, path: path.to_owned(), line: at + 1 };
        let words = words(value).into_iter().map(said).collect();
        found.push(Setting { key: key.trim().to_owned(), line: at + 1, words });
    }
    found
}

/// Returns the assignments of an environment file.
fn variables(path: &Path, text: &str) -> Vec<Said> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with(['#', ';']));
    let assignments = lines.filter_map(|(at, line)| {
        let (name, value) = line.split_once('=')?;
        let text = format!("{}={}", name.trim(), words(value).join(" "));
        Some(Said { text, path: path.to_owned(), line: at + 1 })
    });
    assignments.collect()
}

/// Quotes `word` as one word of a setting.
pub(crate) fn quoted(word: &str) -> String {
    if !word.contains(|c: char| c.is_whitespace() || "\"'\\".contains(c)) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Splits `value` into words, without their quotes.
fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in value.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests;
