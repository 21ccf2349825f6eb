//! The script: every verb, one after the other, and the state that each must leave.

use super::fixture;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use synconce_testkit::manifest::Manifest;

/// Duration of an edit in a recorded run: long enough for a journal commit during the edit.
const SPREAD: u64 = 150;

/// The effect of a verb on the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Creates the store.
    Makes,
    /// Changes nothing.
    Nothing,
    /// Creates this tree from the source.
    Imports(&'static str),
    /// Creates the second tree from the first.
    Clones(&'static str, &'static str),
    /// Makes this edit in the tree without a commit.
    Runs(&'static str, u64),
    /// Commits the changes of the tree.
    Commits(&'static str),
    /// Commits the changes of the first tree. Its last commit becomes the generation with the
    /// second name.
    Keeps(&'static str, &'static str),
    /// Makes the first generation the content of its tree. The newest one becomes the generation
    /// with the second name, and the first is not kept.
    Restores(&'static str, &'static str),
    /// Commits the changes of the first tree as the second; the first returns to its last
    /// commit.
    CommitsAs(&'static str, &'static str),
    /// Commits the first tree with this edit as the second.
    Becomes(&'static str, &'static str, u64),
    /// Discards a clone of this tree.
    Discards(&'static str),
    /// Discards the uncommitted changes of this tree.
    Reverts(&'static str),
    /// Gives the first tree the second name.
    Renames(&'static str, &'static str),
    /// Protects this tree.
    Protects(&'static str),
    /// Ends the protection of this tree.
    Unprotects(&'static str),
    /// Turns this tree into one layer.
    Squashes(&'static str),
    /// Removes this tree.
    Removes(&'static str),
}

/// A verb of the script.
#[derive(Clone, Debug)]
pub(super) struct ScriptVerb {
    /// The arguments after `tree --store DIR`.
    pub words: Vec<String>,
    pub effect: Effect,
}

impl Effect {
    /// Returns the name under which a session of the verb is reported. The flag is set if
    /// a report is accepted after the verb has returned, because its work was not to last.
    pub(super) fn session(self) -> Option<(&'static str, bool)> {
        match self {
            Self::Imports(name) | Self::Squashes(name) => Some((name, false)),
            Self::Becomes(from, _, _) => Some((from, false)),
            Self::Runs(name, _) | Self::Discards(name) => Some((name, true)),
            Self::Makes
            | Self::Nothing
            | Self::Clones(..)
            | Self::Commits(_)
            | Self::Keeps(..)
            | Self::Restores(..)
            | Self::CommitsAs(..)
            | Self::Reverts(_)
            | Self::Renames(..)
            | Self::Protects(_)
            | Self::Unprotects(_)
            | Self::Removes(_) => None,
        }
    }

    /// Returns the tree whose content changes.
    pub(super) fn changes(self) -> Option<&'static str> {
        match self {
            Self::Imports(name) | Self::Clones(_, name) | Self::Runs(name, _) => Some(name),
            Self::Commits(name) | Self::Becomes(_, name, _) | Self::Squashes(name) => Some(name),
            Self::CommitsAs(_, new) | Self::Renames(_, new) => Some(new),
            Self::Keeps(name, _) => Some(name),
            Self::Restores(generation, _) => Some(tree_of(generation)),
            Self::Makes
            | Self::Nothing
            | Self::Discards(_)
            | Self::Reverts(_)
            | Self::Protects(_)
            | Self::Unprotects(_)
            | Self::Removes(_) => None,
        }
    }
}

/// Returns the name of the tree of `generation`.
pub(super) fn tree_of(generation: &str) -> &str {
    generation.split('@').next().unwrap_or(generation)
}

impl ScriptVerb {
    fn new(text: &str, effect: Effect) -> Self {
        Self { words: text.split(' ').map(str::to_owned).collect(), effect }
    }

    /// Returns a run whose command is an edit.
    pub(super) fn run(text: &str, number: u64, millis: u64, effect: Effect) -> Self {
        let mut step = Self::new(text, effect);
        let own = std::env::current_exe().unwrap_or_default();
        step.words.extend(["--bind".to_owned(), bind(&own), "--".to_owned()]);
        step.words.extend(fixture::words(number, millis));
        step
    }

    pub(super) fn import(name: &'static str, source: &Path) -> Self {
        let mut step = Self::new(&format!("import {name}"), Effect::Imports(name));
        step.words.push(source.display().to_string());
        step
    }

    /// Returns the step with another strategy than the store's own.
    pub(super) fn by(mut self, strategy: &str) -> Self {
        if ["import", "clone", "run"].contains(&self.words[0].as_str()) {
            self.words.splice(1..1, ["--strategy".to_owned(), strategy.to_owned()]);
        }
        self
    }

    /// Returns the step's arguments without those that every run has.
    pub(super) fn name(&self) -> String {
        let words = self.words.iter().take_while(|word| *word != "--bind");
        words.map(|word| word.rsplit('/').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
    }
}

fn bind(program: &Path) -> String {
    format!("{}:{}:ro", program.display(), fixture::PROGRAM)
}

/// Returns a step, for scripts in other modules.
pub(super) fn step(text: &str, effect: Effect) -> ScriptVerb {
    ScriptVerb::new(text, effect)
}

/// Returns the script that is recorded; clones are made by `strategy` if one is given.
pub(super) fn script(source: &Path, strategy: Option<&str>) -> Vec<ScriptVerb> {
    use Effect::{
        Becomes, Clones, Commits, CommitsAs, Discards, Keeps, Nothing, Protects, Removes, Renames,
        Restores, Reverts, Runs, Squashes, Unprotects,
    };
    let run = |text: &str, number, effect| ScriptVerb::run(text, number, SPREAD, effect);
    let steps = vec![
        step("init", Effect::Makes),
        ScriptVerb::import("base", source),
        step("clone base work", Clones("base", "work")),
        run("run work", 1, Runs("work", 1)),
        step("commit work", Commits("work")),
        run("run --from base --commit base", 2, Becomes("base", "base", 2)),
        run("run --from work --discard", 3, Discards("work")),
        step("clone base second", Clones("base", "second")),
        step("squash work", Squashes("work")),
        step("remove base --wait", Removes("base")),
        run("run work", 4, Runs("work", 4)),
        step("commit work --as other", CommitsAs("work", "other")),
        run("run second", 5, Runs("second", 5)),
        run("run second", 6, Runs("second", 6)),
        step("commit second", Commits("second")),
        step("remove work", Removes("work")),
        step("gc --wait", Nothing),
        run("run --from other --commit again", 7, Becomes("other", "again", 7)),
        step("remove other", Removes("other")),
        run("run second", 0, Runs("second", 0)),
        // A durable record, whose journal commit may take the note of the run to the disk.
        step("clone again renamed", Clones("again", "renamed")),
        step("discard second", Reverts("second")),
        step("protect second", Protects("second")),
        // While this run works, nothing else syncs the record of the protected tree.
        run("run --from again --discard", 9, Discards("again")),
        step("rename second stable", Renames("second", "stable")),
        step("remove renamed", Removes("renamed")),
        step("unprotect stable", Unprotects("stable")),
        step("rename stable renamed", Renames("stable", "renamed")),
        step("remove renamed", Removes("renamed")),
        step("clone again older", Clones("again", "older")),
        run("run older", 3, Runs("older", 3)),
        step("commit older --keep 1", Keeps("older", "older@1")),
        step("restore older@1", Restores("older@1", "older@2")),
        // While this run works, nothing else syncs the record of the restored tree.
        run("run --from again --discard", 2, Discards("again")),
        step("remove older@2", Removes("older@2")),
        run("run again", 8, Runs("again", 8)),
    ];
    match strategy {
        Some(strategy) => steps.into_iter().map(|step| step.by(strategy)).collect(),
        None => steps,
    }
}

/// The content of each tree and of each older generation by name.
pub(super) type Trees = BTreeMap<String, Arc<Manifest>>;

/// The state of the store between two verbs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreState {
    /// Whether the store exists.
    pub store: bool,
    /// Every tree as of its last commit.
    pub durable: Trees,
    /// Trees with uncommitted changes, and their content while the power stays on.
    pub open: Trees,
    /// Trees in which runs leave no changes.
    pub protected: BTreeSet<String>,
}

impl StoreState {
    /// Returns the content of the trees while the power stays on.
    pub(super) fn live(&self) -> Trees {
        let mut live = self.durable.clone();
        live.extend(self.open.iter().map(|(name, tree)| (name.clone(), Arc::clone(tree))));
        live
    }

    /// Returns the trees with uncommitted changes.
    pub(super) fn open_names(&self) -> BTreeSet<String> {
        self.open.keys().cloned().collect()
    }

    /// Returns the state after `step`; `content` is the new content of the tree that the step
    /// changes.
    pub(super) fn after(&self, step: &ScriptVerb, content: Option<Arc<Manifest>>) -> Self {
        let mut next = self.clone();
        let content = content.unwrap_or_default();
        match step.effect {
            Effect::Nothing | Effect::Discards(_) => {}
            Effect::Makes => next.store = true,
            Effect::Imports(name) => {
                next.durable.insert(name.to_owned(), content);
                next.protected.insert(name.to_owned());
            }
            Effect::Clones(_, name) | Effect::Becomes(_, name, _) => {
                next.durable.insert(name.to_owned(), content);
            }
            Effect::Protects(name) => {
                next.protected.insert(name.to_owned());
            }
            Effect::Unprotects(name) => {
                next.protected.remove(name);
            }
            Effect::Reverts(name) => {
                next.open.remove(name);
            }
            Effect::Renames(name, new) => {
                next.durable.remove(name);
                next.durable.insert(new.to_owned(), content);
                if next.protected.remove(name) {
                    next.protected.insert(new.to_owned());
                }
            }
            Effect::Squashes(name) => {
                next.durable.insert(name.to_owned(), content);
            }
            Effect::Runs(name, _) => {
                next.open.insert(name.to_owned(), content);
            }
            Effect::Commits(name) => {
                next.open.remove(name);
                next.durable.insert(name.to_owned(), content);
            }
            Effect::Keeps(name, older) => {
                next.open.remove(name);
                let before = next.durable.insert(name.to_owned(), content);
                next.durable.insert(older.to_owned(), before.unwrap_or_default());
            }
            Effect::Restores(generation, older) => {
                let name = tree_of(generation).to_owned();
                let restored = next.durable.remove(generation).unwrap_or_default();
                let before = next.durable.insert(name, restored);
                next.durable.insert(older.to_owned(), before.unwrap_or_default());
            }
            Effect::CommitsAs(name, new) => {
                next.open.remove(name);
                next.durable.insert(new.to_owned(), content);
            }
            Effect::Removes(name) => {
                next.open.remove(name);
                next.durable.remove(name);
                next.protected.remove(name);
            }
        }
        next
    }
}
