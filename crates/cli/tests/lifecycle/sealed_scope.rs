//! After exit code 0, everything is durable on which a call was held, whatever kind of file
//! that is: a sealed filter answers for every descriptor, and sync() covers all disks.
//!
//! The oracle is a power cut: a recorded disk without the writes that no flush has covered.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_testkit::harness::{
    DiskLock, Place, StartedCommand, binary, eventually, finish, isolated, limit, stall,
    under_a_listener, without_stalls,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Cut, FsKind, Replay, Rig, Survivors};

pub(super) const SIZE: u64 = 64 << 20;
pub(super) const TEXT: &str = "0123456789abcdef";
/// The name of a mark in the log of a disk.
pub(super) const END: &str = "end";

/// Returns a recorded disk with an ext4 that writes nothing back by itself for a while.
pub(super) fn recorded() -> Rig {
    Rig::builder().size(SIZE).mount_options("commit=300").record(true).up().unwrap()
}

/// Returns the disk of `rig` after a power cut at the end of its held run.
pub(super) fn cut(rig: &Rig) -> Replay {
    let recording = rig.recording().unwrap();
    let end = recording.log().unwrap().mark(END).unwrap();
    let replay = recording.replay().up().unwrap();
    replay.cut(Cut::at(end).survivors(Survivors::None)).unwrap();
    replay
}

/// Returns the file on the disk of `rig` after a power cut at the end of its held run.
pub(super) fn file_after_cut(rig: &Rig) -> Option<String> {
    let replay = cut(rig);
    let mounted = replay.mount().unwrap();
    std::fs::read_to_string(mounted.path().join("file")).ok()
}

/// Returns the first bytes of the disk of `rig` after a power cut at the end of its held run.
pub(super) fn start_after_cut(rig: &Rig) -> Vec<u8> {
    let replay = cut(rig);
    let mut start = vec![0; TEXT.len()];
    std::os::unix::fs::FileExt::read_exact_at(&File::open(replay.device()).unwrap(), &mut start, 0)
        .unwrap();
    start
}

/// Writes and syncs `$1`, by dd(1).
pub(super) const WRITE: &str =
    "printf %s 0123456789abcdef | dd of=\"$1\" conv=notrunc,fsync status=none";
/// Writes `$1` and calls sync(2).
const WRITE_AND_SYNC: &str =
    "printf %s 0123456789abcdef | dd of=\"$1\" conv=notrunc status=none; sync";
const MODES: [&[&str]; 2] = [&[], &["--sealed"]];

pub(super) fn run(place: &Place, options: &[&str], script: &str, path: &str) -> Finished {
    place.run(options, &["sh", "-ec", script, "sh", path])
}

/// Runs `script` with `path`, expects success, and marks the end in the log of `rig`.
fn succeed(rig: &Rig, place: &Place, options: &[&str], script: &str, path: &Path) -> Finished {
    let ended = run(place, options, script, text(path));
    rig.disk().mark(END).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    ended
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_outside_the_file_systems_of_commit_only_is_durable_too() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            let rig = recorded();
            let options = [options, &["--commit-only", "/"]].concat();
            succeed(&rig, place, &options, WRITE, &rig.path().join("file"));
            assert_eq!(file_after_cut(&rig).as_deref(), Some(TEXT), "{options:?}");
        }
    });
}

/// The close of a descriptor of a block device writes nothing back as long as another
/// descriptor is open.
#[test]
fn a_block_device_that_is_open_elsewhere_is_durable() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            for script in [WRITE, WRITE_AND_SYNC] {
                let rig = recorded();
                rig.unmount().unwrap();
                let _open_elsewhere = File::open(rig.device()).unwrap();
                succeed(&rig, place, options, script, rig.device());
                assert_eq!(start_after_cut(&rig), TEXT.as_bytes(), "{options:?}, {script}");
            }
        }
    });
}

#[test]
fn a_run_that_another_listener_makes_sealed_covers_as_much() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = recorded();
        rig.unmount().unwrap();
        let _open_elsewhere = File::open(rig.device()).unwrap();
        let around = under_a_listener();
        let mut command = place.command(&around[0]);
        command.args(&around[1..]).args([binary(), "run", "--", "sh", "-ec", WRITE, "sh"]);
        let ended = finish(command.arg(rig.device()));
        rig.disk().mark(END).unwrap();
        assert!(ended.status.success() && ended.stderr.contains("the run is sealed"), "{ended:?}");
        assert_eq!(start_after_cut(&rig), TEXT.as_bytes());
    });
}

