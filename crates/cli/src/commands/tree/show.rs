//! Verbs that read trees: `list`, `log`, `diff`.

use super::bar::Bar;
use super::failure::verb_on;
use crate::arguments::tree::Diff;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, print};
use crate::table;
use crate::text::{bytes, notice, printable, say};
use serde::Serialize;
use serde_json::json;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use synconce_durable::record::time;
use synconce_fs::{ChangeKind, TreeDifference};
use synconce_tree::record::TreeName;
use synconce_tree::{ListedTree, Store};

/// A tree, as `list` shows it.
#[derive(Serialize)]
struct ShownTree<'a> {
    name: &'a TreeName,
    /// committed, open (some changes are not committed) or in use.
    state: &'static str,
    /// Whether runs and mounts may leave no changes in the tree.
    protected: bool,
    generation: u64,
    strategy: &'a str,
    /// Why this strategy was chosen.
    reason: &'a str,
    /// Bytes that a removal of this tree frees; null on btrfs for a whole copy that is not
    /// committed, and for a snapshot that was not verified.
    own: Option<u64>,
    /// Bytes that other trees use as well.
    shared: Option<u64>,
    layers: usize,
    /// How many older generations the tree keeps at most.
    keep: u32,
    /// How many older generations there are.
    kept: usize,
    parent: Option<&'a TreeName>,
    /// When this generation was made: ISO 8601, UTC.
    made: String,
    used: Option<&'a str>,
}

impl<'a> From<&'a ListedTree> for ShownTree<'a> {
    fn from(listed: &'a ListedTree) -> Self {
        let record = &listed.record;
        let state = if listed.used.is_some() {
            "in use"
        } else if listed.is_open {
            "open"
        } else {
            "committed"
        };
        Self {
            name: &record.name,
            state,
            protected: record.protected,
            generation: record.generation,
            strategy: record.strategy.as_str(),
            reason: &record.reason,
            own: listed.own,
            shared: listed.shared,
            layers: record.layers.len(),
            keep: record.keep,
            kept: record.kept.len(),
            parent: record.parent.as_ref().map(|parent| &parent.name),
            made: time(record.made),
            used: listed.used.as_deref(),
        }
    }
}

pub fn list(store: &Store, output: Output) -> Result<(), CommandError> {
    let (listed, broken) = synconce_tree::list(store)?;
    let shown: Vec<ShownTree<'_>> = listed.iter().map(Into::into).collect();
    broken.iter().for_each(|error| say(&error.to_string()));
    output.write_or(&shown, || {
        if shown.is_empty() && broken.is_empty() {
            say_none(store.path());
        } else if !shown.is_empty() {
            print(table(&shown))?;
        }
        Ok(())
    })?;
    match broken.len() {
        0 => Ok(()),
        1 => Err("1 record cannot be read".into()),
        count => Err(format!("{count} records cannot be read").into()),
    }
}

/// Lists the trees of a store that does not exist yet, at `path`.
pub fn list_none(path: &Path, output: Output) -> Result<(), CommandError> {
    output.write_or(&[(); 0], || {
        say_none(path);
        Ok(())
    })
}

fn say_none(store: &Path) {
    notice(&format!("no trees in {}", store.display()));
    let import = verb_on(store, &["import", "NAME", "SOURCE"]);
    notice(&format!("hint: `{import}` makes one"));
}

