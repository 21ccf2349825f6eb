//! A file system that the run unmounts is synced before, however long the sync takes.

use std::fs;
use std::time::Duration;
use synconce_testkit::harness::{
    DiskLock, Place, StartedCommand, binary, eventually, finish, isolated, limit, perl, stall,
};
use synconce_testkit::rig::{FsKind, Rig};

/// Starts a run that unmounts a rig whose flushes do not end. Once its umount waits for the
/// sync, the run goes on with `then`.
fn unmounting(place: &Place, options: &[&str], then: &str) -> (Rig, StartedCommand, DiskLock) {
    let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
    let point = rig.path().display();
    let script = format!(
        "sync_file('{point}/data'); say_to('before', 1); wait_for('go'); \
         exec 'umount', '{point}' if !fork; wait_for('waits'); {then}"
    );
    let all = [&["--stats", "--json"], options].concat();
    let run = StartedCommand::new(&mut place.held(&all, &perl(&script)));
    place.wait_for("before");
    let stalled = stall(&rig);
    place.write("go", "");
    rig.disk().wait_for_waiting_flush(limit()).unwrap();
    place.write("waits", "");
    (rig, run, stalled)
}

#[test]
fn an_unmount_that_waits_for_its_disk_keeps_no_other_call_waiting() {
    isolated(|place| {
        let then = "say_to('after', sync_file('data')); wait; exit($? >> 8);";
        let (rig, run, _stalled) = unmounting(place, &[], then);
        assert_eq!(place.wait_for("after"), "synced\n");
        rig.disk().release_flushes().unwrap();
        assert!(run.end().success(), "{}", run.text());
        assert_eq!(run.text().matches(rig.path().to_str().unwrap()).count(), 1, "{}", run.text());
        rig.mount().unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn an_unmount_that_outlives_the_command_is_waited_for_by_the_commit() {
    isolated(|place| {
        let (rig, run, _stalled) = unmounting(place, &[], "exit 0");
        eventually("the commit begins", || place.status(&[]).stdout.contains(" committing "));
        assert_eq!(run.wait(Duration::from_millis(300)).unwrap(), None, "{}", run.text());
        assert_eq!(place.markers().len(), 1);
        rig.disk().release_flushes().unwrap();
        assert!(run.end().success(), "{}", run.text());
        assert!(run.text().contains(rig.path().to_str().unwrap()), "{}", run.text());
        assert!(place.markers().is_empty());
        eventually("umount has ended", || place.run_files().is_empty());
    });
}

#[test]
fn an_unmount_that_signals_interrupt_occupies_few_threads() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let point = rig.path().display();
        // The handler has no SA_RESTART.
        let script = format!(
            "sync_file('{point}/data'); my $interrupted = 0; \
             my $action = POSIX::SigAction->new(sub {{}}); $action->safe(1); \
             POSIX::sigaction(14, $action); \
             say_to('before', 1); wait_for('go'); Time::HiRes::setitimer(0, 0.002, 0.002); \
             my $point = '{point}'; \
             until (syscall({}, $point, 0) == 0) {{ \
                 $!{{EINTR}} or die $!; ++$interrupted == 500 and say_to('interrupted', 1); }}",
            libc::SYS_umount2
        );
        let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        place.wait_for("before");
        let _stalled = stall(&rig);
        place.write("go", "");
        place.wait_for("interrupted");
        // While the signals go on: a thread for each of the 500 would stay until the flush ends.
        let threads = format!("/proc/{}/task", place.supervisor());
        eventually("few threads are left", || fs::read_dir(&threads).unwrap().count() < 100);
        rig.disk().release_flushes().unwrap();
        assert!(run.end().success(), "{}", run.text());
        rig.mount().unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn an_unmount_that_signals_interrupt_is_not_kept_busy_by_its_own_repetitions() {
    isolated(|place| {
        fs::create_dir(place.path("point")).unwrap();
        // The handler has no SA_RESTART. Each unmount gets a few signals: perl keeps at most 120.
        // The delays differ, so that some signals come in an unmount on any machine.
        let script = format!(
            "my $action = POSIX::SigAction->new(sub {{}}); $action->safe(1); \
             POSIX::sigaction(14, $action); \
             my ($point, $type, $interrupted) = ('{}', 'tmpfs', 0); \
             for (my $round = 0; $round < 500 || $interrupted < 20 && $round < 5000; ++$round) {{ \
                 syscall({}, $type, $point, $type, 0, 0) == 0 or die $!; \
                 my ($signals, $delay) = (8, 0.00005 * (1 + $round % 40)); \
                 while (1) {{ \
                     Time::HiRes::setitimer(0, $signals-- > 0 ? $delay : 0); \
                     last if syscall({}, $point, 0) == 0; \
                     $!{{EINTR}} or die $!; ++$interrupted; }} \
                 Time::HiRes::setitimer(0, 0); }} \
             $interrupted > 0 or die 'no call was interrupted';",
            place.text("point"),
            libc::SYS_mount,
            libc::SYS_umount2
        );
        let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        assert!(run.end().success(), "{}", run.text());
    });
}

#[test]
fn a_disk_that_hangs_at_an_unmount_is_given_up_and_named_once() {
    isolated(|place| {
        let (rig, run, _stalled) = unmounting(place, &["--commit-timeout", "1"], "wait; exit 0");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        let named = format!("synconce: not durable: {} (ext4 on ", rig.path().display());
        assert_eq!(run.text().matches(&named).count(), 1, "{}", run.text());
        assert!(run.text().contains("no answer for "), "{}", run.text());
        assert_eq!(place.markers().len(), 1);
        rig.disk().release_flushes().unwrap();
        eventually("the supervisor ends", || place.run_files().is_empty());
    });
}

#[test]
fn a_disk_that_fails_and_is_unmounted_read_only_fails_the_run() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Btrfs).size(256 << 20).passthrough(false).up().unwrap();
        rig.unmount().unwrap();
        let (point, device) = (rig.path().display(), rig.device().display());
        let script = format!(
            "system('mount', '{device}', '{point}') == 0 or die; sync_file('{point}/data'); \
             say_to('before', 1); wait_for('go'); \
             system('mount', '-o', 'remount,ro', '{point}'); system('umount', '{point}') == 0 or die;"
        );
        let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        place.wait_for("before");
        rig.disk().fail_writes(true).unwrap();
        place.write("go", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        assert!(run.text().contains("not durable: "), "{}", run.text());
        assert_eq!(place.markers().len(), 1);
        rig.disk().fail_writes(false).unwrap();
        rig.down().unwrap();
    });
}

