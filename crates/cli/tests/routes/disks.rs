//! The flushes that reach a disk, counted by a loop device.

use crate::builds::dynamic;
use crate::support::{Place, agree, isolated};
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::without_foreign_syncs;
use synconce_testkit::process;

/// An ext4 file system on a loop device of its own, mounted.
struct LoopDisk {
    mount: PathBuf,
    device: String,
}

impl LoopDisk {
    /// Mounts the file system on `disk` in `place`, so that the kernel writes nothing back by
    /// itself for ten minutes. The mount ends with the mount namespace.
    fn new(place: &Place, name: &str) -> Self {
        let mount = place.directory(name);
        let script = "truncate -s 64M $0.img && mkfs.ext4 -q -E lazy_itable_init=0 $0.img && \
                      mount -o loop,commit=600 $0.img $0 && findmnt -no SOURCE $0";
        let made = place.bare(&place.path(""), &["sh", "-c", script, name]);
        assert!(made.status.success(), "{}", made.stderr);
        let disk = Self { mount, device: made.stdout.trim().to_owned() };
        assert!(place.bare(&disk.mount, &["sync", "-f", "."]).status.success());
        disk
    }

    /// Returns how many flushes the device has completed (Documentation/block/stat.rst).
    fn flushes(&self) -> u64 {
        let name = self.device.trim_start_matches("/dev/");
        let text = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("its counters");
        text.split_whitespace().nth(15).expect("a count of flushes").parse().expect("a number")
    }

    /// Returns the flushes during `act`.
    fn count(&self, act: impl FnOnce()) -> u64 {
        let before = self.flushes();
        act();
        self.flushes() - before
    }
}

/// Ways that make the disk flush.
const FLUSHING: [&str; 14] = [
    "sync-file",
    "sync-directory",
    "sync-all",
    "syncfs-disk",
    "msync-good",
    "open-libc",
    "open-fortify",
    "openat-raw",
    "open-handle",
    "openat2",
    "rwf-write",
    "aio-alone",
    "aio-flagged",
    "vfork",
];

#[test]
fn the_disk_is_flushed_by_every_way_when_bare_and_by_none_when_held() {
    isolated(|place: &Place| {
        let (bare, program) = (LoopDisk::new(place, "bare"), dynamic());
        for way in FLUSHING {
            let directory = bare.mount.join(way);
            fs::create_dir(&directory).unwrap();
            let flushes = bare.count(|| {
                assert!(place.bare(&directory, &[&program, way]).status.success());
            });
            assert!(flushes > 0, "{way}: the bare way does not flush, so it proves nothing");
        }
        let _barrier = without_foreign_syncs();
        let held = LoopDisk::new(place, "held");
        for way in FLUSHING {
            let directory = held.mount.join(way);
            fs::create_dir(&directory).unwrap();
            let flushes = held.count(|| {
                let run = place.held(&directory, &["--no-commit"], &[&program, way]);
                assert!(run.accounts.total().held > 0, "{way}: {:?}", run.accounts);
            });
            assert_eq!(flushes, 0, "{way}: flushes in a held run");
        }
    });
}

#[test]
fn a_thousand_syncs_become_the_few_flushes_of_one_commit() {
    isolated(|place: &Place| {
        let (disk, program) = (LoopDisk::new(place, "bare"), dynamic());
        let words = [program.as_str(), "rounds", "500"];
        let bare = disk.count(|| {
            assert!(place.bare(&disk.mount, &words).status.success());
        });
        let _barrier = without_foreign_syncs();
        let disk = LoopDisk::new(place, "held");
        let held = disk.count(|| {
            let run = place.held(&disk.mount, &[], &words);
            assert_eq!(run.counts("fsync"), [500, 0, 0]);
            assert!(run.committed.contains(&place.text("held")), "{:?}", run.committed);
        });
        assert!(bare >= 500, "{bare} flushes bare");
        assert!((1..50).contains(&held), "{held} flushes held");
    });
}

#[test]
fn flushing_a_device_and_freezing_a_file_system_pass_and_are_counted() {
    isolated(|place: &Place| {
        let (disk, program) = (LoopDisk::new(place, "disk"), dynamic());
        let run = |held: bool| {
            let directory = place.directory(if held { "held" } else { "bare" });
            let words = [&["run", "--stats", "--json", "--"], &[&*program, "device"][..]].concat();
            let words = [&[crate::support::SYNCONCE], words.as_slice()].concat();
            let words = if held { words.as_slice() } else { &words[5..] };
            let mut command = place.command(&directory, words);
            command.env("DEVICE", &disk.device).env("MOUNT", &disk.mount);
            process::run(&mut command, crate::support::limit()).unwrap()
        };
        let (bare, held) = (run(false), run(true));
        agree(&bare, &held);
        assert_eq!(bare.stdout.matches(" = 0, errno untouched").count(), 3, "{}", bare.stdout);
        let counted =
            r#""ioctl":{"held":0,"passed":2,"refused":0,"unseen":0,"reasons":{"never-held":2}}"#;
        assert!(held.stderr.contains(counted), "{}", held.stderr);
    });
}
