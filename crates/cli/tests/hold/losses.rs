//! Writes that the disk loses: the kernel reports each once, and no verb forgets it.

use crate::crashes::{crash, take_away, unmount_below};
use crate::lost_before_restore::killed;
use crate::support::{HoldOnRig, configure, failed, sh, with_hold};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use synconce_testkit::harness::{Place, binary, finish, isolated_alone};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

/// The state of the markers' disk when a write is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateDisk {
    /// Full. The notes in memory are gone, too, because the container is made anew in the same
    /// boot.
    Full,
    /// The same, on a btrfs: when it is full, not even a file can be overwritten.
    FullBtrfs,
    ReadOnly,
}

/// Makes a hold on a disk to which the kernel writes nothing before a sync.
pub fn on_a_late_disk(place: &Place) -> HoldOnRig<'_> {
    let rig = Rig::builder().size(64 << 20).mount_options("commit=300").passthrough(false);
    HoldOnRig::on(place, rig.up().unwrap(), "")
}

/// Adds a directory on a second disk to the hold of `t.toml`.
pub fn on_a_second_disk(place: &Place) -> (Rig, PathBuf) {
    let second = place.path("second");
    fs::create_dir(&second).unwrap();
    let rig = Rig::builder().size(64 << 20).passthrough(false).at(&second).up().unwrap();
    let held = second.join("held");
    let hold = format!("[[hold]]\npath = {held:?}\nkind = \"other\"\n");
    place.write("t.toml", &(place.read("t.toml") + &hold));
    (rig, held)
}

/// Writes to the held directory what the disk loses. The file is new: ext4 writes one that is
/// truncated and written again when it is closed.
pub fn lose_data(fixture: &HoldOnRig<'_>) {
    fs::write(fixture.directory().join("lost"), "these bytes are lost".repeat(200)).unwrap();
    fixture.rig.disk().fail(Fault::writes().holding("these bytes are lost")).unwrap();
}

