//! The disk rig works as documented, and leaves nothing behind.
//!
//! Needs root. If a rig cannot be set up, the tests fail: they test nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use synconce_testkit::harness::without_foreign_syncs;
use synconce_testkit::patiently;
use synconce_testkit::rig::{self, FsKind, Latency, Rig, RigBuilder};

/// What a rig could leave behind.
struct Traces {
    mount_point: PathBuf,
    device: PathBuf,
    daemon: i32,
}

impl Traces {
    fn from_rig(rig: &Rig) -> Self {
        let daemon = rig.daemon_pid().expect("a daemon runs");
        Self { mount_point: rig.path().to_owned(), device: rig.device().to_owned(), daemon }
    }

    /// Whether a loop device is still attached to the rig's file.
    fn is_attached(&self) -> bool {
        let name = self.device.file_name().unwrap().to_str().unwrap();
        let backing = read(format!("/sys/block/{name}/loop/backing_file"));
        backing.contains(self.mount_point.parent().unwrap().to_str().unwrap())
    }

    fn assert_gone(&self) {
        // Another rig may have got the same loop device by now, but not the same directory.
        let dir = self.mount_point.parent().unwrap().to_str().unwrap().to_owned();
        assert!(!dir.is_empty() && dir.contains("synconce"), "{dir} is not a directory of a rig");
        assert!(!read("/proc/self/mountinfo").contains(&dir), "a mount is left in {dir}");
        let name = self.device.file_name().unwrap().to_str().unwrap();
        let backing = read(format!("/sys/block/{name}/loop/backing_file"));
        assert!(!backing.contains(&dir), "{name} is still attached to {backing}");
        let command = read(format!("/proc/{}/cmdline", self.daemon));
        assert!(!command.contains(&dir), "the daemon {} still runs", self.daemon);
        assert!(!Path::new(&dir).exists(), "{dir} is left");
        let id = Path::new(&dir).file_name().unwrap().to_str().unwrap();
        assert!(
            !Path::new(&format!("/dev/shm/synconce-rig-{id}.img")).exists(),
            "the backing file is left"
        );
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn up(builder: RigBuilder) -> Rig {
    builder.up().expect("a rig is set up")
}

fn write_and_sync(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&[7; 10_000])?;
    file.sync_all()
}

const FLUSH: Duration = Duration::from_millis(20);
/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn an_fsync_of_new_data_costs_two_flushes_and_at_least_their_time() {
    let _barrier = without_foreign_syncs();
    for fs in FsKind::ALL {
        let rig = up(Rig::builder().fs(fs).latency(Latency::of_flush(FLUSH)));
        let before = rig.disk().stats().unwrap();
        let start = Instant::now();
        write_and_sync(&rig.path().join("file")).unwrap();
        let took = start.elapsed();
        let done = rig.disk().stats().unwrap() - before;
        // A journal's timer may add a flush.
        assert!((2..=3).contains(&done.flushes), "{fs}: {done:?}");
        assert!(took >= FLUSH * 2, "{fs}: {took:?}");
        assert!(Duration::from_nanos(done.flush_nanos) >= FLUSH * 2, "{fs}: {done:?}");
        assert_eq!((done.failed_flushes, done.waiting_flushes), (0, 0), "{fs}");
    }
}

#[test]
fn a_write_without_a_sync_costs_no_flush() {
    let _barrier = without_foreign_syncs();
    let rig = up(Rig::builder().latency(Latency::of_fsync(FLUSH * 2)));
    let before = rig.disk().stats().unwrap();
    fs::write(rig.path().join("file"), "cheap").unwrap();
    assert_eq!((rig.disk().stats().unwrap() - before).flushes, 0);
}

#[test]
fn a_sync_of_all_disks_waits_at_a_barrier_before_it_reaches_a_later_disk() {
    let barrier = without_foreign_syncs();
    let rig = up(Rig::builder());
    fs::write(rig.path().join("file"), "dirty").unwrap();
    let before = rig.disk().stats().unwrap().flushes;
    let mut sync = Command::new("sync").spawn().unwrap();
    barrier.rig().disk().wait_for_hanging(patiently(LONG)).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(sync.try_wait().unwrap(), None, "it waits");
    assert_eq!(rig.disk().stats().unwrap().flushes, before);
    drop(barrier);
    assert!(sync.wait().unwrap().success());
    assert!(rig.disk().stats().unwrap().flushes > before, "it has reached the disk");
}

#[test]
fn the_latency_can_be_changed_while_the_file_system_is_mounted() {
    let rig = up(Rig::builder());
    write_and_sync(&rig.path().join("quick")).unwrap();
    rig.disk().set_latency(Latency::of_flush(FLUSH)).unwrap();
    let start = Instant::now();
    write_and_sync(&rig.path().join("slow")).unwrap();
    assert!(start.elapsed() >= FLUSH * 2);
}

#[test]
fn a_failed_flush_surfaces_as_eio_at_fsync() {
    let _barrier = without_foreign_syncs();
    for (fs, passthrough) in FsKind::ALL.into_iter().flat_map(|fs| [(fs, true), (fs, false)]) {
        let rig = up(Rig::builder().fs(fs).passthrough(passthrough));
        write_and_sync(&rig.path().join("before")).unwrap();
        // xfs never retries a failed log flush, and ext4 and btrfs become read-only: one
        // failure suffices for each.
        rig.disk().fail_flushes(1).unwrap();
        let error = write_and_sync(&rig.path().join("after")).expect_err("the flush failed");
        assert_eq!(
            error.raw_os_error(),
            Some(libc::EIO),
            "{fs} passthrough {passthrough}: {error}"
        );
        assert_eq!(rig.disk().stats().unwrap().failed_flushes, 1, "{fs}");
        rig.down().unwrap_or_else(|error| panic!("{fs}: {error}"));
    }
}

#[test]
fn failed_writes_surface_as_eio_at_fsync() {
    for fs in FsKind::ALL {
        let rig = up(Rig::builder().fs(fs).passthrough(false));
        write_and_sync(&rig.path().join("before")).unwrap();
        rig.disk().fail_writes(true).unwrap();
        let error = write_and_sync(&rig.path().join("after")).expect_err("the writes failed");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{fs}: {error}");
        let transfers = rig.disk().stats().unwrap().transfers.expect("writes pass the daemon");
        assert!(transfers.failed_writes > 0, "{fs}: {transfers:?}");
        rig.down().unwrap_or_else(|error| panic!("{fs}: {error}"));
    }
}

#[test]
fn writes_that_bypass_the_daemon_cannot_be_failed_and_are_not_counted() {
    let rig = up(Rig::builder().passthrough(true));
    assert!(rig.passthrough());
    let error = rig.disk().fail_writes(true).expect_err("they bypass it");
    assert!(error.to_string().contains("without passthrough"), "{error}");
    assert_eq!(rig.disk().stats().unwrap().transfers, None);
}

#[test]
fn writes_that_pass_the_daemon_are_counted() {
    let rig = up(Rig::builder().passthrough(false));
    let before = rig.disk().stats().unwrap();
    let mut file = File::create(rig.path().join("file")).unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let done = (rig.disk().stats().unwrap() - before).transfers.expect("writes pass the daemon");
    assert!(done.written_bytes >= 1 << 20, "{done:?}");
    assert!(done.writes > 0, "{done:?}");
}

#[test]
fn a_stalled_flush_holds_the_fsync_until_its_release() {
    let rig = up(Rig::builder());
    rig.disk().stall_flushes().unwrap();
    let path = rig.path().join("file");
    let syncing = thread::spawn(move || write_and_sync(&path));
    rig.disk().wait_for_waiting_flush(patiently(LONG)).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(!syncing.is_finished());
    rig.disk().release_flushes().unwrap();
    syncing.join().unwrap().unwrap();
    assert_eq!(rig.disk().stats().unwrap().waiting_flushes, 0);
}

#[test]
fn a_rig_with_a_stalled_flush_goes_all_the_same() {
    let rig = up(Rig::builder());
    let traces = Traces::from_rig(&rig);
    rig.disk().stall_flushes().unwrap();
    let path = rig.path().join("file");
    let syncing = thread::spawn(move || write_and_sync(&path));
    rig.disk().wait_for_waiting_flush(patiently(LONG)).unwrap();
    drop(rig);
    syncing.join().unwrap().unwrap();
    traces.assert_gone();
}

#[test]
fn what_was_synced_is_there_after_a_remount() {
    for fs in FsKind::ALL {
        let rig = up(Rig::builder().fs(fs));
        write_and_sync(&rig.path().join("file")).unwrap();
        rig.unmount().unwrap();
        assert!(!rig.path().join("file").exists());
        rig.mount().unwrap();
        assert_eq!(fs::read(rig.path().join("file")).unwrap(), [7; 10_000]);
    }
}

#[test]
fn a_dropped_rig_leaves_nothing() {
    for fs in FsKind::ALL {
        let rig = up(Rig::builder().fs(fs));
        let traces = Traces::from_rig(&rig);
        fs::write(rig.path().join("dirty"), "not synced").unwrap();
        drop(rig);
        traces.assert_gone();
    }
}

#[test]
fn a_panic_takes_the_rig_down() {
    let (sender, traces) = std::sync::mpsc::channel();
    let panicked = thread::spawn(move || {
        let rig = up(Rig::builder());
        sender.send(Traces::from_rig(&rig)).unwrap();
        panic!("this panic is part of the test");
    });
    panicked.join().expect_err("it panicked");
    traces.recv().unwrap().assert_gone();
}

#[test]
fn a_rig_in_use_is_not_taken_down_unless_forced() {
    let rig = up(Rig::builder());
    let traces = Traces::from_rig(&rig);
    let mut open = File::create(rig.path().join("open")).unwrap();
    let error = rig::find(rig.path()).unwrap().down(false).expect_err("it is in use");
    let this_process = format!("({})", std::process::id());
    assert!(error.to_string().contains(&this_process), "{error}");
    drop(rig);
    open.write_all(b"into the void").and_then(|()| open.sync_all()).expect_err("the disk is gone");
    drop(open);
    // The loop device is detached after the end of its last user, with a delay.
    let end = Instant::now() + patiently(LONG);
    while traces.is_attached() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    traces.assert_gone();
}

#[test]
fn a_rig_that_another_mount_lies_over_is_taken_down() {
    let rig = up(Rig::builder());
    let traces = Traces::from_rig(&rig);
    let cover = || Command::new("mount").args(["-t", "tmpfs", "over"]).arg(rig.path()).status();
    assert!(cover().unwrap().success());
    rig.unmount().expect("no mount of the file system is left");
    rig.mount().unwrap();
    assert!(cover().unwrap().success());
    rig.down().expect("no force is needed");
    traces.assert_gone();
}

#[test]
fn a_failed_set_up_names_the_step_and_leaves_nothing() {
    let too_small =
        Rig::builder().fs(FsKind::Xfs).size(16 << 20).up().expect_err("xfs needs 300 MiB");
    assert!(too_small.to_string().contains("mkfs.xfs"), "{too_small}");
    let bad_option =
        Rig::builder().mount_options("no_such_option").up().expect_err("ext4 refuses it");
    assert!(bad_option.to_string().contains("`mount -t ext4"), "{bad_option}");
    let nowhere = Rig::builder().at("/no/such/directory").up().expect_err("it does not exist");
    assert!(nowhere.to_string().contains("/no/such/directory: No such file"), "{nowhere}");
    let mine = |path: &Path| path.to_str().is_some_and(|path| path.contains("no/such"));
    assert!(!rig::entries().unwrap().iter().any(|entry| mine(&entry.summary().mount_point)));
}

#[test]
fn two_rigs_side_by_side_do_not_disturb_each_other() {
    let _barrier = without_foreign_syncs();
    let slow = up(Rig::builder().fs(FsKind::Ext4).latency(Latency::of_flush(FLUSH)));
    let quick = up(Rig::builder().fs(FsKind::Btrfs));
    assert_ne!(slow.device(), quick.device());
    quick.disk().fail_flushes(1).unwrap();
    let before = quick.disk().stats().unwrap();
    write_and_sync(&slow.path().join("file")).unwrap();
    assert_eq!((quick.disk().stats().unwrap() - before).flushes, 0);
    drop(quick);
    write_and_sync(&slow.path().join("another")).unwrap();
}

#[test]
fn a_killed_daemon_is_a_disk_that_is_gone() {
    let rig = up(Rig::builder().passthrough(false));
    let traces = Traces::from_rig(&rig);
    write_and_sync(&rig.path().join("before")).unwrap();
    let killed = Command::new("kill").args(["-KILL", &traces.daemon.to_string()]).status().unwrap();
    assert!(killed.success());
    let error = write_and_sync(&rig.path().join("after")).expect_err("the disk is gone");
    assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::EROFS)), "{error}");
    drop(rig);
    traces.assert_gone();
}
