//! Recognises images of layers, which are no roots.

use synconce_durable::error::Error;

use super::member::MemberKind;
use super::refuse;

/// Signs of an image, which contains layers as archives, in place of a root.
#[derive(Default)]
pub(super) struct ImageSigns {
    has_index: bool,
    has_layers: bool,
}

impl ImageSigns {
    /// Looks at a member.
    ///
    /// # Errors
    /// The archive is an image.
    pub(super) fn see(&mut self, path: &[u8], kind: &MemberKind) -> Result<(), Error> {
        if *kind == MemberKind::Directory {
            return Ok(());
        }
        let hash = |name: &[u8]| name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit);
        let stem = |path: &[u8]| match path.iter().position(|byte| matches!(byte, b'/' | b'.')) {
            Some(end) => hash(&path[..end]) && matches!(&path[end..], b"/layer.tar" | b".tar"),
            None => false,
        };
        self.has_index |= matches!(path, b"manifest.json" | b"index.json");
        self.has_layers |= stem(path) || path.strip_prefix(b"blobs/sha256/").is_some_and(hash);
        if self.has_index && self.has_layers {
            return Err(refuse(
                path,
                "this is an image of layers, not a root; make a container of it and use \
                 `docker export` (docker create IMAGE; docker export CONTAINER)",
            ));
        }
        Ok(())
    }
}
