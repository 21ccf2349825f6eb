//! Sources that change during a copy are named in the report.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use synconce_fs::CopyMode;

use super::support::{Counting, copied, options, paths, try_copy};

#[test]
fn a_file_that_grows_meanwhile_is_named() {
    let place = tempfile::tempdir().unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("quiet"), "quiet").unwrap();
    fs::write(source.join("log"), vec![1; 64 << 20]).unwrap();
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = File::options().append(true).open(source.join("log")).unwrap();
            while !over.load(Ordering::Relaxed) {
                log.write_all(b"line\n").unwrap();
            }
        });
        let report = try_copy(&source, &target, &options(CopyMode::Copy), &());
        over.store(true, Ordering::Relaxed);
        report.unwrap()
    });
    assert_eq!(paths(&report.changed), ["log"]);
    assert_eq!(fs::read(target.join("quiet")).unwrap(), b"quiet");
}

#[test]
fn what_is_gone_before_it_is_read_is_named_and_so_is_its_directory() {
    let place = tempfile::tempdir().unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).unwrap();
    let name = |number: u32| source.join(format!("{number:03}"));
    for number in 0..500 {
        fs::write(name(number), "content").unwrap();
    }
    // The directory's list was read before the first entries are reported.
    let progress = Counting::new(false, || (0..500).for_each(|it| drop(fs::remove_file(name(it)))));
    let mut one = options(CopyMode::Copy);
    one.threads = 1;
    let report = try_copy(&source, &target, &one, &progress).unwrap();
    let there = fs::read_dir(&target).unwrap().count();
    assert!((60..500).contains(&there), "{there}");
    assert_eq!(report.changed.len(), 500 - there + 1);
    assert_eq!(report.changed[0].to_str(), Some("."));
}

#[test]
fn a_source_at_rest_is_not_named() {
    let place = tempfile::tempdir().unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/b/file"), vec![3; 1 << 20]).unwrap();
    assert_eq!(copied(&source, &target, CopyMode::Auto).changed, Vec::<std::path::PathBuf>::new());
}
