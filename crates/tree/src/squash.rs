//! Merges the layers of a tree into one.

use crate::record::{Purpose, TreeName, TreeRecord};
use crate::session::{self, settled};
use crate::source::{self, Base};
use crate::store::Store;
use crate::strategy::{Choice, Strategy};
use crate::{choose, view};
use std::os::fd::AsFd;
use synconce_durable::error::Error;
use synconce_fs::{CopyOptions, Progress};

/// Merges the stack of `name` into one whole layer, as the next generation.
///
/// # Errors
/// The error names the act and the path; the tree is then unchanged.
pub fn squash(
    store: &Store,
    name: &TreeName,
    progress: &dyn Progress,
) -> Result<TreeRecord, Error> {
    let (session, record) = {
        let _lock = store.lock()?;
        let record = source::existing(store, name)?;
        let mut source = source::committed(store, name)?;
        source::is_idle(store, name)?;
        source.tree = Some(name.clone());
        let session = session::begin(store, &source, Strategy::Copy, Purpose::Run)?;
        (session, record)
    };
    let TreeRecord { strategy, ref reason, .. } = record;
    let (session, choice) = session.fill(strategy, |whole| {
        let view = view::view(store, &record.layers)?;
        let report = synconce_fs::copy(view.as_fd(), whole, &CopyOptions::default(), progress)?;
        settled(&report, store.path())?;
        match choose::choose_for(store, whole, Some(strategy)) {
            Ok(_) => Ok(Choice { strategy, reason: reason.clone() }),
            Err(_) => choose::choose_for(store, whole, None),
        }
    })?;
    session.freeze(progress)?.commit_by(name, Some(Base::of(&record)), (choice, None), progress)
}
