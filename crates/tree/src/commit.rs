//! Makes changes durable: the uncommitted changes of a tree, or a frozen session.

use crate::freeze::Frozen;
use crate::guard::{self, refuse};
use crate::layer;
use crate::pin::{Pin, TO_COMMIT};
use crate::read::read_source;
use crate::record::{self, Layer, Parent, Purpose, TreeName, TreeRecord};
use crate::session::{Session, leave};
use crate::source::{self, Base};
use crate::store::Store;
use crate::strategy::Choice;
use crate::{choose, unneeded};
use std::io;
use synconce_durable::error::Error;
use synconce_durable::mutant;
use synconce_fs::Progress;

/// Makes the uncommitted changes of `name` durable, as the next generation of `name` or as
/// the new tree `new`. With `new`, `name` is back at its last generation. With `keep`, the tree
/// that is committed keeps as many older generations, now and after later commits.
///
/// # Errors
/// The error names the act and the path, write-back errors included; `name` is then
/// unchanged.
pub fn commit(
    store: &Store,
    name: &TreeName,
    new: Option<&TreeName>,
    keep: Option<u32>,
    progress: &dyn Progress,
) -> Result<TreeRecord, Error> {
    let pin = Pin::new(store.path())?;
    let lock = store.lock()?;
    let reading = read_source(store, source::current(store, name)?)?;
    drop(lock);
    let source = reading.source().clone();
    if let Some(new) = new {
        next_generation(store, new, None)?;
    }
    layer::fingerprint_all(store, &source.layers, progress)?;
    let mut pin = Some(pin);
    let late = pin.take_if(|_| mutant::is("tree-record-first"));
    pin.map_or(Ok(()), |pin| pin.sync(store, TO_COMMIT))?;
    drop(reading);
    let _lock = store.lock()?;
    let now_there = source::current(store, name)?;
    if now_there.layers != source.layers || now_there.base != source.base {
        let why = io::Error::other("another command changed it meanwhile");
        return Err(refuse("cannot commit", name, why));
    }
    let before = source::existing(store, name)?;
    guard::has_lost_nothing(store, &before)?;
    let choice = choose::fitting(store, &source.layers, before.newest().choice())?;
    if let Some(new) = new {
        next_generation(store, new, None)?;
        let parent = Parent { name: name.clone(), generation: before.generation };
        let mut record = TreeRecord::first(new.clone(), source.layers, choice, Some(parent));
        record.keep = keep.unwrap_or_default();
        store.write(&record)?;
        late.map_or(Ok(()), |pin| pin.sync(store, TO_COMMIT))?;
        store.close_durably(name)?;
        return Ok(record);
    }
    let mut record = before.clone();
    record.keep_at_most(keep.unwrap_or(before.keep));
    record.add_generation(source.layers, choice);
    if record == before {
        return Ok(record);
    }
    store.write(&record)?;
    late.map_or(Ok(()), |pin| pin.sync(store, TO_COMMIT))?;
    store.close(name)?;
    unneeded::try_drop_unreferenced(store, &before.layer_ids());
    Ok(record)
}

