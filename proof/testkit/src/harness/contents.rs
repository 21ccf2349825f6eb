//! What is below a directory, to compare before and after.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Returns all entries below `top`, each with the bytes of a file or the target of a link.
pub fn contents_below(top: &Path) -> BTreeMap<PathBuf, (Metadata, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            let content = if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_vec()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            found.insert(path, (metadata, content));
        }
    }
    found
}
