//! A store as a user sees it: by the tool's verbs, and by the names in its directories.

use super::fixture;
use super::script::{ScriptVerb, step};
use crate::Result;
use crate::tool::Tool;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};

/// Far longer than any verb takes here.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The tree, and its edit, with which the store is shown to work after the interruption.
const LATER: &str = "later";
const LATER_EDIT: u64 = fixture::EDITS - 1;

/// A store, and the tool that uses it.
pub(super) struct Store<'a> {
    pub tool: &'a Tool,
    pub path: PathBuf,
    /// A directory in memory, not on the disk of the store.
    pub control: PathBuf,
    /// Whether times are compared.
    pub times: bool,
    /// Whether the trees were changed at random, so that no edit of `fixture` fits them.
    pub is_random: bool,
}

/// What a command reported about interrupted work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// The trees whose interrupted sessions were thrown away.
    pub interrupted: Vec<String>,
    /// The trees whose uncommitted changes were lost.
    pub lost: Vec<String>,
}

/// A tree as `list` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Listed {
    pub name: String,
    /// `committed`, `open` or `in use`.
    pub state: String,
    pub protected: bool,
    /// Number of older generations.
    pub kept: usize,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenStore {
    /// Whether the store exists.
    pub store: bool,
    /// Number of sessions that were cut short, counted before any command ran.
    pub sessions: usize,
    /// The trees for which a note of uncommitted work is on the disk.
    pub noted: Vec<String>,
    /// What the first command reported.
    pub first: Reported,
    /// What the second command reported.
    pub second: Reported,
    /// Commands that failed although they must not (`fsck` among them), and their output.
    pub faults: Vec<String>,
    pub listed: Vec<Listed>,
    /// The content of every tree and of every older generation, or why it could not be read.
    pub trees: BTreeMap<String, std::result::Result<Arc<Manifest>, String>>,
    /// Unused files that are left after `gc --wait`.
    pub leftovers: Vec<String>,
    /// Why the store cannot be used any further, if so.
    pub unusable: Option<String>,
}

impl SeenStore {
    /// Whether the first command reported that work in `name` is lost, as a loss or as an
    /// interrupted session.
    pub(super) fn reports_loss(&self, name: &String) -> bool {
        self.first.lost.contains(name) || self.first.interrupted.contains(name)
    }
}

/// What interrupted the work in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// A power cut.
    PowerCut,
    /// A kill of processes.
    Kill,
}

