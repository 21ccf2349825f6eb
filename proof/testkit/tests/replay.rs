//! A recorded disk can be mounted as after a power cut at any place of its log.
//!
//! Needs root. If a rig cannot be set up, the tests fail: they test nothing else.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mount::{UnmountFlags, unmount};
use synconce_testkit::patiently;
use synconce_testkit::rig::{
    Cut, EventKind, FsKind, Granularity, Log, Replay, Rig, RigBuilder, Survivors, Tape,
};

fn write(path: &Path, byte: u8) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(&[byte; 10_000]).unwrap();
    file
}

fn has(root: &Path, name: &str, byte: u8) -> bool {
    fs::read(root.join(name)).is_ok_and(|data| data == [byte; 10_000])
}

/// Records a file that is synced with its directory and, after the mark, a file that is not.
fn synced_and_not(builder: RigBuilder) -> Tape {
    let rig = builder.record(true).up().expect("a rig is set up");
    write(&rig.path().join("synced"), 1).sync_all().unwrap();
    File::open(rig.path()).unwrap().sync_all().unwrap();
    rig.disk().mark("synced").unwrap();
    write(&rig.path().join("unsynced"), 2);
    rig.disk().mark("end").unwrap();
    rig.finish().expect("the recording is kept")
}

/// Returns the places from the mark on, or every nth of them.
fn places(log: &Log, mark: &str, most: usize) -> Vec<usize> {
    let all: Vec<usize> = log.places(log.mark(mark).unwrap(), log.len()).collect();
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}

fn cuts(at: usize) -> impl Iterator<Item = Cut> {
    let share = Survivors::Share { seed: at as u64, share: 0.5 };
    [Survivors::None, Survivors::All, share].map(|rest| Cut::at(at).survivors(rest)).into_iter()
}

#[test]
fn a_synced_file_survives_every_cut_after_its_sync_whatever_else_survives() {
    for fs in FsKind::ALL {
        let tape = synced_and_not(Rig::builder().fs(fs));
        let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
        for cut in places(&log, "synced", 12).into_iter().flat_map(cuts) {
            let disk = replay.mounted(cut).unwrap_or_else(|error| panic!("{fs} {cut:?}: {error}"));
            assert!(has(disk.path(), "synced", 1), "{fs} {cut:?}");
            disk.unmount().unwrap();
        }
    }
}

#[test]
fn an_unsynced_file_is_lost_unless_it_is_written_back() {
    for fs in FsKind::ALL {
        let tape = synced_and_not(Rig::builder().fs(fs));
        let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
        let end = log.mark("end").unwrap();
        let disk = replay.mounted(Cut::at(end)).unwrap();
        assert!(!has(disk.path(), "unsynced", 2), "{fs}: nothing has written it yet");
        drop(disk);
        // The unmount of the recorded rig has written the file.
        let disk = replay.mounted(Cut::at(log.len()).survivors(Survivors::All)).unwrap();
        assert!(has(disk.path(), "unsynced", 2), "{fs}");
    }
}

#[test]
fn a_synced_file_is_lost_where_the_file_system_asks_for_no_flush() {
    let tape = synced_and_not(Rig::builder().mount_options("nobarrier"));
    let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
    let disk = replay.mounted(Cut::at(log.mark("synced").unwrap())).unwrap();
    assert!(!has(disk.path(), "synced", 1), "what was the flush for?");
}

#[test]
fn a_flush_that_has_not_ended_makes_nothing_durable() {
    let rig = Rig::builder().record(true).up().unwrap();
    rig.disk().stall_flushes().unwrap();
    let path = rig.path().join("file");
    let syncing = std::thread::spawn(move || write(&path, 1).sync_all());
    rig.disk().wait_for_waiting_flush(patiently(std::time::Duration::from_secs(60))).unwrap();
    let stalled = rig.disk().mark("stalled").unwrap();
    rig.disk().release_flushes().unwrap();
    syncing.join().unwrap().unwrap();
    let tape = rig.finish().unwrap();
    let log = tape.log().unwrap();
    assert!(log.durable(stalled) < log.durable(log.len()));
    let begin =
        log.events()[..stalled].iter().rposition(|event| event.what == EventKind::FlushBegin);
    assert!(log.durable(stalled) < begin.unwrap());
}

/// Returns the first 8 MiB of a device, which include the writes of a mount, as a file system
/// reads them: through the kernel's cache.
fn content(device: &mut File) -> Vec<u8> {
    let mut data = vec![0; 8 << 20];
    device.read_exact_at(&mut data, 0).unwrap();
    data
}

