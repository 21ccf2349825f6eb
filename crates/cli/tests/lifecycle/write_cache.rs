//! A commit flushes the write cache of the disk, also where syncfs(2) leaves data there.

use super::sealed_scope::{END, SIZE, TEXT, file_after_cut, text};
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::process::Command;
use synconce_testkit::harness::{Place, binary, finish, isolated, without_stalls};
use synconce_testkit::rig::{FsKind, Rig};

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