/// Lets the disk lose a write of one file, while the disk of the marker takes no write. The journal
/// of the held disk stays in order. `meet` calls the verb that gets the error. Checks that no later
/// verb forgets the loss.
fn lose(place: &Place, state: StateDisk, meet: impl Fn(&HoldOnRig<'_>)) {
    let fixture = on_a_late_disk(place);
    let make = match state {
        StateDisk::FullBtrfs => "truncate -s 120M image; mkfs.btrfs -q -M image",
        _ => "truncate -s 8M image; mkfs.ext4 -q image",
    };
    sh(place, &format!("mkdir -p state; {make}; mount -o loop image state"));
    fixture.ok("start");
    sh(
        place,
        match state {
            // After the sync some blocks are free again.
            StateDisk::Full | StateDisk::FullBtrfs => {
                "for fill in 1 2; do cat /dev/zero >>state/fill 2>other || sync -f state; done
                 while echo >state/fill.$((n += 1)) && sync -f state; do :; done 2>other"
            }
            StateDisk::ReadOnly => "mount -o remount,ro state",
        },
    );
    lose_data(&fixture);
    meet(&fixture);
    fixture.rig.disk().recover().unwrap();
    if state != StateDisk::ReadOnly {
        sh(place, "rm -f runtime/holds/*.failed");
    }
    for _turn in 0..2 {
        fixture.fails("stop", &["the disk lost writes"]);
        assert_eq!(fixture.state(), "interrupted");
    }
    fixture.fails("start", &[]);
    // Another hold of this name is not the one that failed.
    let other = |verb: &str| {
        let mut other = place.synconce(&["hold", verb, "./elsewhere/t.toml"]);
        finish(other.env("SYNCONCE_STATE_DIR", place.path("elsewhere"))).status.code()
    };
    sh(place, "mkdir elsewhere");
    configure(place, "elsewhere/t", "", &place.path("elsewhere/held"));
    assert_eq!((other("start"), other("stop")), (Some(0), Some(0)));
    assert_eq!(fixture.state(), "interrupted");
    sh(
        place,
        if state == StateDisk::ReadOnly { "mount -o remount,rw state" } else { "rm state/fill*" },
    );
    let kept = fixture.hold("recover --keep");
    assert_eq!(kept.status.code(), Some(0), "{}", kept.stderr);
    assert!(kept.stderr.contains("the disk lost writes"), "{}", kept.stderr);
    // A later hold is not the one that failed.
    fixture.ok("start");
    assert_eq!(fixture.state(), "held");
    fixture.ok("stop");
    sh(place, "umount state");
    fixture.rig.down().unwrap();
}

#[test]
fn a_lost_write_that_the_stop_meets_is_not_forgotten_on_a_full_state_disk() {
    // A sync(2) of another test would write the file.
    isolated_alone(|place| {
        lose(place, StateDisk::Full, stop_that_fails);
    });
}

#[test]
fn a_lost_write_that_the_stop_meets_is_not_forgotten_on_a_full_btrfs() {
    isolated_alone(|place| lose(place, StateDisk::FullBtrfs, stop_that_fails));
}

#[test]
fn a_lost_write_that_the_stop_meets_is_not_forgotten_on_a_read_only_state_disk() {
    isolated_alone(|place| lose(place, StateDisk::ReadOnly, stop_that_fails));
}

/// The next container has the disk, in the same boot, and no marker.
fn recovers_without_a_marker(fixture: &HoldOnRig<'_>) {
    fixture.rig.disk().recover().unwrap();
    sh(fixture.place, "rm -r state runtime");
    assert_eq!(fixture.state(), "interrupted");
    fixture.fails("start", &["its marker is lost"]);
    let said = fixture.ok("recover --keep");
    assert!(said.contains("the disk lost writes"), "{said}");
}

#[test]
fn a_lost_write_is_not_forgotten_if_the_marker_is_lost_with_the_container() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        lose_data(&fixture);
        stop_that_fails(&fixture);
        recovers_without_a_marker(&fixture);
        fixture.ok("start");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_loss_that_only_the_sync_after_the_unmounts_finds_is_not_forgotten_with_the_marker() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        lose_data(&fixture);
        // The sync before the unmounts does nothing.
        let stopped = stop_with(place, "inject=syncfs:retval=0:when=1");
        failed(stopped, &["the disk lost writes"]);
        recovers_without_a_marker(&fixture);
        fixture.rig.down().unwrap();
    });
}

