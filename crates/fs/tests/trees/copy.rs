//! Copies keep everything, or report what they do not keep.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Timespec, Timestamps, openat, utimensat};
use synconce_fs::{CopyMode, CopyOptions};
use synconce_testkit::rig::FsKind;

use super::all_attributes;
use super::support::{
    assert_same, copied, on_each_file_system, open, options, remove_all, rig, try_copy,
};
use synconce_testkit::isolation::isolated;

fn every_attribute(fs: FsKind) {
    let rig = rig(fs);
    let source = rig.path().join("source");
    all_attributes::make(&source);
    let before = held(&source);
    let mut modes = vec![CopyMode::Copy, CopyMode::Auto];
    if fs != FsKind::Ext4 {
        modes.push(CopyMode::Reflink);
    }
    for mode in modes {
        let target = rig.path().join("target");
        let report = copied(&source, &target, mode);
        assert!(report.changed.is_empty(), "{fs:?} {mode:?}: {:?}", report.changed);
        assert_eq!(report.entries, before.len() as u64, "{fs:?} {mode:?}");
        assert_eq!(report.reflinked > 0, shares(fs, mode), "{fs:?} {mode:?}");
        // Making a manifest reads directories and so changes access times.
        let (now, copy) = (held(&source), held(&target));
        assert_same(&source, &target);
        restore(&source, &before);
        for (path, (times, blocks)) in &before {
            // readlink(2) changes a link's access time, and no flag prevents this.
            let is_link = source.join(path).is_symlink();
            assert!(is_link || now[path].0 == *times, "{fs:?} {mode:?}: {path:?} was touched");
            assert_eq!(copy[path].0, *times, "{fs:?} {mode:?}: times of {path:?}");
            if path.starts_with("holes") {
                let most = blocks + 8;
                assert!(copy[path].1 <= most, "{fs:?} {mode:?}: holes of {path:?} are filled");
            }
        }
        assert_eq!(remove_all(&target), report.entries);
    }
}

fn shares(fs: FsKind, mode: CopyMode) -> bool {
    fs != FsKind::Ext4 && matches!(mode, CopyMode::Auto | CopyMode::Reflink)
}

