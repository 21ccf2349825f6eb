//! Fingerprints show every change.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
use synconce_fs::{CopyMode, Fingerprint, compare_fingerprints, fingerprint};
use synconce_testkit::rig::FsKind;

use super::all_attributes;
use super::support::{THREADS, copied, on_each_file_system, open, rig};
use synconce_testkit::isolation::isolated;

fn fingerprinted(tree: &Path) -> Fingerprint {
    fingerprint(open(tree).as_fd(), THREADS, &()).unwrap()
}

fn changed(one: &Fingerprint, other: &Fingerprint) -> Vec<String> {
    let changed = compare_fingerprints(one, other);
    changed.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

/// A directory, and a function that changes something in it, given the tree's path.
type Touch<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn a_fingerprint_is_the_same_until_something_is_touched() {
    on_each_file_system(|fs, rig| {
        let tree = rig.path().join("tree");
        all_attributes::make(&tree);
        let before = fingerprinted(&tree);
        copied(&tree, &rig.path().join("copy"), CopyMode::Auto);
        fs::read(tree.join("size-4096")).unwrap();
        assert_eq!(before, fingerprinted(&tree), "{fs:?}");
        let blocks: u64 = blocks(&tree);
        assert_eq!(before.bytes, blocks * 512, "{fs:?}");

        let touches: [Touch<'_>; 6] = [
            ("holes", &|tree| back_dated(&tree.join("holes/begins"))),
            ("names", &|tree| {
                fs::set_permissions(tree.join("names/ü"), fs::Permissions::from_mode(0o600))
                    .unwrap();
            }),
            ("attributes", &|tree| {
                let file = tree.join("attributes/file");
                lsetxattr(file, "user.new", b"", XattrFlags::empty()).unwrap();
            }),
            ("", &|tree| fs::rename(tree.join("size-0"), tree.join("size-00")).unwrap()),
            ("links/deep/er", &|tree| {
                fs::remove_file(tree.join("links/deep/er/program")).unwrap();
            }),
            ("directory-755-ours", &|tree| {
                File::create(tree.join("directory-755-ours/new")).unwrap();
            }),
        ];
        for (path, touch) in touches {
            let before = fingerprinted(&tree);
            touch(&tree);
            let changed = changed(&before, &fingerprinted(&tree));
            assert!(changed.contains(&path.to_owned()), "{fs:?} {path}: {changed:?}");
            assert!(!changed.contains(&"directory-0-ours".to_owned()));
        }
    });
}

/// Writes into a file and restores its mtime.
fn back_dated(path: &Path) {
    let before = fs::metadata(path).unwrap();
    let length = before.len();
    fs::write(path, vec![9; usize::try_from(length).unwrap()]).unwrap();
    let time = |sec, nsec| Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps {
        last_access: time(before.atime(), before.atime_nsec()),
        last_modification: time(before.mtime(), before.mtime_nsec()),
    };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn blocks(root: &Path) -> u64 {
    let mut inodes = std::collections::HashMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let data = fs::symlink_metadata(&path).unwrap();
        inodes.insert(data.ino(), data.blocks());
        if data.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    inodes.values().sum()
}

#[test]
fn hard_links_made_elsewhere_break_a_fingerprint() {
    isolated(
        || {},
        |_, _| {
            let rig = rig(FsKind::Ext4);
            let tree = rig.path().join("tree");
            all_attributes::make(&tree);
            let before = fingerprinted(&tree);
            fs::hard_link(tree.join("size-4096"), rig.path().join("link")).unwrap();
            assert!(!changed(&before, &fingerprinted(&tree)).is_empty());
        },
    );
}

#[test]
fn a_fingerprint_comes_back_from_json_and_names_directories_that_came_and_went() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    for name in ["a/b/c", "a/d", "e"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\\\n");
    fs::create_dir(root.join(odd)).unwrap();
    let before = fingerprinted(root);
    let json = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), before);
    assert_eq!(before.directories.len(), 7);
    fs::remove_dir(root.join("a/b/c")).unwrap();
    fs::create_dir_all(root.join("e/f/g")).unwrap();
    let now = fingerprinted(root);
    let expected = ["", "a", "a/b", "a/b/c", "e", "e/f", "e/f/g"];
    assert_eq!(changed(&before, &now), expected);
    assert_eq!(changed(&now, &before), expected);
}
