//! A kind that does not fit the files that are there.

use crate::kind::{kept, thrown_away};
use std::fs;
use std::path::{Path, PathBuf};
use synconce_hold::config::{Held, HeldKind};
use synconce_hold::kind::inspect;
use synconce_testkit::harness::Place;
use synconce_testkit::rig::{FsKind, Rig};

const KINDS: [HeldKind; 5] =
    [HeldKind::Bolt, HeldKind::Sqlite, HeldKind::Lmdb, HeldKind::Etcd, HeldKind::Postgresql];

/// A database, by a file that is recognized, and the path to hold.
struct Database {
    kind: HeldKind,
    directory: PathBuf,
    file: PathBuf,
    held: PathBuf,
}

/// Makes a database of `kind` below `place`.
fn database(place: &Path, kind: HeldKind) -> Database {
    // bbolt wrote this database.
    let bolt = include_bytes!("../../../../proof/fuzz/corpora/bolt/one");
    let mut lmdb = vec![0; 4096];
    lmdb[16..20].copy_from_slice(&0xBEEF_C0DE_u32.to_ne_bytes());
    let (name, content) = match kind {
        HeldKind::Bolt => ("meta.db", bolt.to_vec()),
        HeldKind::Sqlite => ("base.sqlite", b"SQLite format 3\0".to_vec()),
        HeldKind::Lmdb => ("data.mdb", lmdb),
        HeldKind::Etcd => ("member/snap/db", bolt.to_vec()),
        HeldKind::Postgresql | HeldKind::Other => ("PG_VERSION", b"15\n".to_vec()),
    };
    let directory = place.join(kind.word());
    let file = directory.join(name);
    fs::create_dir_all(file.parent().expect("a directory above")).expect("directories");
    fs::write(&file, content).expect("a file");
    if kind == HeldKind::Etcd {
        fs::create_dir(directory.join("member/wal")).expect("a directory");
    }
    let held = if kind.is_file() { file.clone() } else { directory.clone() };
    Database { kind, directory, file, held }
}

/// Returns the message and the hint; `None` if the path may be held.
fn refusal(held: &Held) -> Option<(String, String)> {
    let refusal = inspect(held).err()?;
    Some((refusal.to_string(), refusal.remedy().unwrap_or_default()))
}

pub fn each_kind_on_the_files_of_another_is_refused_with_what_is_there(_: &Place) {
    let disk = Rig::builder().fs(FsKind::Ext4).up().expect("a rig");
    for there in KINDS.map(|kind| database(disk.path(), kind)) {
        let (name, word) = (there.kind.to_string(), there.kind.word());
        for stated in KINDS.into_iter().filter(|kind| *kind != there.kind) {
            for path in [&there.directory, &there.file] {
                let (message, hint) = refusal(&kept(path, stated)).expect("a refusal");
                let case = format!("{stated:?} on {path:?}: {message}; {hint}");
                assert!(message.contains(&name), "{case}");
                assert!(hint.contains(&format!("kind = \"{word}\"")), "{case}");
                let is_thrown_away = there.kind == HeldKind::Postgresql;
                assert_eq!(hint.contains("throw_away"), is_thrown_away, "{case}");
                let says_path = hint.contains(&format!("path = {:?}", there.held));
                assert!(says_path || message.contains("PG_VERSION is of PostgreSQL"), "{case}");
            }
        }
        assert_eq!(refusal(&thrown_away(&there.held, there.kind)), None, "as the hint says");
    }
}

pub fn a_path_that_is_too_deep_or_has_nothing_known_is_named(_: &Place) {
    let disk = Rig::builder().fs(FsKind::Ext4).up().expect("a rig");
    let etcd = database(disk.path(), HeldKind::Etcd);
    let (message, hint) =
        refusal(&kept(&etcd.directory.join("member"), HeldKind::Etcd)).expect("a refusal");
    assert!(message.contains("do not fit what is there"), "{message}");
    assert!(hint.contains(&format!("path = {:?} and kind = \"etcd\"", etcd.held)), "{hint}");
    let text = disk.path().join("text");
    fs::create_dir(&text).expect("a directory");
    fs::write(text.join("notes"), [b'x'; 9000]).expect("a file");
    for kind in [HeldKind::Sqlite, HeldKind::Lmdb, HeldKind::Etcd, HeldKind::Postgresql] {
        let (message, hint) = refusal(&thrown_away(&text, kind)).expect("a refusal");
        assert!(message.contains(&format!("no file there is a database of {kind}")), "{message}");
        assert!(hint.contains("kind = \"other\""), "{kind:?}: {hint}");
    }
    let missing = disk.path().join("missing");
    let (message, hint) = refusal(&kept(&missing, HeldKind::Postgresql)).expect("a refusal");
    assert!(message.contains("PostgreSQL") && hint.contains("throw_away = true"), "{message}");
    assert_eq!(refusal(&thrown_away(&missing, HeldKind::Postgresql)), None);
}

pub fn every_file_of_a_large_directory_is_looked_at(_: &Place) {
    let disk = Rig::builder().fs(FsKind::Ext4).up().expect("a rig");
    let large = disk.path().join("large");
    fs::create_dir_all(large.join("below")).expect("directories");
    fs::write(large.join("first"), "").expect("a file");
    for number in 0..25_000 {
        fs::hard_link(large.join("first"), large.join(number.to_string())).expect("a link");
    }
    fs::write(large.join("below/base.sqlite"), b"SQLite format 3\0").expect("a file");
    assert_eq!(refusal(&kept(&large, HeldKind::Sqlite)), None);
    fs::write(large.join("below/raft.db"), "").expect("a file");
    let (message, _) = refusal(&kept(&large, HeldKind::Sqlite)).expect("a refusal");
    assert!(message.contains("a Raft log"), "{message}");
}
