//! Tests of the command line: a directory for each test, commands with a time limit, tests that
//! are ignored without their programs, and functions for common checks.

mod barrier;
pub(crate) mod cgroups;
mod contents;
pub mod debian;
mod locks;
mod numbers;
mod perl;
mod place;
mod processes;
mod strace;
mod terminal;
mod trial;

pub use barrier::{Barrier, without_foreign_syncs};
pub use cgroups::Cgroups;
pub use contents::contents_below;
pub use debian::Debian;
pub use locks::{DiskLock, before_stall, stall, without_stalls};
pub use numbers::numbers_of_calls;
pub use perl::{
    AFTER_RELEASE, HOLD, SYNC, daemon, perl, under_a_listener, without_call, without_seccomp,
};
pub use place::{Place, StartedCommand, files, finish};
pub use processes::{children, exists, kill, parent, process_status};
pub use strace::Trace;
pub use terminal::Terminal;
pub use trial::{
    Need, engine, is_skipped, named_trial, named_trials_on, postgresql, python_with, trial,
    trials_on, upstream,
};

use crate::{build, patiently};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use synconce_probe::docker::{Request, ask};

/// Returns the path of `synconce`, which cargo builds before the tests of its crate.
pub fn binary() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let path = build::program("synconce").expect("synconce is built");
        path.into_os_string().into_string().expect("the build directory is UTF-8")
    });
    &PATH
}

/// Returns far more time than any step here takes on a slow machine.
pub fn limit() -> Duration {
    patiently(Duration::from_secs(60))
}

/// Runs `test` with a new place, in namespaces of its own.
pub fn isolated<T: Fn(&Place)>(test: T) {
    isolated_with(test, |place, test| test(place));
}

/// Like [`isolated`], for a test that `run` calls. Several tests share what `run` makes and
/// removes.
pub fn isolated_with<T>(test: T, run: impl Fn(&Place, T)) {
    isolated_in(test, run, locks::shared);
}

/// The exit status of a test program whose test has to run alone and cannot now, if
/// [`MAY_DEFER`] is in the environment. (EX_TEMPFAIL of sysexits.h)
pub const DEFERRED: i32 = 75;

/// The variable that lets a test end with [`DEFERRED`]. Otherwise all others would wait until
/// the tests that run have ended, and then until this one has.
pub const MAY_DEFER: &str = "SYNCONCE_TEST_MAY_DEFER";

/// Like [`isolated`], while no other test runs.
pub fn isolated_alone<T: Fn(&Place)>(test: T) {
    if std::env::var_os(MAY_DEFER).is_some() && !crate::isolation::is_inside() && !locks::is_alone()
    {
        std::process::exit(DEFERRED);
    }
    isolated_in(test, |place, test| test(place), locks::exclusive);
}

/// Like [`isolated`], for the test called `name`.
fn isolated_as(name: &str, test: impl FnOnce(&Place)) {
    let _lock = (!crate::isolation::is_inside()).then(locks::shared);
    crate::isolation::isolated_as(name, patiently(crate::isolation::LIMIT), || {
        let place = Place::new(name);
        test(&place);
        place.down();
    });
}

fn isolated_in<T>(test: T, run: impl Fn(&Place, T), lock: fn() -> DiskLock) {
    // Taken by the process outside, so that the wait does not count towards the limit of the
    // test.
    let _lock = (!crate::isolation::is_inside()).then(lock);
    crate::isolation::isolated(test, |name, test| {
        let place = Place::new(name);
        run(&place, test);
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

/// Whether `is_quick` returns true at one of a few attempts: other processes can delay any of
/// them.
pub fn a_few_times(is_quick: impl FnMut() -> bool) -> bool {
    std::iter::repeat_with(is_quick).take(5).any(|is_quick| is_quick)
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

/// Waits until a dockerd answers at `host`, a unix socket. A client of Docker takes 20 ms of
/// processor time each time that it asks.
pub fn until_dockerd_answers(host: &str) {
    let socket = Path::new(host.strip_prefix("unix://").expect("a unix socket"));
    let ping = Request { method: "GET", path: "/_ping", media_type: "text/plain", body: b"" };
    let ask = || ask(socket, &ping, limit(), &|| false);
    eventually("dockerd answers", || ask().is_ok_and(|(status, _)| status == 200));
}

/// Adds `line` to the file that `SYNCONCE_REPORT` names, if it is set.
pub fn report(line: &str) {
    let Some(path) = std::env::var_os("SYNCONCE_REPORT") else { return };
    let report = OpenOptions::new().append(true).create(true).open(&path);
    let written = report.and_then(|mut report| report.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", Path::new(&path).display()));
}

/// Returns the last 40 lines of `text`.
pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