/// Interrupts the hold with `interrupt`, and lets the disk lose a write that the recovery syncs.
fn lose_at_recovery(place: &Place, interrupt: impl FnOnce(&HoldOnRig<'_>)) {
    let fixture = on_a_late_disk(place);
    interrupt(&fixture);
    lose_data(&fixture);
    fixture.fails("recover --keep", &["cannot sync", "Input/output error"]);
    fixture.rig.disk().recover().unwrap();
    fixture.fails("start", &["hint: synconce hold recover"]);
    let said = fixture.ok("recover --keep");
    assert!(said.contains("the disk lost writes"), "{said}");
    // A later hold is not the one that failed.
    fixture.ok("start");
    fixture.ok("stop");
    fixture.rig.down().unwrap();
}

#[test]
fn a_loss_that_a_recovery_meets_is_not_forgotten() {
    isolated_alone(|place| {
        lose_at_recovery(place, |fixture| {
            fixture.ok("start");
            unmount_below(fixture);
        });
    });
}

#[test]
fn a_loss_that_a_recovery_meets_after_another_boot_is_not_forgotten() {
    isolated_alone(|place| {
        lose_at_recovery(place, |fixture| {
            fixture.ok("start");
            crash(fixture);
        });
    });
}

#[test]
fn a_loss_that_a_recovery_meets_is_not_forgotten_if_the_marker_is_damaged() {
    isolated_alone(|place| {
        lose_at_recovery(place, |fixture| {
            fixture.ok("start");
            unmount_below(fixture);
            place.write("state/holds/t.json", "nonsense");
        });
    });
}

#[test]
fn a_loss_that_a_recovery_meets_is_not_forgotten_if_the_marker_is_lost() {
    isolated_alone(|place| {
        lose_at_recovery(place, |fixture| {
            fixture.ok("start");
            unmount_below(fixture);
            sh(place, "rm -r state runtime");
        });
    });
}

#[test]
fn a_loss_that_a_recovery_meets_is_not_forgotten_if_an_earlier_one_was_cut_short() {
    isolated_alone(|place| {
        lose_at_recovery(place, |fixture| {
            fixture.ok("start");
            unmount_below(fixture);
            // The journal is written, and nothing is set aside yet.
            let point = fixture.rig.path().display().to_string();
            let kill = "inject=renameat2:error=EIO:signal=SIGKILL:when=1";
            let kill = ["-e", "trace=renameat2", "-e", kill, "-P", &point];
            let killed = traced(place, &kill, &["recover", "--wipe"]);
            assert!(!killed.status.success(), "{killed:?}");
            assert!(place.path("state/holds/t.aside.json").exists());
            assert!(fixture.file().exists());
            place.remove("state/holds/t.json");
            assert_eq!(fixture.state(), "interrupted");
            fixture.fails("start", &["its marker is lost", "hint: synconce hold recover t\n"]);
        });
    });
}

#[test]
fn a_directory_that_a_recovery_cannot_open_is_no_loss() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        unmount_below(fixture);
        let point = fixture.rig.path().display().to_string();
        let recover = |inject: &str| {
            let options = ["-e", "trace=openat,syncfs", "-P", &point, "-e", inject];
            traced(place, &options, &["recover", "--keep"])
        };
        recover("inject=syncfs:signal=SIGKILL");
        // The last one is for the sync.
        let count = place.read("calls").matches("openat(").count();
        let failure = recover(&format!("inject=openat:error=EMFILE:when={count}"));
        failed(failure, &["cannot open ", "Too many open files"]);
        let marker: serde_json::Value =
            serde_json::from_str(&place.read("state/holds/t.json")).expect("JSON");
        assert_eq!(marker["losses"], serde_json::json!([]));
        let said = fixture.ok("recover --keep");
        assert!(!said.contains("lost writes"), "{said}");
    });
}

#[test]
fn a_failed_sync_of_the_removal_is_no_loss_and_the_next_stop_goes_on() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        // The first sync is before the unmounts, the second after them, the third after the
        // removal.
        let stopped = stop_with(place, "inject=syncfs:error=EIO:when=3");
        failed(stopped, &["cannot sync the removal", "hint: synconce hold stop t"]);
        assert_ne!(fixture.state(), "interrupted");
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        fixture.ok("start");
        fixture.ok("stop");
    });
}

#[test]
fn a_stop_syncs_a_disk_three_times_whatever_is_held_there() {
    with_hold("", |place, fixture| {
        for name in ["a", "b/c"] {
            let held = fixture.rig.path().join(name);
            fs::create_dir_all(&held).unwrap();
            let hold = format!("[[hold]]\npath = {held:?}\nkind = \"other\"\n");
            place.write("t.toml", &(place.read("t.toml") + &hold));
        }
        fixture.ok("start");
        let stopped = stop_with(place, "inject=syncfs:error=EIO:when=99");
        assert!(stopped.status.success(), "{stopped:?}");
        let calls = place.read("calls");
        assert_eq!(calls.matches("syncfs(").count(), 3, "{calls}");
    });
}

/// Stops the hold, whose calls of syncfs(2) a tracer changes as `inject` says.
fn stop_with(place: &Place, inject: &str) -> Finished {
    traced(place, &["-e", "trace=syncfs", "-e", inject], &["stop"])
}