/// Returns the table. On a narrow terminal the time of day is left out first, then the columns that
/// say least about a tree.
fn table(shown: &[ShownTree<'_>]) -> String {
    let width = table::width_of(io::stdout());
    let whole = table::render(&rows(shown, "GENERATION", str::to_owned), None, &[]);
    let widest = whole.lines().map(|line| line.chars().count()).max();
    match width.filter(|width| widest > Some(*width)) {
        None => whole,
        Some(width) => {
            // STRATEGY, SHARED, GEN, OWN, MADE, PARENT.
            table::render(&rows(shown, "GEN", date), Some(width), &[3, 5, 2, 4, 6, 7])
        }
    }
}

fn date(made: &str) -> String {
    made.split('T').next().unwrap_or(made).to_owned()
}

fn rows(
    shown: &[ShownTree<'_>],
    generation: &str,
    time: impl Fn(&str) -> String,
) -> Vec<[String; 8]> {
    let head = ["NAME", "STATE", generation, "STRATEGY", "OWN", "SHARED", "MADE", "PARENT"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(shown.iter().map(|one| {
        let parent = one.parent.map(ToString::to_string).unwrap_or_default();
        let state = match (one.state, one.protected) {
            ("committed", true) => "protected",
            (state, _) => state,
        };
        let words = [one.name.to_string(), state.to_owned(), one.generation.to_string()];
        let [name, state, generation] = words;
        let (own, shared, made) = (size(one.own), size(one.shared), time(&one.made));
        [name, state, generation, one.strategy.to_owned(), own, shared, made, parent]
    }));
    rows
}

/// Returns the size of layers, which may be unknown.
pub fn size(count: Option<u64>) -> String {
    count.map_or_else(|| "?".to_owned(), bytes)
}

pub fn log(store: &Store, tree: &TreeName, output: Output) -> Result<(), CommandError> {
    let logged = synconce_tree::log(store, tree)?;
    let shown = logged.iter().map(|one| {
        let generation = &one.generation;
        json!({
            "name": format!("{tree}@{}", generation.generation),
            "generation": generation.generation,
            "made": time(generation.made),
            "strategy": generation.strategy.as_str(),
            "own": one.own,
            "shared": one.shared,
            "layers": generation.layers.len(),
        })
    });
    output.write_or(&shown.collect::<Vec<_>>(), || {
        let rows = logged.iter().map(|one| {
            let name = format!("{tree}@{}", one.generation.generation);
            let made = time(one.generation.made);
            let layers = one.generation.layers.len().to_string();
            [name, made, size(one.own), size(one.shared), layers]
        });
        let head = ["NAME", "MADE", "OWN", "SHARED", "LAYERS"].map(str::to_owned);
        let rows: Vec<_> = [head].into_iter().chain(rows).collect();
        print(table::render(&rows, table::width_of(io::stdout()), &[4, 3, 2]))
    })
}

/// A path that differs, as JSON.
#[derive(Serialize)]
struct Difference {
    change: &'static str,
    /// Bytes that are not UTF-8 are replaced.
    path: String,
}

pub fn diff(store: &Store, arguments: &Diff, output: Output) -> Result<ExitCode, CommandError> {
    let reading = synconce_tree::read(store, &arguments.a)?;
    let other = arguments.b.as_ref().map(|b| synconce_tree::read(store, b)).transpose()?;
    let (a, b) = match &other {
        Some(other) => (reading.view()?, other.view()?),
        None => (reading.committed_view()?, reading.view()?),
    };
    let bar = Bar::new("compared");
    let changes = synconce_fs::compare(a.as_fd(), b.as_fd(), &bar)?;
    drop(bar);
    let word = |change: &TreeDifference| match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Changed => "changed",
        ChangeKind::Removed => "removed",
    };
    let all = changes.iter().map(|change| Difference {
        change: word(change),
        path: String::from_utf8_lossy(path_of(change)).into_owned(),
    });
    let end = if arguments.null { 0 } else { b'\n' };
    output.write_or(&all.collect::<Vec<_>>(), || print_changes(&changes, end))?;
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints bytes, because a name may be any bytes. A terminal would act on some of them.
fn print_changes(changes: &[TreeDifference], end: u8) -> Result<(), CommandError> {
    let is_escaped = end == b'\n' && io::stdout().is_terminal();
    let mut text = Vec::new();
    for change in changes {
        text.extend_from_slice(match change.kind {
            ChangeKind::Added => b"A ",
            ChangeKind::Changed => b"C ",
            ChangeKind::Removed => b"D ",
        });
        if is_escaped {
            text.extend(printable(&String::from_utf8_lossy(path_of(change))).bytes());
        } else {
            text.extend_from_slice(path_of(change));
        }
        text.push(end);
    }
    print(&text)
}

/// Returns the path of a change, without a slash at its beginning; that of the root is `.`.
fn path_of(change: &TreeDifference) -> &[u8] {
    if change.path.is_empty() { b"." } else { &change.path }
}
