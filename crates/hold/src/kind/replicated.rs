//! Members of replicated systems, recognized by their files.
//!
//! A member that loses what it acknowledged can break the agreement of all members. So no
//! option makes them held.

use super::bolt;
use super::content::{Contents, DEEPEST, text};
use super::found::DatabaseFile;
use super::refusal::{Refusal, RefusalReason};
use crate::config::{Held, HeldKind};
use std::path::Path;

/// A file that only a member of a replicated system has.
struct Sign {
    file: &'static str,
    /// This file or directory is beside it.
    beside: Option<&'static str>,
    /// The file contains one of these words; any content if there are none.
    words: &'static [&'static str],
    system: &'static str,
}

const SIGNS: [Sign; 11] = [
    sign("raft.db", None, "a Raft log (Consul, Vault, Nomad, rqlite)"),
    sign("myid", Some("version-2"), "a ZooKeeper ensemble"),
    Sign {
        file: "meta.properties",
        beside: None,
        words: &["broker.id", "node.id", "cluster.id"],
        system: "Kafka",
    },
    sign("COCKROACHDB_VERSION", None, "CockroachDB"),
    sign("STORAGE_MIN_VERSION", None, "CockroachDB"),
    sign("grastate.dat", None, "MariaDB Galera"),
    sign("master.info", None, "a replica of MySQL or MariaDB"),
    sign("relay-log.info", None, "a replica of MySQL or MariaDB"),
    sign("cluster.yaml", Some("info.yaml"), "dqlite"),
    // The file of the oplog, a collection, has a number as its name. So a member of a replica set
    // has the same file names as a single mongod.
    sign("storage.bson", Some("WiredTiger"), "MongoDB, perhaps with a replica set"),
    sign("mongod.lock", Some("WiredTiger"), "MongoDB, perhaps with a replica set"),
];

const fn sign(file: &'static str, beside: Option<&'static str>, system: &'static str) -> Sign {
    Sign { file, beside, words: &[], system }
}

/// Refuses a path with the files of a member of a replicated system.
pub(super) fn check(held: &Held, contents: &Contents) -> Result<(), Refusal> {
    for sign in &SIGNS {
        if let Some(file) = contents.named(sign.file).find(|file| sign.is_of(file, contents)) {
            let reason = RefusalReason::Replicated(sign.system.to_owned(), file.to_owned());
            return Err(reason.on(&held.path));
        }
    }
    // The file alone is refused elsewhere, with the hint to hold its directory.
    let is_etcd = |file: &&Path| file.ends_with("member/snap/db") && !held.kind.is_file();
    for file in contents.named("db").filter(is_etcd) {
        check_etcd(file).map_err(|reason| reason.on(&held.path))?;
    }
    Ok(())
}

/// Refuses a path inside a directory that can only be held or refused as a whole. A file in a
/// directory above the path shows which database it is.
pub(super) fn check_above(held: &Held) -> Result<(), Refusal> {
    let above = held.path.parent().and_then(|parent| parent.canonicalize().ok());
    let Some(above) = above else { return Ok(()) };
    let refuse = |reason: RefusalReason| Err(reason.on(&held.path));
    let part =
        |kind, file| refuse(RefusalReason::OtherKind(held.kind, DatabaseFile { kind, file }));
    let mut postgresql = None;
    for directory in above.ancestors().take(DEEPEST) {
        let is_there = |name: &str| directory.join(name).exists();
        for sign in &SIGNS {
            let file = directory.join(sign.file);
            let is_whole = sign.beside.is_none_or(is_there);
            if file.is_file() && is_whole && sign.has_words(&file) {
                return refuse(RefusalReason::Replicated(sign.system.to_owned(), file));
            }
        }
        let etcd = directory.join("member/snap/db");
        if etcd.is_file() && !held.kind.is_file() {
            check_etcd(&etcd).map_err(|reason| reason.on(&held.path))?;
            return part(HeldKind::Etcd, etcd);
        }
        // The directory of each database in it has such a file, too.
        let version = directory.join("PG_VERSION");
        postgresql = version.is_file().then_some(version).or(postgresql);
    }
    match postgresql {
        None => Ok(()),
        Some(version) if !held.throw_away => refuse(RefusalReason::Postgresql(version)),
        Some(version) => part(HeldKind::Postgresql, version),
    }
}

impl Sign {
    fn is_of(&self, file: &Path, contents: &Contents) -> bool {
        self.beside.is_none_or(|name| contents.has_beside(file, name)) && self.has_words(file)
    }

    fn has_words(&self, file: &Path) -> bool {
        self.words.is_empty() || {
            let text = text(file);
            self.words.iter().any(|word| text.contains(word))
        }
    }
}

/// Refuses the database `file` of an etcd with more than one member.
fn check_etcd(file: &Path) -> Result<(), RefusalReason> {
    let count = bolt::count_keys(file, b"members");
    match count.map_err(|error| RefusalReason::UnknownMembers(file.to_owned(), error))? {
        0 | 1 => Ok(()),
        count => {
            Err(RefusalReason::Replicated(format!("etcd with {count} members"), file.to_owned()))
        }
    }
}
