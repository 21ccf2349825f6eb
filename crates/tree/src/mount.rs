//! Begins the sessions of mounts, and finds them again.

use crate::pin::Pin;
use crate::record::{Purpose, TreeName};
use crate::session::{self, Begun, Session, Working};
use crate::source;
use crate::store::{Store, open_directory, try_lease};
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_probe::mounts;

/// Selects a mount.
#[derive(Clone, Copy, Debug)]
pub enum MountOf<'a> {
    /// The mount of the tree with this name.
    Tree(&'a str),
    /// The mount at this path.
    Path(&'a Path),
}

/// Begins a session that will be mounted at `point`, and whose result stays in `name`.
///
/// # Errors
/// As for [`crate::open_session`].
pub fn open_mounted<'a>(
    store: &'a Store,
    name: &TreeName,
    point: &Path,
) -> Result<Session<'a, Begun>, Error> {
    let _lock = store.lock()?;
    let source = source::to_be_changed(store, "cannot mount", name)?;
    let strategy = source::strategy_of(store, &source, None)?;
    session::begin(store, &source, strategy, Purpose::Mount(point.to_owned()))
}

/// Begins a session by which `name` is mounted read-only at `point`.
pub fn open_read_only<'a>(
    store: &'a Store,
    name: &TreeName,
    point: &Path,
) -> Result<Session<'a, Begun>, Error> {
    let _lock = store.lock()?;
    let mut source = source::stack_or_generation(store, name)?;
    source.tree = None;
    session::begin(store, &source, source.strategy, Purpose::View(point.to_owned()))
}

/// Returns the session of the mount `which`, with its lease, and the mount's path. Of
/// several mounts of a tree, a writable mount comes first: it keeps the tree in use. Of
/// several mounts at a path, the topmost comes first.
pub fn mounted<'a>(
    store: &'a Store,
    which: MountOf<'_>,
) -> Result<Option<(Session<'a>, PathBuf)>, Error> {
    // Two commands that search at the same time would take each other's leases.
    let _lock = store.lock()?;
    let (mut found, mut leased) = (Vec::new(), None);
    for (id, note) in store.sessions()? {
        let Some(note) = note else { continue };
        let (Purpose::Mount(point) | Purpose::View(point)) = note.purpose.clone() else {
            continue;
        };
        let is_it = match which {
            MountOf::Tree(tree) => note.from == tree,
            MountOf::Path(path) => point == path,
        };
        if !is_it {
            continue;
        }
        let path = store.session(&id);
        let pin = Pin::new(store.path())?;
        match try_lease(open_directory(&path)?, &path)? {
            Some(lease) => {
                found.push((Session { store, id, note, pin, lease, state: Working }, point));
            }
            None => leased = Some(point),
        }
    }
    if let Some(point) = leased.filter(|_| found.is_empty()) {
        let why = io::Error::other("another command mounts or unmounts it");
        return Err(Error::new("cannot unmount", &point, why));
    }
    let mounts = mounts::read("self").on("cannot read the mounts of", store.path())?;
    found.sort_by_key(|(session, point)| {
        let (seen, kept) = (session.is_seen_at(point, &mounts), session.can_be_kept());
        match which {
            MountOf::Tree(_) => (!kept, !seen),
            MountOf::Path(_) => (!seen, !kept),
        }
    });
    Ok(found.into_iter().next())
}