#[test]
fn nothing_of_the_disk_before_a_cut_is_left_in_the_kernels_cache() {
    let tape = synced_and_not(Rig::builder().size(32 << 20));
    let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
    // Held open, so that no last close empties the cache.
    let mut held = File::open(replay.device()).unwrap();
    replay.cut(Cut::at(0)).unwrap();
    let first = content(&mut held);
    let mut seen = vec![first.clone()];
    for at in [log.len(), log.mark("synced").unwrap()] {
        replay.cut(Cut::at(at).survivors(Survivors::All)).unwrap();
        let disk = replay.mount().unwrap();
        fs::write(disk.path().join("dirt"), "of this cut").unwrap();
        disk.unmount().unwrap();
        replay.cut(Cut::at(at).survivors(Survivors::All)).unwrap();
        seen.push(content(&mut held));
    }
    replay.cut(Cut::at(0)).unwrap();
    assert!(content(&mut held) == first, "it is the disk before the first mount again");
    assert!(seen[0] != seen[1] && seen[1] != seen[2], "each cut has a disk of its own");
    for (state, at) in seen.iter().zip([0, log.len(), log.mark("synced").unwrap()]) {
        let other = tape.replay().up().unwrap();
        other.cut(Cut::at(at).survivors(Survivors::All)).unwrap();
        let mut fresh = File::open(other.device()).unwrap();
        assert!(content(&mut fresh) == *state, "cut at {at}");
    }
}

#[test]
fn a_concurrent_reader_of_the_device_keeps_no_cached_data_over_a_cut() {
    let tape = synced_and_not(Rig::builder().size(32 << 20));
    let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
    let mut held = File::open(replay.device()).unwrap();
    let at = [0, log.len()].map(|at| Cut::at(at).survivors(Survivors::All));
    let states = at.map(|cut| {
        replay.cut(cut).unwrap();
        content(&mut held)
    });
    let (device, end) = (replay.device().to_owned(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bystander = File::open(&device).unwrap();
            while !end.load(Ordering::Relaxed) {
                content(&mut bystander);
            }
        });
        let wrong = (0..20).filter(|n| {
            replay.cut(at[n % 2]).unwrap();
            content(&mut held) != states[n % 2]
        });
        let wrong = wrong.count();
        end.store(true, Ordering::Relaxed);
        assert_eq!(wrong, 0, "so many of 20 cuts showed an older disk");
    });
}

#[test]
fn what_is_written_after_a_cut_goes_with_the_next() {
    for fs in FsKind::ALL {
        let tape = synced_and_not(Rig::builder().fs(fs));
        let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
        let cut = Cut::at(log.mark("synced").unwrap());
        let disk = replay.mounted(cut).unwrap();
        fs::remove_file(disk.path().join("synced")).unwrap();
        write(&disk.path().join("new"), 3).sync_all().unwrap();
        drop(disk);
        assert!(!has(replay.mount().unwrap().path(), "synced", 1), "{fs}: no cut in between");
        let disk = replay.mounted(cut).unwrap();
        assert!(has(disk.path(), "synced", 1) && !disk.path().join("new").exists(), "{fs}");
    }
}

#[test]
fn torn_sectors_are_a_mode_of_their_own() {
    let tape = synced_and_not(Rig::builder());
    let (log, replay) = (tape.log().unwrap(), tape.replay().up().unwrap());
    let torn = |granularity| {
        let survivors = Survivors::Share { seed: 1, share: 0.5 };
        let cut = Cut::at(log.len() - 1).survivors(survivors).granularity(granularity);
        replay.cut(cut).unwrap()
    };
    let (blocks, sectors) = (torn(Granularity::Block), torn(Granularity::Sector));
    assert!(blocks.kept_bytes.is_multiple_of(4096), "{blocks}");
    assert_eq!(sectors.kept + sectors.lost, 8 * (blocks.kept + blocks.lost), "{sectors}");
}

#[test]
fn an_image_starts_a_rig_where_another_was() {
    for fs in FsKind::ALL {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = dir.path().join("image");
        let first = Rig::builder().fs(fs).up().unwrap();
        write(&first.path().join("old"), 1);
        let mounted = first.save_image(&image).expect_err("it is mounted");
        assert!(mounted.to_string().contains("it is mounted"), "{mounted}");
        first.unmount().unwrap();
        first.save_image(&image).unwrap();
        drop(first);
        let second = Rig::builder().fs(fs).image(&image).record(true).up().unwrap();
        assert!(has(second.path(), "old", 1), "{fs}");
        let tape = second.finish().unwrap();
        let replay = tape.replay().up().unwrap();
        let disk = replay.mounted(Cut::at(0)).unwrap();
        assert!(has(disk.path(), "old", 1), "{fs}");
    }
}

