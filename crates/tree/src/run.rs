//! Begins the session of a command that runs in a tree.

use crate::record::{Purpose, TreeName};
use crate::session::{self, Begun, Session, nothing};
use crate::source::{self, Base, LayerStack};
use crate::store::Store;
use crate::strategy::Strategy;
use synconce_durable::error::Error;

/// Begins a session whose result stays in the tree `name`.
///
/// # Errors
/// Another session works on the tree, or the tree is protected.
pub fn open_session<'a>(
    store: &'a Store,
    name: &TreeName,
    wanted: Option<Strategy>,
) -> Result<Session<'a, Begun>, Error> {
    let _lock = store.lock()?;
    let source = source::to_be_changed(store, "cannot run in", name)?;
    let strategy = source::strategy_of(store, &source, wanted)?;
    session::begin(store, &source, strategy, Purpose::Run)
}

/// Begins a session on the tree `name` whose result is discarded. Others may work on the tree:
/// what they change is not seen.
pub fn open_to_discard<'a>(
    store: &'a Store,
    name: &TreeName,
    wanted: Option<Strategy>,
) -> Result<Session<'a, Begun>, Error> {
    let _lock = store.lock()?;
    let mut source = source::stack_or_generation(store, name)?;
    let strategy = source::strategy_of(store, &source, wanted)?;
    source.tree = None;
    session::begin(store, &source, strategy, Purpose::Run)
}

/// Begins a session on a clone of `base` that has no name.
///
/// # Errors
/// `base` has uncommitted changes.
pub fn open_anonymous<'a>(
    store: &'a Store,
    base: &TreeName,
    wanted: Option<Strategy>,
) -> Result<(Session<'a, Begun>, Base), Error> {
    let _lock = store.lock()?;
    let source = source::committed(store, base)?;
    let strategy = source::strategy_of(store, &source, wanted)?;
    let session = session::begin(store, &source, strategy, Purpose::Run)?;
    let LayerStack { base, .. } = source;
    Ok((session, base.ok_or_else(|| nothing(store.path()))?))
}