#[test]
fn what_mkfs_and_mkswap_have_made_survives_a_power_cut() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            let rig = Rig::builder().fs(FsKind::Ext4).size(SIZE).record(true).up().unwrap();
            rig.unmount().unwrap();
            succeed(&rig, place, options, "mkfs.ext4 -qF -L anew \"$1\"", rig.device());
            let replay = cut(&rig);
            replay.mount().unwrap_or_else(|error| panic!("{options:?}: {error}"));
            assert_eq!(label(replay.device()), "anew", "{options:?}");

            let rig = Rig::builder().size(SIZE).record(true).up().unwrap();
            rig.unmount().unwrap();
            succeed(&rig, place, options, "mkswap -fqL swap \"$1\"", rig.device());
            assert_eq!(label(cut(&rig).device()), "swap", "{options:?}");
        }
    });
}

fn label(device: &Path) -> String {
    let mut blkid = Command::new("blkid");
    finish(blkid.args(["-p", "-s", "LABEL", "-o", "value"]).arg(device)).stdout.trim().to_owned()
}

/// Runs a held write to `file` in the root directory of a disk, after `hide` has hidden the
/// mount point `$1`: only a descriptor of the root directory leads to the disk.
fn write_in_hidden_disk(place: &Place, options: &[&str], hide: &str) -> Option<String> {
    let rig = recorded();
    let root = File::open(rig.path()).unwrap();
    let hidden = finish(place.command("sh").args(["-ec", hide, "sh", text(rig.path())]));
    assert!(hidden.status.success(), "{hidden:?}");
    let path = format!("/proc/{}/fd/{}/file", std::process::id(), root.as_raw_fd());
    succeed(&rig, place, options, WRITE, Path::new(&path));
    file_after_cut(&rig)
}

#[test]
fn a_disk_that_was_unmounted_lazily_before_is_durable() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            let found = write_in_hidden_disk(place, options, "umount --lazy \"$1\"");
            assert_eq!(found.as_deref(), Some(TEXT), "{options:?}");
        }
    });
}

#[test]
fn a_disk_that_another_mount_lies_over_is_durable() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            let found = write_in_hidden_disk(place, options, "mount -t tmpfs over \"$1\"");
            assert_eq!(found.as_deref(), Some(TEXT), "{options:?}");
        }
    });
}

#[test]
fn a_disk_of_another_mount_namespace_is_durable() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            let rig = recorded();
            std::fs::create_dir_all(place.path("there")).unwrap();
            rig.unmount().unwrap();
            let script = "mount -o commit=300 \"$1\" there; echo $$ >pid.new; mv pid.new pid; \
                          until [ -e stop ]; do sleep 0.01; done";
            let mut other = place.command("unshare");
            other.args(["--mount", "sh", "-ec", script, "sh"]).arg(rig.device());
            let other = StartedCommand::new(&mut other);
            let pid = place.wait_for("pid").trim().to_owned();
            let path = format!("/proc/{pid}/root{}", place.text("there/file"));
            succeed(&rig, place, options, WRITE, Path::new(&path));
            place.write("stop", "");
            assert!(other.end().success(), "{}", other.text());
            assert_eq!(file_after_cut(&rig).as_deref(), Some(TEXT), "{options:?}");
            ["pid", "stop"].iter().for_each(|name| place.remove(name));
        }
    });
}

/// Mounts the ntfs on `device` at `ntfs`; the server lives as long as the returned value.
fn ntfs(place: &Place, device: &Path) -> StartedCommand {
    let point = place.path("ntfs");
    std::fs::create_dir_all(&point).unwrap();
    let mut command = place.command("ntfs-3g");
    let server = StartedCommand::new(command.args(["-o", "no_detach"]).arg(device).arg("ntfs"));
    eventually("it is mounted", || {
        finish(place.command("mountpoint").args(["-q", "ntfs"])).status.success()
    });
    server
}

fn unmount_ntfs(place: &Place, server: &StartedCommand) {
    assert!(finish(place.command("umount").arg("ntfs")).status.success());
    assert!(server.end().success(), "{}", server.text());
}

#[test]
fn a_fuse_disk_is_durable_by_its_block_device() {
    isolated(|place| {
        let _lock = without_stalls();
        for options in MODES {
            let rig = Rig::builder().size(SIZE).record(true).up().unwrap();
            rig.unmount().unwrap();
            let made = finish(place.command("mkfs.ntfs").arg("-QF").arg(rig.device()));
            assert!(made.status.success(), "{made:?}");
            let server = ntfs(place, rig.device());
            succeed(&rig, place, options, WRITE, &place.path("ntfs/file"));
            unmount_ntfs(place, &server);
            let replay = cut(&rig);
            let server = ntfs(place, replay.device());
            assert_eq!(place.read("ntfs/file"), TEXT, "{options:?}");
            unmount_ntfs(place, &server);
        }
    });
}

