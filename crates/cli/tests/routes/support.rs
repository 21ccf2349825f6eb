//! A directory for each test, and the accounts of a run.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_run::{Accounts, Tally};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::{harness, patiently};

pub const SYNCONCE: &str = env!("CARGO_BIN_EXE_synconce");
/// Returns far more time than any command here takes on a slow machine.
pub fn limit() -> Duration {
    patiently(Duration::from_secs(120))
}

/// Runs `test` with a new place, in namespaces of its own.
pub fn isolated<T: Fn(&Place)>(test: T) {
    synconce_testkit::isolation::isolated(test, |name, test| {
        let place = Place(harness::Place::new(name));
        test(&place);
        place.0.down();
    });
}

/// A directory of the test's own, on a disk.
pub struct Place(harness::Place);

impl Deref for Place {
    type Target = harness::Place;

    fn deref(&self) -> &harness::Place {
        &self.0
    }
}

impl Place {
    /// Makes the directory `name` in the directory; returns its path.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("a directory in our own");
        path
    }

    /// Returns the command `words` in `directory`, with the test's state and runtime
    /// directories.
    pub fn command(&self, directory: &Path, words: &[&str]) -> Command {
        let mut command = self.0.command(words[0]);
        command.args(&words[1..]).current_dir(directory);
        command
    }

    /// Runs `words` in `directory` to their end.
    pub fn bare(&self, directory: &Path, words: &[&str]) -> Finished {
        process::run(&mut self.command(directory, words), limit()).unwrap()
    }

    /// Runs `synconce run --stats --json OPTIONS -- WORDS` in `directory` to its end.
    pub fn held(&self, directory: &Path, options: &[&str], words: &[&str]) -> Run {
        let run = [SYNCONCE, "run", "--stats", "--json"];
        Run::from_finished(self.bare(directory, &[&run, options, &["--"], words].concat()))
    }

    /// Runs `words` bare and held, each in an empty directory, and asserts that they agree.
    /// Returns the held run.
    pub fn twice(&self, options: &[&str], words: &[&str]) -> Run {
        let bare = self.bare(&self.directory("bare"), words);
        let held = self.held(&self.directory("held"), options, words);
        agree(&bare, &held.finished);
        held
    }
}

/// A run that has ended.
pub struct Run {
    pub finished: Finished,
    /// The calls by kind and by program.
    pub accounts: Accounts,
    /// The mount points that were committed.
    pub committed: Vec<String>,
}

impl Run {
    /// Reads the accounts that `finished` printed.
    pub fn from_finished(finished: Finished) -> Self {
        let line = finished.stderr.lines().rfind(|line| line.starts_with('{'));
        let line = line.unwrap_or_else(|| panic!("no accounts: {finished:?}"));
        let value: Value = serde_json::from_str(line).expect("accounts in JSON");
        let systems = value["commit"]["file_systems"].as_array().cloned().unwrap_or_default();
        let points = systems.iter().filter_map(|one| one["mount_point"].as_str());
        Self {
            committed: points.map(str::to_owned).collect(),
            accounts: serde_json::from_value(value).expect("accounts"),
            finished,
        }
    }

    /// Returns how many of `call` were held, passed and refused.
    pub fn counts(&self, call: &str) -> [u64; 3] {
        self.accounts.calls.get(call).map_or([0; 3], numbers)
    }

    /// Returns the lines on standard error beside the accounts.
    pub fn notices(&self) -> String {
        let lines = self.finished.stderr.lines().filter(|line| !line.starts_with('{'));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the counts of every program in the accounts.
    pub fn programs(&self) -> BTreeMap<&str, [u64; 3]> {
        let programs = self.accounts.programs.iter();
        programs.map(|(name, tally)| (name.as_str(), numbers(tally))).collect()
    }
}

fn numbers(Tally { held, passed, refused, .. }: &Tally) -> [u64; 3] {
    [*held, *passed, *refused]
}

/// Asserts that both printed the same and ended with the same status, except for the sync
/// flag, which a hold takes away.
pub fn agree(bare: &Finished, held: &Finished) {
    let stripped = bare.stdout.replace("disk-sync=1", "disk-sync=0");
    let (bare_lines, held_lines): (Vec<_>, Vec<_>) =
        (stripped.lines().collect(), held.stdout.lines().collect());
    let at = bare_lines.iter().zip(&held_lines).position(|(one, other)| one != other);
    let at = at.or((bare_lines.len() != held_lines.len()).then_some(0));
    if let Some(at) = at {
        panic!("they differ from line {at} on:\n{}\n-- held --\n{}", stripped, held.stdout);
    }
    assert_eq!(bare.status, held.status, "{}{}", bare.stderr, held.stderr);
    assert!(!stripped.is_empty(), "it printed nothing: {}", bare.stderr);
    assert!(!stripped.contains("set-up failed"), "{stripped}");
}
