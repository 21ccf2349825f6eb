//! What a store keeps about a tree: its durable record, and notes of uncommitted changes and of
//! sessions, which are not durable.

use crate::overlay::Features;
use crate::strategy::{Choice, Strategy};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// The format of stores, notes, and records of trees that keep no older generations.
pub(crate) const FORMAT: u32 = 1;
/// The format of records of trees that keep older generations. A version of synconce that reads
/// only [`FORMAT`] refuses such a record, and then removes no layer of the store.
pub(crate) const KEEPING: u32 = 2;

/// The most bytes of a tree's name: `.NAME.json.synconce-new` must be a file name.
const LONGEST: usize = 200;

/// The name of a tree: letters, digits, `.`, `_`, `-`, `+`, `@`, `:` and `=`, the first
/// one a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreeName(String);

impl TreeName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TreeName {
    /// Splits `NAME@N` into the name of a tree and the number of a generation, from 1. Returns
    /// `None` for a name without such an end.
    pub fn generation(&self) -> Option<(Self, u64)> {
        let (name, number) = self.0.rsplit_once('@')?;
        let is_number =
            !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
        Some((name.parse().ok()?, number.parse().ok().filter(|_| is_number)?))
    }
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no name of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no name of a tree: 1 to {LONGEST} letters, digits and any of . _ - + @ : =, \
             a letter or digit first",
            self.0
        )
    }
}

impl std::error::Error for BadName {}

impl FromStr for TreeName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let first = |byte: &u8| byte.is_ascii_alphanumeric();
        let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@:=".contains(&byte);
        let good = text.as_bytes().first().is_some_and(first)
            && text.bytes().all(rest)
            && text.len() <= LONGEST;
        if good { Ok(Self(text.to_owned())) } else { Err(BadName(text.to_owned())) }
    }
}

impl TryFrom<String> for TreeName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<TreeName> for String {
    fn from(name: TreeName) -> Self {
        name.0
    }
}

/// What a layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerContent {
    /// A whole tree, for which no other layer is needed.
    Whole,
    /// What an overlay's upper directory holds: changes to the layers below.
    Upper,
    /// Like [`LayerContent::Upper`], written in a user namespace (`userxattr`) and readable only
    /// with that option.
    UserUpper,
}

/// A layer of a tree's stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The name of the layer's directory in the store.
    pub id: String,
    /// What the layer holds.
    pub content: LayerContent,
}

/// The tree and generation that a clone was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The tree that was cloned.
    pub name: TreeName,
    /// The generation that was cloned.
    pub generation: u64,
}

/// A generation of a tree: the version that one commit made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// The number: 1 at first; each commit adds 1.
    pub generation: u64,
    /// The stack, bottom first.
    pub layers: Vec<Layer>,
    /// How runs get a writable copy.
    pub strategy: Strategy,
    /// Why this strategy was chosen.
    pub reason: String,
    /// When the generation was made: seconds since 1970.
    pub made: u64,
}

impl Generation {
    /// Returns the strategy of the generation, and why it was chosen.
    pub(crate) fn choice(self) -> Choice {
        Choice { strategy: self.strategy, reason: self.reason }
    }
}

/// The durable record of a tree, `trees/NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRecord {
    /// `FORMAT` or `KEEPING`.
    pub format: u32,
    /// The tree's name. A read takes the name from the file's name instead: `rename` renames the
    /// file and does not write this field.
    pub name: TreeName,
    /// The generation: 1 at first; each commit adds 1.
    pub generation: u64,
    /// The stack, bottom first.
    pub layers: Vec<Layer>,
    /// How runs get a writable copy.
    pub strategy: Strategy,
    /// Why this strategy was chosen.
    pub reason: String,
    /// The tree that this tree was cloned from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// When this generation was made: seconds since 1970.
    pub made: u64,
    /// Whether runs and mounts may leave no changes in the tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
    /// How many older generations a commit keeps, at most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keep: u32,
    /// The older generations that are kept, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Generation>,
}

