//! Opens the store of a command.

use crate::commands::error::CommandError;
use crate::text::{notice, say};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::pins;
use synconce_durable::record::time;
use synconce_durable::text::quote;
use synconce_probe::mounts::{self, Mount};
use synconce_tree::record::Purpose;
use synconce_tree::{Interrupted, Recovered, Store, default_path};

/// The place of the store of a command.
pub struct StorePath {
    /// The path on the command line.
    pub given: Option<PathBuf>,
    pub is_root: bool,
}

impl StorePath {
    /// Returns the given path, or that of the user's default store.
    pub fn path(&self) -> Result<PathBuf, CommandError> {
        let default = || default_path(self.is_root);
        self.given.clone().or_else(default).ok_or_else(|| {
            CommandError::from("cannot find a store: HOME is not set")
                .hint("--store DIR names a store")
        })
    }

    /// Opens the store; reports and removes what interrupted commands left in it.
    pub fn open(&self) -> Result<Store, CommandError> {
        let store = self.open_unchanged()?;
        report(&synconce_tree::recover(&store)?);
        Ok(store)
    }

    /// Opens the store, and leaves everything in it as it is.
    pub fn open_unchanged(&self) -> Result<Store, CommandError> {
        let path = self.path()?;
        Store::open(&path).map_err(|error| self.no_store(error, &path))
    }

    /// Opens the store; makes the user's default store if it does not exist, or is an empty
    /// directory.
    pub fn open_or_make(&self) -> Result<Store, CommandError> {
        let path = self.path()?;
        if self.given.is_none() && (is_missing(&path) || is_empty(&path)) {
            synconce_tree::init(&path)?;
        }
        self.open()
    }

    /// Returns the path of the user's default store if it does not exist.
    pub fn missing_default(&self) -> Result<Option<PathBuf>, CommandError> {
        let path = self.path()?;
        Ok((self.given.is_none() && is_missing(&path)).then_some(path))
    }

    fn no_store(&self, error: Error, path: &Path) -> CommandError {
        let missing = error.io().kind() == io::ErrorKind::NotFound;
        let mut failure = CommandError::from(error);
        if !missing {
            return failure;
        }
        let init = |path: &Path| format!("`synconce tree init {}` makes a store", quote(path));
        if path.exists() {
            failure = format!("cannot open the store {}: it is no store", path.display()).into();
            let is_free = is_empty(path);
            return failure.hint(if is_free { init(path) } else { init(&path.join("trees")) });
        }
        match self.given {
            None => failure.hint("`synconce tree import NAME DIR|TAR` makes it"),
            Some(_) => failure.hint(init(path)),
        }
    }
}

/// Prints a notice if `store` is in memory: then no sync makes its trees durable.
pub fn tell_of_memory(store: &Store) {
    let mounts = mounts::ours().unwrap_or_default();
    if pins::mount_of(store.path(), &mounts).is_ok_and(Mount::is_in_memory) {
        let path = store.path().display();
        notice(&format!("the store {path} is in memory: a reboot removes its trees"));
    }
}

fn is_missing(path: &Path) -> bool {
    path.try_exists().is_ok_and(|exists| !exists)
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// Prints what was found and removed.
pub fn report(recovered: &Recovered) {
    for one in &recovered.interrupted {
        let (what, when) = (purpose(one), time(one.began));
        say(&format!("{what}, begun {when}, was interrupted; its changes are thrown away"));
    }
    for lost in &recovered.lost {
        let tree = &lost.tree;
        say(&match &lost.missing {
            None => format!(
                "uncommitted changes to {tree} were lost when the machine stopped; \
                 {tree} is at its last commit"
            ),
            Some(missing) => format!(
                "uncommitted changes to {tree} are lost: {} is missing; {tree} is at its last commit",
                missing.display()
            ),
        });
    }
    say_left(&recovered.groups);
}

/// Names control groups that could not be removed.
pub fn say_left(groups: &[PathBuf]) {
    for group in groups {
        let group = group.display();
        say(&format!("the control group {group} is in use or cannot be removed"));
    }
}

/// Returns what the interrupted session was for.
pub fn purpose(one: &Interrupted) -> String {
    match &one.purpose {
        Purpose::Run => format!("a run in {}", one.from),
        Purpose::Mount(at) | Purpose::View(at) => {
            format!("the mount of {} at {}", one.from, at.display())
        }
        Purpose::Import => format!("the making of {}", one.from),
    }
}
