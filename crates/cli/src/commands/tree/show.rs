//! Verbs that read trees: `list`, `diff`, `verify`, `fsck`.

use super::bar::Bar;
use super::failure::{Failure, print};
use crate::arguments::tree::{Diff, Json};
use crate::text::{bytes, say};
use serde::Serialize;
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::process::ExitCode;
use synconce_durable::error::Error;
use synconce_fs::{Change, ChangeKind};
use synconce_tree::record::Name;
use synconce_tree::{Listed, Store};

/// How many paths are listed.
const NAMED: usize = 10;

/// A tree, as `list` shows it.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a Name,
    /// committed, open (some changes are not committed) or in use.
    state: &'static str,
    generation: u64,
    strategy: &'a str,
    /// Why this strategy was chosen.
    reason: &'a str,
    /// Bytes that a removal of this tree frees; null for a whole copy that is not committed.
    own: Option<u64>,
    /// Bytes that other trees use as well.
    shared: Option<u64>,
    layers: usize,
    parent: Option<&'a Name>,
    /// Seconds since 1970.
    made: u64,
    used: Option<&'a str>,
}

impl<'a> From<&'a Listed> for Shown<'a> {
    fn from(listed: &'a Listed) -> Self {
        let record = &listed.record;
        let state = match (&listed.used, listed.is_open) {
            (Some(_), _) => "in use",
            (None, true) => "open",
            (None, false) => "committed",
        };
        Self {
            name: &record.name,
            state,
            generation: record.generation,
            strategy: record.strategy.as_str(),
            reason: &record.reason,
            own: listed.own,
            shared: listed.shared,
            layers: record.layers.len(),
            parent: record.parent.as_ref().map(|parent| &parent.name),
            made: record.made,
            used: listed.used.as_deref(),
        }
    }
}

pub fn list(store: &Store, arguments: &Json) -> Result<(), Failure> {
    let (listed, broken) = synconce_tree::list(store)?;
    let shown: Vec<Shown<'_>> = listed.iter().map(Into::into).collect();
    broken.iter().for_each(|error| say(&error.to_string()));
    if arguments.json {
        return print_json(&shown);
    }
    if shown.is_empty() && broken.is_empty() {
        say(&format!("no trees in {}", store.path().display()));
        say("hint: `synconce tree import NAME DIR|TAR` makes one");
    } else if !shown.is_empty() {
        print(&table(&shown))?;
    }
    match broken.len() {
        0 => Ok(()),
        count => Err(Failure::from(format!("{count} records cannot be read"))),
    }
}

fn table(shown: &[Shown<'_>]) -> String {
    let head = ["NAME", "STATE", "GENERATION", "STRATEGY", "OWN", "SHARED", "PARENT"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(shown.iter().map(|one| {
        let parent = one.parent.map(ToString::to_string).unwrap_or_default();
        let words = [one.name.to_string(), one.state.to_owned(), one.generation.to_string()];
        let [name, state, generation] = words;
        let size = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), bytes);
        let (own, shared) = (size(one.own), size(one.shared));
        [name, state, generation, one.strategy.to_owned(), own, shared, parent]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::from(format!("cannot write JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// A path that differs, as JSON.
#[derive(Serialize)]
struct Difference {
    change: &'static str,
    /// Bytes that are not UTF-8 are replaced.
    path: String,
}

pub fn diff(store: &Store, arguments: &Diff) -> Result<ExitCode, Failure> {
    let readings =
        (synconce_tree::read(store, &arguments.a)?, synconce_tree::read(store, &arguments.b)?);
    let (a, b) = (readings.0.view()?, readings.1.view()?);
    let bar = Bar::new("compared");
    let changes = synconce_fs::compare(a.as_fd(), b.as_fd(), &bar)?;
    drop(bar);
    if arguments.json {
        let word = |change: &Change| match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Changed => "changed",
            ChangeKind::Removed => "removed",
        };
        let all = changes.iter().map(|change| Difference {
            change: word(change),
            path: String::from_utf8_lossy(&change.path).into_owned(),
        });
        print_json(&all.collect::<Vec<_>>())?;
    } else {
        print_changes(&changes, if arguments.null { 0 } else { b'\n' })?;
    }
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints bytes, because a name may be any bytes.
fn print_changes(changes: &[Change], end: u8) -> Result<(), Failure> {
    use std::io::Write;
    let mut text = Vec::new();
    for change in changes {
        text.extend_from_slice(match change.kind {
            ChangeKind::Added => b"A ",
            ChangeKind::Changed => b"C ",
            ChangeKind::Removed => b"D ",
        });
        text.extend_from_slice(&change.path);
        text.push(end);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(&text)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::from(format!("cannot write to standard output: {error}")))
}

pub fn verify(store: &Store, name: &Name) -> Result<ExitCode, Failure> {
    let bar = Bar::new("looked at");
    let altered = synconce_tree::verify(store, name, &bar)?;
    drop(bar);
    for one in &altered {
        for path in one.directories.iter().take(NAMED) {
            say(&format!("{} is not as it was frozen", one.layer.join(path).display()));
        }
        if one.directories.len() > NAMED {
            say(&format!("and {} directories more", one.directories.len() - NAMED));
        }
    }
    Ok(if altered.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A fault, as JSON.
#[derive(Serialize)]
struct Fault {
    fault: String,
}

pub fn fsck(store: &Store, arguments: &Json) -> Result<ExitCode, Failure> {
    let bar = Bar::new("looked at");
    let faults: Vec<Error> = synconce_tree::fsck(store, &bar)?;
    drop(bar);
    if arguments.json {
        let all = faults.iter().map(|fault| Fault { fault: fault.to_string() });
        print_json(&all.collect::<Vec<_>>())?;
    } else {
        faults.iter().for_each(|fault| say(&fault.to_string()));
    }
    if faults.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("{} faults in {}", faults.len(), store.path().display()));
    say("hint: `synconce tree remove` takes a broken tree away");
    Ok(ExitCode::FAILURE)
}