/// For serde, which passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl TreeRecord {
    /// Makes the record of a new tree, which is not protected and keeps no older generations.
    pub(crate) fn first(
        name: TreeName,
        layers: Vec<Layer>,
        choice: Choice,
        parent: Option<Parent>,
    ) -> Self {
        let Choice { strategy, reason } = choice;
        Self {
            format: FORMAT,
            name,
            generation: 1,
            layers,
            strategy,
            reason,
            parent,
            made: now(),
            protected: false,
            keep: 0,
            kept: Vec::new(),
        }
    }

    /// Returns the newest generation.
    pub fn newest(&self) -> Generation {
        let Self { generation, layers, strategy, reason, made, .. } = self.clone();
        Generation { generation, layers, strategy, reason, made }
    }

    /// Returns the generation `number`, if it is the newest or kept.
    pub fn at(&self, number: u64) -> Option<Generation> {
        if number == self.generation {
            Some(self.newest())
        } else {
            self.kept.iter().find(|kept| kept.generation == number).cloned()
        }
    }

    /// Returns all generations, the newest first.
    pub fn generations(&self) -> Vec<Generation> {
        [self.newest()].into_iter().chain(self.kept.iter().rev().cloned()).collect()
    }

    /// Returns the ids of the layers of all generations; an id may occur several times.
    pub(crate) fn layer_ids(&self) -> Vec<String> {
        let layers = self.layers.iter().chain(self.kept.iter().flat_map(|kept| &kept.layers));
        layers.map(|layer| layer.id.clone()).collect()
    }

    /// Makes `layers` the newest generation, and keeps the one before as an older one. Changes
    /// nothing if the newest generation has the same layers.
    pub(crate) fn add_generation(&mut self, layers: Vec<Layer>, choice: Choice) {
        if self.layers == layers {
            return;
        }
        self.kept.push(self.newest());
        self.generation += 1;
        self.layers = layers;
        (self.strategy, self.reason) = (choice.strategy, choice.reason);
        self.made = now();
        self.keep_at_most(self.keep);
    }

    /// Sets how many older generations are kept, and drops the oldest of those that are too many.
    pub(crate) fn keep_at_most(&mut self, keep: u32) {
        self.keep = keep;
        let excess = self.kept.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
        self.kept.drain(..excess);
    }
}

/// What shows whether data that were written and not synced may have been lost. As long as the boot
/// and the disk stay the same, the data can be read. As long as all fields stay the same, a sync
/// can still make the data durable: no write to the disk has failed unseen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootEpoch {
    /// The `boot_id` (`random(4)`) that commands see. A container can have one of its own.
    pub boot: String,
    /// The boot id of the kernel itself, if it could be read. `None` in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The sequence number of the store's disk, new for each disk that is attached (`diskseq`,
    /// Linux 5.15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// A number that stays the same while the file system is mounted (see
    /// [`synconce_probe::super_block`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<u64>,
    /// How many syncs of the store, or of its file system, had failed. `None` in notes of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<u64>,
}

/// The uncommitted changes of a tree: `open/NAME.json`, which is not durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// `FORMAT`.
    pub format: u32,
    /// The boot epoch when the session that made the first of the changes began.
    pub boot_epoch: BootEpoch,
    /// The generation to which the changes were made.
    pub generation: u64,
    /// The whole stack with the changes, bottom first.
    pub layers: Vec<Layer>,
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// For a command; the process that waits for the command holds the lease.
    Run,
    /// For a mount at this path, until it is unmounted.
    Mount(PathBuf),
    /// For a read-only mount at this path.
    View(PathBuf),
    /// For filling a new tree.
    Import,
}

/// A working copy in use, `sessions/ID/session.json`, which is not durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// `FORMAT`.
    pub format: u32,
    /// The tree that the session changes; `None` for a clone without a name.
    pub tree: Option<TreeName>,
    /// A description of the tree that the session came from, for reports.
    pub from: String,
    /// The generation that the session began from; `None` for a new tree.
    pub generation: Option<u64>,
    /// The stack below the session's changes, bottom first; the session's lease keeps these layers.
    pub layers: Vec<Layer>,
    /// How the session writes.
    pub strategy: Strategy,
    /// The options of the session's overlay mount.
    pub features: Features,
    /// What the session is for.
    pub purpose: Purpose,
    /// The pid of the process that began the session.
    pub pid: u32,
    /// When the session began: seconds since 1970.
    pub began: u64,
    /// The boot epoch in which the session began.
    pub boot_epoch: BootEpoch,
}

impl Session {
    /// Returns the ids of the layers that the session `id` needs, and `id`, the layer that the
    /// session becomes.
    pub(crate) fn layer_ids(&self, id: &str) -> Vec<String> {
        let layers = self.layers.iter().map(|layer| layer.id.clone());
        layers.chain([id.to_owned()]).collect()
    }
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_name_that_hides_nothing() {
        for good in ["bookworm", "a", "x86_64", "debian-12.5+a=b:c@d", "9"] {
            assert!(good.parse::<TreeName>().is_ok(), "{good}");
        }
        let long = "a".repeat(LONGEST + 1);
        for bad in ["", ".", "..", ".a", "-a", "a/b", "../a", "a b", "a\n", "ä", &long] {
            assert!(bad.parse::<TreeName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_with_a_number_names_a_generation() {
        let split = |text: &str| {
            let split = text.parse::<TreeName>().unwrap().generation();
            split.map(|(name, number)| (name.to_string(), number))
        };
        assert_eq!(split("a@2"), Some(("a".to_owned(), 2)));
        assert_eq!(split("a@2@13"), Some(("a@2".to_owned(), 13)));
        for none in ["a", "a@", "a@0", "a@02", "a@+2", "a@2x", "a@18446744073709551616"] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    #[test]
    fn a_record_with_a_bad_name_is_none() {
        let text = r#"{"format":1,"name":"../x","generation":1,"layers":[],"strategy":"copy","reason":"","made":0}"#;
        assert!(serde_json::from_str::<TreeRecord>(text).is_err());
    }
}
