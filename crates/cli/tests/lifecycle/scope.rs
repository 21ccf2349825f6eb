//! What a commit covers: the file systems on which the run asked for a sync, and those that
//! were named.

use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use synconce_testkit::harness::{
    Place, StartedCommand, committed, finish, isolated, isolated_alone, perl, stall,
    without_foreign_syncs,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

/// Returns a disk that writes nothing back by itself for a while, and whose writes can fail.
pub fn rig() -> Rig {
    Rig::builder().size(64 << 20).mount_options("commit=300").passthrough(false).up().unwrap()
}

/// Whether the commit of a run with the output `text` synced `point`.
fn is_committed(text: &str, point: &Path) -> bool {
    committed(text).contains(&(point.to_owned(), true))
}

/// Runs `script` with accounts.
fn run(place: &Place, options: &[&str], script: &str) -> Finished {
    let options = [&["--stats", "--json"], options].concat();
    place.run(&options, &["sh", "-ec", script])
}

#[test]
fn a_run_that_holds_nothing_commits_nothing_and_leaves_no_marker() {
    isolated(|place| {
        let barrier = without_foreign_syncs();
        let rig = rig();
        let script =
            format!("echo x > {}/file; echo x > here; ls state/runs", rig.path().display());
        let before = rig.disk().stats().unwrap().flushes;
        let ended = run(place, &[], &script);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
        assert_eq!(committed(&ended.stderr), [], "{ended:?}");
        assert_eq!(rig.disk().stats().unwrap().flushes, before);
        drop(barrier);
        let all = run(place, &["--commit-all"], &script);
        assert!(is_committed(&all.stderr, rig.path()), "{all:?}");
        assert!(is_committed(&all.stderr, Path::new("/")), "{all:?}");
        let root = rig.path().to_str().unwrap();
        let named = run(place, &["--root", root], "echo x > here");
        assert!(is_committed(&named.stderr, rig.path()), "{named:?}");
        assert!(!is_committed(&named.stderr, Path::new("/")), "{named:?}");
        rig.down().unwrap();
    });
}

#[test]
fn a_disk_on_which_nothing_was_held_neither_fails_nor_delays_nor_is_kept_busy() {
    isolated(|place| {
        let disk = rig();
        fs::write(disk.path().join("older"), "x").unwrap();
        let stalled = stall(&disk);
        let ended = run(place, &[], "echo x > data; sync data");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(is_committed(&ended.stderr, Path::new("/")), "{ended:?}");
        assert!(!is_committed(&ended.stderr, disk.path()), "{ended:?}");
        disk.disk().release_flushes().unwrap();
        drop(stalled);
        disk.down().unwrap();

        // Writes of the file system itself must not fail.
        let _barrier = without_foreign_syncs();
        let disk = rig();
        fs::write(disk.path().join("older"), "x").unwrap();
        rustix::fs::syncfs(File::open(disk.path()).unwrap()).unwrap();
        disk.disk().fail_writes(true).unwrap();
        fs::write(disk.path().join("older"), "y").unwrap();
        let touched = format!("echo x > {}/file; sync .", disk.path().display());
        let ended = run(place, &[], &touched);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        disk.disk().fail_writes(false).unwrap();

        let words = perl("sync_file('data'); say_to('held', 1); wait_for('go');");
        let going = StartedCommand::new(&mut place.held(&[], &words));
        place.wait_for("held");
        let unmounted = finish(place.command("umount").arg(disk.path()));
        assert!(unmounted.status.success(), "{unmounted:?}");
        place.write("go", "");
        assert!(going.end().success(), "{}", going.text());
    });
}

#[test]
fn a_full_and_a_dead_disk_on_which_nothing_is_held_leave_the_run_alone() {
    isolated(|place| {
        let disk = rig();
        let script = format!(
            "cat /dev/zero > {0}/filler || true; echo x > {0}/more || true; \
             echo x > data; sync data",
            disk.path().display()
        );
        let full = run(place, &[], &script);
        assert!(full.stderr.contains("No space left on device"), "{full:?}");
        assert_eq!(full.status.code(), Some(0), "{full:?}");
        assert!(is_committed(&full.stderr, Path::new("/")), "{full:?}");
        fs::remove_file(disk.path().join("filler")).unwrap();

        disk.disk().fail(Fault::everything()).unwrap();
        let dead = run(place, &[], &script.replace("cat /dev/zero", "head -c 1M /dev/zero"));
        assert_eq!(dead.status.code(), Some(0), "{dead:?}");
        assert!(is_committed(&dead.stderr, Path::new("/")), "{dead:?}");
        disk.disk().recover().unwrap();
    });
}

#[test]
fn the_marker_names_a_file_system_before_the_first_call_on_it_is_held() {
    isolated(|place| {
        let rig = rig();
        let script = format!(
            "sync_file('data'); say_to('first', 1); wait_for('more'); sync_file('{}/data'); \
             say_to('second', 1); wait_for('go');",
            rig.path().display()
        );
        let going = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        let named = || {
            let markers = place.markers();
            let text = fs::read_to_string(&markers[0]).unwrap();
            text.contains(rig.path().to_str().unwrap())
        };
        place.wait_for("first");
        assert!(!named());
        place.write("more", "");
        place.wait_for("second");
        assert!(named());
        let shown: Value = serde_json::from_str(&place.status(&["--json"]).stdout).unwrap();
        assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown}");
        place.write("go", "");
        assert!(going.end().success(), "{}", going.text());
        assert!(place.markers().is_empty());
        rig.down().unwrap();
    });
}

