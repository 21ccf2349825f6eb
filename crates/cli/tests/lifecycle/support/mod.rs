//! Helpers of the tests of a run's life: a directory for each test, commands with a time
//! limit, and functions for common checks.

mod place;
mod programs;
mod stalls;
mod terminal;
mod tracks;

pub use place::{Place, SYNCONCE, Started, files, finish};
pub use programs::{
    AFTER_RELEASE, HOLD, SYNC, daemon, number, perl, under_a_listener, without_seccomp,
};
pub use stalls::{Turn, stall, without_stalls};
pub use terminal::Terminal;
pub use tracks::{Trail, children, exists, parent, process_status};

use std::path::PathBuf;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;

/// Returns far more time than any step here takes on a slow machine.
pub fn limit() -> Duration {
    patiently(Duration::from_secs(60))
}

/// Runs `test` with a new place, in namespaces of its own.
pub fn isolated<T: Fn(&Place)>(test: T) {
    isolated_in(test, stalls::among_others);
}

/// Like [`isolated`], while no other test runs.
pub fn isolated_alone<T: Fn(&Place)>(test: T) {
    isolated_in(test, stalls::alone);
}

fn isolated_in<T: Fn(&Place)>(test: T, turn: fn() -> Turn) {
    synconce_testkit::isolation::isolated(test, |name, test| {
        let _turn = turn();
        let place = Place::new(name);
        test(&place);
        place.down();
    });
}

/// Returns the mount points that the commit of a run with `--stats --json` synced, by the
/// report on standard error, and whether each sync succeeded. Sorted; empty without a commit.
pub fn committed(stderr: &str) -> Vec<(PathBuf, bool)> {
    let line = stderr.lines().find(|line| line.starts_with('{')).expect("the accounts");
    let stats: serde_json::Value = serde_json::from_str(line).expect("one JSON object");
    let list = stats["commit"]["file_systems"].as_array().into_iter().flatten();
    let point = |one: &serde_json::Value| one["mount_point"].as_str().expect("a path").into();
    let mut list: Vec<_> = list.map(|one| (point(one), one["error"].is_null())).collect();
    list.sort();
    list
}

/// Whether `quiet` holds at one of a few attempts: a sync(2) of another process flushes every
/// disk of the machine, also the one under test.
pub fn a_few_times(quiet: impl FnMut() -> bool) -> bool {
    std::iter::repeat_with(quiet).take(5).any(|quiet| quiet)
}

/// Returns `text` without the notice of a sealed run about FUSE file systems: the disk of a
/// rig is a file on a FUSE file system.
pub fn without_fuse_notice(text: &str) -> String {
    let is_other = |line: &&str| !line.starts_with("synconce: not committed, although");
    text.split_inclusive('\n').filter(is_other).collect()
}

/// Waits until `holds` returns true; panics after [`limit`], naming `what`.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit();
    while !holds() {
        assert!(Instant::now() < end, "not within {:?}: {what}", limit());
        std::thread::sleep(Duration::from_millis(5));
    }
}
