//! Why a rule is refused before the command starts.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use synconce_durable::text;
use synconce_sys::reason;

/// The two kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleKind {
    /// `--only`: hold the syncs of these files alone.
    Only,
    /// `--except`: the syncs of these files are real.
    Except,
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Only => "--only",
            Self::Except => "--except",
        })
    }
}

/// A rule that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleError {
    /// The option.
    pub kind: RuleKind,
    /// Its argument, as typed.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Why it is refused.
    pub reason: RuleReason,
}

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleReason {
    /// The path cannot be examined: errno(3).
    Unreadable(i32),
    /// This directory, in which the rule would match, does not exist.
    NoDirectory(#[serde(serialize_with = "text::path")] PathBuf),
    /// This file is no directory, and the rule is for what is below it.
    NotADirectory(#[serde(serialize_with = "text::path")] PathBuf),
    /// The path does not exist, and its file system is read-only.
    ReadOnly,
    /// The path is neither a file nor a directory.
    NotAFile,
    /// `..` follows a wildcard.
    GoesUp,
    /// The path has a `[`; this path has the `[` as an ordinary character.
    Bracket(#[serde(serialize_with = "text::path")] PathBuf),
    /// The path is on a file system of this type, whose syncs are never held.
    NoDisk(String),
    /// This process is in a chroot that hides the mount of the path. The value is the nearest
    /// directory that exists, at the path or above.
    Unplaced(#[serde(serialize_with = "text::path")] PathBuf),
    /// `/proc` does not show this pid namespace, so no call can be examined.
    ForeignProc,
    /// Another rule of the same kind covers this one. The value is that rule.
    Covered(#[serde(serialize_with = "text::path")] PathBuf),
    /// This `--except` covers the whole `--only`.
    Excepted(#[serde(serialize_with = "text::path")] PathBuf),
    /// The `--except` covers every file.
    Everything,
    /// The `--except` is below no `--only`.
    OutsideOnly,
}

impl RuleError {
    /// Returns what the user can do.
    pub(crate) fn remedy(&self) -> Option<Cow<'static, str>> {
        Some(match &self.reason {
            RuleReason::NoDirectory(directory) => {
                let directory = text::quote(directory);
                format!("make the directory first: mkdir --parents {directory}").into()
            }
            RuleReason::Unplaced(directory) => {
                let at = text::quote(directory);
                format!("mount the directory on itself: mount --bind {at} {at}").into()
            }
            RuleReason::Bracket(escaped) => {
                format!("for a `[` in the name: {} {}", self.kind, text::quote(escaped)).into()
            }
            RuleReason::NoDisk(_) => "leave the option out: syncs there are never held".into(),
            RuleReason::ForeignProc => {
                "mount /proc anew: unshare --mount --pid --fork --mount-proc".into()
            }
            RuleReason::Covered(_) => "leave one of the two out".into(),
            RuleReason::OutsideOnly => {
                "leave --except out: without a rule such syncs are real already".into()
            }
            RuleReason::Excepted(_) => {
                "leave --only out, or name a path below it in --except".into()
            }
            RuleReason::Everything => {
                "run the command without synconce, or name a path below".into()
            }
            RuleReason::GoesUp => "write the path without `..`".into(),
            RuleReason::Unreadable(_)
            | RuleReason::NotADirectory(_)
            | RuleReason::ReadOnly
            | RuleReason::NotAFile => return None,
        })
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, reason: why } = self;
        write!(f, "cannot use {kind} {}: ", path.display())?;
        match why {
            RuleReason::Unreadable(errno) => {
                f.write_str(&reason(&std::io::Error::from_raw_os_error(*errno)))
            }
            RuleReason::NoDirectory(directory) => {
                write!(f, "there is no directory {}", directory.display())
            }
            RuleReason::NotADirectory(file) => {
                write!(f, "{} is no directory, so nothing can be below it", file.display())
            }
            RuleReason::ReadOnly => f.write_str(
                "it does not exist, and cannot be made, because its file system is read-only",
            ),
            RuleReason::NotAFile => f.write_str("it is neither a file nor a directory"),
            RuleReason::GoesUp => f.write_str("`..` follows a wildcard"),
            RuleReason::Bracket(_) => f.write_str("`[` is no wildcard"),
            RuleReason::Everything => {
                f.write_str("it covers every file, so the run would hold nothing")
            }
            RuleReason::NoDisk(kind) => {
                write!(f, "it is on no disk file system ({kind}), and no disk is mounted below")
            }
            RuleReason::Unplaced(_) => f.write_str("the chroot hides its mount"),
            RuleReason::ForeignProc => f.write_str("/proc does not show this pid namespace"),
            RuleReason::Covered(by) if by == path => f.write_str("it is given twice"),
            RuleReason::Covered(by) => write!(f, "{kind} {} covers it", by.display()),
            RuleReason::Excepted(by) => {
                write!(f, "nothing is left of it: --except {} covers it", by.display())
            }
            RuleReason::OutsideOnly => f.write_str("it matches nothing that --only names"),
        }
    }
}
