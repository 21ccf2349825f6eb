//! One command, bare and then held, each in a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{self, Place, binary, tail};
use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};

/// Returns the limit for one of the two runs, on a machine with other work.
fn limit() -> Duration {
    patiently(Duration::from_secs(240))
}

/// The result of one of the two runs.
pub struct OneSide {
    pub dir: PathBuf,
    pub finished: Finished,
}

impl OneSide {
    pub fn out(&self) -> String {
        self.finished.stdout.clone()
    }

    /// Returns the lines of both outputs that `keep` keeps, as `keep` changes them.
    pub fn lines(&self, keep: impl Fn(&str) -> Option<String>) -> String {
        let Finished { stdout, stderr, .. } = &self.finished;
        let kept: Vec<_> = stdout.lines().chain(stderr.lines()).filter_map(keep).collect();
        kept.join("\n")
    }
}

/// The results of both runs.
pub struct Comparison {
    pub bare: OneSide,
    pub held: OneSide,
    calls: serde_json::Value,
}

impl Comparison {
    /// Runs `words` in the directories `bare` and `held` of `place`, after `prepare` has run
    /// in each. Expects the same exit status.
    pub fn run(place: &Place, prepare: impl Fn(&Path), words: &[&str]) -> Self {
        Self::run_below(place, prepare, &[], words)
    }

    /// Like [`Self::run`], with `synconce` and the bare command started by the command
    /// `above`, for example as another user.
    pub fn run_below(
        place: &Place,
        prepare: impl Fn(&Path),
        above: &[&str],
        words: &[&str],
    ) -> Self {
        let run = [binary(), "run", "--stats", "--json", "--"];
        let bare = side(place, "bare", &prepare, &[above, words].concat());
        let held = side(place, "held", &prepare, &[above, &run, words].concat());
        let calls = calls(&held.finished);
        let comparison = Self { bare, held, calls };
        let statuses = [&comparison.bare, &comparison.held].map(|side| side.finished.status);
        assert_eq!(statuses[0], statuses[1], "they end alike{}", comparison.outputs());
        assert!(comparison.calls.is_object(), "there are accounts{}", comparison.outputs());
        let name = place.path("").file_name().unwrap_or_default().to_string_lossy().into_owned();
        report(&name, &comparison.bare.finished, &comparison.held.finished, &comparison.calls);
        comparison
    }

    /// Expects exit code 0 of both.
    pub fn succeeds(self) -> Self {
        assert!(self.bare.finished.status.success(), "it succeeds{}", self.outputs());
        self
    }

    /// Expects that `of` returns the same for both, and not an empty text.
    pub fn same(&self, what: &str, of: impl Fn(&OneSide) -> String) {
        let (bare, held) = (of(&self.bare), of(&self.held));
        assert!(!bare.is_empty(), "there is no {what}{}", self.outputs());
        let differs = bare.lines().zip(held.lines()).find(|(bare, held)| bare != held);
        assert!(
            bare == held,
            "not the same {what}: {} and {} lines, first {differs:?}",
            bare.lines().count(),
            held.lines().count()
        );
    }

    /// Expects that the trees at `below` are the same, except for what matches `ignored`.
    pub fn same_tree(&self, below: &str, ignored: &[&str]) {
        let [bare, held] = [&self.bare, &self.held].map(|side| side.dir.join(below));
        same_trees(&bare, &held, ignored);
    }

    /// Returns how many of the calls named `call` were passed on to the kernel.
    pub fn passed(&self, call: &str) -> u64 {
        self.calls[call]["passed"].as_u64().unwrap_or(0)
    }

    /// Expects that at least `least` of the calls named `call` were held.
    pub fn holds(&self, call: &str, least: u64) {
        let held = self.calls[call]["held"].as_u64().unwrap_or(0);
        assert!(held >= least, "{held} {call} held, not {least}: {}", self.calls);
    }

    fn outputs(&self) -> String {
        let of = |name: &str, side: &OneSide| {
            let Finished { stdout, stderr, status, .. } = &side.finished;
            format!("\n{name}: {status}\n{}\n{}", tail(stdout), tail(stderr))
        };
        of("bare", &self.bare) + &of("held", &self.held)
    }
}

fn side(place: &Place, name: &str, prepare: impl Fn(&Path), words: &[&str]) -> OneSide {
    let dir = place.path(name);
    fs::create_dir_all(dir.join("tmp")).expect("a directory for one of the two");
    prepare(&dir);
    let mut command = place.command(words[0]);
    command.args(&words[1..]).current_dir(&dir);
    command.env("TMPDIR", dir.join("tmp")).env("HOME", &dir).env("LC_ALL", "C.UTF-8");
    let finished = process::run(&mut command, limit())
        .unwrap_or_else(|error| panic!("{name}: {}", tail(&error.to_string())));
    OneSide { dir, finished }
}

/// Expects that the trees are the same, except for what matches `ignored`, and not empty.
pub fn same_trees(bare: &Path, held: &Path, ignored: &[&str]) {
    let options = ignored.iter().fold(ManifestOptions::default(), |options, glob| {
        options.ignore(glob).expect("a glob of ours")
    });
    let [bare, held] =
        [bare, held].map(|tree| Manifest::with(tree, &options).expect("a tree that can be read"));
    assert!(bare.entries.len() > 1, "there is something to compare");
    let differences = diff(&bare, &held);
    assert!(differences.is_empty(), "the trees differ: {differences:#?}");
}

/// Adds a line to the report file, if there is one: the time of each run, and the calls as
/// held/passed/refused.
pub fn report(name: &str, bare: &Finished, held: &Finished, calls: &serde_json::Value) {
    let [bare, held] = [("bare", bare), ("held", held)].map(|(side, finished)| {
        format!("{side} {} in {:.2} s", finished.status, finished.elapsed.as_secs_f64())
    });
    let calls: Vec<_> = calls.as_object().into_iter().flatten().map(account).collect();
    harness::report(&format!("{name}: {bare}, {held}; {}", calls.join(", ")));
}

fn account((call, tally): (&String, &serde_json::Value)) -> String {
    format!("{call} {}/{}/{}", tally["held"], tally["passed"], tally["refused"])
}

/// Returns the calls in the accounts at the end of a held command's standard error; null if
/// there are none.
pub fn calls(held: &Finished) -> serde_json::Value {
    let last = held.stderr.lines().last().unwrap_or_default();
    let accounts: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
    accounts["calls"].clone()
}

/// Runs a shell script and returns its output.
pub fn sh(dir: &Path, script: &str) -> String {
    let mut command = Command::new("sh");
    let finished = process::run(command.args(["-ec", script]).current_dir(dir), limit()).unwrap();
    assert!(finished.status.success(), "{script}: {}\n{}", finished.status, finished.stderr);
    finished.stdout
}

/// Compiles the C `source` with `libraries`; returns the path of the program.
pub fn compile(place: &Place, source: &str, libraries: &str) -> String {
    place.write("program.c", source);
    sh(&place.path(""), &format!("cc -Wall -O1 -o program program.c {libraries}"));
    place.text("program")
}
