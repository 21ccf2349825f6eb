//! Deep trees and wide directories.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::{Resource, Rlimit, setrlimit};
use synconce_fs::{CopyMode, compare, fingerprint};
use synconce_testkit::rig::{FsKind, Rig};

use super::support::{THREADS, copied, in_memory, open, options, remove_all, try_copy};
use synconce_testkit::isolation::isolated;

const DEPTH: usize = 5000;

/// Makes a chain of directories with long names, each with a file. Some levels have two more
/// directories, so that the walk returns to these levels from far below.
fn deep(root: &Path) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::create_dir(root).unwrap();
    let mut here: OwnedFd = openat(CWD, root, flags, Mode::empty()).unwrap();
    let name = "d".repeat(200);
    let mut entries = 1;
    for level in 0..DEPTH {
        let file = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        openat(&here, "file", file, Mode::RUSR).unwrap();
        entries += 2;
        if level % 10 == 0 {
            for name in ["a", "z"] {
                mkdirat(&here, name, Mode::RWXU).unwrap();
                let side = openat(&here, name, flags, Mode::empty()).unwrap();
                let first = openat(&side, "file", file, Mode::RUSR).unwrap();
                entries += 2;
                if level % 1000 == 0 {
                    let elsewhere = rustix::fs::AtFlags::EMPTY_PATH;
                    rustix::fs::linkat(&first, "", &here, format!("link-{name}"), elsewhere)
                        .unwrap();
                    entries += 1;
                }
            }
        }
        mkdirat(&here, &name, Mode::RWXU).unwrap();
        here = openat(&here, &name, flags, Mode::empty()).unwrap();
    }
    entries
}

#[test]
fn a_tree_far_deeper_than_a_path_is_long_is_copied_fingerprinted_compared_and_removed() {
    isolated(
        || {},
        |_, _| {
            let rig = Rig::builder().fs(FsKind::Xfs).size(1 << 30).up().unwrap();
            let (source, target) = (rig.path().join("source"), rig.path().join("target"));
            let entries = deep(&source);
            // A process's default limit of descriptors must suffice.
            let limit = Rlimit { current: Some(512), maximum: Some(512) };
            setrlimit(Resource::Nofile, limit).unwrap();
            let report = copied(&source, &target, CopyMode::Copy);
            assert_eq!(report.entries, entries);
            assert!(report.changed.is_empty(), "{} changed", report.changed.len());
            let (a, b) = (open(&source), open(&target));
            let changes = compare(a.as_fd(), b.as_fd(), &()).unwrap();
            assert!(changes.is_empty(), "{} changes", changes.len());
            let fingerprint = fingerprint(b.as_fd(), THREADS, &()).unwrap();
            assert_eq!(fingerprint.entries, entries);
            assert_eq!(remove_all(&target), entries);
            let mut one = options(CopyMode::Copy);
            one.threads = 1;
            assert_eq!(try_copy(&source, &target, &one, &()).unwrap().entries, entries);
        },
    );
}

/// Takes long: work that grows with the square of the entries shows only at this size.
#[test]
fn a_directory_of_two_hundred_thousand_entries_is_copied_compared_and_removed() {
    isolated(
        || {},
        |_, _| {
            let place = in_memory(Path::new("/run/wide"));
            let (source, target) = (place.join("source"), place.join("target"));
            fs::create_dir(&source).unwrap();
            for number in 0..200_000 {
                let name = source.join(format!("{number:x}"));
                // More directories among files than the worker queues at a time.
                if number % 100 == 0 {
                    fs::create_dir(&name).unwrap();
                    File::create(name.join("file")).unwrap();
                } else {
                    File::create(name).unwrap();
                }
            }
            let entries = 1 + 200_000 + 2_000;
            let report = copied(&source, &target, CopyMode::Copy);
            assert_eq!((report.entries, report.changed.len()), (entries, 0));
            let (a, b) = (open(&source), open(&target));
            assert_eq!(compare(a.as_fd(), b.as_fd(), &()).unwrap(), []);
            fs::write(target.join("only"), "").unwrap();
            fs::remove_file(target.join("1")).unwrap();
            let changes = compare(a.as_fd(), b.as_fd(), &()).unwrap();
            let changes: Vec<_> =
                changes.iter().map(|change| String::from_utf8_lossy(&change.path)).collect();
            assert_eq!(changes, ["1", "only"]);
            assert_eq!(remove_all(&target), entries);
        },
    );
}
