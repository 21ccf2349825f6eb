//! A copy that cannot be completed fails with a reason and leaves the source unchanged.

use rustix::io::Errno;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use synconce_fs::CopyMode;
use synconce_testkit::patiently;
use synconce_testkit::rig::{Fault, FsKind, Rig};

use super::support::{
    Counting, assert_same, copied, in_memory, open, options, remove_all, rig, try_copy,
};
use synconce_testkit::isolation::isolated;

#[test]
fn a_full_disk_ends_a_copy_with_the_path_and_the_reason() {
    isolated(
        || {},
        |_, _| {
            let memory = in_memory(Path::new("/run/full"));
            let source = memory.join("source");
            for number in 0..300 {
                let directory = source.join(format!("{}", number % 20));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join(format!("{number}")), vec![1; 2 << 20]).unwrap();
            }
            for fs in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
                let rig = Rig::builder().fs(fs).size(400 << 20).up().unwrap();
                let target = rig.path().join("target");
                let begin = Instant::now();
                let error = try_copy(&source, &target, &options(CopyMode::Copy), &());
                let error = error.unwrap_err();
                assert_eq!(
                    error.io().raw_os_error(),
                    Some(Errno::NOSPC.raw_os_error()),
                    "{fs:?}: {error}"
                );
                assert!(error.to_string().contains("/target/"), "{error}");
                assert!(begin.elapsed() < patiently(Duration::from_secs(60)), "{fs:?}");
                remove_all(&target);
            }
            assert_eq!(fs::read_dir(&source).unwrap().count(), 20);
        },
    );
}

#[test]
fn a_source_that_cannot_be_read_ends_a_copy_with_the_path_and_the_reason() {
    isolated(
        || {},
        |_, _| {
            let memory = in_memory(Path::new("/run/unread"));
            let rig =
                Rig::builder().fs(FsKind::Ext4).size(1 << 30).passthrough(false).up().unwrap();
            let source = rig.path().join("source");
            fs::create_dir(&source).unwrap();
            fs::write(source.join("good"), "good").unwrap();
            let bad = source.join("bad");
            fs::write(&bad, vec![1; 4 << 20]).unwrap();
            let file = open(&bad);
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            rig.disk().fail(Fault::reads()).unwrap();
            let target = memory.join("target");
            let error = try_copy(&source, &target, &options(CopyMode::Auto), &()).unwrap_err();
            assert_eq!(error.io().raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
            assert!(error.to_string().contains("cannot read"), "{error}");
            assert!(error.to_string().contains("/source/bad"), "{error}");
            rig.disk().recover().unwrap();
            // The incomplete copy can be removed.
            remove_all(&target);
            copied(&source, &target, CopyMode::Auto);
            assert_same(&source, &target);
        },
    );
}

#[test]
fn more_links_than_the_target_can_have_are_an_error_with_the_path() {
    isolated(
        || {},
        |_, _| {
            // ext4 allows 65,000 links to a file (EXT4_LINK_MAX); tmpfs has no limit.
            let memory = in_memory(Path::new("/run/linked"));
            let source = memory.join("source");
            fs::create_dir(&source).unwrap();
            fs::write(source.join("first"), "content").unwrap();
            for number in 0..65_000 {
                fs::hard_link(source.join("first"), source.join(format!("{number}"))).unwrap();
            }
            let rig = rig(FsKind::Ext4);
            let target = rig.path().join("target");
            let error = try_copy(&source, &target, &options(CopyMode::Auto), &()).unwrap_err();
            assert_eq!(error.io().raw_os_error(), Some(Errno::MLINK.raw_os_error()), "{error}");
            assert!(error.to_string().contains("cannot make the link"), "{error}");
            assert!(error.to_string().contains("/target/"), "{error}");
            assert_eq!(remove_all(&target), 65_001);
        },
    );
}

#[test]
fn a_cancelled_copy_ends_soon() {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    for number in 0..3000 {
        let directory = source.join(format!("{}", number % 50));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{number}")), "content").unwrap();
    }
    let progress = Counting::new(true, || {});
    let target = place.path().join("target");
    let error = try_copy(&source, &target, &options(CopyMode::Copy), &progress).unwrap_err();
    assert_eq!(error.io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()), "{error}");
    assert!(progress.entries() < 1000, "{}", progress.entries());
}

#[test]
fn a_large_file_is_given_up_in_its_midst_when_the_copy_is_cancelled() {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), vec![1; 64 << 20]).unwrap();
    let progress = Counting::new(true, || {});
    let target = place.path().join("target");
    let error = try_copy(&source, &target, &options(CopyMode::Copy), &progress).unwrap_err();
    assert_eq!(error.io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()), "{error}");
    assert!(fs::metadata(target.join("large")).unwrap().len() < 64 << 20);
}
