//! The kinds of databases that can be held, and what must not be held.

mod content;
mod dsync;
mod place;
mod refusal;
mod replicated;

pub use refusal::{Reason, Refusal};

use crate::config::Held;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a held path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One file of bbolt.
    Bolt,
    /// A directory with SQLite databases and their journals.
    Sqlite,
    /// A directory with an LMDB environment. LMDB keeps one O_DSYNC write for each commit.
    Lmdb,
    /// The data directory of an etcd with a single member.
    Etcd,
    /// The data directory of PostgreSQL, which may be thrown away only.
    Postgresql,
    /// A directory with files of another program.
    Other,
}

impl Kind {
    /// Whether the held path is one file, and not a directory.
    pub fn is_file(self) -> bool {
        self == Self::Bolt
    }

    /// Returns the word for the kind in a hold's file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bolt => "bolt",
            Self::Sqlite => "sqlite",
            Self::Lmdb => "lmdb",
            Self::Etcd => "etcd",
            Self::Postgresql => "postgresql",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bolt => "bbolt",
            Self::Sqlite => "SQLite",
            Self::Lmdb => "LMDB",
            Self::Etcd => "etcd",
            Self::Postgresql => "PostgreSQL",
            Self::Other => "an unknown program",
        })
    }
}

/// Checks whether `held` is of its kind and may be held. The check is for the time before the
/// hold starts: a path in force is a mount point, which is refused. A missing path may be held
/// if a file system that can be held will have it.
///
/// Databases are recognized by the names and first bytes of files at the path, and in
/// directories down to four levels below (at most 20,000 entries).
///
/// # Errors
/// Says why the path may not be held.
pub fn inspect(held: &Held) -> Result<(), Refusal> {
    if !place::check(held)? {
        return Ok(());
    }
    let contents = content::Contents::read(held)?;
    replicated::check(held, &contents)?;
    dsync::check(held, &contents)?;
    content::check(held, &contents)
}
