//! Comparisons of two trees.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
use synconce_fs::{ChangeKind, CopyMode, TreeDifference, compare};

use super::all_attributes;
use super::support::{copied, on_each_file_system, open};

fn changes(a: &Path, b: &Path) -> Vec<String> {
    let line = |change: &TreeDifference| {
        let letter = match change.kind {
            ChangeKind::Added => 'A',
            ChangeKind::Changed => 'C',
            ChangeKind::Removed => 'D',
        };
        format!("{letter} {}", String::from_utf8_lossy(&change.path))
    };
    compare(open(a).as_fd(), open(b).as_fd(), &()).unwrap().iter().map(line).collect()
}

fn set_time(path: &Path, second: i64) {
    let time = Timespec { tv_sec: second, tv_nsec: 5 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn every_kind_of_difference_is_found_and_nothing_else() {
    on_each_file_system(|fs, rig| {
        let (a, b) = (rig.path().join("a"), rig.path().join("b"));
        all_attributes::make(&a);
        fs::create_dir(a.join("gone")).unwrap();
        fs::write(a.join("gone/file"), "").unwrap();
        fs::create_dir(a.join("was-directory")).unwrap();
        fs::write(a.join("was-directory/file"), "").unwrap();
        fs::write(a.join("was-file"), "").unwrap();
        fs::write(a.join("time"), "").unwrap();
        copied(&a, &b, CopyMode::Auto);
        assert_eq!(changes(&a, &b), Vec::<String>::new(), "{fs:?}");
        assert_eq!(changes(&a, &a), Vec::<String>::new());

        // Same size, same time, other content.
        let data = fs::metadata(a.join("size-100000")).unwrap();
        let file = File::options().write(true).open(b.join("size-100000")).unwrap();
        file.write_at(b"!", 99_999).unwrap();
        file.set_modified(data.modified().unwrap()).unwrap();
        fs::set_permissions(b.join("names"), fs::Permissions::from_mode(0o700)).unwrap();
        set_time(&b.join("time"), 5);
        set_time(&b.join("attributes"), 5);
        lsetxattr(b.join("pipe"), "trusted.x", b"", XattrFlags::empty()).unwrap();
        fs::remove_dir_all(b.join("gone")).unwrap();
        fs::remove_dir_all(b.join("was-directory")).unwrap();
        fs::write(b.join("was-directory"), "").unwrap();
        fs::remove_file(b.join("was-file")).unwrap();
        fs::create_dir_all(b.join("was-file/new")).unwrap();
        fs::create_dir_all(b.join("new/directory")).unwrap();
        fs::write(b.join("new/directory/file"), "").unwrap();
        fs::remove_file(b.join("links/dangling")).unwrap();
        symlink("../somewhere", b.join("links/dangling")).unwrap();
        let expected = [
            "D gone",
            "D gone/file",
            "C links/dangling",
            "C names",
            "A new",
            "A new/directory",
            "A new/directory/file",
            "C pipe",
            "C size-100000",
            "C time",
            "C was-directory",
            "D was-directory/file",
            "C was-file",
            "A was-file/new",
        ];
        // The other name of the pipe is the same file.
        let mut found = changes(&a, &b);
        found.retain(|line| line != "C links/pipe");
        assert_eq!(found, expected, "{fs:?}");
        let back: Vec<_> = changes(&b, &a);
        assert_eq!(back.iter().filter(|line| line.starts_with('A')).count(), 3);
        fs::set_permissions(&b, fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(changes(&a, &b)[0], "C ");
    });
}

/// Returns the bytes that the calling process has read by system calls so far.
fn read_so_far() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// Makes a file of 1 TiB with 4 KiB of data at each of `places`.
fn sparse(path: &Path, places: &[(u64, u8)]) {
    let file = File::create(path).unwrap();
    file.set_len(SPARSE).unwrap();
    places.iter().for_each(|(at, byte)| file.write_all_at(&[*byte; 4096], *at).unwrap());
    set_time(path, 7);
}

/// The offsets of data in a file, each with its byte.
type DataOffsets = &'static [(u64, u8)];

const SPARSE: u64 = 1 << 40;
const MIDDLE: u64 = SPARSE / 2;
const LAST: u64 = SPARSE - 4096;

#[test]
fn holes_that_both_files_have_are_not_read() {
    on_each_file_system(|fs, rig| {
        let (a, b) = (rig.path().join("a"), rig.path().join("b"));
        [&a, &b].iter().for_each(|directory| fs::create_dir(directory).unwrap());
        let all: [(&str, DataOffsets, DataOffsets); 7] = [
            ("empty", &[], &[]),
            ("same", &[(0, 1), (MIDDLE, 2)], &[(0, 1), (MIDDLE, 2)]),
            ("zeros", &[(MIDDLE, 0)], &[]),
            ("zeros-in-second", &[(0, 1)], &[(0, 1), (LAST, 0)]),
            ("last", &[(0, 1), (LAST, 2)], &[(0, 1), (LAST, 3)]),
            ("first-only", &[(MIDDLE, 1)], &[]),
            ("second-only", &[(0, 1)], &[(0, 1), (MIDDLE, 1)]),
        ];
        for (name, first, second) in all {
            sparse(&a.join(name), first);
            sparse(&b.join(name), second);
        }
        let before = read_so_far();
        let found = changes(&a, &b);
        let read = read_so_far() - before;
        assert_eq!(found, ["C first-only", "C last", "C second-only"], "{fs:?}");
        assert!(read < 16 << 20, "{fs:?}: {read} bytes were read");
    });
}
