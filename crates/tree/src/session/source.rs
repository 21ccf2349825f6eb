//! The stack that a session works on.

use crate::busy::{Busy, User};
use crate::record::{self, Layer, Name, Parent, Purpose, Record};
use crate::store::{Opened, Store};
use crate::strategy::Strategy;
use rustix::io::Errno;
use std::io;
use std::path::Path;
use synconce_durable::error::Error;

/// A stack of layers, and the tree that it belongs to.
#[derive(Clone, Debug)]
pub struct Source {
    /// The tree that keeps the session's changes; none for a clone without a name.
    pub tree: Option<Name>,
    /// A description of the tree that the session came from.
    pub from: String,
    /// The stack, bottom first.
    pub layers: Vec<Layer>,
    /// The tree's own strategy.
    pub strategy: Strategy,
    /// The committed generation at the time when the session began.
    pub base: Option<Base>,
}

/// A committed generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The tree's name.
    pub name: Name,
    /// The generation.
    pub generation: u64,
    /// The generation's stack. A tree that was removed and made anew under the same name has
    /// another stack.
    pub layers: Vec<Layer>,
}

impl Base {
    pub(crate) fn of(record: &Record) -> Self {
        let Record { name, generation, layers, .. } = record.clone();
        Self { name, generation, layers }
    }

    /// Returns whether `record` is of this generation, of the same tree.
    pub(crate) fn is(&self, record: &Record) -> bool {
        (&self.name, self.generation, &self.layers)
            == (&record.name, record.generation, &record.layers)
    }
}

impl From<Base> for Parent {
    fn from(base: Base) -> Self {
        Self { name: base.name, generation: base.generation }
    }
}

impl Store {
    /// Returns the record of `name`.
    ///
    /// # Errors
    /// `ENOENT` when there is no such tree.
    pub fn existing(&self, name: &Name) -> Result<Record, Error> {
        self.record(name)?.ok_or_else(|| refuse("there is no tree", name, Errno::NOENT))
    }

    /// Returns the committed generation of `name`, for a clone.
    ///
    /// # Errors
    /// Also when the tree has uncommitted changes: it is ambiguous whether the clone should
    /// include them.
    pub fn committed(&self, name: &Name) -> Result<Source, Error> {
        let record = self.existing(name)?;
        if let Opened::Yes(_) = self.opened(&record)? {
            let errno = io::Error::other(
                "it has changes that are not committed, which `synconce tree commit` keeps",
            );
            return Err(refuse("cannot use", name, errno));
        }
        let base = Base::of(&record);
        let Record { layers, strategy, .. } = record;
        Ok(Source { tree: None, from: name.to_string(), layers, strategy, base: Some(base) })
    }

    /// Returns `name` with uncommitted changes, for a session.
    ///
    /// # Errors
    /// A session works on the tree.
    pub fn current(&self, name: &Name) -> Result<Source, Error> {
        self.is_idle(name)?;
        self.stack(name)
    }

    /// Returns `name` with uncommitted changes, even if a session works on it.
    ///
    /// # Errors
    /// `ENOENT`. The error names the act and the path.
    pub fn stack(&self, name: &Name) -> Result<Source, Error> {
        let record = self.existing(name)?;
        let base = Base::of(&record);
        let layers = match self.opened(&record)? {
            Opened::Yes(layers) => layers,
            Opened::No | Opened::Lost | Opened::Stale => record.layers,
        };
        let (tree, from) = (Some(name.clone()), name.to_string());
        Ok(Source { tree, from, layers, strategy: record.strategy, base: Some(base) })
    }

    /// Returns how a session on `source` writes: by `wanted`, else by the strategy in the
    /// tree's record, else, if that strategy no longer works, by the first that does.
    pub(super) fn strategy_of(
        &self,
        source: &Source,
        wanted: Option<Strategy>,
    ) -> Result<Strategy, Error> {
        if wanted.is_some() {
            return Ok(self.choose(&source.layers, wanted)?.strategy);
        }
        match source.strategy {
            // Snapshots and hard links need exactly one layer.
            Strategy::Snapshot | Strategy::Hardlinks if source.layers.len() != 1 => {
                Ok(self.choose(&source.layers, None)?.strategy)
            }
            Strategy::Overlay if self.has_subvolumes(&source.layers)? => {
                Ok(self.choose(&source.layers, None)?.strategy)
            }
            strategy => Ok(strategy),
        }
    }

    /// Fails when a session works on `name`.
    pub(crate) fn is_idle(&self, name: &Name) -> Result<(), Error> {
        self.is_idle_but_for(name, None)
    }

    /// Fails when a session other than `own` works on `name`.
    pub(super) fn is_idle_but_for(&self, name: &Name, own: Option<&str>) -> Result<(), Error> {
        let uses = |session: &record::Session| session.tree.as_ref() == Some(name);
        let sessions = self.sessions()?;
        let others = sessions.iter().filter(|(id, _)| Some(id.as_str()) != own);
        match others.filter_map(|(_, session)| session.as_ref()).find(|session| uses(session)) {
            None => Ok(()),
            Some(session) => {
                let user = match &session.purpose {
                    Purpose::Mount(at) => User::Mount(at.clone()),
                    _ => User::Process(session.pid),
                };
                Err(refuse("cannot use", name, Busy::error(self.path(), name.as_str(), user)))
            }
        }
    }
}

/// Makes an error about a tree in place of a path.
pub(crate) fn refuse(act: &'static str, name: &Name, why: impl Into<io::Error>) -> Error {
    Error::new(act, Path::new(name.as_str()), why)
}
