//! The merged content of a stack, read-only.

use crate::overlay;
use crate::record::{Content, Layer};
use crate::session::top_first;
use crate::store::{Store, open_directory};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use synconce_durable::error::Error;

impl Store {
    /// Opens the layers' directories, in the stack's order: bottom first.
    pub(crate) fn open_layers(&self, layers: &[Layer]) -> Result<Vec<OwnedFd>, Error> {
        layers.iter().map(|layer| open_directory(&self.content(&layer.id))).collect()
    }

    /// Returns the merged content of `layers`: the only layer, or an overlay of the layers
    /// that is not attached anywhere.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn view(&self, layers: &[Layer]) -> Result<OwnedFd, Error> {
        let mut opened = self.open_layers(layers)?;
        if opened.len() > 1 {
            let mount = overlay::read_only(&top_first(&opened), self.user_xattr(layers))?;
            return Ok(mount.into());
        }
        opened.pop().ok_or_else(|| Error::new("there is no layer in", self.path(), Errno::NOENT))
    }

    /// Returns whether the layers were written in a user namespace and must be read with
    /// `userxattr`.
    pub(crate) fn user_xattr(&self, layers: &[Layer]) -> bool {
        layers.iter().any(|layer| layer.content == Content::UserUpper)
    }
}
