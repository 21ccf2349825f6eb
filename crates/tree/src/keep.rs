//! Keeps what a session did as the uncommitted changes of its tree.

use crate::freeze::Frozen;
use crate::guard::refuse;
use crate::session::{Session, leave};
use crate::source;
use crate::strategy::Strategy;
use rustix::io::Errno;
use std::io;
use synconce_durable::error::Error;
use synconce_fs::Progress;

impl Session<'_, Frozen> {
    /// Ends the session and keeps its changes in its tree. The changes are not durable before
    /// a commit.
    ///
    /// # Errors
    /// The tree is then as it was before the session.
    pub fn keep(self, progress: &dyn Progress) -> Result<(), Error> {
        match self.try_keep(progress) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    fn try_keep(&self, progress: &dyn Progress) -> Result<(), Error> {
        let tree = self.note.tree.as_ref().ok_or_else(|| {
            Error::new("cannot keep a clone without a name", &self.directory(), Errno::INVAL)
        })?;
        let (store, layers) = (self.store, &self.state.layers);
        // Shows whether the next run may be by overlay. On btrfs a whole copy is a subvolume, above
        // which no run is by overlay, and whose fingerprint takes a transaction. So there a whole
        // copy gets its fingerprint at the commit.
        if self.note.strategy == Strategy::Overlay {
            // Only the fingerprint of a whole tree shows that. If there is no room for the
            // fingerprint of these changes, the commit takes it.
            let _ = self.fingerprint(progress);
        } else if !store.is_btrfs() {
            self.fingerprint(progress)?;
        }
        let _lock = store.lock()?;
        let record = source::existing(store, tree)?;
        let now = source::stack(store, tree)?;
        if now.layers == *layers && layers.iter().any(|layer| layer.id == self.id) {
            // An earlier, interrupted attempt has got as far as this.
            leave(store, &self.id, &self.note.layers);
            return Ok(());
        }
        if now.layers != self.note.layers || Some(record.generation) != self.note.generation {
            let why =
                io::Error::other("another command has committed another generation meanwhile");
            return Err(refuse("cannot keep what was done in", tree, why));
        }
        if *layers != self.note.layers {
            store.note_open(&record, layers.clone(), &self.note.boot_epoch)?;
        }
        leave(store, &self.id, &self.note.layers);
        Ok(())
    }
}
