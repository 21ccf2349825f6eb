//! A frozen file system (`fsfreeze`) makes the marker and the commit wait: a notice says so, and
//! another says what Ctrl-C does.

use rustix::process::Signal;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_testkit::harness::{Place, StartedCommand, eventually, finish, isolated};
use synconce_testkit::rig::Rig;

fn rig() -> Rig {
    Rig::builder().size(64 << 20).passthrough(false).up().unwrap()
}

fn freeze(place: &Place, rig: &Rig) {
    let frozen = finish(place.command("fsfreeze").arg("-f").arg(rig.path()));
    assert!(frozen.status.success(), "{frozen:?}");
}

/// Thaws the file system at a path; also when a test fails, as a frozen one cannot be unmounted.
struct Thaw<'a>(&'a Place, &'a Path);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        finish(self.0.command("fsfreeze").arg("-u").arg(self.1));
    }
}

/// Starts a run of `script`, whose marker is on `rig`.
fn start(place: &Place, rig: &Rig, script: &str) -> StartedCommand {
    let mut run = place.held(&[], &["sh", "-ec", script]);
    StartedCommand::new(run.env("SYNCONCE_STATE_DIR", rig.path().join("state")))
}

/// Waits until `run` has said that it waits, and returns what it has to have said.
fn told(run: &StartedCommand, rig: &Rig, state: &str) -> String {
    let at = rig.path().display();
    let waits = format!("the command {state}; waiting for the disk of the marker, {at}/state/runs");
    let hint = format!("hint: if the file system is frozen: fsfreeze --unfreeze {at}");
    let all = format!("synconce: {waits}\nsynconce: {hint}\n");
    eventually("it says that it waits", || run.text().contains(&hint));
    assert_eq!(run.text(), all);
    all
}

/// A run that holds a sync, freezes `rig` and has ended, and what it said.
fn ended_while_frozen(place: &Place, rig: &Rig) -> (StartedCommand, String) {
    place.write("data", "x");
    let run = start(place, rig, &format!("sync data; fsfreeze -f {}", rig.path().display()));
    let text = told(&run, rig, "has ended");
    (run, text)
}

#[test]
fn the_end_of_a_run_says_that_it_waits_for_the_frozen_disk_of_its_marker() {
    isolated(|place| {
        let rig = rig();
        let thaw = Thaw(place, rig.path());
        let (run, text) = ended_while_frozen(place, &rig);
        drop(thaw);
        assert!(run.end().success(), "{}", run.text());
        assert_eq!(run.text(), text);
        rig.down().unwrap();
    });
}

#[test]
fn after_ctrl_c_a_run_whose_marker_waits_is_durable() {
    isolated(|place| {
        let rig = rig();
        let thaw = Thaw(place, rig.path());
        let (run, mut text) = ended_while_frozen(place, &rig);
        run.signal(Signal::INT).unwrap();
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        text += &format!(
            "synconce: everything is durable, but cannot remove a marker in {}/state/runs: \
             Interrupted system call\nsynconce: hint: the removal goes on in the background; `synconce status` \
             shows when it is done\n",
            rig.path().display()
        );
        assert_eq!(run.text(), text);
        drop(thaw);
        let status = || {
            let mut status = place.synconce(&["status"]);
            finish(status.env("SYNCONCE_STATE_DIR", rig.path().join("state"))).status.code()
        };
        eventually("the marker is removed", || status() == Some(0));
        rig.down().unwrap();
    });
}

#[test]
fn a_run_that_held_nothing_does_not_wait() {
    isolated(|place| {
        let rig = rig();
        let thaw = Thaw(place, rig.path());
        let run = start(place, &rig, ": >begun; until [ -e frozen ]; do sleep 0.01; done; exit 3");
        eventually("the command has begun", || place.path("begun").exists());
        // A freeze in the run would make the marker durable.
        freeze(place, &rig);
        place.write("frozen", "");
        assert_eq!(run.end().code(), Some(3), "{}", run.text());
        assert_eq!(run.text(), "");
        drop(thaw);
        // Linux 6.1 and 6.12 close the file of the marker after the thaw.
        eventually("the file system is in no use", || rig_is_unmounted(place, &rig));
    });
}

