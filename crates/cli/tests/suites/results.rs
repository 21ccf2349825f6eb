//! The results of one run of a test, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The results of one run, by name.
#[derive(Debug, Default)]
pub struct Results {
    by_name: BTreeMap<String, String>,
    /// How many results there are; every occurrence of a counted result counts.
    number: u64,
}

impl Results {
    /// Returns the result `ends`: the exit code, or the signal.
    pub fn ending(status: ExitStatus) -> Self {
        let end = match status.signal() {
            Some(signal) => format!("by signal {signal}"),
            None => format!("with exit code {}", status.code().unwrap_or_default()),
        };
        let mut results = Self::default();
        results.add("ends", end);
        results
    }

    /// Returns the result of a run that did not end within its limit.
    pub fn endless() -> Self {
        let mut results = Self::default();
        results.add("ends", "not in time");
        results
    }

    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.number += 1;
        self.by_name.insert(name.into(), value.into());
    }

    /// Adds one to the counted result `name`.
    pub fn count(&mut self, name: &str) {
        let counted = self.by_name.get(name).and_then(|text| text.parse::<u64>().ok());
        let number = counted.unwrap_or(0);
        self.add(name, (number + 1).to_string());
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the test was skipped, because a requirement is missing.
    pub fn skipped(&self) -> bool {
        self.by_name.contains_key("skipped")
    }

    /// Returns the names of the results that differ.
    pub fn differing(&self, other: &Self) -> BTreeSet<String> {
        let names = self.by_name.keys().chain(other.by_name.keys());
        names.filter(|name| self.by_name.get(*name) != other.by_name.get(*name)).cloned().collect()
    }

    /// Returns the values of the result in both runs.
    pub fn of_both(&self, held: &Self, name: &str) -> String {
        let [bare, held] =
            [self, held].map(|results| results.by_name.get(name).map_or("nothing", String::as_str));
        format!("bare {bare}, held {held}")
    }
}
