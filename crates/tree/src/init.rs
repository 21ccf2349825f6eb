//! Makes a store.

use crate::record::FORMAT;
use crate::store::{DIRECTORIES, NOTE, Note, Store, refuse_in_store};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::{self, Rights};

const ACT: &str = "cannot make a store in";

/// Makes a store at `path`, or opens the store that is there. The directory may be missing. It may
/// have entries of an interrupted `init`, and lost+found.
///
/// # Errors
/// `ENOTEMPTY` if the directory has other entries; `ENOENT` if a directory before a `..` is
/// missing; or `path` is in another store.
pub fn init(path: &Path) -> Result<Store, Error> {
    let absolute = std::path::absolute(path).on("cannot find", path)?;
    let path = absolute.as_path();
    let is_made = || path.join(NOTE).exists();
    if !is_made() {
        refuse_in_store(ACT, path)?;
        // Each directory before a `..` must exist, so that the check above has seen where the path
        // leads. Otherwise the path could lead into a store once its directories are made.
        let is_parent =
            |above: &&Path| above.components().next_back() == Some(Component::ParentDir);
        if let Some(above) = path.ancestors().find(is_parent) {
            above.canonicalize().on(ACT, path)?;
        }
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path).on("cannot create", path)?;
    if !is_made() {
        let first = fs::read_dir(path).on("cannot read", path)?.flatten().find(|entry| {
            let name = entry.file_name();
            // mkfs of ext4 makes lost+found.
            let is_ours = |known: &&str| name == **known;
            let is_note = name.as_encoded_bytes().starts_with(b".store.json");
            name != "lost+found" && !is_note && !DIRECTORIES.iter().any(is_ours)
        });
        if first.is_some() {
            let errno = Errno::NOTEMPTY;
            return Err(Error::new(ACT, path, errno));
        }
        for name in DIRECTORIES {
            // A file of a tree has the mode that it has in the tree, which may admit all users.
            let mut builder = fs::DirBuilder::new();
            let path = path.join(name);
            builder.recursive(true).mode(0o700).create(&path).on("cannot create", &path)?;
        }
        let text = serde_json::to_vec(&Note { format: FORMAT }).on("cannot encode", path)?;
        let note = path.join(NOTE);
        replace::remove_unfinished(&note)?;
        replace::create(&note, &text, Rights::common())?;
    }
    Store::open(path)
}
