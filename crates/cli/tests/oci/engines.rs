//! Real engines, with state of their own: a step of a build is held, an ordinary
//! container keeps its syncs, and one that asks is held.

pub mod buildkit;
pub mod containerd;
pub mod daemonless;
pub mod docker;
mod site;

pub use site::{Given, SHORT, SOCKET, Site, prepare};

use crate::bundles::{BARE, HELD};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use synconce_testkit::process::{Finished, Group};

/// What builds images.
pub trait Builder {
    /// Builds the directory `context` anew as the image `probed`, with options of the
    /// builder's own.
    fn build(&self, options: &[&str]) -> Finished;

    /// The image `probed`, as an archive in the way of `docker save`.
    fn save(&self) -> PathBuf;
}

/// A Dockerfile with a step of root's, and one of another user's.
pub const STEPS: &str = "FROM scratch\nCOPY probe step /\nRUN [\"/probe\", \"well\"]\n\
                         USER 1000:1000\nRUN [\"/probe\", \"well\"]\n";
/// How many steps that says.
pub const USERS: usize = 2;

/// Engines set limits that are higher than what a machine may allow.
pub const LIMITS: [&str; 4] = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"];

/// The annotation, and Docker's label, by which a container asks.
pub const HOLD: &str = "io.synconce.hold=true";

/// A container said what it says under a hold.
pub fn assert_held(what: &str, finished: &Finished) {
    assert!(finished.stdout.contains(HELD), "{what}: {finished:?}");
}

/// A container said what it says bare.
pub fn assert_bare(what: &str, finished: &Finished) {
    // Some engines' own profiles have no io_uring.
    let syncs = BARE.split("io_uring").next().unwrap_or_default();
    assert!(finished.stdout.contains(syncs), "{what}: {finished:?}");
}

/// A build succeeded, of which `count` steps were held and the others said nothing.
pub fn assert_steps_held(what: &str, build: &Finished, count: usize) {
    assert_steps(what, build, count, HELD);
}

/// A build succeeded, of which `count` steps were bare and the others said nothing.
pub fn assert_steps_bare(what: &str, build: &Finished, count: usize) {
    assert_steps(what, build, count, BARE);
}

fn assert_steps(what: &str, build: &Finished, count: usize, wanted: &str) {
    assert!(build.status.success(), "{what}: {build:?}");
    let said = |call: &str, answer: &str| {
        let line = format!("{call} {answer}");
        // BuildKit puts the time before every line.
        let is_it = |said: &&str| *said == line || said.ends_with(&format!(" {line}"));
        let text = [&build.stdout, &build.stderr];
        text.into_iter().flat_map(|text| text.lines()).filter(is_it).count()
    };
    // Some engines' own profiles have no io_uring.
    for line in wanted.lines().filter(|line| !line.starts_with("io_uring")) {
        let (call, answer) = line.split_once(' ').unwrap_or_default();
        assert_eq!(said(call, answer), count, "{what}: {line}: {build:?}");
    }
}

/// Ends a daemon as an init system does.
pub fn stop(what: &str, daemon: &Group) {
    daemon.signal(rustix::process::Signal::TERM).unwrap();
    let ended = daemon.wait(crate::support::limit()).unwrap();
    assert!(ended.is_some(), "{what} does not end");
}

/// Tells what was counted, and adds it to the report, if one is wanted.
pub fn report(line: &str) {
    println!("{line}");
    let Some(path) = std::env::var_os("SYNCONCE_REPORT") else { return };
    let report = OpenOptions::new().append(true).create(true).open(path);
    report.and_then(|mut report| writeln!(report, "{line}")).unwrap();
}