impl Store<'_> {
    /// Returns the command of a verb.
    pub(super) fn command(&self, words: &[String]) -> Command {
        let mut command = self.tool.tree(&self.path, &self.control);
        command.args(words);
        command
    }

    fn finish(&self, words: &[String]) -> Result<Finished> {
        Ok(process::run(&mut self.command(words), patiently(LIMIT))?)
    }

    /// Runs a verb; the verb may fail.
    pub(super) fn verb(&self, text: &str) -> Result<Finished> {
        self.finish(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    /// Runs a step, which must succeed.
    pub(super) fn perform(&self, step: &ScriptVerb) -> Result<()> {
        let finished = self.finish(&step.words)?;
        if finished.status.success() {
            Ok(())
        } else {
            Err(failure(&step.name(), &finished).into())
        }
    }

    fn options(&self) -> ManifestOptions {
        if self.times { ManifestOptions::default().mtimes() } else { ManifestOptions::default() }
    }

    /// Returns the content of the tree `name`.
    pub(super) fn content(&self, name: &str) -> Result<Arc<Manifest>> {
        let to = self.control.join("exported");
        let words = ["export", name, &to.display().to_string()].map(str::to_owned);
        let finished = self.finish(&words)?;
        let manifest = if finished.status.success() {
            Manifest::with(&to, &self.options()).map_err(Into::into)
        } else {
            Err(failure("export", &finished).into())
        };
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        manifest.map(Arc::new)
    }

    /// Returns the names of the older generations of the tree `name`.
    fn older_generations(&self, name: &str) -> Result<Vec<String>> {
        let log = self.verb(&format!("log {name} --json"))?;
        let log: Vec<Value> = serde_json::from_str(&log.stdout)
            .map_err(|error| format!("log --json wrote no such list: {error}: {log:?}"))?;
        let names = log.iter().skip(1).filter_map(|one| one["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Inspects the whole store; `variant` selects the first command.
    pub(super) fn inspect(&self, by: Interruption, variant: u64) -> Result<SeenStore> {
        let mut seen =
            SeenStore { store: self.path.join("store.json").exists(), ..SeenStore::default() };
        if !seen.store {
            seen.unusable =
                self.perform(&step("init", super::script::Effect::Makes)).err().map(text);
            return Ok(seen);
        }
        seen.sessions = self.cut_short(by)?.len();
        let noted = names(&self.path.join("open"))?;
        seen.noted =
            noted.iter().filter_map(|name| name.strip_suffix(".json")).map(str::to_owned).collect();
        let first = ["fsck", "list", "gc --wait"][usize::try_from(variant % 3)?];
        seen.first = self.run_and_parse(first, &mut seen.faults)?;
        seen.second = self.run_and_parse("fsck", &mut seen.faults)?;
        let listed = self.verb("list --json")?;
        if !listed.status.success() {
            seen.faults.push(failure("list --json", &listed));
        }
        // An unusable store lists nothing.
        seen.listed = match serde_json::from_str(&listed.stdout) {
            Err(_) if !listed.status.success() => Vec::new(),
            list => list
                .map_err(|error| format!("list --json wrote no such list: {error}: {listed:?}"))?,
        };
        for Listed { name, kept, .. } in &seen.listed {
            seen.trees.insert(name.clone(), self.content(name).map_err(text));
            if *kept > 0 {
                for older in self.older_generations(name)? {
                    let content = self.content(&older).map_err(text);
                    seen.trees.insert(older, content);
                }
            }
        }
        self.run_and_parse("gc --wait", &mut seen.faults)?;
        seen.leftovers = self.leftovers()?;
        self.run_and_parse("fsck", &mut seen.faults)?;
        seen.unusable = self.check_usable(&seen.listed).err().map(text);
        Ok(seen)
    }

    /// Runs `command` and returns what it reports; a failure is added to `faults`.
    fn run_and_parse(&self, command: &str, faults: &mut Vec<String>) -> Result<Reported> {
        let finished = self.verb(command)?;
        if !finished.status.success() {
            faults.push(failure(command, &finished));
        }
        Ok(parse_reports(&finished.stderr))
    }

    /// Returns the sessions that a command must report as cut short, each with its note: sessions
    /// with a complete note whose layer no record names.
    pub(super) fn cut_short(&self, by: Interruption) -> Result<Vec<(String, Value)>> {
        let mut records = String::new();
        let directories: &[&str] = match by {
            Interruption::PowerCut => &["trees"],
            Interruption::Kill => &["trees", "open"],
        };
        for directory in directories {
            for name in names(&self.path.join(directory))? {
                records += &read(&self.path.join(directory).join(name));
            }
        }
        let note = |id: String| {
            let note = read(&self.path.join("sessions").join(&id).join("session.json"));
            let note = serde_json::from_str::<Value>(&note).ok()?;
            let layer =
                self.path.join("layers").join(&id).exists() && records.contains(id.as_str());
            (note.get("purpose").is_some() && !layer).then_some((id, note))
        };
        Ok(names(&self.path.join("sessions"))?.into_iter().filter_map(note).collect())
    }

    /// Returns what `gc --wait` should have removed.
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

    /// Clones a tree, changes, commits and compares the clone, and removes it.
    fn check_usable(&self, listed: &[Listed]) -> Result<()> {
        let nothing = super::script::Effect::Nothing;
        let base = listed.iter().find(|tree| tree.state == "committed" && !self.is_random);
        match base {
            Some(base) => self.perform(&step(&format!("clone {} {LATER}", base.name), nothing))?,
            None => {
                self.perform(&ScriptVerb::import(LATER, &self.control.join("source")))?;
                self.perform(&step(&format!("unprotect {LATER}"), nothing))?;
            }
        }
        self.perform(&ScriptVerb::run(&format!("run {LATER}"), LATER_EDIT, 0, nothing))?;
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

/// Returns the names in `directory` without temporary ones, which start with a dot.
fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = all_names(directory)?;
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

fn text(error: Box<dyn std::error::Error + Send + Sync>) -> String {
    error.to_string()
}

pub(super) fn failure(what: &str, finished: &Finished) -> String {
    let stderr = finished.stderr.trim().replace('\n', "; ");
    format!("{what}: {}: {stderr}", finished.status)
}

/// Parses what the tool reported about interrupted work.
pub(super) fn parse_reports(stderr: &str) -> Reported {
    let mut reported = Reported::default();
    for line in stderr.lines() {
        let line = line.strip_prefix("synconce: ").unwrap_or(line);
        let between = |start: &str, end: &str| {
            let rest = line.strip_prefix(start)?;
            Some(rest.split_once(end)?.0.to_owned())
        };
        if line.contains(" was interrupted; its changes are thrown away") {
            let from =
                between("a run in ", ", begun").or_else(|| between("the making of ", ", begun"));
            let from = from.or_else(|| between("the mount of ", " at "));
            reported.interrupted.push(from.unwrap_or_else(|| line.to_owned()));
        } else if line.contains(" were lost when the machine stopped") {
            let tree = between("uncommitted changes to ", " were lost");
            reported.lost.push(tree.unwrap_or_else(|| line.to_owned()));
        }
    }
    reported.interrupted.sort();
    reported.lost.sort();
    reported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_sessions_are_parsed_from_the_messages_of_the_tool() {
        let text = "synconce: a run in work, begun 2026-11-23T03:40:12Z, was interrupted; its changes are thrown away\n\
            synconce: the making of base, begun now, was interrupted; its changes are thrown away\n\
            synconce: uncommitted changes to other were lost when the machine stopped; other is \
            at its last commit\nsynconce: something else\n";
        let reported = parse_reports(text);
        assert_eq!(reported.interrupted, ["base", "work"]);
        assert_eq!(reported.lost, ["other"]);
    }
}
