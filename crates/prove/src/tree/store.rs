//! A store as its user sees it: by the tool's verbs, and by the names in its directories.

use super::ground;
use super::script::{Step, step};
use crate::Result;
use crate::tool::Tool;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, Options};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};

/// Far more than any verb takes here.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The tree in which is shown that the store works on, and the edit.
const LATER: &str = "later";
const LATER_EDIT: u64 = ground::EDITS - 1;

/// A store, and the tool that it is used by.
pub(super) struct Store<'a> {
    pub tool: &'a Tool,
    pub path: PathBuf,
    /// A directory in memory, not on the disk of the store.
    pub control: PathBuf,
    /// Whether times are compared.
    pub times: bool,
    /// Whether its trees were changed at random, so that no known edit can be done in them.
    pub is_random: bool,
}

/// What a command said of what was cut short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The trees from which what was thrown away had come.
    pub interrupted: Vec<String>,
    /// The trees of which uncommitted changes were lost.
    pub lost: Vec<String>,
}

/// How a tree is listed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Listed {
    pub name: String,
    /// `committed`, `open` or `in use`.
    pub state: String,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether there is one.
    pub store: bool,
    /// How many sessions were cut short, before any command looked.
    pub sessions: usize,
    /// The trees of which the disk knows that something was done in them.
    pub noted: Vec<String>,
    /// What the first command said.
    pub first: Said,
    /// What the second said.
    pub second: Said,
    /// What commands failed that must not, `fsck` among them, and how.
    pub faults: Vec<String>,
    pub listed: Vec<Listed>,
    /// Every tree by its content, or why it could not be read.
    pub trees: BTreeMap<String, std::result::Result<Arc<Manifest>, String>>,
    /// What is left of no more use after `gc --wait`.
    pub leftovers: Vec<String>,
    /// Why it does not work on, if it does not.
    pub stuck: Option<String>,
}

impl Seen {
    /// Whether the first command said that something done in `name` is gone; a session of it that was
    /// cut short says the same.
    pub(super) fn tells(&self, name: &String) -> bool {
        self.first.lost.contains(name) || self.first.interrupted.contains(name)
    }
}

/// How a store came to be as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// The power went.
    Power,
    /// Processes were killed.
    Kill,
}

