//! A disk fails, hangs and dies on demand, and the file system on it reports errors.
//!
//! Needs root. If a rig cannot be set up, the tests fail: they test nothing else.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use synconce_testkit::harness::without_foreign_syncs;
use synconce_testkit::patiently;
use synconce_testkit::rig::{EventKind, Fault, FsKind, Requests, Rig};

const LONG: Duration = Duration::from_secs(60);

fn up(fs: FsKind) -> Rig {
    Rig::builder().fs(fs).passthrough(false).up().expect("a rig is set up")
}

fn write_and_sync(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

fn errno(result: io::Result<()>) -> Option<i32> {
    result.expect_err("the disk fails").raw_os_error()
}

#[test]
fn a_write_that_holds_a_pattern_fails_and_others_do_not() {
    for fs in FsKind::ALL {
        let rig = up(fs);
        rig.disk().fail(Fault::writes().holding("this is poison")).unwrap();
        write_and_sync(&rig.path().join("good"), &[b'g'; 20_000]).unwrap();
        let bad = write_and_sync(&rig.path().join("bad"), &b"this is poison; ".repeat(1000));
        assert_eq!(errno(bad), Some(libc::EIO), "{fs}");
        rig.disk().recover().unwrap();
        let transfers = rig.disk().stats().unwrap().transfers.unwrap();
        assert!(transfers.failed_writes > 0, "{fs}: {transfers:?}");
    }
}

#[test]
fn the_flush_asked_for_fails_and_the_ones_before_do_not() {
    let _barrier = without_foreign_syncs();
    for fs in FsKind::ALL {
        let rig = up(fs);
        write_and_sync(&rig.path().join("zeroth"), b"0").unwrap();
        let before = rig.disk().stats().unwrap().flushes;
        write_and_sync(&rig.path().join("first"), b"1").unwrap();
        let flushes = rig.disk().stats().unwrap().flushes - before;
        rig.disk().fail(Fault::flushes().after(flushes).times(1)).unwrap();
        write_and_sync(&rig.path().join("second"), b"2").unwrap();
        let third = write_and_sync(&rig.path().join("third"), b"3");
        assert_eq!(errno(third), Some(libc::EIO), "{fs}");
        assert_eq!(rig.disk().stats().unwrap().failed_flushes, 1, "{fs}");
    }
}

#[test]
fn every_request_to_a_dead_disk_fails() {
    for fs in FsKind::ALL {
        let rig = up(fs);
        write_and_sync(&rig.path().join("file"), &[1; 100_000]).unwrap();
        rig.unmount().unwrap();
        rig.mount().unwrap(); // nothing is cached
        rig.disk().fail(Fault::everything()).unwrap();
        let read = File::open(rig.path().join("file")).and_then(|mut file| {
            file.read_to_end(&mut Vec::new())?;
            Ok(())
        });
        assert_eq!(errno(read), Some(libc::EIO), "{fs}");
        let write = write_and_sync(&rig.path().join("new"), b"lost");
        assert!(matches!(errno(write), Some(libc::EIO | libc::EROFS)), "{fs}");
        let transfers = rig.disk().stats().unwrap().transfers.unwrap();
        assert!(transfers.failed_reads > 0, "{fs}: {transfers:?}");
        rig.down().unwrap_or_else(|error| panic!("{fs}: {error}"));
    }
}

#[test]
fn an_unmount_waits_for_the_copy_of_the_mount_in_a_new_namespace() {
    let rig = up(FsKind::Ext4);
    write_and_sync(&rig.path().join("file"), &[1; 100_000]).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read end"]);
    let mut elsewhere = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    elsewhere.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    thread::scope(|scope| {
        let unmounting = scope.spawn(|| rig.unmount());
        thread::sleep(Duration::from_millis(200));
        assert!(!unmounting.is_finished(), "it is mounted there still");
        drop(elsewhere.stdin.take());
        elsewhere.wait().unwrap();
        unmounting.join().unwrap().unwrap();
    });
    rig.mount().unwrap();
    rig.disk().fail(Fault::reads()).unwrap();
    assert_eq!(errno(fs::read(rig.path().join("file")).map(drop)), Some(libc::EIO));
}

#[test]
fn reads_fail_until_the_disk_recovers() {
    let rig = up(FsKind::Ext4);
    write_and_sync(&rig.path().join("file"), &[1; 4096]).unwrap();
    rig.unmount().unwrap();
    rig.mount().unwrap();
    // Cache the directory and the inode, so that only the read of the data fails.
    fs::metadata(rig.path().join("file")).unwrap();
    rig.disk().fail(Fault::reads()).unwrap();
    let read = || fs::read(rig.path().join("file")).map(|data| assert_eq!(data, [1; 4096]));
    assert_eq!(errno(read()), Some(libc::EIO));
    rig.disk().recover().unwrap();
    read().unwrap();
}

#[test]
fn a_disk_that_hangs_answers_when_it_is_released() {
    let rig = up(FsKind::Ext4);
    rig.disk().fail(Fault::everything().hanging()).unwrap();
    let path = rig.path().join("file");
    let syncing = thread::spawn(move || write_and_sync(&path, &[1; 10_000]));
    rig.disk().wait_for_hanging(patiently(LONG)).unwrap();
    assert!(!syncing.is_finished());
    rig.disk().recover().unwrap();
    syncing.join().unwrap().unwrap();
    assert_eq!(rig.disk().stats().unwrap().hanging, 0);
    rig.unmount().unwrap();
    rig.mount().unwrap();
    assert_eq!(fs::read(rig.path().join("file")).unwrap(), [1; 10_000]);
}

#[test]
fn a_disk_that_hangs_for_a_while_recovers_by_itself() {
    let rig = up(FsKind::Xfs);
    let pause = Duration::from_millis(200);
    let start = Instant::now();
    rig.disk().fail(Fault::on(Requests::Flushes).hanging().lasting(pause)).unwrap();
    write_and_sync(&rig.path().join("file"), b"late").unwrap();
    assert!(start.elapsed() >= pause);
}

#[test]
fn a_rig_whose_disk_hangs_goes_all_the_same() {
    // Another process's sync(2) would hang before the file is made.
    let _barrier = without_foreign_syncs();
    let rig = up(FsKind::Ext4);
    let place = rig.path().to_owned();
    rig.disk().fail(Fault::everything().hanging()).unwrap();
    let path = place.join("file");
    let syncing = thread::spawn(move || write_and_sync(&path, b"x"));
    rig.disk().wait_for_hanging(patiently(LONG)).unwrap();
    drop(rig);
    syncing.join().unwrap().unwrap();
    assert!(!place.exists());
}

#[test]
fn with_passthrough_only_flushes_can_fail() {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().passthrough(true).up().unwrap();
    for fault in [Fault::reads(), Fault::writes(), Fault::everything()] {
        let error = rig.disk().fail(fault).expect_err("data bypasses the daemon");
        assert!(error.to_string().contains("without passthrough"), "{error}");
    }
    rig.disk().fail(Fault::flushes().times(1)).unwrap();
    assert_eq!(errno(write_and_sync(&rig.path().join("file"), b"x")), Some(libc::EIO));
}

#[test]
fn what_failed_is_in_the_log_and_not_on_the_disk() {
    let rig = Rig::builder().record(true).up().unwrap();
    rig.disk().fail(Fault::writes().holding("poison")).unwrap();
    write_and_sync(&rig.path().join("file"), &b"poison".repeat(1000)).expect_err("it fails");
    rig.disk().recover().unwrap();
    rig.disk().fail(Fault::flushes().times(1)).unwrap();
    write_and_sync(&rig.path().join("other"), b"x").expect_err("it fails");
    let log = rig.recording().unwrap().log().unwrap();
    let has = |what: fn(&EventKind) -> bool| log.events().iter().any(|event| what(&event.what));
    assert!(has(|what| matches!(what, EventKind::Failed { .. })));
    assert!(has(|what| matches!(what, EventKind::FlushFailed { .. })));
    let held = |what: &EventKind| matches!(what, EventKind::Write { length: 8192, .. });
    assert!(!log.events().iter().any(|event| held(&event.what)), "6,000 bytes are two blocks");
}

#[test]
fn a_full_file_system_has_no_space() {
    for fs in FsKind::ALL {
        let rig = up(fs);
        let filler = rig.fill(4 << 20).unwrap_or_else(|error| panic!("{fs}: {error}"));
        let path = rig.path().join("file");
        let mut file = File::create(&path).unwrap();
        let full = (0..64).try_for_each(|_| file.write_all(&[1; 1 << 20]));
        let full = full.and_then(|()| file.sync_all());
        assert_eq!(errno(full), Some(libc::ENOSPC), "{fs}");
        drop(file);
        fs::remove_file(filler).unwrap();
        write_and_sync(&path, &[1; 1 << 20]).unwrap_or_else(|error| panic!("{fs}: {error}"));
    }
}

#[test]
fn a_file_system_can_become_read_only_and_writable_again() {
    for fs in FsKind::ALL {
        let rig = up(fs);
        rig.remount("ro").unwrap();
        assert_eq!(errno(write_and_sync(&rig.path().join("file"), b"x")), Some(libc::EROFS));
        rig.remount("rw").unwrap();
        write_and_sync(&rig.path().join("file"), b"x").unwrap();
    }
}
