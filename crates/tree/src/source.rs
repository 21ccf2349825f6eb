//! The stack of a tree: committed, or with uncommitted changes; and whether a session uses it.

use crate::busy::{Busy, TreeUser};
use crate::choose;
use crate::guard::{self, refuse};
use crate::record::{self, Generation, Layer, Parent, Purpose, TreeName, TreeRecord};
use crate::store::{Opened, Store};
use crate::strategy::{Choice, Strategy};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_probe::mounts;

/// A stack of layers, and the tree that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct LayerStack {
    /// The tree that keeps the session's changes; none for a clone without a name.
    pub(crate) tree: Option<TreeName>,
    /// A description of the tree that the session came from.
    pub(crate) from: String,
    /// The stack, bottom first.
    pub(crate) layers: Vec<Layer>,
    /// The tree's own strategy.
    pub(crate) strategy: Strategy,
    /// The committed generation at the time when the session began.
    pub(crate) base: Option<Base>,
}

/// A committed generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The tree's name.
    pub name: TreeName,
    /// The generation.
    pub generation: u64,
    /// The generation's stack. The stack distinguishes the tree from a later tree of the same name.
    pub layers: Vec<Layer>,
}

impl Base {
    pub(crate) fn from_record(record: &TreeRecord) -> Self {
        let TreeRecord { name, generation, layers, .. } = record.clone();
        Self { name, generation, layers }
    }

    /// Returns whether `record` is of this generation, of the same tree.
    pub(crate) fn is(&self, record: &TreeRecord) -> bool {
        (&self.name, self.generation, &self.layers)
            == (&record.name, record.generation, &record.layers)
    }
}

impl From<Base> for Parent {
    fn from(base: Base) -> Self {
        Self { name: base.name, generation: base.generation }
    }
}

/// Returns the record of `name`.
///
/// # Errors
/// `ENOENT` when there is no such tree; `name` is a generation.
pub(crate) fn existing(store: &Store, name: &TreeName) -> Result<TreeRecord, Error> {
    if let Some(record) = store.record(name)? {
        return Ok(record);
    }
    match generation(store, name) {
        Ok(_) => Err(guard::generation(store, name)),
        Err(error) => Err(error),
    }
}

/// Returns the generation `name`, such as `bookworm@2`, and the record of its tree. A tree with
/// this name comes first.
///
/// # Errors
/// `ENOENT` when the tree does not exist or has no such generation.
pub(crate) fn generation(
    store: &Store,
    name: &TreeName,
) -> Result<(TreeRecord, Generation), Error> {
    let split = name.generation();
    let record = split.as_ref().map(|(tree, _)| store.record(tree)).transpose()?.flatten();
    let (Some((_, number)), Some(record)) = (split, record) else {
        return Err(absent(store, name));
    };
    match record.at(number) {
        Some(generation) => Ok((record, generation)),
        None => {
            let generations = record.generations();
            let has = generations.iter().rev().map(|one| one.generation.to_string());
            let has = has.collect::<Vec<_>>().join(", ");
            let why = match generations.len() {
                1 => format!("{} has only generation {has}", record.name),
                _ => format!("{} has only the generations {has}", record.name),
            };
            let why = io::Error::new(ErrorKind::NotFound, why);
            Err(refuse("cannot find the generation", name, why))
        }
    }
}

/// Returns the generation `name` as a stack that no session changes.
fn generation_source(store: &Store, name: &TreeName) -> Result<LayerStack, Error> {
    let (record, Generation { generation, layers, strategy, .. }) = generation(store, name)?;
    let base = Base { name: record.name, generation, layers: layers.clone() };
    Ok(LayerStack { tree: None, from: name.to_string(), layers, strategy, base: Some(base) })
}

/// Fails when `name` is a tree or a generation. `act` needs a new name.
pub(crate) fn is_new(store: &Store, act: &'static str, name: &TreeName) -> Result<(), Error> {
    if store.record(name)?.is_some() {
        return Err(exists(act, name));
    }
    match generation(store, name) {
        Err(error) if error.io().kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok((record, _)) => {
            let why = format!("it is a generation of {}", record.name);
            Err(refuse(act, name, io::Error::new(ErrorKind::AlreadyExists, why)))
        }
    }
}

/// Returns the committed generation of `name`, or the generation `name`, for a clone.
///
/// # Errors
/// Also when the tree has uncommitted changes: it is ambiguous whether the clone should
/// include them.
pub(crate) fn committed(store: &Store, name: &TreeName) -> Result<LayerStack, Error> {
    let Some(record) = store.record(name)? else { return generation_source(store, name) };
    guard::is_committed(store, "cannot use", &record)?;
    let base = Base::from_record(&record);
    let TreeRecord { layers, strategy, .. } = record;
    Ok(LayerStack { tree: None, from: name.to_string(), layers, strategy, base: Some(base) })
}

/// Returns the strategy of the tree or generation `name`.
pub(crate) fn choice(store: &Store, name: &TreeName) -> Result<Choice, Error> {
    Ok(match store.record(name)? {
        Some(record) => record.newest().choice(),
        None => generation(store, name)?.1.choice(),
    })
}

