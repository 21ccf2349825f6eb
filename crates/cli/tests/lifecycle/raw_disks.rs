//! Disks without a file system under a sealed run, whose filter answers every sync of them.

use super::sealed_scope::{END, SIZE, TEXT, WRITE, recorded, run, start_after_cut, text};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{binary, finish, isolated, isolated_alone, without_stalls};
use synconce_testkit::rig::Rig;

/// Writes [`TEXT`] to the start of the raw `device`, past every cache but that of the disk.
fn write_directly(device: &Path) {
    let script = "printf %-4096s 0123456789abcdef | dd of=\"$1\" bs=4096 iflag=fullblock \
                  oflag=direct conv=notrunc status=none";
    let ended = finish(Command::new("sh").args(["-c", script, "sh", text(device)]));
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn what_a_disk_had_in_its_cache_before_a_sealed_run_is_durable_once_the_run_has_synced_it() {
    isolated_alone(|place| {
        for hide in ["true", "umount -l /sys", "mount -t proc -o subset=pid proc /proc"] {
            let rig = recorded();
            rig.unmount().unwrap();
            write_directly(rig.device());
            let program = "mount --make-rprivate /; eval \"$1\"; shift; exec \"$@\"";
            let mut command = place.command("unshare");
            command.args([
                "--mount",
                "sh",
                "-ec",
                program,
                "sh",
                hide,
                binary(),
                "run",
                "--sealed",
            ]);
            command.args(["--", "sync", text(rig.device())]);
            let ended = finish(&mut command);
            rig.disk().mark(END).unwrap();
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
            assert_eq!(start_after_cut(&rig), TEXT.as_bytes(), "{hide}");
        }
    });
}

#[test]
fn a_disk_that_was_written_before_a_sealed_run_and_fails_does_not_fail_it() {
    isolated_alone(|place| {
        let rig = Rig::builder().size(SIZE).up().unwrap();
        rig.unmount().unwrap();
        write_directly(rig.device());
        rig.disk().fail_flushes(1_000_000).unwrap();
        let before = rig.disk().stats().unwrap().flushes;
        let ended = run(place, &["--sealed"], "sync \"$1\"", ".");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(rig.disk().stats().unwrap().flushes > before, "a flush has failed");
        rig.disk().fail_flushes(0).unwrap();
    });
}

#[test]
fn a_loop_device_that_a_sealed_run_has_written_and_let_go_does_not_fail_it() {
    isolated(|place| {
        let _lock = without_stalls();
        let script = "truncate -s 1M image; loop=$(losetup --find --show image); \
                      dd if=/dev/zero of=$loop bs=4096 count=1 conv=fsync status=none; \
                      losetup --detach $loop; while losetup -j image | grep -q .; do :; done";
        let ended = run(place, &["--sealed"], script, ".");
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    });
}

#[test]
fn a_disk_that_cannot_be_flushed_fails_a_sealed_run_and_is_named() {
    isolated_alone(|place| {
        let rig = Rig::builder().size(SIZE).up().unwrap();
        rig.unmount().unwrap();
        let _open_elsewhere = File::open(rig.device()).unwrap();
        rig.disk().fail_flushes(1_000_000).unwrap();
        let ended = run(place, &["--sealed"], WRITE, text(rig.device()));
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        let named = format!(
            "synconce: not durable: all disks (sync(2)): cannot flush {}: Input/output error",
            rig.device().display()
        );
        assert!(ended.stderr.contains(&named), "{ended:?}");
        assert_eq!(place.status(&[]).status.code(), Some(4));
        rig.disk().fail_flushes(0).unwrap();
    });
}
