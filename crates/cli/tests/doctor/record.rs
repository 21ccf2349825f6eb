//! `synconce doctor -- COMMAND`: the memory of the record, and locks of files that are synced.

use crate::command::watched;
use crate::support::rig;
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::time::Duration;
use synconce_testkit::harness::{Place, StartedCommand, finish, stall, trial};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(syncs_do_not_fill_the_memory, &[]),
        trial(a_record_that_a_full_disk_cuts_names_the_disk, &[]),
        trial(locks_of_a_file_stay_when_it_is_synced, &[]),
        trial(locks_of_a_killed_caller_last_as_long_as_documented, &[]),
    ]
}

/// Syncs a file, and prints the bytes of the record in memory: the supervisor is the parent.
const RECORD: &str = "
import os
file = os.open('file', os.O_CREAT | os.O_RDWR)
for at in range(300):
    os.fsync(file)
open_files = f'/proc/{os.getppid()}/fd'
records = {}
for name in os.listdir(open_files):
    path = f'{open_files}/{name}'
    try:
        if 'synconce-record' in os.readlink(path):
            records[os.stat(path).st_ino] = os.stat(path).st_size
    except FileNotFoundError:
        # The supervisor has closed another file meanwhile.
        pass
print(list(records.values()))
";

fn syncs_do_not_fill_the_memory(place: &Place) {
    let here = std::path::Path::new("/dev/shm");
    let ended = finish(&mut watched(place, here, &[], &["python3", "-c", RECORD]));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stdout, "[0]\n", "{ended:?}");
    assert!(ended.stderr.starts_with("python3: 300 syncs were waited for, "), "{ended:?}");
    // Each line is kept where it was asked for.
    let kept = place.text("kept");
    let options = ["-o", &kept];
    let ended = finish(&mut watched(place, here, &options, &["python3", "-c", RECORD]));
    assert!(ended.status.success(), "{ended:?}");
    let lines = fs::read_to_string(&kept).unwrap();
    assert_eq!(lines.matches("\"call\":\"fsync\"").count(), 300, "{lines}");
}

fn a_record_that_a_full_disk_cuts_names_the_disk(place: &Place) {
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    mount("none", &disk, "tmpfs", MountFlags::empty(), c"size=8k").unwrap();
    let record = disk.join("record");
    let options = ["-o", record.to_str().unwrap()];
    let why = format!("cannot write to {}: No space left on device\n", record.display());
    let syncs = "for at in $(seq 200); do echo $at >file; sync file; done";
    // Room for a part of the record, and for nothing.
    for (room, script, code) in [(4096, syncs, 125), (0, "true", 125), (0, "exit 3", 3)] {
        let _ = fs::remove_file(&record);
        fs::write(disk.join("fill"), vec![b'x'; 8192 - room]).unwrap();
        let here = place.path("");
        let ended = finish(&mut watched(place, &here, &options, &["sh", "-c", script]));
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.stderr.contains(&why), "{ended:?}");
        assert!(!ended.stderr.contains("not a record"), "{ended:?}");
    }
}

/// Takes a POSIX lock of the first byte of a file, an OFD lock of the second byte, and a flock(2).
/// Prints which of the three locks another process cannot get.
const LOCKS: &str = "
import fcntl, os, struct, sys, time
def take(file):
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 1, 1, 0))
    fcntl.flock(file, fcntl.LOCK_EX)
def fails(lock, *how):
    try: lock(*how)
    except BlockingIOError: return True
def taken():
    file, how = os.open('data', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB
    tries = {'posix': (fcntl.lockf, file, how, 1, 0), 'ofd': (fcntl.lockf, file, how, 1, 1),
             'flock': (fcntl.flock, file, how)}
    names = [name for name, lock in tries.items() if fails(*lock)]
    os.close(file)
    return ' '.join(names)
def say(name, text):
    open(name + '.new', 'w').write(text + '\\n')
    os.rename(name + '.new', name)
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.005)
";

const SYNCED: &str = "
file = os.open('data', os.O_CREAT | os.O_RDWR)
take(file)
for sync in [os.fsync, os.fdatasync]:
    os.write(file, b'data')
    sync(file)
if not os.fork():
    print(taken())
    os._exit(0)
os.wait()
";

fn locks_of_a_file_stay_when_it_is_synced(place: &Place) {
    let script = format!("{LOCKS}{SYNCED}");
    let here = place.path("");
    let ended = finish(&mut watched(place, &here, &[], &["python3", "-c", &script]));
    assert!(ended.stderr.starts_with("python3: 2 syncs were waited for, "), "{ended:?}");
    assert_eq!(ended.stdout, "posix ofd flock\n", "{ended:?}");
}

/// The names of files come as arguments: they are not on the stalled disk.
const KILLED: &str = "
locked, go, kill, after, end = sys.argv[1:]
caller = os.fork()
if not caller:
    file = os.open('data', os.O_CREAT | os.O_RDWR)
    os.write(file, b'data')
    take(file)
    say(locked, '')
    wait_for(go)
    os.fsync(file)
wait_for(kill)
os.kill(caller, 9)
os.wait()
say(after, taken())
while taken(): time.sleep(0.005)
say(end, '')
";

fn locks_of_a_killed_caller_last_as_long_as_documented(place: &Place) {
    let rig = rig(FsKind::Ext4, 0);
    let script = format!("{LOCKS}{KILLED}");
    let names = ["locked", "go", "kill", "after", "end"].map(|name| place.text(name));
    let mut words = vec!["python3", "-c", &script];
    words.extend(names.iter().map(String::as_str));
    let started = StartedCommand::new(&mut watched(place, rig.path(), &[], &words));
    place.wait_for("locked");
    let stalled = stall(&rig);
    place.write("go", "");
    rig.disk().wait_for_waiting_flush(Duration::from_secs(60)).unwrap();
    place.write("kill", "");
    assert_eq!(place.wait_for("after"), "ofd flock\n");
    rig.disk().release_flushes().unwrap();
    drop(stalled);
    place.wait_for("end");
    started.end();
    rig.down().unwrap();
}
