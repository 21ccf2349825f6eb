//! The steps of each command: when each can be taken, and how it changes the trees.

use super::model::{Case, CommandProgress, ModelTree, TreesModel};
use super::verbs::{Name, Verb};
use super::versions::{ContentNumber, FIRST, Versions};
use crate::Result;
use std::collections::btree_map::Entry;

impl Case {
    /// Returns the case after the next step of `worker`'s `verb`, if the step can be taken
    /// now.
    pub(super) fn step(
        &self,
        worker: usize,
        verb: Verb,
        versions: &mut Versions,
    ) -> Result<Option<Self>> {
        let mut next = self.clone();
        let progress = match &self.progress[worker] {
            CommandProgress::Waiting => next.world.begin(worker, verb, versions)?,
            CommandProgress::Read(version, generation) => {
                next.world.go_on(verb, *version, *generation, versions)?
            }
            CommandProgress::Half => next.world.end(verb),
            CommandProgress::Both(..) | CommandProgress::Done | CommandProgress::Seen(_) => None,
        };
        Ok(progress.map(|progress| next.with(worker, progress)))
    }

    /// Returns the case in which the command of `worker` has seen the present trees and takes
    /// no further step.
    pub(super) fn look(&self, worker: usize) -> Option<Self> {
        let can =
            matches!(self.progress[worker], CommandProgress::Waiting | CommandProgress::Read(..));
        can.then(|| self.clone().with(worker, CommandProgress::Seen(self.world.clone())))
    }

    pub(super) fn with(mut self, worker: usize, progress: CommandProgress) -> Self {
        self.progress[worker] = progress;
        self
    }
}

impl TreesModel {
    /// Returns the tree if it is not mounted.
    fn free(&mut self, name: Name) -> Option<&mut ModelTree> {
        self.trees.get_mut(name).filter(|tree| tree.mount.is_none())
    }

    /// Returns the tree if a run or mount may change it.
    fn changeable(&mut self, name: Name) -> Option<&mut ModelTree> {
        self.free(name).filter(|tree| !tree.protected)
    }

    /// Returns the tree if it has no uncommitted changes.
    fn closed(&self, name: Name) -> Option<&ModelTree> {
        self.trees.get(name).filter(|tree| tree.open.is_none())
    }

    /// Creates the tree if no tree has the name.
    fn make(
        &mut self,
        name: Name,
        generation: u64,
        durable: ContentNumber,
    ) -> Option<CommandProgress> {
        let Entry::Vacant(place) = self.trees.entry(name) else { return None };
        place.insert(ModelTree { generation, durable, open: None, protected: false, mount: None });
        Some(CommandProgress::Done)
    }

    /// Takes the first step.
    fn begin(
        &mut self,
        worker: usize,
        verb: Verb,
        versions: &mut Versions,
    ) -> Result<Option<CommandProgress>> {
        Ok(match verb {
            Verb::Import(name) => {
                let made = self.make(name, 1, FIRST);
                if let (Some(_), Some(tree)) = (&made, self.trees.get_mut(name)) {
                    tree.protected = true;
                }
                made
            }
            Verb::Clone(base, name) => {
                let durable = self.closed(base).map(|base| base.durable);
                durable.and_then(|durable| self.make(name, 1, durable))
            }
            Verb::Run { tree, seed } => match self.changeable(tree) {
                Some(tree) => {
                    tree.open = Some(versions.altered(tree.live(), seed)?);
                    Some(CommandProgress::Done)
                }
                None => None,
            },
            Verb::Discards { from, .. } => self.closed(from).map(|_| CommandProgress::Done),
            Verb::Becomes { from, .. } => {
                self.closed(from).map(|base| CommandProgress::Read(base.durable, base.generation))
            }
            Verb::CommitAs(name, new) => {
                let content = self.free(name).map(|tree| tree.live());
                content
                    .and_then(|content| self.make(new, 1, content))
                    .map(|_| CommandProgress::Half)
            }
            Verb::Export(name) | Verb::Look(name) | Verb::Diff(name, _) => {
                let tree = self.trees.get(name);
                tree.map(|tree| CommandProgress::Read(tree.live(), tree.generation))
            }
            Verb::Mount(_) | Verb::Umount { .. } => self.mounting(worker, verb),
            _ => self.renewed(verb),
        })
    }

    /// Takes the step of a commit or another verb of one step.
    fn renewed(&mut self, verb: Verb) -> Option<CommandProgress> {
        match verb {
            Verb::Commit(name) => {
                let tree = self.free(name)?;
                if let Some(open) = tree.open.take() {
                    tree.durable = open;
                    tree.generation += 1;
                }
            }
            Verb::Squash(name) => {
                self.closed(name)?;
                self.free(name)?.generation += 1;
            }
            Verb::Protect(name) => {
                self.closed(name)?;
                self.free(name)?.protected = true;
            }
            Verb::Unprotect(name) => self.trees.get_mut(name)?.protected = false,
            Verb::Revert(name) => self.free(name)?.open = None,
            Verb::Rename(name, new) => {
                self.closed(name)?;
                self.free(name)?;
                if self.trees.contains_key(new) {
                    return None;
                }
                let tree = self.trees.remove(name)?;
                self.trees.insert(new, tree);
            }
            Verb::Remove(name) => {
                self.closed(name)?;
                self.free(name)?;
                self.trees.remove(name);
            }
            Verb::Force(name) => {
                self.free(name)?;
                self.trees.remove(name);
            }
            _ => return None,
        }
        Some(CommandProgress::Done)
    }

    /// Takes the step of a mount or of its end.
    fn mounting(&mut self, worker: usize, verb: Verb) -> Option<CommandProgress> {
        match verb {
            Verb::Mount(name) => {
                let tree = self.changeable(name)?;
                tree.mount = Some((worker, tree.live()));
            }
            Verb::Umount { tree, keep } => {
                let tree = self.trees.get_mut(tree)?;
                let (_, content) = tree.mount.filter(|(by, _)| *by == worker)?;
                tree.mount = None;
                if keep {
                    tree.open = Some(content);
                }
            }
            _ => return None,
        }
        Some(CommandProgress::Done)
    }

    /// Takes the step after the content was read.
    fn go_on(
        &mut self,
        verb: Verb,
        version: ContentNumber,
        generation: u64,
        versions: &mut Versions,
    ) -> Result<Option<CommandProgress>> {
        match verb {
            Verb::Diff(_, other) => {
                Ok(self.trees.get(other).map(|tree| CommandProgress::Both(version, tree.live())))
            }
            Verb::Becomes { from, to, seed } => {
                let is_base =
                    |tree: &ModelTree| (tree.durable, tree.generation) == (version, generation);
                let is_next =
                    self.free(to).is_some_and(|tree| is_base(tree) && tree.open.is_none());
                let is_gone = from == to && !self.trees.contains_key(to);
                if is_gone || self.trees.contains_key(to) && !(from == to && is_next) {
                    return Ok(None);
                }
                let old = self.trees.remove(to);
                let (generation, protected) =
                    old.map_or((1, false), |tree| (tree.generation + 1, tree.protected));
                let durable = versions.altered(version, seed)?;
                let made = self.make(to, generation, durable);
                if let Some(tree) = self.trees.get_mut(to) {
                    tree.protected = protected;
                }
                Ok(made)
            }
            _ => Ok(None),
        }
    }

    /// Takes the step of the second of two records.
    fn end(&mut self, verb: Verb) -> Option<CommandProgress> {
        let Verb::CommitAs(name, _) = verb else { return None };
        self.trees.get_mut(name)?.open = None;
        Some(CommandProgress::Done)
    }
}
