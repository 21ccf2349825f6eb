//! Real engines, with state of their own: the steps of a build are held, an ordinary container
//! keeps its syncs, and a container that requests a hold is held.

pub mod buildkit;
pub mod containerd;
pub mod daemonless;
pub mod docker;
mod site;

pub use site::{Given, RUN_FILES, SHORT, SOCKET, Site, prepare};

use crate::bundles::{BARE, HELD};
use std::path::PathBuf;
use synconce_testkit::harness::{self, Place, binary};
use synconce_testkit::process::{Finished, Group};

/// A program that builds images.
pub trait ImageBuilder {
    /// Builds the directory `context` anew as the image `probed`, with options of the builder.
    fn build(&self, options: &[&str]) -> Finished;

    /// Writes the image `probed` as an archive in the format of `docker save`; returns its
    /// path.
    fn save(&self) -> PathBuf;
}

/// A Dockerfile with one step as root and one as another user.
pub const STEPS: &str = "FROM scratch\nCOPY probe step /\nRUN [\"/probe\", \"well\"]\n\
                         USER 1000:1000\nRUN [\"/probe\", \"well\"]\n";
/// How many steps [`STEPS`] has.
pub const USERS: usize = 2;

/// A Dockerfile in which each step is a run of its own, by [`add_synconce`].
pub const RUNS: &str = "FROM scratch\nCOPY probe synconce /\n\
                        RUN [\"/synconce\", \"run\", \"--\", \"/probe\", \"well\"]\n\
                        USER 1000:1000\n\
                        RUN [\"/synconce\", \"run\", \"--commit-all\", \"--\", \"/probe\", \"well\"]\n";

/// Limits within those of the machine; the defaults of the engines may exceed them.
pub const LIMITS: [&str; 4] = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"];

/// The annotation, or Docker's label, by which a container requests a hold.
pub const HOLD: &str = "io.synconce.hold=true";

/// Asserts that a container printed what the probe prints under a hold.
pub fn assert_held(what: &str, finished: &Finished) {
    assert!(finished.stdout.contains(HELD), "{what}: {finished:?}");
}

/// Asserts that a container printed what the probe prints bare.
pub fn assert_bare(what: &str, finished: &Finished) {
    // The profiles of some engines have no io_uring.
    let syncs = BARE.split("io_uring").next().unwrap_or_default();
    assert!(finished.stdout.contains(syncs), "{what}: {finished:?}");
}

/// Asserts that a build succeeded in which `count` steps were held and the others printed
/// nothing.
pub fn assert_steps_held(what: &str, build: &Finished, count: usize) {
    assert_steps(what, build, count, HELD);
}

/// Asserts that a build succeeded in which `count` steps were bare and the others printed
/// nothing.
pub fn assert_steps_bare(what: &str, build: &Finished, count: usize) {
    assert_steps(what, build, count, BARE);
}

fn assert_steps(what: &str, build: &Finished, count: usize, wanted: &str) {
    assert!(build.status.success(), "{what}: {build:?}");
    let count_of = |call: &str, answer: &str| {
        let line = format!("{call} {answer}");
        // BuildKit puts the time before every line.
        let is_it = |count_of: &&str| *count_of == line || count_of.ends_with(&format!(" {line}"));
        let text = [&build.stdout, &build.stderr];
        text.into_iter().flat_map(|text| text.lines()).filter(is_it).count()
    };
    // The profiles of some engines have no io_uring.
    for line in wanted.lines().filter(|line| !line.starts_with("io_uring")) {
        let (call, answer) = line.split_once(' ').unwrap_or_default();
        assert_eq!(count_of(call, answer), count, "{what}: {line}: {build:?}");
    }
}

/// Adds synconce and the Dockerfile [`RUNS`] to the context of a build.
pub fn add_synconce(place: &Place) {
    std::fs::copy(binary(), place.path("context/synconce")).unwrap();
    place.write("context/Dockerfile", RUNS);
}

/// Ends a daemon by SIGTERM, as an init system does.
pub fn stop(what: &str, daemon: &Group) {
    daemon.signal(rustix::process::Signal::TERM).unwrap();
    let ended = daemon.wait(harness::limit()).unwrap();
    assert!(ended.is_some(), "{what} does not end");
}

/// Prints `line`, and adds it to the report file if there is one.
pub fn report(line: &str) {
    println!("{line}");
    harness::report(line);
}
