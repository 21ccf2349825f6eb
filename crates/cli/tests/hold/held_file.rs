//! How a held file differs from an ordinary one: it is a mount point, its locks are separate, and
//! some syncs stay real.

use crate::support::{HoldOnRig, end, sh, with_hold};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs;
use std::fs::File;
use std::path::Path;
use synconce_testkit::harness::{
    StartedCommand, eventually, finish, isolated, without_foreign_syncs,
};
use synconce_testkit::rig::Rig;

#[test]
fn a_held_file_cannot_be_replaced_renamed_removed_or_linked() {
    with_hold("", |_, fixture| {
        let (held, other) = (fixture.file(), fixture.rig.path().join("other"));
        fs::write(&other, "new").unwrap();
        fixture.ok("start");
        assert_eq!(rustix::fs::rename(&other, &held), Err(Errno::BUSY));
        assert_eq!(rustix::fs::rename(&held, &other), Err(Errno::BUSY));
        assert_eq!(rustix::fs::unlink(&held), Err(Errno::BUSY));
        let link = fixture.rig.path().join("link");
        assert_eq!(rustix::fs::link(&held, &link), Err(Errno::XDEV));
        fixture.ok("stop");
        rustix::fs::rename(&other, &held).unwrap();
        assert_eq!(fs::read_to_string(&held).unwrap(), "new");
        rustix::fs::unlink(held).unwrap();
    });
}

/// Opens the file `path` below its overlay, by the root directory of a process that has
/// unmounted the overlay.
fn open_below(fixture: &HoldOnRig<'_>, path: &Path) -> File {
    let script = "umount \"$0\"; echo >unmounted; exec sleep 600";
    let words = ["--mount", "sh", "-ec", script, &path.display().to_string()];
    let mut command = fixture.place.command("unshare");
    let process = StartedCommand::new(command.args(words));
    fixture.place.wait_for("unmounted");
    let path = format!("/proc/{}/root{}", process.pid(), path.display());
    let below = File::options().read(true).open(path).unwrap();
    end(process);
    below
}

#[test]
fn a_lock_on_a_held_file_is_no_lock_on_the_file_below_and_only_the_guard_has_one_there() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let held = File::open(fixture.file()).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = File::open(fixture.file()).unwrap();
        let locked = flock(&second, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK), "a second daemon with the hold");
        let below = open_below(fixture, &fixture.file());
        let locked = flock(&below, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK), "a second daemon without the hold");
        assert_eq!(place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]).status.code(), Some(0));
        eventually("the guard has ended", || fixture.status().0["guarded"] == false);
        flock(&below, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop((held, second, below));
        fixture.ok("stop");
    });
}

/// How often a call is made whose flushes are counted.
const CALLS: u64 = 20;

/// Writes and syncs [`CALLS`] times by `call`, in python. Returns how many flushes reached the
/// disk.
fn flushes_of(fixture: &HoldOnRig<'_>, path: &Path, flags: &str, call: &str) -> u64 {
    let program = format!(
        "import mmap, os\n\
         file = os.open('{}', os.O_RDWR | {flags})\n\
         memory = mmap.mmap(file, 4096)\n\
         for turn in range({CALLS}):\n\
         \x20   {call}\n",
        path.display()
    );
    let before = fixture.flushes();
    let finished = finish(fixture.place.command("python3").args(["-c", &program]));
    assert_eq!(finished.status.code(), Some(0), "{call}: {}", finished.stderr);
    fixture.flushes() - before
}

#[test]
fn a_sync_that_is_asked_for_at_open_and_msync_reach_the_disk_from_a_held_file() {
    const WRITE: &str = "os.pwrite(file, b'%9d' % turn, 0)";
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        // No flush comes from a commit of the journal by its timer.
        let rig = Rig::builder().size(128 << 20).mount_options("commit=300").passthrough(false);
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "");
        let held = [fixture.file(), fixture.directory().join("file")];
        fixture.ok("start");
        for path in &held {
            fs::write(path, [0; 4096]).unwrap();
            let count = |flags: &str, call: &str| flushes_of(&fixture, path, flags, call);
            for call in ["fsync", "fdatasync"] {
                assert_eq!(count("0", &format!("{WRITE}; os.{call}(file)")), 0, "{call}");
            }
            assert_eq!(count("0", "os.pwritev(file, [b'more'], 0, os.RWF_DSYNC)"), 0);
            for flags in ["os.O_DSYNC", "os.O_SYNC"] {
                let flushes = count(flags, WRITE);
                assert!(flushes >= CALLS, "{flags}: {flushes}");
            }
            // flush() is msync(2) with MS_SYNC.
            let flushes = count("0", "memory[0] = turn; memory.flush()");
            assert!(flushes >= CALLS, "msync: {flushes}");
        }
        // By an attribute of the file, and by an option of the mount, each write is synced.
        let remount = format!("mount -o remount,sync {}", fixture.rig.path().display());
        for (path, command) in
            [(&held[1], format!("chattr +S {}", held[1].display())), (&held[0], remount)]
        {
            sh(place, &command);
            let flushes = flushes_of(&fixture, path, "0", WRITE);
            assert!(flushes >= CALLS, "{command}: {flushes}");
        }
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}
