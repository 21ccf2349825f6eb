//! What may be held, on real file systems and with files of real programs.

use crate::go::Bbolt;
use rustix::fs::CWD;
use rustix::fs::{XattrFlags, setxattr};
use rustix::mount::{
    MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, mount, mount_bind, move_mount,
    unmount,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_hold::config::Held;
use synconce_hold::config::HeldKind;
use synconce_hold::kind::inspect;
use synconce_sys::overlay::mounted;
use synconce_testkit::harness::Place;
use synconce_testkit::rig::{FsKind, Rig};

/// Returns the files at `path` as a hold has them without `throw_away`.
pub fn kept(path: &Path, kind: HeldKind) -> Held {
    Held { path: path.to_owned(), kind, throw_away: false }
}

/// Returns the files at `path` as a hold with `throw_away` has them.
pub fn thrown_away(path: &Path, kind: HeldKind) -> Held {
    Held { throw_away: true, ..kept(path, kind) }
}

/// Returns the words of the refusal to hold `held`, with the hint; empty if it may be held.
fn refusal(held: &Held) -> String {
    match inspect(held) {
        Ok(()) => String::new(),
        Err(refusal) => {
            let words = refusal.to_string();
            let start = format!("cannot hold {}: ", held.path.display());
            assert!(words.starts_with(&start), "{words}");
            format!("{words}; hint: {}", refusal.remedy().unwrap_or_default())
        }
    }
}

fn refused(path: &Path, kind: HeldKind, words: &[&str]) {
    let found = refusal(&kept(path, kind));
    assert!(!found.is_empty(), "{kind:?} {path:?} may be held");
    for word in words {
        assert!(found.contains(word), "{kind:?} {path:?}: {found}, without {word}");
    }
}

fn accepted(path: &Path, kind: HeldKind) {
    assert_eq!(refusal(&kept(path, kind)), "");
}

/// Writes the file `name` below `directory`, with the directories on the way.
fn write(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a directory above")).expect("directories");
    fs::write(&path, content).expect("a file");
    path
}

/// Returns a file system of a disk: the build may be on one that cannot be held.
fn disk() -> Rig {
    Rig::builder().fs(FsKind::Ext4).up().expect("a rig")
}

pub fn a_bolt_database_is_one_file_of_bbolt(place: &Place) {
    let bbolt = Bbolt::new(place);
    let disk = disk();
    let path = |name: &str| disk.path().join(name);
    fs::copy(bbolt.directory.join("some.db"), path("some.db")).expect("a copy");
    accepted(&path("some.db"), HeldKind::Bolt);
    accepted(&write(disk.path(), "empty.db", ""), HeldKind::Bolt);
    accepted(&path("missing/below/a.db"), HeldKind::Bolt);
    refused(&write(disk.path(), "text", [b'x'; 9000]), HeldKind::Bolt, &["no file there", "bbolt"]);
    symlink(path("some.db"), path("link")).expect("a link");
    let target = path("some.db");
    refused(&path("link"), HeldKind::Bolt, &["symbolic link", target.to_str().expect("a path")]);
    fs::create_dir(path("one")).expect("a directory");
    fs::copy(&target, path("one/meta.db")).expect("a copy");
    refused(&path("one"), HeldKind::Bolt, &["directory", "one/meta.db\" and kind = \"bolt\""]);
    // The first meta page may be the damaged one.
    let mut bytes = fs::read(&target).expect("a database");
    bytes[..4096].fill(0);
    accepted(&write(disk.path(), "second.db", &bytes), HeldKind::Bolt);
}

pub fn a_file_of_a_set_is_refused_with_its_directory(_: &Place) {
    let disk = disk();
    let sqlite = write(disk.path(), "s/base.sqlite", b"SQLite format 3\0 and more");
    let directory = format!("{:?} and kind = \"sqlite\"", disk.path().join("s"));
    for kind in [HeldKind::Bolt, HeldKind::Sqlite] {
        refused(&sqlite, kind, &["SQLite", "part of a set", &directory]);
    }
    accepted(&disk.path().join("s"), HeldKind::Sqlite);
    refused(&disk.path().join("s"), HeldKind::Lmdb, &["do not fit what is there", "of SQLite"]);
    let mut header = vec![0; 4096];
    header[16..20].copy_from_slice(&0xBEEF_C0DE_u32.to_ne_bytes());
    let data = write(disk.path(), "l/data.mdb", header);
    refused(&data, HeldKind::Bolt, &["LMDB", "part of a set", "kind = \"lmdb\""]);
    accepted(&disk.path().join("l"), HeldKind::Lmdb);
    let empty = disk.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    for kind in [HeldKind::Sqlite, HeldKind::Lmdb, HeldKind::Etcd, HeldKind::Other] {
        accepted(&empty, kind);
        refused(&disk.path().join("s/base.sqlite"), kind, &["part of a set"]);
    }
}

pub fn members_of_replicated_systems_are_refused(place: &Place) {
    let bbolt = Bbolt::new(place);
    let disk = disk();
    for (count, words) in [(1, ""), (3, "etcd with 3 members"), (500, "etcd with 500 members")] {
        let etcd = disk.path().join(format!("etcd-{count}"));
        let database = fs::read(bbolt.directory.join(format!("members-{count}.db")));
        let database = write(&etcd, "member/snap/db", database.expect("a database"));
        let without_log = if count > 1 { words } else { "no file there" };
        refused(&etcd, HeldKind::Etcd, &[without_log]);
        fs::create_dir(etcd.join("member/wal")).expect("a directory");
        match count {
            1 => accepted(&etcd, HeldKind::Etcd),
            _ => [HeldKind::Etcd, HeldKind::Other]
                .iter()
                .for_each(|kind| refused(&etcd, *kind, &[words])),
        }
        let part = if count > 1 { words } else { "member/snap/db is of etcd" };
        refused(&etcd.join("member/wal"), HeldKind::Other, &[part]);
        let hint = format!("{etcd:?} and kind = \"etcd\"");
        refused(&database, HeldKind::Bolt, &["etcd is part of a set", &hint]);
        fs::write(&database, [7; 9000]).expect("a file");
        refused(&etcd, HeldKind::Etcd, &["cannot read the members", "bbolt check"]);
    }
    for (name, beside, system) in [
        ("raft/raft.db", None, "Consul"),
        ("data/myid", Some("data/version-2/log.1"), "ZooKeeper"),
        ("COCKROACHDB_VERSION", None, "CockroachDB"),
        ("mysql/grastate.dat", None, "Galera"),
        ("storage.bson", Some("WiredTiger"), "MongoDB"),
        ("cluster.yaml", Some("info.yaml"), "dqlite"),
    ] {
        let directory = disk.path().join(system);
        beside.map(|beside| write(&directory, beside, ""));
        let file = write(&directory, name, "");
        refused(&directory, HeldKind::Other, &[system, file.to_str().expect("a path"), "rely on"]);
        assert_ne!(
            refusal(&thrown_away(&directory, HeldKind::Other)),
            "",
            "{system} may be thrown away"
        );
    }
    let kafka = disk.path().join("kafka");
    write(&kafka, "meta.properties", "colour=blue\n");
    accepted(&kafka, HeldKind::Other);
    write(&kafka, "meta.properties", "version=1\nnode.id=3\n");
    refused(&kafka, HeldKind::Other, &["Kafka"]);
    refused(&write(disk.path(), "raft.db", ""), HeldKind::Bolt, &["Raft"]);
}

pub fn a_part_of_a_set_is_refused_by_what_is_above(_: &Place) {
    let disk = disk();
    for (part, signs, words) in [
        ("zk/version-2", &["zk/myid"][..], "a ZooKeeper ensemble"),
        ("kafka/topic-0", &["kafka/meta.properties"], "Kafka"),
        ("mongo/journal", &["mongo/storage.bson", "mongo/WiredTiger"], "MongoDB"),
        ("crdb/auxiliary", &["crdb/STORAGE_MIN_VERSION"], "CockroachDB"),
        ("mysql/base", &["mysql/grastate.dat"], "Galera"),
        ("pg/pg_wal", &["pg/PG_VERSION"], "of PostgreSQL"),
        ("pg/base/1", &["pg/PG_VERSION", "pg/base/1/PG_VERSION"], "of PostgreSQL"),
    ] {
        let path = disk.path().join(part);
        fs::create_dir_all(&path).expect("a directory");
        for sign in signs {
            write(disk.path(), sign, b"broker.id=1\n");
        }
        refused(&path, HeldKind::Other, &[words]);
    }
    let held = |path: &str| Held {
        path: disk.path().join(path),
        kind: HeldKind::Postgresql,
        throw_away: true,
    };
    let refusal = inspect(&held("pg/base/1")).expect_err("a part");
    let hint = refusal.remedy().unwrap_or_default();
    assert!(hint.contains(&format!("{:?}", disk.path().join("pg"))), "{refusal}: {hint}");
    assert!(inspect(&held("pg")).is_ok());
    // Another directory beside is no part.
    fs::create_dir_all(disk.path().join("other/version-2")).expect("a directory");
    accepted(&disk.path().join("other/version-2"), HeldKind::Other);
}

pub fn postgresql_is_held_only_if_it_may_be_thrown_away(_: &Place) {
    let disk = disk();
    let data = disk.path().join("15/main");
    write(&data, "PG_VERSION", "15\n");
    refused(&data, HeldKind::Postgresql, &["PostgreSQL", "throw_away = true"]);
    let above = disk.path().join("15");
    refused(&above, HeldKind::Other, &["15/main/PG_VERSION"]);
    assert_eq!(refusal(&thrown_away(&data, HeldKind::Postgresql)), "");
    assert_eq!(refusal(&thrown_away(&above, HeldKind::Other)), "");
    write(&data, "postgresql.auto.conf", "wal_sync_method = 'open_sync'\n");
    assert!(refusal(&thrown_away(&data, HeldKind::Postgresql)).contains("O_SYNC or O_DSYNC"));
    let mysql = disk.path().join("mysql");
    write(&mysql, "ibdata1", "");
    accepted(&mysql, HeldKind::Other);
    write(&mysql, "mysqld-auto.cnf", r#"{"innodb_flush_method": {"Value": "O_DSYNC"}}"#);
    refused(&mysql, HeldKind::Other, &["InnoDB", "mysqld-auto.cnf"]);
}

pub fn mounts_and_layers_are_refused(_: &Place) {
    let disk = disk();
    let path = |name: &str| disk.path().join(name);
    let file = write(disk.path(), "d/below/file", "");
    accepted(&path("d"), HeldKind::Other);
    mount_bind(&file, &file).expect("a bind mount");
    refused(&file, HeldKind::Bolt, &["a mount point", "below the mount point"]);
    refused(&path("d"), HeldKind::Other, &["d/below/file is a mount point below"]);
    unmount(&file, UnmountFlags::empty()).expect("an unmount");
    refused(disk.path(), HeldKind::Other, &["a mount point"]);

    for name in ["o/lower", "o/upper/x", "o/work", "o/merged", "memory"] {
        fs::create_dir_all(path(name)).expect("a directory");
    }
    let options = ["lower", "upper", "work"]
        .map(|name| format!("{name}dir={}", path(&format!("o/{name}")).display()))
        .join(",");
    let options = std::ffi::CString::new(options).expect("options");
    mount("overlay", path("o/merged"), "overlay", MountFlags::empty(), options.as_c_str())
        .expect("an overlay");
    refused(&path("o/merged/x"), HeldKind::Other, &["the file system is an overlay"]);
    for name in ["o/upper", "o/upper/x", "o/lower"] {
        refused(&path(name), HeldKind::Other, &["a layer of a mounted overlay"]);
    }
    unmount(path("o/merged"), UnmountFlags::empty()).expect("an unmount");
    mount("memory", path("memory"), "tmpfs", MountFlags::empty(), None).expect("a tmpfs");
    refused(&write(&path("memory"), "base", ""), HeldKind::Bolt, &["type tmpfs", "not on a disk"]);
    refused(&path("memory/missing/base"), HeldKind::Bolt, &["type tmpfs"]);
    unmount(path("memory"), UnmountFlags::empty()).expect("an unmount");

    let set = |name: &str| setxattr(path("d"), name, b"y", XattrFlags::empty()).expect("xattrs");
    set("trusted.overlay.uuid");
    accepted(&path("d"), HeldKind::Other);
    set("trusted.overlay.opaque");
    refused(&path("d"), HeldKind::Other, &["d has the attribute trusted.overlay.opaque"]);
    rustix::fs::removexattr(path("d"), "trusted.overlay.opaque").expect("xattrs");
    accepted(&path("d"), HeldKind::Other);
    // Below, at any depth: the data of container engines has layers.
    let deep = path("d/1/2/3/4/5/6");
    fs::create_dir_all(&deep).expect("directories");
    setxattr(&deep, "user.overlay.opaque", b"y", XattrFlags::empty()).expect("xattrs");
    refused(&path("d"), HeldKind::Other, &["5/6 has the attribute user.overlay.opaque"]);
    fs::remove_dir(&deep).expect("a directory");
    let whiteout = path("d/1/2/gone");
    assert!(Command::new("mknod").arg(&whiteout).args(["c", "0", "0"]).status().is_ok());
    refused(&path("d"), HeldKind::Other, &["d/1/2/gone is a whiteout"]);
    fs::remove_file(&whiteout).expect("a whiteout");
    accepted(&path("d"), HeldKind::Other);
    let fifo = path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    refused(&fifo, HeldKind::Bolt, &["neither a regular file"]);
}

pub fn each_layer_of_an_overlay_is_refused(_: &Place) {
    let disk = disk();
    let layers = ["first", "second", "third"].map(|name| disk.path().join(name));
    let point = disk.path().join("merged");
    layers.iter().chain([&point]).for_each(|path| fs::create_dir(path).expect("a directory"));
    let text = layers.each_ref().map(|path| path.to_str().expect("a path"));
    let overlay = mounted(MountAttrFlags::MOUNT_ATTR_RDONLY, |context| {
        // Before Linux 6.7 there is one option for all layers.
        match context.set("lowerdir+", text[0]) {
            Err(_) => context.set("lowerdir", &text.join(":")),
            Ok(()) => text[1..].iter().try_for_each(|layer| context.set("lowerdir+", layer)),
        }
    });
    let overlay = overlay.expect("an overlay");
    let from_it = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&overlay, "", CWD, &point, from_it).expect("a mount");
    drop(overlay);
    for layer in &layers {
        refused(layer, HeldKind::Other, &["is a layer of a mounted overlay"]);
    }
    unmount(&point, UnmountFlags::empty()).expect("an unmount");
    layers.iter().for_each(|layer| accepted(layer, HeldKind::Other));
}
