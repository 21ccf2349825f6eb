//! Advice for a run in another root than that of this process. The marker of such a run is on a
//! volume that a container and its host share, or two containers.

use super::{again_line, places};
use synconce_durable::record::{Private, RunRecord, root_mount};
use synconce_probe::mounts;

/// Why its packages cannot be mended here.
pub(super) const REASON: &str = "it ran in another root than this one, such as a container's";

/// Whether the root of the run is another than that of this process.
pub(super) fn has_run(private: &Private) -> bool {
    // A file in the target of `--root` has the root of the system that started the run.
    let then = private.root_mount.as_ref().filter(|_| !private.in_root);
    then.is_some_and(|then| {
        let now = mounts::read("self").ok().and_then(|mounts| root_mount(&mounts));
        now.is_some_and(|now| now != *then)
    })
}

/// Returns what to do about the result of the run.
pub(super) fn throw_away(record: &RunRecord, private: &Private) -> Vec<String> {
    // That root may be gone: a container is made anew.
    let then =
        "may be empty or old; throw the result away and run it again where these paths exist:";
    vec![
        format!("{REASON}; its paths are of that root"),
        format!("files that it wrote{} {then}", places(record)),
        again_line(record, private),
    ]
}
