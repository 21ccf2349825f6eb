//! Removal removes everything that it may, and names the rest.

use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use synconce_fs::{CopyMode, remove};

use super::all_attributes;
use super::support::{
    Counting, FILE_SYSTEMS, copied, on_each_file_system, open, paths, remove_all, removed, rig,
};
use synconce_testkit::isolation::isolated;

#[test]
fn immutable_and_append_only_files_and_directories_are_named_by_a_copy_and_removed() {
    on_each_file_system(|fs, rig| {
        let (tree, target) = (rig.path().join("tree"), rig.path().join("target"));
        fs::create_dir_all(tree.join("fixed/below")).unwrap();
        for name in ["file", "log", "plain", "fixed/file", "fixed/below/file"] {
            fs::write(tree.join(name), name).unwrap();
        }
        for (flag, name) in [("+i", "file"), ("+a", "log"), ("+i", "fixed"), ("+a", "")] {
            let mut chattr = std::process::Command::new("chattr");
            let status = chattr.arg(flag).arg(tree.join(name)).status().unwrap();
            assert!(status.success(), "{fs:?} {flag} {name}");
        }
        assert!(fs::remove_file(tree.join("file")).is_err());
        let report = copied(&tree, &target, CopyMode::Copy);
        let flagged = paths(&report.flagged);
        assert_eq!(flagged, [".", "file", "fixed", "log"], "{fs:?}");
        assert_eq!(remove_all(&target), 8);
        assert_eq!(remove_all(&tree), 8);
    });
}

#[test]
fn an_ordinary_owner_removes_directories_without_permissions() {
    isolated(
        || {},
        |_, _| {
            let rig = rig(FILE_SYSTEMS[0]);
            let (home, other) = (rig.path().join("home"), rig.path().join("home/other"));
            fs::create_dir(&home).unwrap();
            let owner = |path| std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
            owner(&home);
            fs::create_dir(&other).unwrap();
            fs::write(other.join("file"), "root's").unwrap();
            // On a thread with credentials of its own: only root can remove the rig.
            std::thread::scope(|scope| {
                let removes = || removes_as_an_ordinary_owner(&home, &other);
                scope.spawn(removes).join().unwrap();
            });
            assert!(other.join("file").exists());
        },
    );
}

fn removes_as_an_ordinary_owner(home: &Path, other: &Path) {
    set_thread_groups(&[]).unwrap();
    let (gid, uid) = (Gid::from_raw(1000), Uid::from_raw(1000));
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
    fs::create_dir_all(home.join("tree/closed/below")).unwrap();
    fs::create_dir_all(home.join("tree/read-only/below")).unwrap();
    for name in ["tree/closed/below/file", "tree/read-only/file"] {
        fs::write(home.join(name), name).unwrap();
    }
    for (name, mode) in [("closed/below", 0), ("closed", 0), ("read-only", 0o555)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(home.join("tree").join(name), mode).unwrap();
    }
    assert_eq!(remove_all(&home.join("tree")), 7);
    // Files of other users stay and are named.
    let removed = removed(other);
    assert_eq!(removed.left.len(), 1, "{:?}", removed.left);
    assert!(removed.left[0].to_string().contains("other/file"), "{:?}", removed.left);
}

#[test]
fn what_links_point_to_stays() {
    let place = tempfile::tempdir().unwrap();
    let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "kept").unwrap();
    symlink(&outside, tree.join("link")).unwrap();
    symlink("..", tree.join("below/up")).unwrap();
    symlink(&tree, place.path().join("to-tree")).unwrap();
    // The link itself, not the tree.
    assert_eq!(remove_all(&place.path().join("to-tree")), 1);
    assert_eq!(remove_all(&tree), 4);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"kept");
}

#[test]
fn everything_that_a_tree_may_have_is_removed() {
    on_each_file_system(|_, rig| {
        let tree = rig.path().join("tree");
        all_attributes::make(&tree);
        assert!(remove_all(&tree) > 50);
    });
}

#[test]
fn only_a_single_name_is_removed_and_one_that_is_missing_is_no_error() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("a")).unwrap();
    let directory = open(place.path());
    for name in ["", ".", "..", "a/b", "/"] {
        let error = remove(directory.as_fd(), OsStr::new(name), 1, &());
        assert_eq!(
            error.unwrap_err().io().raw_os_error(),
            Some(Errno::INVAL.raw_os_error()),
            "{name:?}"
        );
    }
    assert_eq!(removed(&place.path().join("missing")).entries, 0);
    fs::write(place.path().join("file"), "").unwrap();
    assert_eq!(remove_all(&place.path().join("file")), 1);
    assert_eq!(remove_all(&place.path().join("a")), 1);
}

#[test]
fn a_cancelled_removal_ends_soon() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    for number in 0..5000 {
        let directory = tree.join(format!("{}", number % 50));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{number}")), "").unwrap();
    }
    let progress = Counting::new(true, || {});
    let name = OsStr::new("tree");
    let error = remove(open(place.path()).as_fd(), name, 3, &progress).unwrap_err();
    assert_eq!(error.io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()), "{error}");
    assert!(progress.entries() < 1000, "{}", progress.entries());
    remove_all(&tree);
}
