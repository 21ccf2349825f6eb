//! The first verify of a snapshot syncs the disk.

use super::{MOST_SYNCS, settled};
use crate::check::{Compare, fsck, verify};
use crate::import::import;
use crate::init::init;
use crate::record::TreeName;
use crate::store::Store;
use crate::strategy::Strategy;
use crate::tests::Plain;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use synconce_testkit::harness::stall;
use synconce_testkit::isolation::isolated;
use synconce_testkit::patiently;
use synconce_testkit::rig::{FsKind, Rig};

fn name(text: &str) -> TreeName {
    text.parse().expect("a good name")
}

/// Makes a store on a btrfs, with the snapshots `new` and `other` of an empty tree.
fn store() -> (Rig, Store) {
    let rig = Rig::builder().fs(FsKind::Btrfs).up().expect("a rig");
    let store = init(&rig.path().join("store")).expect("a store");
    import(&store, &name("base"), Some(Strategy::Snapshot), &(), |_| Ok(Plain)).expect("imported");
    for tree in ["new", "other"] {
        let (session, base) =
            crate::open_anonymous(&store, &name("base"), None).expect("a session");
        let frozen = session.prepare(&()).expect("a snapshot").freeze(&()).expect("frozen");
        frozen.commit_as(&name(tree), Some(base), None, &()).expect("committed");
    }
    (rig, store)
}

/// Lets `look` at a store on a disk that hangs, and asserts that the result comes. Returns the
/// result and the path of the store.
fn on_a_disk_that_hangs<T: Send + 'static>(
    look: impl FnOnce(&Store) -> T + Send + 'static,
) -> (Rig, PathBuf, T) {
    let (rig, store) = store();
    let path = store.path().to_owned();
    fs::write(rig.path().join("dirty"), "to be written").expect("a file");
    let stalled = stall(&rig);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(look(&store)));
    let seen = receiver.recv_timeout(patiently(Duration::from_secs(20)));
    rig.disk().release_flushes().expect("released");
    drop(stalled);
    (rig, path, seen.expect("it gives up"))
}

/// Lets [`settled`] read `values`, one after the other. Returns its result, and the syncs it made.
fn settle(values: &[Option<u64>]) -> (Option<u64>, u32) {
    let (reads, syncs) = (Cell::new(0), Cell::new(0));
    let read = || {
        let value = values[reads.replace(reads.get() + 1).min(values.len() - 1)];
        Ok(value)
    };
    let settled = settled(read, || {
        syncs.set(syncs.get() + 1);
        Ok(())
    });
    (settled.expect("no call fails"), syncs.get())
}

#[test]
fn a_number_is_taken_when_a_sync_does_not_change_it_any_more() {
    assert_eq!(settle(&[Some(7)]), (Some(7), 2));
    assert_eq!(settle(&[Some(7), Some(7), Some(8)]), (Some(8), 3), "the first sync was too short");
    assert_eq!(settle(&[Some(7), Some(8), Some(9)]), (Some(9), 3));
    assert_eq!(settle(&[None]), (None, 0), "no snapshot needs no sync");
    assert_eq!(settle(&[Some(7), None]), (None, 2));
    let rising: Vec<_> = (0..100).map(Some).collect();
    assert_eq!(settle(&rising), (None, MOST_SYNCS));
}

#[test]
fn a_verify_on_a_disk_that_hangs_gives_up() {
    isolated(
        || {
            let look =
                |store: &Store| verify(store, &name("new"), Compare::Attributes, &()).map(drop);
            let (_rig, path, verified) = on_a_disk_that_hangs(look);
            let error = verified.expect_err("nothing is known");
            let said = format!("cannot sync the file system of {}: no answer for ", path.display());
            assert!(error.to_string().starts_with(&said), "{error}");
            let store = Store::open(&path).expect("opened");
            assert!(
                verify(&store, &name("new"), Compare::Attributes, &())
                    .expect("verified")
                    .altered
                    .is_empty()
            );
        },
        |_, test| test(),
    );
}

#[test]
fn an_fsck_waits_once_for_a_disk_that_hangs() {
    isolated(
        || {
            let all = |store: &Store| {
                let mut faults = Vec::new();
                fsck(store, &mut faults, &()).map(|()| faults)
            };
            let (_rig, path, faults) = on_a_disk_that_hangs(all);
            let faults = faults.expect("the records are read");
            assert_eq!(faults.len(), 2, "{faults:?}");
            assert!(faults[0].to_string().contains(": no answer for "), "{faults:?}");
            let rest = faults[1].to_string();
            assert!(rest.ends_with("layers: a sync failed; not compared: 1"), "{rest}");
            let store = Store::open(&path).expect("opened");
            assert!(all(&store).expect("the records are read").is_empty());
        },
        |_, test| test(),
    );
}
