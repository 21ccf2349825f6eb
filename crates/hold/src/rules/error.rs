//! Why a rule is refused before the command starts.

use serde::{Deserialize, Serialize};
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
    pub reason: Reason,
}

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The path cannot be examined: errno(3).
    Unreadable(i32),
    /// A directory of the path does not exist: this one, or one above.
    NoDirectory(#[serde(serialize_with = "text::path")] PathBuf),
    /// The path does not exist, and its file system is read-only.
    ReadOnly,
    /// The path is neither a file nor a directory.
    NotAFile,
    /// `..` follows a wildcard.
    GoesUp,
    /// The path is on a file system of this type, whose syncs are never held.
    NoDisk(String),
    /// This process is in a chroot that hides the mount of the path.
    Unplaced,
    /// `/proc` does not show this pid namespace, so no call can be examined.
    ForeignProc,
    /// This other rule of the same kind covers it.
    Covered(#[serde(serialize_with = "text::path")] PathBuf),
    /// This `--except` covers the whole `--only`.
    Excepted(#[serde(serialize_with = "text::path")] PathBuf),
    /// The `--except` is below no `--only`.
    OutsideOnly,
}

impl Reason {
    /// Returns what the user can do.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoDirectory(_) => "make the directory first: mkdir --parents DIRECTORY",
            Self::NoDisk(_) => "leave the option out: syncs there are never held",
            Self::Unplaced => "mount the directory on itself: mount --bind DIRECTORY DIRECTORY",
            Self::ForeignProc => "mount /proc anew: unshare --mount --pid --fork --mount-proc",
            Self::Covered(_) => "leave one of the two out",
            Self::OutsideOnly => "leave --except out: without a rule such syncs are real already",
            Self::Excepted(_) => "leave --only out, or name a path below it in --except",
            Self::GoesUp => "write the path without `..`",
            Self::Unreadable(_) | Self::ReadOnly | Self::NotAFile => return None,
        })
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, reason: why } = self;
        write!(f, "cannot use {kind} {}: ", path.display())?;
        match why {
            Reason::Unreadable(errno) => {
                f.write_str(&reason(&std::io::Error::from_raw_os_error(*errno)))
            }
            Reason::NoDirectory(directory) => {
                write!(f, "there is no directory {}", directory.display())
            }
            Reason::ReadOnly => f.write_str(
                "it does not exist, and cannot be made, because its file system is read-only",
            ),
            Reason::NotAFile => f.write_str("it is neither a file nor a directory"),
            Reason::GoesUp => f.write_str("`..` follows a wildcard"),
            Reason::NoDisk(kind) => {
                write!(f, "it is on no disk file system ({kind}), and no disk is mounted below")
            }
            Reason::Unplaced => f.write_str("the chroot hides its mount"),
            Reason::ForeignProc => f.write_str("/proc does not show this pid namespace"),
            Reason::Covered(by) if by == path => f.write_str("it is given twice"),
            Reason::Covered(by) => write!(f, "{kind} {} covers it", by.display()),
            Reason::Excepted(by) => {
                write!(f, "nothing is left of it: --except {} covers it", by.display())
            }
            Reason::OutsideOnly => f.write_str("it matches nothing that --only names"),
        }
    }
}
