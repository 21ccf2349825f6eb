//! Every verb, one after the other, and what each has to leave.

use super::fixture;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use synconce_testkit::manifest::Manifest;

/// How long an edit takes in a recorded run: long enough that a journal is written in its midst.
const SPREAD: u64 = 150;

/// What a verb does to the trees, so that it is known what has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The store is made.
    Makes,
    /// Nothing.
    Nothing,
    /// This tree is made of the source.
    Imports(&'static str),
    /// The second is made of the first.
    Clones(&'static str, &'static str),
    /// This edit is done in the tree, and not committed.
    Runs(&'static str, u64),
    /// What was done in the tree is committed.
    Commits(&'static str),
    /// What was done in the first is committed as the second, and the first is its last commit.
    CommitsAs(&'static str, &'static str),
    /// The first with this edit is committed as the second.
    Becomes(&'static str, &'static str, u64),
    /// A clone of this is thrown away.
    Discards(&'static str),
    /// This tree is one layer now.
    Squashes(&'static str),
    /// This tree is gone.
    Removes(&'static str),
}

/// A verb of the script.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// What comes after `tree --store DIR`.
    pub words: Vec<String>,
    pub effect: Effect,
}

impl Effect {
    /// The name under which a session of the verb is reported, and whether that is forgiven once the
    /// verb has returned: what it did was not to last.
    pub(super) fn session(self) -> Option<(&'static str, bool)> {
        match self {
            Self::Imports(name) | Self::Squashes(name) => Some((name, false)),
            Self::Becomes(from, _, _) => Some((from, false)),
            Self::Runs(name, _) | Self::Discards(name) => Some((name, true)),
            Self::Makes
            | Self::Nothing
            | Self::Clones(..)
            | Self::Commits(_)
            | Self::CommitsAs(..)
            | Self::Removes(_) => None,
        }
    }

    /// The tree whose content is another one afterwards.
    pub(super) fn changes(self) -> Option<&'static str> {
        match self {
            Self::Imports(name) | Self::Clones(_, name) | Self::Runs(name, _) => Some(name),
            Self::Commits(name) | Self::Becomes(_, name, _) | Self::Squashes(name) => Some(name),
            Self::CommitsAs(_, new) => Some(new),
            Self::Makes | Self::Nothing | Self::Discards(_) | Self::Removes(_) => None,
        }
    }
}

impl Step {
    fn new(text: &str, effect: Effect) -> Self {
        Self { words: text.split(' ').map(str::to_owned).collect(), effect }
    }

    /// A run, whose command is an edit.
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

    /// The same by another strategy than the store's own.
    pub(super) fn by(mut self, strategy: &str) -> Self {
        if ["import", "clone", "run"].contains(&self.words[0].as_str()) {
            self.words.splice(1..1, ["--strategy".to_owned(), strategy.to_owned()]);
        }
        self
    }

    /// What it is, without what every run has.
    pub(super) fn name(&self) -> String {
        let words = self.words.iter().take_while(|word| *word != "--bind");
        words.map(|word| word.rsplit('/').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
    }
}

fn bind(program: &Path) -> String {
    format!("{}:{}:ro", program.display(), fixture::PROGRAM)
}

/// A verb as [`Step`]s are written down elsewhere.
pub(super) fn step(text: &str, effect: Effect) -> Step {
    Step::new(text, effect)
}

/// The script that is recorded, with clones made by `strategy` where one is given.
pub(super) fn script(source: &Path, strategy: Option<&str>) -> Vec<Step> {
    use Effect::{Becomes, Clones, Commits, CommitsAs, Discards, Nothing, Removes, Runs, Squashes};
    let run = |text: &str, number, effect| Step::run(text, number, SPREAD, effect);
    let steps = vec![
        step("init", Effect::Makes),
        Step::import("base", source),
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
        step("remove second", Removes("second")),
        run("run again", 8, Runs("again", 8)),
    ];
    match strategy {
        Some(strategy) => steps.into_iter().map(|step| step.by(strategy)).collect(),
        None => steps,
    }
}

/// What trees there are, by their content.
pub(super) type Trees = BTreeMap<String, Arc<Manifest>>;

/// What has to be there at a moment between two verbs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Whether there is a store at all.
    pub store: bool,
    /// Every tree as it was last committed.
    pub durable: Trees,
    /// Trees in which something was done since, as they are as long as the power stays.
    pub open: Trees,
}

impl State {
    /// The trees as they are while the power stays.
    pub(super) fn live(&self) -> Trees {
        let mut live = self.durable.clone();
        live.extend(self.open.iter().map(|(name, tree)| (name.clone(), Arc::clone(tree))));
        live
    }

    /// Those in which something was done that is not committed.
    pub(super) fn open_names(&self) -> BTreeSet<String> {
        self.open.keys().cloned().collect()
    }

    /// What `step` makes of it; `content` is that of the tree that it changes.
    pub(super) fn after(&self, step: &Step, content: Option<Arc<Manifest>>) -> Self {
        let mut next = self.clone();
        let content = content.unwrap_or_default();
        match step.effect {
            Effect::Nothing | Effect::Discards(_) => {}
            Effect::Makes => next.store = true,
            Effect::Imports(name) | Effect::Clones(_, name) | Effect::Becomes(_, name, _) => {
                next.durable.insert(name.to_owned(), content);
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
            Effect::CommitsAs(name, new) => {
                next.open.remove(name);
                next.durable.insert(new.to_owned(), content);
            }
            Effect::Removes(name) => {
                next.open.remove(name);
                next.durable.remove(name);
            }
        }
        next
    }
}