impl Session<'_, Frozen> {
    /// Ends the session and commits its changes durably as the tree `name`. That is a new tree, or
    /// the next generation of `base`; then `base` must still be at the generation from which the
    /// session began. With `keep`, the tree keeps as many older generations, now and after later
    /// commits. A session that changed nothing makes no generation.
    ///
    /// # Errors
    /// The error names the act and the path, write-back errors included. The tree `name` is
    /// then unchanged, or does not exist.
    pub fn commit_as(
        self,
        name: &TreeName,
        base: Option<Base>,
        keep: Option<u32>,
        progress: &dyn Progress,
    ) -> Result<TreeRecord, Error> {
        let old = base.as_ref().map(|base| self.store.record(&base.name)).transpose()?.flatten();
        let of_base = |record: TreeRecord| {
            let began = base.as_ref().and_then(|base| record.at(base.generation));
            began.unwrap_or_else(|| record.newest()).choice()
        };
        let choice = match old {
            Some(record) => Ok(of_base(record)),
            None => choose(self.store, &self.note.layers, None),
        };
        match choice {
            Ok(choice) => self.commit_by(name, base, (choice, keep), progress),
            Err(error) => self.discard_after(error),
        }
    }

    /// Like [`Session::commit_as`], with the strategy of `choice` for clones if that strategy
    /// works.
    pub(crate) fn commit_by(
        self,
        name: &TreeName,
        base: Option<Base>,
        (choice, keep): (Choice, Option<u32>),
        progress: &dyn Progress,
    ) -> Result<TreeRecord, Error> {
        let fitting = || choose::fitting(self.store, &self.state.layers, choice);
        // The fingerprints show whether an overlay works.
        let choice = match self.fingerprint(progress).and_then(|()| fitting()) {
            Ok(choice) => choice,
            Err(error) => return self.discard_after(error),
        };
        let Self { store, id, note, pin, lease, state: Frozen { layers } } = self;
        let publish = || publish(store, name, base, (layers, choice, keep), (&id, &note));
        let committed = if mutant::is("tree-record-first") {
            publish().and_then(|record| pin.sync(store, TO_COMMIT).map(|()| record))
        } else {
            pin.sync(store, TO_COMMIT).and_then(|()| publish())
        };
        if committed.is_err() {
            leave(store, &id, &[]);
            unneeded::try_drop_unreferenced(store, &[id]);
        }
        drop(lease);
        committed
    }
}

/// Writes the record of what a session made, which is durable already.
fn publish(
    store: &Store,
    name: &TreeName,
    base: Option<Base>,
    (layers, choice, keep): (Vec<Layer>, Choice, Option<u32>),
    (id, note): (&str, &record::Session),
) -> Result<TreeRecord, Error> {
    let _lock = store.lock()?;
    generation_after(store, name, base.as_ref(), Some(id))?;
    let Some(before) = store.record(name)? else {
        let mut record = TreeRecord::first(name.clone(), layers, choice, base.map(Parent::from));
        record.protected = note.purpose == Purpose::Import;
        record.keep = keep.unwrap_or_default();
        store.write(&record)?;
        leave(store, id, &note.layers);
        return Ok(record);
    };
    let mut record = before.clone();
    record.keep_at_most(keep.unwrap_or(before.keep));
    record.add_generation(layers, choice);
    if record != before {
        store.write(&record)?;
    }
    // The session needs the layers of `before` as long as it is there.
    leave(store, id, &note.layers);
    unneeded::try_drop_unreferenced(store, &before.layer_ids());
    Ok(record)
}

/// Returns the generation that a commit as `name` would make.
///
/// # Errors
/// `EEXIST` when the tree exists and is not `base`'s, or is a generation. Also when the tree has
/// another generation than `base`, has uncommitted changes, or is in use: changes made by another
/// command would be lost.
pub fn next_generation(store: &Store, name: &TreeName, base: Option<&Base>) -> Result<u64, Error> {
    generation_after(store, name, base, None)
}

/// Like [`next_generation`], for session `own`, which may itself use the tree.
fn generation_after(
    store: &Store,
    name: &TreeName,
    base: Option<&Base>,
    own: Option<&str>,
) -> Result<u64, Error> {
    let refused = |why: String| Err(refuse("cannot commit as", name, io::Error::other(why)));
    let Some(record) = store.record(name)? else {
        return if base.is_some_and(|base| base.name == *name) {
            refused("the tree was renamed or removed meanwhile".to_owned())
        } else {
            source::is_new(store, "cannot make the tree", name).map(|()| 1)
        };
    };
    match base.filter(|base| base.name == *name) {
        None => return Err(source::exists("cannot make the tree", name)),
        Some(base) if !base.is(&record) => {
            let (now, then) = (record.generation, base.generation);
            return refused(format!(
                "it is at generation {now} by now, or another tree, and this began from {then}"
            ));
        }
        Some(_) => {}
    }
    guard::is_committed(store, "cannot commit as", &record)?;
    source::is_idle_but_for(store, name, own)?;
    Ok(record.generation + 1)
}
