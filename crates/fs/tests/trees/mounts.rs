//! Mounts in a tree are not part of the tree, unless a copy crosses mounts.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::mount::mount_bind;
use synconce_fs::CopyMode;
use synconce_testkit::rig::FsKind;

use super::support::{
    assert_same, copied, in_memory, on_each_file_system, options, paths, remove_all, removed, rig,
    try_copy,
};
use synconce_testkit::isolation::isolated;

#[test]
fn a_removal_leaves_what_is_bound_into_the_tree_and_takes_all_else() {
    on_each_file_system(|fs, rig| {
        let (tree, precious) = (rig.path().join("tree"), rig.path().join("precious"));
        fs::create_dir_all(tree.join("a/b/directory")).unwrap();
        fs::create_dir_all(tree.join("a/c")).unwrap();
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::create_dir_all(precious.join("below")).unwrap();
        for path in ["tree/a/b/file", "tree/a/c/file", "tree/d/file", "precious/below/kept"] {
            fs::write(rig.path().join(path), path).unwrap();
        }
        mount_bind(&precious, tree.join("a/b/directory")).unwrap();
        mount_bind(precious.join("below/kept"), tree.join("d/file")).unwrap();

        let removed = removed(&tree);
        let left: Vec<_> = removed.left.iter().map(ToString::to_string).collect();
        assert_eq!(left.len(), 2, "{fs:?}: {left:?}");
        assert!(left[0].contains("tree/a/b/directory"), "{left:?}");
        assert!(left[1].contains("tree/d/file"), "{left:?}");
        assert!(left.iter().all(|text| text.contains("mounted")), "{left:?}");
        assert_eq!(fs::read(precious.join("below/kept")).unwrap(), b"precious/below/kept");
        assert!(!tree.join("a/c").exists() && !tree.join("a/b/file").exists());

        Command::new("umount").arg(tree.join("a/b/directory")).status().unwrap();
        Command::new("umount").arg(tree.join("d/file")).status().unwrap();
        remove_all(&tree);
    });
}

#[test]
fn a_mount_in_the_source_is_named_and_left_empty_unless_it_was_asked_for() {
    isolated(
        || {},
        |_, _| {
            let rig = rig(FsKind::Ext4);
            let (source, target) = (rig.path().join("source"), rig.path().join("target"));
            fs::create_dir_all(source.join("a/memory")).unwrap();
            fs::create_dir_all(source.join("a/bound")).unwrap();
            fs::create_dir_all(source.join("b")).unwrap();
            for name in ["a/file", "b/file", "b/over"] {
                fs::write(source.join(name), name).unwrap();
            }
            let memory = in_memory(&source.join("a/memory"));
            fs::write(memory.join("inside"), "inside").unwrap();
            mount_bind(source.join("b"), source.join("a/bound")).unwrap();
            mount_bind(source.join("a/file"), source.join("b/over")).unwrap();
            for mode in [CopyMode::Copy, CopyMode::Auto] {
                let report = copied(&source, &target, mode);
                assert_eq!(paths(&report.mounts), ["a/bound", "a/memory", "b/over"], "{mode:?}");
                assert_eq!(fs::read_dir(target.join("a/memory")).unwrap().count(), 0);
                assert_eq!(fs::read_dir(target.join("a/bound")).unwrap().count(), 0);
                assert_eq!(fs::read(target.join("b/over")).unwrap(), b"");
                assert_eq!(fs::read(target.join("b/file")).unwrap(), b"b/file");
                remove_all(&target);
            }
            let mut crossing = options(CopyMode::Copy);
            crossing.cross_mounts = true;
            let report = try_copy(&source, &target, &crossing, &()).unwrap();
            assert!(report.mounts.is_empty());
            assert_eq!(fs::read(target.join("a/memory/inside")).unwrap(), b"inside");
            assert_eq!(fs::read(target.join("a/bound/file")).unwrap(), b"b/file");
            assert_eq!(fs::read(target.join("b/over")).unwrap(), b"a/file");
        },
    );
}

#[test]
fn subvolumes_of_btrfs_are_copied_and_removed_as_directories() {
    isolated(
        || {},
        |_, _| {
            let rig = rig(FsKind::Btrfs);
            let (source, target) = (rig.path().join("source"), rig.path().join("target"));
            fs::create_dir(&source).unwrap();
            subvolume(&source.join("empty"));
            subvolume(&source.join("full"));
            subvolume(&source.join("full/nested"));
            fs::write(source.join("full/file"), "full").unwrap();
            fs::write(source.join("full/nested/file"), "nested").unwrap();
            let report = copied(&source, &target, CopyMode::Auto);
            assert_eq!((report.mounts.len(), report.entries), (0, 6));
            assert_same(&source, &target);
            let mut lock = Command::new("btrfs");
            lock.args(["property", "set", "-ts"]).arg(source.join("full/nested"));
            assert!(lock.args(["ro", "true"]).status().unwrap().success());
            assert_eq!(remove_all(&source), 6);
        },
    );
}

fn subvolume(path: &Path) {
    let mut command = Command::new("btrfs");
    let output = command.args(["subvolume", "create"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
