//! A commit flushes the write cache of the disk, also where syncfs(2) leaves data there.

use super::sealed_scope::{END, SIZE, TEXT, cut, file_after_cut, text};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::chown;
use std::process::Command;
use synconce_testkit::harness::{Place, binary, finish, isolated, without_stalls};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Event, EventKind, FsKind, Rig};

/// Overwrites the file `$1/file`, and syncs it. Before, a real sync of `$1/other` writes the times
/// of the first file: then only its data are still to be written.
const OVERWRITE: &str = "printf %s 0123456789abcdef | dd of=\"$1/file\" conv=notrunc status=none; \
     touch \"$1/other\"; ${REAL-} sync \"$1/other\"; sync \"$1/file\"";
const USER: u32 = 64122;

/// Runs `script` with the mount point of `rig` by `words`, expects success, and marks the end in
/// the log of the disk.
fn succeed(rig: &Rig, place: &Place, words: &[&str], script: &str) {
    let mut command = place.command(words[0]);
    command.args(&words[1..]).args(["sh", "-ec", script, "sh"]).arg(rig.path());
    let markers = place.path("markers");
    let _ = fs::remove_dir_all(&markers);
    fs::create_dir(&markers).unwrap();
    chown(&markers, Some(USER), None).unwrap();
    let ended = finish(command.env("HOME", rig.path()).env("SYNCONCE_STATE_DIR", markers));
    rig.disk().mark(END).unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
}

#[test]
fn what_is_overwritten_is_durable_although_no_metadata_are_to_be_written() {
    isolated(|place| {
        let _lock = without_stalls();
        let user = format!("--reuid={USER}");
        let run = [binary(), "run", "--"];
        let of_user = ["setpriv", &user, "--clear-groups", binary(), "run", "--"];
        let held = format!("REAL='{} real --'; {OVERWRITE}", binary());
        for kind in FsKind::ALL {
            for (words, script) in
                [(&["env"][..], OVERWRITE), (&run, held.as_str()), (&of_user, held.as_str())]
            {
                let rig = Rig::builder().fs(kind).size(320 << 20).record(true).up().unwrap();
                for name in [".", "file", "other"] {
                    let path = rig.path().join(name);
                    if name != "." {
                        fs::write(&path, "former".repeat(3)).unwrap();
                        File::open(&path).unwrap().sync_all().unwrap();
                    }
                    chown(&path, Some(USER), None).unwrap();
                }
                succeed(&rig, place, words, script);
                // Before Linux 6.7, btrfs mounts no second file system of the same UUID.
                rig.unmount().unwrap();
                assert!(file_after_cut(&rig).unwrap().starts_with(TEXT), "{kind}, {words:?}");
            }
        }
    });
}

#[test]
fn a_file_on_an_ext4_without_a_journal_is_durable() {
    isolated(|place| {
        let _lock = without_stalls();
        for words in [&["env"][..], &[binary(), "run", "--"]] {
            let rig = Rig::builder().size(SIZE).record(true).up().unwrap();
            rig.unmount().unwrap();
            let mut format = Command::new("mkfs.ext4");
            format.args(["-qF", "-O", "^has_journal", text(rig.device())]);
            assert!(finish(&mut format).status.success());
            rig.mount().unwrap();
            let script = "printf %s 0123456789abcdef | dd of=\"$1/file\" conv=fsync status=none";
            succeed(&rig, place, words, script);
            assert_eq!(file_after_cut(&rig).as_deref(), Some(TEXT), "{words:?}");
        }
    });
}

/// Returns a recorded disk without a file system that is mounted.
fn unmounted(size: u64) -> Rig {
    let rig = Rig::builder().size(size).record(true).up().unwrap();
    rig.unmount().unwrap();
    rig
}

fn command(words: &[&str]) -> Finished {
    finish(Command::new(words[0]).args(&words[1..]))
}

#[test]
fn all_that_is_written_to_an_ext4_with_its_journal_on_another_disk_is_flushed() {
    isolated(|place| {
        let _lock = without_stalls();
        let (journal, data) = (unmounted(SIZE), unmounted(SIZE));
        let made =
            command(&["mkfs.ext4", "-qF", "-Ojournal_dev", "-b4096", text(journal.device())]);
        assert!(made.status.success(), "{made:?}");
        let device = format!("-Jdevice={}", text(journal.device()));
        let made = command(&["mkfs.ext4", "-qF", "-b4096", &device, text(data.device())]);
        assert!(made.status.success(), "{made:?}");
        data.mount().unwrap();
        let script = "printf %s 0123456789abcdef | dd of=\"$1/file\" conv=fsync status=none";
        succeed(&data, place, &[binary(), "run", "--"], script);
        let log = data.recording().unwrap().log().unwrap();
        let end = log.mark(END).unwrap();
        let unflushed = &log.events()[log.durable(end)..end];
        let is_write = |event: &Event| matches!(event.what, EventKind::Write { .. });
        assert!(!unflushed.iter().any(is_write), "{unflushed:?}");
    });
}

/// Whether the kernel mounts an XFS with a realtime device (`CONFIG_XFS_RT`). Prints that the test
/// is skipped if not.
fn has_realtime() -> bool {
    // The symbols of a module are listed only while it is loaded.
    let _ = Command::new("modprobe").args(["--quiet", "xfs"]).status();
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let has_any = symbols.contains(" xfs_rtmount_inodes");
    if !has_any {
        let why = "this kernel mounts none; those of scripts/kernels do";
        let _ = writeln!(std::io::stderr(), "SKIPPED: an XFS with a realtime device: {why}");
    }
    has_any
}

#[test]
fn a_file_on_the_realtime_device_of_an_xfs_is_durable() {
    if !has_realtime() {
        return;
    }
    isolated(|place| {
        let _lock = without_stalls();
        let (realtime, data) = (unmounted(SIZE), unmounted(320 << 20));
        let device = format!("rtdev={}", text(realtime.device()));
        let format = ["mkfs.xfs", "-qf", "-r", &device, "-d", "rtinherit=1", text(data.device())];
        let made = command(&format);
        assert!(made.status.success(), "{made:?}");
        let mount = ["mount", "-t", "xfs", "-o", &device, text(data.device()), text(data.path())];
        let mounted = command(&mount);
        assert!(mounted.status.success(), "{mounted:?}");
        let script = "printf %s 0123456789abcdef | dd of=\"$1/file\" conv=fsync status=none";
        succeed(&data, place, &[binary(), "run", "--"], script);
        realtime.disk().mark(END).unwrap();
        let disk = fs::read(cut(&realtime).device()).unwrap();
        assert!(disk.chunks(4096).any(|block| block.starts_with(TEXT.as_bytes())));
    });
}
