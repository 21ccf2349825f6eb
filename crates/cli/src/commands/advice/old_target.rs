//! The state of the target of `--root`, which a user has to know before repeating an interrupted
//! run.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use synconce_durable::record::Private;

/// The target of `--root` of an interrupted run, as it is now.
#[derive(Debug, Serialize, Deserialize)]
pub enum OldTarget {
    /// There is no such directory.
    Missing,
    /// It has the marker of the run. The paths are the mount points below.
    Marked(Vec<PathBuf>),
}

/// Returns the line about the target in the state `old`. No command unmounts or removes: the target
/// may have been there before the run, and an unmount also reaches the host's mounts if what is
/// bound into the target is shared with it (mount_namespaces(7)).
pub(super) fn line(private: &Private, old: Option<&OldTarget>) -> Option<String> {
    let shown = private.root.as_ref()?.display();
    match old? {
        OldTarget::Missing => {
            Some(format!("{shown} is not there: mount its disk, or make the directory"))
        }
        OldTarget::Marked(mounts) if mounts.is_empty() => None,
        OldTarget::Marked(mounts) => {
            let mounts: Vec<_> = mounts.iter().map(|point| point.display().to_string()).collect();
            let mounts = mounts.join(", ");
            Some(format!("mounted below {shown}: {mounts}; `rm -r` would go into these"))
        }
    }
}
