//! Two set-ups at a time, and a set-up that fails after its first change.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use synconce_testkit::harness::{StartedCommand, eventually};

const WAITS: &str = "synconce: waiting for another set-up or undo on this system\n";

#[test]
fn a_set_up_and_an_undo_wait_for_another_one() {
    let docker = TestRoot::new("turns");
    for (place, engine) in [(docker, "docker"), (super::apt::place("turns-apt"), "apt")] {
        let before = place.snapshot();
        let run_files = place.root.join("var/run-files");
        fs::create_dir_all(&run_files).unwrap();
        let system = place.root.metadata().unwrap();
        let lock = run_files.join(format!("setup-{}-{}.lock", system.dev(), system.ino()));
        for words in [&[engine][..], &[engine, "--undo"]] {
            let now = place.snapshot();
            let other = File::create(&lock).unwrap();
            flock(&other, FlockOperation::LockExclusive).unwrap();
            let mut command = Command::new(SYNCONCE);
            command.args(place.arguments(words)).env("SYNCONCE_RUNTIME_DIR", &run_files);
            let waiting = StartedCommand::new(&mut command);
            eventually("the command waits", || waiting.text().contains(WAITS));
            assert_eq!(now, place.snapshot(), "{words:?}");
            // The other command removes its lock file at its end. A lock of the removed file would
            // exclude no third command.
            fs::remove_file(&lock).unwrap();
            drop(other);
            assert!(waiting.end().success(), "{}", waiting.text());
            assert!(!lock.exists());
        }
        assert_eq!(before, place.snapshot());
    }
}

/// The configuration is edited before the link is made. Without the link the next start of dockerd
/// would have half of the set-up.
#[test]
fn a_set_up_that_fails_after_its_first_change_takes_it_back() {
    let place = TestRoot::new("taken-back");
    let before = place.snapshot();
    let script = "mount --bind \"$0/usr\" \"$0/usr\" && mount -o remount,bind,ro \"$0/usr\" && \
                  exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
    let ended = EndedCommand::run(command.args(place.arguments(&["docker"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("/usr/local/lib: Read-only file system"), "{ended:?}");
    assert_eq!(before, place.snapshot());
    assert!(!place.root.join("var/lib/synconce/setup").exists(), "nothing is to be undone");
}

/// In an image build the directory would stay in the layer.
#[test]
fn a_set_up_leaves_nothing_in_a_run_directory_that_is_part_of_an_image() {
    let place = TestRoot::new("run-in-an-image");
    let script = "mount -t tmpfs none /run && mkdir /run/lower /run/upper /run/work && \
                  mount -t overlay -o lowerdir=/run/lower,upperdir=/run/upper,workdir=/run/work none /run && \
                  \"$@\" && ls -A /run";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", SYNCONCE]).args(place.arguments(&["docker"]));
    let ended = EndedCommand::run(command.env_remove("SYNCONCE_RUNTIME_DIR"));
    assert_eq!((ended.code, &*ended.stdout), (Some(0), ""), "{ended:?}");
}

/// As in a unit with `ProtectSystem=strict`.
#[test]
fn a_directory_of_run_files_that_cannot_be_written_keeps_no_set_up_from_its_work() {
    let place = TestRoot::new("read-only-run");
    let before = place.snapshot();
    let script = "mount -t tmpfs -o ro none /run && exec \"$@\"";
    for words in [&["docker"][..], &["docker", "--undo"]] {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", SYNCONCE]).args(place.arguments(words));
        let ended = EndedCommand::run(command.env_remove("SYNCONCE_RUNTIME_DIR"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert_eq!(before, place.snapshot());
}

/// The journal fits on the disk once, so the record that all is written does not.
#[test]
fn a_set_up_that_fails_on_the_full_disk_of_its_journal_takes_its_changes_back() {
    let place = TestRoot::new("full-disk");
    fs::create_dir_all(place.root.join("var/lib")).unwrap();
    let before = place.snapshot();
    let script = "mount -t tmpfs -o size=64k none \"$0/var/lib\" && \
                  head -c 60K /dev/zero >\"$0/var/lib/fill\" && \"$@\"; ended=$?; \
                  find \"$0/var/lib\" -name journal.json; exit $ended";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
    let ended = EndedCommand::run(command.args(place.arguments(&["docker"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("journal.json: No space left on device"), "{ended:?}");
    assert_eq!(before, place.snapshot());
    assert_eq!(ended.stdout, "", "nothing is to be undone");
}