/// Returns `name` with uncommitted changes, for a session.
///
/// # Errors
/// A session works on the tree.
pub(crate) fn current(store: &Store, name: &TreeName) -> Result<LayerStack, Error> {
    is_idle(store, name)?;
    stack(store, name)
}

/// Like [`current`], for a session whose changes stay in `name`.
///
/// # Errors
/// Those of [`current`]; or the tree is protected.
pub(crate) fn to_be_changed(
    store: &Store,
    act: &'static str,
    name: &TreeName,
) -> Result<LayerStack, Error> {
    guard::is_unprotected(store, act, &existing(store, name)?)?;
    current(store, name)
}

/// Returns `name` with uncommitted changes, even if a session works on it.
///
/// # Errors
/// `ENOENT`.
pub(crate) fn stack(store: &Store, name: &TreeName) -> Result<LayerStack, Error> {
    let record = existing(store, name)?;
    let base = Base::from_record(&record);
    let layers = match store.opened(&record)? {
        Opened::Yes(layers) => layers,
        Opened::No | Opened::Lost | Opened::Missing(_) | Opened::Stale => record.layers,
    };
    let (tree, from) = (Some(name.clone()), name.to_string());
    Ok(LayerStack { tree, from, layers, strategy: record.strategy, base: Some(base) })
}

/// Like [`stack`]; `name` may also be a generation.
pub(crate) fn stack_or_generation(store: &Store, name: &TreeName) -> Result<LayerStack, Error> {
    match store.record(name)? {
        Some(_) => stack(store, name),
        None => generation_source(store, name),
    }
}

/// Returns the strategy of a session on `source`: `wanted`, or else the strategy in the tree's
/// record. If the strategy of the record no longer works, returns the first that does.
pub(crate) fn strategy_of(
    store: &Store,
    source: &LayerStack,
    wanted: Option<Strategy>,
) -> Result<Strategy, Error> {
    if wanted.is_some() {
        return Ok(choose(store, &source.layers, wanted)?.strategy);
    }
    let choice = Choice { strategy: source.strategy, reason: String::new() };
    Ok(choose::fitting(store, &source.layers, choice)?.strategy)
}

/// Fails when a session works on `name`.
pub(crate) fn is_idle(store: &Store, name: &TreeName) -> Result<(), Error> {
    is_idle_but_for(store, name, None)
}

/// Fails when a session other than `own` works on `name`.
pub(crate) fn is_idle_but_for(
    store: &Store,
    name: &TreeName,
    own: Option<&str>,
) -> Result<(), Error> {
    let uses = |session: &record::Session| session.tree.as_ref() == Some(name);
    let sessions = store.sessions()?;
    let others = sessions.iter().filter(|(id, _)| Some(id.as_str()) != own);
    match others.filter_map(|(_, session)| session.as_ref()).find(|session| uses(session)) {
        None => Ok(()),
        Some(session) => {
            let user = match &session.purpose {
                Purpose::Mount(at) if is_mount_point(at) => TreeUser::Mount(at.clone()),
                Purpose::Mount(at) => TreeUser::Unmounted(at.clone()),
                _ => TreeUser::Process(session.pid),
            };
            Err(refuse("cannot use", name, Busy::error(store.path(), name.as_str(), user)))
        }
    }
}

/// Whether anything is mounted at `path` here. `true` if undecided.
fn is_mount_point(path: &Path) -> bool {
    mounts::read("self").map_or(true, |mounts| mounts.iter().any(|mount| mount.point == path))
}

/// A tree that does not exist: the cause of an error, found by [`NoSuchTree::in_error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchTree {
    /// The store that has no such tree.
    pub store: PathBuf,
    /// The name that was looked for.
    pub name: TreeName,
    /// The names of the trees in the store.
    pub names: Vec<TreeName>,
}

impl NoSuchTree {
    /// Returns the store, if a tree that does not exist is the cause of `error`.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for NoSuchTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such tree")
    }
}

impl std::error::Error for NoSuchTree {}

/// Returns the error that the tree `name` does not exist.
fn absent(store: &Store, name: &TreeName) -> Error {
    let records = store.records().map_or_else(|_| Vec::new(), |(records, _)| records);
    let names = records.into_iter().map(|record| record.name).collect();
    let cause = NoSuchTree { store: store.path().to_owned(), name: name.clone(), names };
    refuse("cannot find the tree", name, io::Error::new(ErrorKind::NotFound, cause))
}

/// A name that another tree has: the cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameTaken;

impl NameTaken {
    /// Whether a name that another tree has is the cause of `error`.
    pub fn is_in_error(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tree of this name already exists")
    }
}

impl std::error::Error for NameTaken {}

/// Returns the error that `act` needs a new name and the tree `name` exists.
pub(crate) fn exists(act: &'static str, name: &TreeName) -> Error {
    refuse(act, name, io::Error::new(ErrorKind::AlreadyExists, NameTaken))
}