impl Store<'_> {
    /// The command of a verb.
    pub(super) fn command(&self, words: &[String]) -> Command {
        let mut command = self.tool.tree(&self.path, &self.control);
        command.args(words);
        command
    }

    fn finish(&self, words: &[String]) -> Result<Finished> {
        Ok(process::run(&mut self.command(words), patiently(LIMIT))?)
    }

    /// Does a verb, however it ends.
    pub(super) fn verb(&self, text: &str) -> Result<Finished> {
        self.finish(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    /// Does a step, which has to succeed.
    pub(super) fn perform(&self, step: &Step) -> Result<()> {
        let finished = self.finish(&step.words)?;
        match finished.status.success() {
            true => Ok(()),
            false => Err(failure(&step.name(), &finished).into()),
        }
    }

    fn options(&self) -> Options {
        if self.times { Options::default().mtimes() } else { Options::default() }
    }

    /// The content of the tree `name`.
    pub(super) fn content(&self, name: &str) -> Result<Arc<Manifest>> {
        let to = self.control.join("exported");
        let words = ["export", name, &to.display().to_string()].map(str::to_owned);
        let finished = self.finish(&words)?;
        let manifest = match finished.status.success() {
            true => Manifest::with(&to, &self.options()).map_err(Into::into),
            false => Err(failure("export", &finished).into()),
        };
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        manifest.map(Arc::new)
    }

    /// Looks at everything; `variant` chooses the command that comes first.
    pub(super) fn look(&self, blow: Blow, variant: u64) -> Result<Seen> {
        let mut seen = Seen { store: self.path.join("store.json").exists(), ..Seen::default() };
        if !seen.store {
            seen.stuck = self.perform(&step("init", super::script::Effect::Makes)).err().map(text);
            return Ok(seen);
        }
        seen.sessions = self.cut_short(blow)?;
        let noted = names(&self.path.join("open"))?;
        seen.noted =
            noted.iter().filter_map(|name| name.strip_suffix(".json")).map(str::to_owned).collect();
        let first = ["fsck", "list", "gc --wait"][usize::try_from(variant % 3)?];
        seen.first = self.ask(first, &mut seen.faults)?;
        seen.second = self.ask("fsck", &mut seen.faults)?;
        let listed = self.verb("list --json")?;
        if !listed.status.success() {
            seen.faults.push(failure("list --json", &listed));
        }
        // A store that is beyond use lists nothing.
        seen.listed = match serde_json::from_str(&listed.stdout) {
            Err(_) if !listed.status.success() => Vec::new(),
            list => list
                .map_err(|error| format!("list --json wrote no such list: {error}: {listed:?}"))?,
        };
        for Listed { name, .. } in &seen.listed {
            seen.trees.insert(name.clone(), self.content(name).map_err(text));
        }
        self.ask("gc --wait", &mut seen.faults)?;
        seen.leftovers = self.leftovers()?;
        self.ask("fsck", &mut seen.faults)?;
        seen.stuck = self.go_on(&seen.listed).err().map(text);
        Ok(seen)
    }

    /// What a command says; a failure of it is a fault.
    fn ask(&self, command: &str, faults: &mut Vec<String>) -> Result<Said> {
        let finished = self.verb(command)?;
        if !finished.status.success() {
            faults.push(failure(command, &finished));
        }
        Ok(said(&finished.stderr))
    }

    /// The sessions of which a command has to say that they were cut short: those whose note is whole
    /// and whose layer is nobody's.
    fn cut_short(&self, blow: Blow) -> Result<usize> {
        let mut records = String::new();
        let directories: &[&str] = match blow {
            Blow::Power => &["trees"],
            Blow::Kill => &["trees", "open"],
        };
        for directory in directories {
            for name in names(&self.path.join(directory))? {
                records += &read(&self.path.join(directory).join(name));
            }
        }
        let is_cut = |id: &String| {
            let note = read(&self.path.join("sessions").join(id).join("session.json"));
            let purpose = serde_json::from_str::<serde_json::Value>(&note).ok();
            let layer = self.path.join("layers").join(id).exists() && records.contains(id.as_str());
            purpose.is_some_and(|note| note.get("purpose").is_some()) && !layer
        };
        Ok(names(&self.path.join("sessions"))?.iter().filter(|id| is_cut(id)).count())
    }

    /// What `gc --wait` has to have removed.
    fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for directory in ["sessions", "trash"] {
            left.extend(
                all_names(&self.path.join(directory))?
                    .iter()
                    .map(|name| format!("{directory}/{name}")),
            );
        }
        let mut records = String::new();
        for directory in ["trees", "open"] {
            for name in all_names(&self.path.join(directory))? {
                if name.starts_with('.') {
                    left.push(format!("{directory}/{name}"));
                }
                records += &read(&self.path.join(directory).join(name));
            }
        }
        for id in all_names(&self.path.join("layers"))? {
            if !records.contains(&id) {
                left.push(format!("layers/{id}"));
            }
        }
        Ok(left)
    }

    /// A clone is made, changed and committed, and is what it has to be; and is removed.
    fn go_on(&self, listed: &[Listed]) -> Result<()> {
        let nothing = super::script::Effect::Nothing;
        let base = listed.iter().find(|tree| tree.state == "committed" && !self.is_random);
        match base {
            Some(base) => self.perform(&step(&format!("clone {} {LATER}", base.name), nothing))?,
            None => self.perform(&Step::import(LATER, &self.control.join("source")))?,
        }
        self.perform(&Step::run(&format!("run {LATER}"), LATER_EDIT, 0, nothing))?;
        self.perform(&step(&format!("commit {LATER}"), nothing))?;
        let content = self.content(LATER)?;
        let new = format!("own{LATER_EDIT}/new0");
        if content.entries.get(&new).and_then(|entry| entry.size) != Some(4000) {
            return Err(format!("{LATER}: {new} is not what was written and committed").into());
        }
        self.perform(&step(&format!("remove {LATER} --wait"), nothing))
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn all_names(directory: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Without those that have no name yet.
fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = all_names(directory)?;
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

fn text(error: Box<dyn std::error::Error + Send + Sync>) -> String {
    error.to_string()
}

pub(super) fn failure(what: &str, finished: &Finished) -> String {
    let said = finished.stderr.trim().replace('\n', "; ");
    format!("{what}: {}: {said}", finished.status)
}

/// What the tool said of what was cut short.
pub(super) fn said(stderr: &str) -> Said {
    let mut said = Said::default();
    for line in stderr.lines() {
        let line = line.strip_prefix("synconce: ").unwrap_or(line);
        let between = |start: &str, end: &str| {
            let rest = line.strip_prefix(start)?;
            Some(rest.split_once(end)?.0.to_owned())
        };
        if line.contains(" was interrupted; what it did is thrown away") {
            let from =
                between("a run in ", ", begun").or_else(|| between("the making of ", ", begun"));
            let from = from.or_else(|| between("the mount of ", " at "));
            said.interrupted.push(from.unwrap_or_else(|| line.to_owned()));
        } else if line.contains(" were lost when the machine stopped") {
            let tree = between("uncommitted changes to ", " were lost");
            said.lost.push(tree.unwrap_or_else(|| line.to_owned()));
        }
    }
    said.interrupted.sort();
    said.lost.sort();
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_is_read_from_what_the_tool_says() {
        let text = "synconce: a run in work, begun 2 s ago, was interrupted; what it did is thrown away\n\
            synconce: the making of base, begun now, was interrupted; what it did is thrown away\n\
            synconce: uncommitted changes to other were lost when the machine stopped; other is \
            at its last commit\nsynconce: something else\n";
        let said = said(text);
        assert_eq!(said.interrupted, ["base", "work"]);
        assert_eq!(said.lost, ["other"]);
    }
}