#[test]
fn an_error_from_before_the_first_hold_on_a_disk_reaches_the_caller_as_without_a_run() {
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        for held in [false, true] {
            let _barrier = without_foreign_syncs();
            let rig = rig();
            let file = rig.path().join("data");
            fs::write(&file, [b'a'; 65536]).unwrap();
            // Opened before the error: its syncfs(2) below reports the error first, and
            // descriptors that are opened after that no longer report it (errseq).
            let other = File::open(rig.path()).unwrap();
            rustix::fs::syncfs(&other).unwrap();
            let script = format!(
                "use IO::Handle; open(my $file, '+<', '{}') or die; print $file 'b' x 65536; \
                 $file->flush; say_to('written', 1); wait_for('go'); \
                 print $file->sync ? 'synced' : 'failed', ' '; \
                 print $file->sync ? 'synced' : 'failed';",
                file.display()
            );
            let words = perl(&script);
            let mut command = place.command(&words[0]);
            command.args(&words[1..]);
            let mut under = place.held(&[], &words);
            let going = StartedCommand::new(if held { &mut under } else { &mut command });
            place.wait_for("written");
            rig.disk().fail_writes(true).unwrap();
            let reported = rustix::fs::syncfs(&other);
            assert!(reported.is_err(), "the error is reported: {reported:?}");
            rig.disk().fail_writes(false).unwrap();
            drop(other);
            place.write("go", "");
            let code = going.end().code();
            assert!(going.text().starts_with("failed synced"), "{held}: {}", going.text());
            // ext4 reports the error again at the next syncfs(2), which the commit calls.
            assert!(code == Some(0) || held && code == Some(125), "{held}: {}", going.text());
            ["written", "go"].into_iter().for_each(|name| place.remove(name));
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_file_that_was_synced_on_a_late_disk_can_be_executed_and_locked() {
    isolated(|place| {
        let rig = rig();
        let script = format!(
            "cd {}; cp /bin/true true; sync true; ./true; echo x > lock; \
             flock lock sync lock; flock --nonblock lock echo free",
            rig.path().display()
        );
        let ended = run(place, &[], &script);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "free\n"), "{ended:?}");
        assert!(is_committed(&ended.stderr, rig.path()), "{ended:?}");
        rig.down().unwrap();
    });
}