/// The kernel shuts an XFS down after an error of its metadata. The file system then answers no
/// statx(2).
#[test]
fn an_xfs_that_has_shut_down_can_be_unmounted_and_fails_the_run() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Xfs).size(320 << 20).up().unwrap();
        let point = rig.path().display();
        // XFS_IOC_GOINGDOWN with XFS_FSOP_GOING_FLAGS_NOLOGFLUSH.
        let script = format!(
            "sync_file('{point}/data'); sysopen(my $there, '{point}', 0) or die $!; \
             my $how = pack('L', 2); ioctl($there, 0x8004587d, $how) or die $!; close $there; \
             exec 'umount', '{point}';"
        );
        let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        assert!(run.text().contains("Input/output error"), "{}", run.text());
        assert!(!run.text().contains("busy"), "{}", run.text());
        rig.mount().unwrap();
    });
}

/// With survivors the supervisor stays, and closes the markers that are not durable after it has
/// reported.
#[test]
fn a_root_can_be_unmounted_after_a_run_that_held_nothing_and_left_a_process() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        // The report of the supervisor has arrived when it can go on.
        let script = "strace -Dfo /dev/null -e trace=sendto -e inject=sendto:delay_exit=300000 \
            \"$0\" run --root \"$1\" -- sh -c 'sleep 600 & echo $! >left'
            umount \"$1\" && echo unmounted; kill \"$(cat left)\"";
        let mut traced = place.command("sh");
        traced.args(["-c", script, binary()]).arg(rig.path());
        let ended = finish(&mut traced);
        assert_eq!(ended.stdout, "unmounted\n", "{ended:?}");
    });
}
