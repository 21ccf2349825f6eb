//! Merges the layers of a tree into one.

use crate::record::{Purpose, TreeName, TreeRecord};
use crate::session::{self, settled};
use crate::source::{self, Base};
use crate::store::Store;
use crate::strategy::{Choice, Strategy};
use crate::{choose, view};
use std::os::fd::AsFd;
use synconce_durable::error::Error;
use synconce_fs::{CopyOptions, OverlayAttributes, Progress};

/// What [`squash`] did.
#[derive(Debug)]
pub enum Squashed {
    /// The layers are one, in this generation.
    Merged(TreeRecord),
    /// The tree had one layer already, and is unchanged.
    HadOneLayer(TreeRecord),
}

/// Merges the stack of `name` into one whole layer, as the next generation. Does nothing if the
/// stack is one layer: a copy would take the time and the space of the whole tree.
///
/// # Errors
/// The error names the act and the path; the tree is then unchanged.
pub fn squash(store: &Store, name: &TreeName, progress: &dyn Progress) -> Result<Squashed, Error> {
    let (session, record) = {
        let _lock = store.lock()?;
        let record = source::existing(store, name)?;
        let mut source = source::committed(store, name)?;
        source::is_idle(store, name)?;
        if record.layers.len() == 1 {
            store.sync_records()?;
            return Ok(Squashed::HadOneLayer(record));
        }
        source.tree = Some(name.clone());
        let session = session::begin(store, &source, Strategy::Copy, Purpose::Run)?;
        (session, record)
    };
    let TreeRecord { strategy, ref reason, .. } = record;
    let (session, choice) = session.fill(strategy, |whole| {
        let view = view::view(store, &record.layers)?;
        let overlays = OverlayAttributes::Kept;
        let options = CopyOptions { overlays, ..CopyOptions::default() };
        let report = synconce_fs::copy(view.as_fd(), whole, &options, progress)?;
        settled(&report, store.path())?;
        match choose::choose_for(store, whole, Some(strategy)) {
            Ok(_) => Ok(Choice { strategy, reason: reason.clone() }),
            Err(_) => choose::choose_for(store, whole, None),
        }
    })?;
    let frozen = session.freeze(progress)?;
    frozen
        .commit_by(name, Some(Base::from_record(&record)), (choice, None), progress)
        .map(Squashed::Merged)
}
