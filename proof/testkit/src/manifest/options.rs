//! Options: what a manifest includes.

use glob::{MatchOptions, Pattern};

use crate::{Error, Result};

/// What each call of apt and each run changes in a Debian root.
const CALLS: [&str; 6] = [
    "var/log/**",
    "var/cache/**",
    "var/lib/apt/**",
    "var/lib/synconce",
    "var/lib/dpkg/*-old",
    ".host",
];

/// What a manifest includes; by default everything but times.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ManifestOptions {
    mtimes: bool,
    ignored: Vec<Pattern>,
}

impl ManifestOptions {
    /// Includes the time of the last change.
    pub fn mtimes(mut self) -> Self {
        self.mtimes = true;
        self
    }

    /// Leaves out every path that matches `glob`, and everything below it: `var/log`,
    /// `**/*.pyc`. The path is relative to the tree's root, without a leading slash. `*` does
    /// not match a slash.
    ///
    /// # Errors
    /// `glob` is not a valid glob.
    pub fn ignore(mut self, glob: &str) -> Result<Self> {
        let pattern = Pattern::new(glob)
            .map_err(|error| Error::Refused(format!("cannot understand {glob}: {error}")))?;
        self.ignored.push(pattern);
        Ok(self)
    }

    /// Leaves out what each call of apt and each run changes in a Debian root.
    ///
    /// # Errors
    /// As [`ManifestOptions::ignore`].
    pub fn ignore_calls_of_apt(self) -> Result<Self> {
        CALLS.iter().try_fold(self, |options, glob| options.ignore(glob))
    }

    pub(super) fn wants_mtimes(&self) -> bool {
        self.mtimes
    }

    pub(super) fn ignores(&self, path: &str) -> bool {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
        self.ignored.iter().any(|pattern| pattern.matches_with(path, options))
    }
}