#[test]
fn a_fuse_file_system_without_a_device_is_named_and_refused_as_the_place_of_work() {
    isolated(|place| {
        let _lock = without_stalls();
        std::fs::create_dir_all(place.path("below")).unwrap();
        std::fs::create_dir_all(place.path("fuse")).unwrap();
        let bound = finish(place.command("bindfs").args(["below", "fuse"]));
        assert!(bound.status.success(), "{bound:?}");
        let ended = run(place, &["--sealed"], WRITE, "fuse/file");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let named = format!(
            "synconce: not committed, although their syncs were held: FUSE file systems at {}\n",
            place.text("fuse")
        );
        assert_eq!(ended.stderr, named);
        // Another user cannot reach the mount, so the run has not written there.
        let user = "chmod 0700 . && exec setpriv --reuid 64122 --regid 64122 --clear-groups \"$@\"";
        for (around, is_named) in [("exec \"$@\"", true), (user, false)] {
            let around = around.replace(" . ", &format!(" {} ", place.text("")));
            let mut command = place.command("sh");
            command.args(["-c", &around, "sh", binary(), "run", "--sealed", "--", "true"]);
            command
                .current_dir("/")
                .env_remove("SYNCONCE_STATE_DIR")
                .env("HOME", "/tmp/home-64122");
            let ended = finish(&mut command);
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
            assert_eq!(ended.stderr.contains(&place.text("fuse")), is_named, "{ended:?}");
        }

        let fuse = place.text("fuse");
        let inside = format!("cd {fuse} && exec \"$@\"");
        let inherited = format!("exec \"$@\" 7>{fuse}/other");
        let unmounted =
            format!("mount --bind {fuse} bound && cd bound && umount -l . && exec \"$@\"");
        std::fs::create_dir_all(place.path("bound")).unwrap();
        let root = ["--root", &fuse];
        let cases: [(&str, &[&str], &str); 4] = [
            (&unmounted, &[], "the working directory"),
            (&inside, &[], "the working directory"),
            (&inherited, &[], "the open descriptor 7"),
            ("exec \"$@\"", &root, &fuse),
        ];
        for (script, options, named) in cases {
            for sealed in [true, false] {
                let mut command = place.command("sh");
                command.args(["-c", script, "sh", binary(), "run"]).args(options);
                command.args(if sealed { &["--sealed"][..] } else { &[] });
                let ended = finish(command.args(["--", "sh", "-c", "echo started"]));
                let expected = if sealed { (Some(125), "") } else { (Some(0), "started\n") };
                assert_eq!((ended.status.code(), ended.stdout.as_str()), expected, "{ended:?}");
                assert_eq!(ended.stderr.contains("FUSE file system"), sealed, "{ended:?}");
                assert!(!sealed || ended.stderr.contains(named), "{named}: {ended:?}");
                assert!(!sealed || ended.stderr.contains("hint: "), "{ended:?}");
            }
        }
        assert!(place.markers().is_empty());
        assert!(finish(place.command("umount").arg("fuse")).status.success());
    });
}

#[test]
fn a_mounted_disk_that_fails_and_that_the_run_cannot_reach_does_not_fail_it() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = Rig::builder().size(SIZE).mount_options("commit=300").up().unwrap();
        let root = File::open(rig.path()).unwrap();
        let hidden = finish(place.command("umount").arg("--lazy").arg(rig.path()));
        assert!(hidden.status.success(), "{hidden:?}");
        rig.disk().fail_flushes(1_000_000).unwrap();
        let path = format!("/proc/self/fd/{}/file", root.as_raw_fd());
        std::fs::write(path, TEXT).unwrap();
        let before = rig.disk().stats().unwrap().flushes;
        for options in MODES {
            let ended = run(place, options, "sync; touch \"$1\"", "done");
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        }
        assert!(rig.disk().stats().unwrap().flushes > before, "a flush has failed");
        rig.disk().fail_flushes(0).unwrap();
    });
}

#[test]
fn a_sync_that_waits_for_a_disk_that_hangs_is_given_up_and_named() {
    isolated(|place| {
        let rig = Rig::builder().size(SIZE).mount_options("commit=300").up().unwrap();
        let file = rig.path().join("file");
        let stalled: DiskLock = stall(&rig);
        // Another process writes there; the run only calls sync(2).
        std::fs::write(&file, TEXT).unwrap();
        let options = ["--commit-only", "/", "--sealed", "--commit-timeout", "2"];
        let mut command = place.held(&options, &["sh", "-c", "sync"]);
        let run = StartedCommand::new(&mut command);
        rig.disk().wait_for_waiting_flush(limit()).unwrap();
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        let named = "synconce: not durable: all disks (sync(2)): no answer for ";
        let text = run.text();
        let message = text.lines().find(|line| line.starts_with(named));
        let disk = rig.device().display().to_string();
        // An older kernel may not count a flush among the pending requests of a disk: 6.1 does not.
        let is_counted = kernel_is_at_least(6, 10);
        assert!(message.is_some_and(|line| line.contains(&disk) || !is_counted), "{text}");
        rig.disk().release_flushes().unwrap();
        drop(stalled);
        eventually("the supervisor ends", || place.run_files().is_empty());
    });
}