/// Restores the times of directories.
fn restore(root: &Path, held: &BTreeMap<PathBuf, (Times, u64)>) {
    for (path, ((atime, atime_nsec, mtime, mtime_nsec), _)) in held {
        let time = |sec: &i64, nsec: &i64| Timespec { tv_sec: *sec, tv_nsec: *nsec };
        let times = Timestamps {
            last_access: time(atime, atime_nsec),
            last_modification: time(mtime, mtime_nsec),
        };
        utimensat(CWD, root.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

type Times = (i64, i64, i64, i64);

/// Returns what a manifest leaves out: access times and blocks.
fn held(root: &Path) -> BTreeMap<PathBuf, (Times, u64)> {
    let mut entries = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let data = fs::symlink_metadata(&path).unwrap();
        let times = (data.atime(), data.atime_nsec(), data.mtime(), data.mtime_nsec());
        let below = path.strip_prefix(root).unwrap().to_owned();
        entries.insert(below, (times, data.blocks()));
        if data.is_dir() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
            let directory = openat(CWD, &path, flags, Mode::empty()).unwrap();
            for entry in Dir::read_from(directory).unwrap() {
                use std::os::unix::ffi::OsStrExt;
                let entry = entry.unwrap();
                let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
                if name != "." && name != ".." {
                    paths.push(path.join(name));
                }
            }
        }
    }
    entries
}

#[test]
fn a_copy_on_ext4_keeps_every_attribute() {
    isolated(|| {}, |_, _| every_attribute(FsKind::Ext4));
}

#[test]
fn a_copy_on_xfs_keeps_every_attribute() {
    isolated(|| {}, |_, _| every_attribute(FsKind::Xfs));
}

#[test]
fn a_copy_on_btrfs_keeps_every_attribute() {
    isolated(|| {}, |_, _| every_attribute(FsKind::Btrfs));
}

#[test]
fn content_that_cannot_be_shared_is_an_error_of_a_reflink_copy_and_copied_by_auto() {
    isolated(
        || {},
        |_, _| {
            let (ext4, xfs) = (rig(FsKind::Ext4), rig(FsKind::Xfs));
            for (from, to) in [(&ext4, &ext4), (&xfs, &ext4), (&ext4, &xfs)] {
                let (source, target) = (from.path().join("source"), to.path().join("target"));
                fs::create_dir(&source).unwrap();
                fs::write(source.join("file"), "content").unwrap();
                let asked = options(CopyMode::Reflink);
                let error = try_copy(&source, &target, &asked, &()).unwrap_err();
                let message = error.to_string();
                assert!(
                    message.contains("FICLONE") && message.contains("target/file"),
                    "{message}"
                );
                remove_all(&target);
                let report = copied(&source, &target, CopyMode::Auto);
                assert_eq!((report.reflinked, report.bytes), (0, 7));
                assert_same(&source, &target);
                remove_all(&target);
                remove_all(&source);
            }
        },
    );
}

#[test]
fn the_umask_takes_nothing_from_a_copy() {
    isolated(
        || {},
        |_, _| {
            let rig = rig(FsKind::Ext4);
            let (source, target) = (rig.path().join("source"), rig.path().join("target"));
            all_attributes::make(&source);
            for umask in [0o000, 0o077, 0o777] {
                fs::create_dir(&target).unwrap();
                let before = rustix::process::umask(Mode::from_raw_mode(umask));
                use std::os::fd::AsFd;
                let (from, to) = (open(&source), open(&target));
                let asked = CopyOptions::default();
                let report = synconce_fs::copy(from.as_fd(), to.as_fd(), &asked, &());
                rustix::process::umask(before);
                report.unwrap();
                assert_same(&source, &target);
                remove_all(&target);
            }
        },
    );
}

#[test]
fn the_group_and_the_access_list_of_the_place_are_not_passed_on_to_a_copy() {
    on_each_file_system(|_, rig| {
        let (source, target) = (rig.path().join("source"), rig.path().join("target"));
        all_attributes::make(&source);
        fs::create_dir(&target).unwrap();
        let place = target.to_str().unwrap();
        for command in ["chgrp 555", "chmod g+s", "setfacl -d -m u:1000:rwx"] {
            let (program, rest) = command.split_once(' ').unwrap();
            let mut command = std::process::Command::new(program);
            let status = command.args(rest.split(' ')).arg(place).status().unwrap();
            assert!(status.success(), "{command:?}");
        }
        use std::os::fd::AsFd;
        let (from, to) = (open(&source), open(&target));
        let asked = options(CopyMode::Copy);
        synconce_fs::copy(from.as_fd(), to.as_fd(), &asked, &()).unwrap();
        assert_same(&source, &target);
    });
}

#[test]
fn a_tree_is_not_copied_into_itself() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("a/b")).unwrap();
    let target = place.path().join("a/b/target");
    let error = try_copy(place.path(), &target, &options(CopyMode::Copy), &()).unwrap_err();
    assert!(error.to_string().contains("a/b/target"), "{error}");
    assert_eq!(error.io().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
}

#[test]
fn nothing_is_copied_into_a_directory_with_entries() {
    let place = tempfile::tempdir().unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(source.join("file"), "").unwrap();
    std::os::unix::fs::symlink("elsewhere", target.join("theirs")).unwrap();
    let (from, to) = (open(&source), open(&target));
    let options = options(CopyMode::Auto);
    let error = synconce_fs::copy(from.as_fd(), to.as_fd(), &options, &()).unwrap_err();
    assert_eq!(error.io().raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()), "{error}");
    assert!(!target.join("file").exists());
}

#[test]
fn hard_links_that_different_threads_find_stay_one_file() {
    isolated(
        || {},
        |_, _| {
            let rig = rig(FsKind::Ext4);
            let (source, target) = (rig.path().join("source"), rig.path().join("target"));
            for directory in 0..40 {
                fs::create_dir_all(source.join(format!("{directory}/below"))).unwrap();
            }
            for file in 0..2000_usize {
                let first = source.join(format!("{}/{file}", file % 40));
                fs::write(&first, format!("{file}")).unwrap();
                for step in [1, 7, 22] {
                    let other = source.join(format!("{}/below/{file}", (file + step) % 40));
                    fs::hard_link(&first, other).unwrap();
                }
            }
            for _ in 0..3 {
                let report = copied(&source, &target, CopyMode::Copy);
                assert_eq!(report.entries, 8081);
                assert_same(&source, &target);
                remove_all(&target);
            }
        },
    );
}
