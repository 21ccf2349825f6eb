//! What is written down of a tree: its durable record, and what was done since.

use crate::overlay::Features;
use crate::strategy::Strategy;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The format of records that this version writes, and the only one it reads.
pub const FORMAT: u32 = 1;

/// The longest name of a tree, so that `.NAME.json.synconce-new` is a file name.
const LONGEST: usize = 200;

/// The name of a tree: letters, digits, `.`, `_`, `-`, `+`, `@`, `:` and `=`, the first
/// one a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no name.
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

impl FromStr for Name {
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

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// What a layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// A root with everything in it.
    Whole,
    /// What an overlay's upper directory holds: changes to the layers below.
    Upper,
    /// The same, written in a user namespace (`userxattr`), and only to be read so.
    UserUpper,
}

/// A layer of a tree's stack, by the name of its directory in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The name of its directory.
    pub id: String,
    /// What it holds.
    pub content: Content,
}

/// Where a tree comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The tree that it was cloned from.
    pub name: Name,
    /// That tree's generation then.
    pub generation: u64,
}

/// The durable record of a tree, `trees/NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The tree's name.
    pub name: Name,
    /// 1 at first; a commit makes the next one.
    pub generation: u64,
    /// The stack, bottom first.
    pub layers: Vec<Layer>,
    /// How runs get a copy to write in.
    pub strategy: Strategy,
    /// Why that one.
    pub reason: String,
    /// Where it comes from, if it is a clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// When this generation was made: seconds since 1970.
    pub made: u64,
}

/// Where and when work was done: as long as both stay the same, what was written is
/// there without having been synced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootEpoch {
    /// The kernel's `boot_id` (`random(4)`).
    pub boot: String,
    /// The number that the kernel gave the store's disk when it was attached
    /// (`diskseq`, Linux 5.15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// For btrfs, whose disks can change: what stays the same while it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<u64>,
}

/// What runs have done to a tree since its record was written: `open/NAME.json`, which
/// is not durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// [`FORMAT`].
    pub format: u32,
    /// When it was done.
    pub boot_epoch: BootEpoch,
    /// The generation that it was done to.
    pub generation: u64,
    /// The whole stack as it is now, bottom first.
    pub layers: Vec<Layer>,
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A command; the process that waits for it holds the lease.
    Run,
    /// Mounted at a path of the user's until it is unmounted.
    Mount(PathBuf),
    /// Mounted at a path of the user's, to be read.
    View(PathBuf),
    /// A new tree is being filled.
    Import,
}

/// A working copy in use, `sessions/ID/session.json`, which is not durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// [`FORMAT`].
    pub format: u32,
    /// The tree that it works on; none for a clone without a name.
    pub tree: Option<Name>,
    /// The tree that it came from, in words for a report.
    pub from: String,
    /// The generation that it began from; none for a tree that is still to be made.
    pub generation: Option<u64>,
    /// The stack that it works on: its lease.
    pub layers: Vec<Layer>,
    /// How it writes.
    pub strategy: Strategy,
    /// What its overlay is mounted with.
    pub features: Features,
    /// What it is for.
    pub purpose: Purpose,
    /// The process that began it.
    pub pid: u32,
    /// When: seconds since 1970.
    pub began: u64,
    /// Where and when, for the system.
    pub boot_epoch: BootEpoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_name_that_hides_nothing() {
        for good in ["bookworm", "a", "x86_64", "debian-12.5+a=b:c@d", "9"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        let long = "a".repeat(LONGEST + 1);
        for bad in ["", ".", "..", ".a", "-a", "a/b", "../a", "a b", "a\n", "ä", &long] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_record_with_a_bad_name_is_none() {
        let text = r#"{"format":1,"name":"../x","generation":1,"layers":[],"strategy":"copy","reason":"","made":0}"#;
        assert!(serde_json::from_str::<Record>(text).is_err());
    }
}