#[test]
fn a_disk_can_be_cut_while_it_still_works() {
    let rig = Rig::builder().record(true).up().unwrap();
    let replay = rig.recording().unwrap().replay().up().unwrap();
    for byte in 1..4 {
        write(&rig.path().join("file"), byte).sync_all().unwrap();
        let at = rig.disk().mark("synced").unwrap();
        assert!(has(replay.mounted(Cut::at(at)).unwrap().path(), "file", byte));
    }
    let beyond = replay.cut(Cut::at(1 << 30)).expect_err("the log is not so long");
    assert!(beyond.to_string().contains("cannot cut after event 1073741824: the log has"));
}

#[test]
fn a_mounted_replay_is_not_cut() {
    let tape = synced_and_not(Rig::builder());
    let replay = tape.replay().up().unwrap();
    let disk = replay.mounted(Cut::at(0)).unwrap();
    let error = replay.cut(Cut::at(1)).expect_err("it is mounted");
    assert!(error.to_string().ends_with("it is mounted"), "{error}");
    drop(disk);
    replay.cut(Cut::at(1)).unwrap();
}

#[test]
fn a_replay_that_is_still_mounted_in_another_namespace_is_not_cut_before_it_is_gone() {
    let tape = synced_and_not(Rig::builder());
    let replay = tape.replay().up().unwrap();
    let disk = replay.mounted(Cut::at(0)).unwrap();
    // A new mount namespace has a copy of every mount.
    let mut other = Command::new("unshare");
    other.args(["--mount", "--propagation", "private", "sh", "-c", "echo here; read end"]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut message = [0; 5];
    other.stdout.take().unwrap().read_exact(&mut message).unwrap();
    fs::write(disk.path().join("late"), "written when the other one ends").unwrap();
    // Without the wait for the other namespace in `Mounted::unmount`.
    unmount(disk.path(), UnmountFlags::empty()).unwrap();
    disk.leave();
    let device = replay.device().to_owned();
    File::options().write(true).custom_flags(libc::O_EXCL).open(&device).expect_err("it is busy");
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| replay.cut(Cut::at(0)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!cut.is_finished());
        drop(other.stdin.take());
        cut.join().unwrap().unwrap();
    });
    other.wait().unwrap();
    assert!(!replay.mount().unwrap().path().join("late").exists());
}

#[test]
fn operations_on_recordings_fail_with_a_reason_without_one() {
    let rig = Rig::builder().up().unwrap();
    for error in [rig.disk().mark("x").unwrap_err(), rig.recording().unwrap_err()] {
        assert_eq!(error.to_string(), "the rig was set up without recording");
    }
    let both = Rig::builder().passthrough(true).record(true).up().unwrap_err();
    assert!(both.to_string().contains("cannot record with passthrough"), "{both}");
}

#[test]
fn a_recorded_rig_that_cannot_be_set_up_leaves_nothing() {
    // In a new directory: files of other tests come and go in the usual one.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let failing = Rig::builder().record(true).backing_dir(memory.path());
    failing.clone().binary("/bin/false").up().expect_err("it is no daemon");
    failing.mount_options("no_such_option").up().expect_err("ext4 refuses it");
    let left: Vec<_> = fs::read_dir(memory.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn replays_and_recordings_leave_nothing() {
    let tape = synced_and_not(Rig::builder());
    let files = [tape.base.clone(), tape.log.clone()];
    let replay: Replay = tape.replay().up().unwrap();
    let dirs = [replay.path().parent().unwrap().to_owned()];
    let disk = replay.mounted(Cut::at(0)).unwrap();
    let mount = disk.path().to_str().unwrap().to_owned();
    drop(disk);
    drop(replay);
    assert!(files.iter().all(|file| file.exists()));
    drop(tape);
    assert!(files.iter().chain(&dirs).all(|path| !path.exists()), "{files:?} {dirs:?}");
    let mut mounts = String::new();
    File::open("/proc/self/mountinfo").unwrap().read_to_string(&mut mounts).unwrap();
    assert!(!mounts.contains(&mount));
}