#[test]
fn ctrl_c_before_the_start_means_that_the_command_never_starts() {
    isolated(|place| {
        let rig = rig();
        let thaw = Thaw(place, rig.path());
        freeze(place, &rig);
        let run = start(place, &rig, "touch started");
        told(&run, &rig, "has not started");
        run.signal(Signal::INT).unwrap();
        assert_eq!(run.end().signal(), Some(Signal::INT.as_raw()), "{}", run.text());
        drop(thaw);
        // As long as a process of the run is there, the file system is in use.
        eventually("the file system is in no use", || rig_is_unmounted(place, &rig));
        assert!(!place.path("started").exists());
    });
}

fn rig_is_unmounted(place: &Place, rig: &Rig) -> bool {
    finish(place.command("umount").arg(rig.path())).status.success()
}

#[test]
fn a_start_goes_on_after_the_thaw() {
    isolated(|place| {
        let rig = rig();
        let thaw = Thaw(place, rig.path());
        freeze(place, &rig);
        let run = start(place, &rig, "touch started");
        told(&run, &rig, "has not started");
        assert!(!place.path("started").exists());
        drop(thaw);
        assert!(run.end().success(), "{}", run.text());
        assert!(place.path("started").exists());
        rig.down().unwrap();
    });
}

/// Runs a command that holds a sync on the file system at `at` and freezes it. Asserts that the
/// commit says that it stands still, while `others` is called again and again.
fn assert_told(place: &Place, at: &Path, mut others: impl FnMut()) {
    let thaw = Thaw(place, at);
    let name = at.display();
    let run = place.start(&format!("echo x >{name}/data; sync {name}/data; fsfreeze -f {name}"));
    let text = format!(
        "synconce: the commit waits for {name}: no progress for 10 seconds\n\
         synconce: hint: if the file system is frozen: fsfreeze --unfreeze {name}\n"
    );
    eventually("it says that it waits", || {
        others();
        run.text().contains("hint: ")
    });
    assert_eq!(run.text(), text);
    drop(thaw);
    assert!(run.end().success(), "{}", run.text());
}

#[test]
fn a_commit_that_stands_still_says_so() {
    isolated(|place| {
        let rig = rig();
        // Each sync(2) of another process flushes the disk of a frozen file system.
        let mounted = File::open(rig.path()).unwrap();
        let before = rig.disk().stats().unwrap();
        assert_told(place, rig.path(), || rustix::fs::syncfs(&mounted).unwrap());
        let flushes = (rig.disk().stats().unwrap() - before).flushes;
        assert!(flushes > 10, "{flushes}");
        drop(mounted);
        rig.down().unwrap();
    });
}

#[test]
fn a_commit_to_a_file_on_a_busy_disk_says_that_it_stands_still() {
    isolated(|place| {
        let rig = Rig::builder().size(256 << 20).passthrough(false).up().unwrap();
        let image = rig.path().join("image");
        let image = image.display();
        let make = format!(
            "PATH=$PATH:/usr/sbin; mkdir mounted; truncate -s 64M {image}; mkfs.ext4 -q {image}
             mount -o loop {image} mounted"
        );
        let made = place.bare(&["sh", "-ec", &make]);
        assert!(made.status.success(), "{made:?}");
        let busy = rig.path().join("busy");
        // Before Linux 6.10 a pending flush does not show, so the disk of the file always counts.
        let tells = kernel_is_at_least(6, 10);
        assert_told(place, &place.path("mounted"), || {
            if !tells {
                return;
            }
            std::fs::write(&busy, [1; 4096]).unwrap();
            File::open(&busy).unwrap().sync_all().unwrap();
        });
        let ended = place.bare(&["umount", "mounted"]);
        assert!(ended.status.success(), "{ended:?}");
        rig.down().unwrap();
    });
}
