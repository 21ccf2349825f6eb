//! Sealed runs: the filter alone answers.

use synconce_testkit::harness::{
    AFTER_RELEASE, HOLD, SYNC, StartedCommand, a_few_times, daemon, eventually, exists, isolated,
    perl, stall, without_foreign_syncs, without_fuse_notice,
};
use synconce_testkit::rig::Rig;

const SEALED: &[&str] = &["--sealed"];

#[test]
fn a_sealed_sync_succeeds_without_reaching_the_disk_until_the_commit() {
    isolated(|place| {
        let barrier = without_foreign_syncs();
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let flushes = || rig.disk().stats().unwrap().flushes;
        let script = format!(
            "print sync_file('{}'), \"\\n\"; say_to('synced', hold()); wait_for('stop');",
            rig.path().join("data").display()
        );
        let before = flushes();
        let mut command = place.held(SEALED, &perl(&script));
        let run = StartedCommand::new(&mut command);
        assert_eq!(place.wait_for("synced"), "sealed\n");
        assert_eq!(flushes(), before, "the sync reached the disk");
        // The commit of a sealed run calls sync(2).
        drop(barrier);
        place.write("stop", "");
        assert!(run.end().success());
        assert_eq!(without_fuse_notice(&run.text()), "synced\n");
        assert!(flushes() > before);
        rig.down().unwrap();
    });
}

#[test]
fn a_negative_descriptor_is_still_a_bad_one() {
    isolated(|place| {
        let calls =
            [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_syncfs].map(|call| call.to_string());
        let script = "my $value = syscall($call, $fd); print \"$value \", $! + 0, \"\\n\"";
        let each =
            format!("for my $call ({}) {{ for my $fd (-1, -100, -2147483648)", calls.join(", "));
        let words = perl(&format!("{each} {{ {script} }} }}"));
        let (bare, held) = (place.bare(&words), place.run(SEALED, &words));
        assert_eq!(held.stdout, bare.stdout);
        assert_eq!(held.stdout, "-1 9\n".repeat(9));
    });
}

#[test]
fn survivors_are_named_with_the_hint_to_restart_them() {
    isolated(|place| {
        let script = daemon(&format!("say_to('before', $$); {AFTER_RELEASE}"));
        let run = place.run(SEALED, &perl(&format!("{script} wait_for('before'); exit 3;")));
        assert_eq!(run.status.code(), Some(3));
        let pid = place.read("before").trim().parse().unwrap();
        assert!(exists(pid));
        let named = format!("synconce: their syncs stay held: perl (pid {pid}); restart them");
        assert!(run.stderr.starts_with(&named), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1);
        place.write("go", "");
        assert_eq!(
            place.wait_for("after"),
            "sealed synced\n",
            "the hold cannot be ended, as the notice states"
        );
        assert!(place.run_files().is_empty() && place.status(&[]).stdout.is_empty());
    });
}

#[test]
fn a_process_that_ends_a_moment_after_a_sealed_command_is_not_named() {
    isolated(|place| {
        assert!(a_few_times(|| {
            // No other program: an emulated machine takes longer to start one than a run waits.
            let script = "fork or select(undef, undef, undef, 0.01)";
            let run = place.run(SEALED, &["perl", "-e", script]);
            assert!(run.status.success(), "{run:?}");
            run.stderr.is_empty()
        }));
    });
}

#[test]
fn a_survivor_that_forks_during_the_commit_is_named_once() {
    isolated(|place| {
        let forks = "$SIG{CHLD} = 'IGNORE'; say_to('forks', 1); while (1) { \
                     unless (fork) { select(undef, undef, undef, 0.05); POSIX::_exit(0) } \
                     select(undef, undef, undef, 0.003) }";
        let script = format!("{} wait_for('forks'); sync_file('data');", daemon(forks));
        let run = place.run(SEALED, &perl(&script));
        assert_eq!(run.stderr.matches("their syncs stay held").count(), 1, "{}", run.stderr);
    });
}

#[test]
fn a_process_that_becomes_a_daemon_during_a_sealed_commit_is_named() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        let forks = daemon(
            "say_to('before', $$); wait_for('go'); my $parent = $$; exit if fork; \
             select(undef, undef, undef, 0.001) while getppid == $parent; \
             say_to('later', $$); wait_for('stop');",
        );
        let file = rig.path().join("data");
        let script = format!(
            "{forks} wait_for('before'); sync_file('{}'); say_to('held', 1); wait_for('stalled');",
            file.display()
        );
        let run = StartedCommand::new(&mut place.held(SEALED, &perl(&script)));
        place.wait_for("held");
        let lock = stall(&rig);
        place.write("stalled", "");
        eventually("the daemon is named", || run.text().contains("their syncs stay held"));
        place.write("go", "");
        let later = place.wait_for("later");
        rig.disk().release_flushes().unwrap();
        drop(lock);
        assert!(run.end().success(), "{}", run.text());
        for pid in [place.read("before"), later] {
            let named = format!("their syncs stay held: perl (pid {}); ", pid.trim());
            assert_eq!(run.text().matches(&named).count(), 1, "{named} {}", run.text());
        }
        place.write("stop", "");
        rig.down().unwrap();
    });
}

#[test]
fn the_marker_is_there_before_the_first_instruction_of_the_command() {
    isolated(|place| {
        let run = place.run(SEALED, &["sh", "-c", "ls state/runs | grep -c json"]);
        assert_eq!(run.stdout, "1\n", "{run:?}");
        assert!(place.markers().is_empty());
    });
}

#[test]
fn a_sealed_run_that_is_killed_is_found_interrupted() {
    isolated(|place| {
        let mut command =
            place.held(SEALED, &perl(&format!("{SYNC} kill 'KILL', getppid; wait_for('stop');")));
        let run = StartedCommand::new(&mut command);
        eventually("it is found", || place.status(&[]).status.code() == Some(4));
        place.write("stop", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
    });
}

#[test]
fn a_command_can_tell_that_it_is_sealed() {
    isolated(|place| {
        let words = perl(HOLD);
        assert_eq!(place.run(SEALED, &words).stdout, "sealed\n");
        assert_eq!(place.run(&[], &words).stdout, "held\n");
        assert_eq!(place.run(&["--no-commit"], &words).stdout, "held\n");
        assert_eq!(place.bare(&words).stdout, "free\n");
    });
}