/// Runs the verb of `words` under strace(1) with `options`.
pub fn traced(place: &Place, options: &[&str], words: &[&str]) -> Finished {
    let mut strace = place.command("strace");
    strace.args(["-f", "-o", "calls"]).args(options).args([binary(), "hold"]);
    finish(strace.args(words).arg("./t.toml"))
}

pub fn stop_that_fails(fixture: &HoldOnRig<'_>) {
    fixture.fails("stop", &["the disk lost writes"]);
}

#[test]
fn a_lost_write_is_not_forgotten_by_a_stop_that_fails_after_its_unmounts() {
    isolated_alone(|place| {
        lose(place, StateDisk::Full, |fixture| {
            let below = fs::File::open(fixture.rig.path()).unwrap();
            assert!(rustix::fs::syncfs(&below).is_err(), "the data are lost");
            assert_eq!(fixture.state(), "failed");
            // The descriptor keeps the overlay, and nothing in /proc shows it.
            let held = fs::File::open(fixture.directory()).unwrap();
            let (one, other) = UnixStream::pair().unwrap();
            send(&one, &held);
            drop((held, below));
            sh(place, &format!("umount --lazy {}", fixture.directory().display()));
            fixture.fails("stop", &[]);
            drop((one, other));
        });
    });
}

#[test]
fn a_lost_write_is_not_forgotten_by_a_stop_that_is_killed_at_a_later_sync() {
    isolated_alone(|place| {
        lose(place, StateDisk::Full, |_| {
            // The first sync meets the error: the held file and the directory are on one disk.
            let stopped = stop_with(place, "inject=syncfs:signal=SIGKILL:when=2");
            assert!(!stopped.status.success(), "{stopped:?}");
        });
    });
}

/// No overlay shows the loss any more, as after the kill of a container.
#[test]
fn a_lost_write_is_not_forgotten_by_a_stop_that_is_killed_at_the_sync_of_another_disk() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        let (other, held) = on_a_second_disk(place);
        fixture.ok("start");
        take_away(place, &[fixture.file(), fixture.directory(), held]);
        lose_data(&fixture);
        let point = other.path().display().to_string();
        let kill = ["-e", "trace=syncfs", "-e", "inject=syncfs:signal=SIGKILL", "-P", &point];
        killed(traced(place, &kill, &["stop"]));
        fixture.rig.disk().recover().unwrap();
        stop_that_fails(&fixture);
        fixture.ok("recover --keep");
        other.down().unwrap();
        fixture.rig.down().unwrap();
    });
}

/// As for a unit whose `CapabilityBoundingSet=` leaves out what opens the files of other users.
#[test]
fn a_stop_that_may_not_open_the_held_files_does_not_miss_a_lost_write() {
    isolated_alone(|place| {
        let fixture = on_a_late_disk(place);
        fixture.ok("start");
        let paths = format!("{} {}", fixture.file().display(), fixture.directory().display());
        sh(place, &format!("chown 65534 {paths}; chmod go= {paths}"));
        lose_data(&fixture);
        // This program takes the error, which the kernel reports once.
        sh(place, &format!("! sync -f {}", fixture.rig.path().display()));
        fixture.rig.disk().recover().unwrap();
        let setpriv = ["--bounding-set=-dac_override,-dac_read_search", "--", binary()];
        let stop = ["hold", "stop", "./t.toml"];
        let stopped = finish(place.command("setpriv").args(setpriv).args(stop));
        failed(stopped, &["Permission denied"]);
        stop_that_fails(&fixture);
        fixture.ok("recover --keep");
        fixture.rig.down().unwrap();
    });
}

/// Sends `file` by `socket` (unix(7), SCM_RIGHTS).
pub fn send(socket: &UnixStream, file: &fs::File) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsFd;
    let mut space = [std::mem::MaybeUninit::uninit(); 64];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(buffer.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(b"x")], &mut buffer, SendFlags::empty()).unwrap();
}
