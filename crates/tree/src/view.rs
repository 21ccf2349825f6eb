//! The merged content of a stack, read-only.

use crate::overlay::{self, XattrNamespace};
use crate::record::{Layer, LayerContent};
use crate::store::{Store, open_directory};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use synconce_durable::error::Error;

/// Opens the layers' directories, in the stack's order: bottom first.
pub(crate) fn open_layers(store: &Store, layers: &[Layer]) -> Result<Vec<OwnedFd>, Error> {
    layers.iter().map(|layer| open_directory(&store.content(&layer.id))).collect()
}

/// Returns the merged content of `layers`: the only layer, or an overlay of the layers
/// that is not attached anywhere.
pub(crate) fn view(store: &Store, layers: &[Layer]) -> Result<OwnedFd, Error> {
    let mut opened = open_layers(store, layers)?;
    if opened.len() > 1 {
        let mount = overlay::read_only(&top_first(&opened), xattr_namespace(layers))?;
        return Ok(mount.into());
    }
    opened.pop().ok_or_else(|| Error::new("there is no layer in", store.path(), Errno::NOENT))
}

/// Returns the namespace of the attributes of the overlay that wrote the layers: `user.` if it was
/// mounted in a user namespace.
pub(crate) fn xattr_namespace(layers: &[Layer]) -> XattrNamespace {
    if layers.iter().any(|layer| layer.content == LayerContent::UserUpper) {
        XattrNamespace::User
    } else {
        XattrNamespace::Trusted
    }
}

/// Returns the layers topmost first, as overlay expects them.
pub(crate) fn top_first(layers: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    layers.iter().rev().map(AsFd::as_fd).collect()
}
