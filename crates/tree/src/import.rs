//! Makes a tree from a directory or an archive.

use crate::choose;
use crate::commit::next_generation;
use crate::record::{Purpose, TreeName, TreeRecord};
use crate::session;
use crate::source::LayerStack;
use crate::store::Store;
use crate::strategy::Strategy;
use std::os::fd::BorrowedFd;
use synconce_durable::error::Error;
use synconce_fs::Progress;

/// What an importer reports about the content of a new tree.
pub trait ImportReport {
    /// Returns whether the content has character devices 0:0, which an overlay shows as
    /// removed files.
    fn has_whiteouts(&self) -> bool;
}

/// Makes the tree `name` from what `fill` writes into an empty directory.
///
/// # Errors
/// `EEXIST` when the tree exists; the errors of `fill`. The error names the act and the
/// path. No tree is made then.
pub fn import<T>(
    store: &Store,
    name: &TreeName,
    wanted: Option<Strategy>,
    progress: &dyn Progress,
    fill: impl FnOnce(BorrowedFd<'_>) -> Result<T, Error>,
) -> Result<(TreeRecord, T), Error>
where
    T: ImportReport,
{
    let session = {
        let _lock = store.lock()?;
        next_generation(store, name, None)?;
        let (from, layers) = (name.to_string(), Vec::new());
        let source = LayerStack { tree: None, from, layers, strategy: Strategy::Copy, base: None };
        session::begin(store, &source, Strategy::Copy, Purpose::Import)?
    };
    let of = wanted.unwrap_or(Strategy::Snapshot);
    let (session, (told, choice)) = session.fill(of, |directory| {
        let choice = choose::choose_for(store, directory, wanted)?;
        let told = fill(directory)?;
        let choice = if told.has_whiteouts() && choice.strategy == Strategy::Overlay {
            choose::choose_despite_whiteouts(store, wanted)?
        } else {
            choice
        };
        Ok((told, choice))
    })?;
    let record = session.freeze(progress)?.commit_by(name, None, (choice, None), progress)?;
    Ok((record, told))
}
