//! How the target of `--root` is made ready before an interrupted run is repeated.

use crate::text::shell;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use synconce_durable::record::Private;

/// The target of `--root` of an interrupted run, as it is now.
#[derive(Debug, Serialize, Deserialize)]
pub enum OldTarget {
    /// There is no such directory.
    Missing,
    /// It has the marker of the run. The paths are the mount points below, innermost first. A mount
    /// point has one entry for each of its mounts.
    Marked(Vec<PathBuf>),
}

/// Returns what to do about the target of `--root`, which is now as `old` says, before the run with
/// the record `private` is repeated.
///
/// `find -xdev` goes into no other file system, but into a bind mount of the same one. So what is
/// mounted is unmounted first. The target itself stays, as it may be a mount point.
pub(super) fn lines(private: &Private, old: Option<&OldTarget>) -> Vec<String> {
    let (Some(root), Some(old)) = (&private.root, old) else { return Vec::new() };
    let directory = &private.directory;
    let shown = root.display();
    let words = |words: &[&str], paths: &[&Path]| {
        let paths = paths.iter().map(|path| path.to_string_lossy().into_owned());
        shell(&words.iter().map(|word| (*word).to_owned()).chain(paths).collect::<Vec<_>>())
    };
    let is_below = directory.starts_with(root);
    let (what, line) = match old {
        OldTarget::Missing => {
            let missing = if is_below { directory } else { root };
            let make = words(&["mkdir", "--parents"], &[missing]);
            (format!("{shown} is gone; make it first:"), make)
        }
        // The directory in which the run began was there before.
        OldTarget::Marked(_) if is_below && directory != root => return Vec::new(),
        OldTarget::Marked(mounts) => {
            let empty = format!("{} -xdev -mindepth 1 -delete", words(&["find", "-H"], &[root]));
            if mounts.is_empty() {
                (format!("if the run made all that is in {shown}, empty it first:"), empty)
            } else {
                let mounts: Vec<_> = mounts.iter().map(PathBuf::as_path).collect();
                let unmount = words(&["umount"], &mounts);
                let what = format!(
                    "if the run made all that is in {shown}, unmount what is mounted there, and empty it first:"
                );
                (what, format!("{unmount} && {empty}"))
            }
        }
    };
    vec![what, format!("    {line}")]
}
