//! Subvolumes in a snapshot.

use crate::snapshots::{Site, is_of_snapshot, name, readable};
use crate::support::isolated;
use std::fs;
use std::os::fd::AsFd;
use synconce_sys::btrfs;
use synconce_tree::{Alteration, Changes, IfBusy, Store};

#[test]
fn changes_in_a_subvolume_in_a_snapshot_are_found() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |copy| {
            btrfs::create_subvolume(readable(copy).as_fd(), "inner".as_ref()).unwrap();
            fs::write(copy.join("inner/file"), "x").unwrap();
        });
        assert!(!is_of_snapshot(&layer), "btrfs counts the changes in it separately");
        assert!(!site.is_altered("new"));
        fs::write(layer.join("inner/file"), "changed").expect("it is not read-only");
        assert_eq!(site.alteration("new"), Some(Alteration::Entries(vec!["inner".into()])));
    });
}

#[test]
fn a_snapshot_with_subvolumes_in_it_is_removed_without_a_walk() {
    isolated(|| {
        let site = Site::new();
        site.commit("new", |path| {
            let copy = readable(path);
            btrfs::create_subvolume(copy.as_fd(), "inner".as_ref()).unwrap();
            btrfs::snapshot(copy.as_fd(), copy.as_fd(), "frozen".as_ref()).unwrap();
            btrfs::make_read_only(readable(&path.join("frozen")).as_fd()).unwrap();
            btrfs::snapshot(copy.as_fd(), copy.as_fd(), "snapshot".as_ref()).unwrap();
        });
        synconce_tree::remove(&site.store, &name("new"), Changes::Kept).expect("removed");
        let emptied =
            synconce_tree::empty_trash(&site.store, IfBusy::Wait, 1, &()).expect("emptied");
        assert!(emptied.left.is_empty(), "{emptied:?}");
        assert!(emptied.entries < 8, "the layer's own files: {emptied:?}");
    });
}

/// The kernel gives the directory new times each time it makes its inode.
#[test]
fn the_empty_directory_of_a_subvolume_in_a_snapshot_does_not_change() {
    isolated(|| {
        let site = Site::new();
        let (_, ()) = site.commit("new", |copy| {
            btrfs::create_subvolume(readable(copy).as_fd(), "inner".as_ref()).unwrap();
            let copy = readable(copy);
            btrfs::snapshot(copy.as_fd(), copy.as_fd(), "snapshot".as_ref()).unwrap();
        });
        let Site { rig, store } = site;
        drop(store);
        rig.unmount().expect("unmounted");
        rig.mount().expect("mounted");
        let store = Store::open(&rig.path().join("store")).expect("opened");
        assert!(!Site { rig, store }.is_altered("new"));
    });
}
