//! Special programs: Go, io_uring, a program under a debugger, a program that is stopped and
//! continued.

use crate::builds::{dynamic, go};
use crate::support::{Place, SYNCONCE, isolated, limit};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};
use synconce_testkit::harness::kill;
use synconce_testkit::process::Group;

#[test]
fn a_go_program_with_many_goroutines_is_held_and_loses_nothing() {
    isolated(|place: &Place| {
        let program = go();
        let run = place.twice(&["--commit-only", "."], &[program.to_str().unwrap()]);
        assert_eq!(run.finished.stdout, "1000 rounds, 1000 bytes\n");
        assert_eq!(run.counts("openat"), [1000, 0, 0]);
        assert_eq!(run.counts("fsync"), [1000, 0, 0]);
        assert_eq!(run.counts("sync"), [1, 0, 0]);
    });
}

#[test]
fn a_go_program_loses_nothing_when_the_supervisor_is_killed_as_soon_as_it_runs() {
    isolated(|place: &Place| {
        let (program, here) = (go(), place.directory("here"));
        // The supervisor makes this call once the command runs.
        let delay = "inject=setsid:delay_enter=500000";
        let strace = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=setsid"];
        let run = ["-e", delay, SYNCONCE, "run", "--", program.to_str().unwrap()];
        let words = [&strace[..], &run].concat();
        let group = Group::spawn(&mut place.command(&here, &words)).unwrap();
        let in_setsid = |pid: &u32| {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall"));
            call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_setsid)))
        };
        let supervisor = || child_named("synconce-hold").filter(in_setsid);
        assert!(soon(|| supervisor().is_some()), "the command did not start");
        kill(supervisor().expect("it is delayed"), Signal::KILL);
        let status = group.wait(limit()).unwrap().expect("it goes on to its end");
        let (stdout, stderr) = (group.stdout().unwrap(), group.stderr().unwrap());
        assert_eq!(stdout, "1000 rounds, 1000 bytes\n", "{stderr}");
        assert_eq!(status.code(), Some(125), "{stderr}");
    });
}

#[test]
fn io_uring_is_not_there_unless_it_is_let_through() {
    isolated(|place: &Place| {
        let (program, here) = (dynamic(), place.directory("here"));
        let words = [program.as_str(), "ring", "file"];
        let bare = place.bare(&here, &words);
        // On a kernel without io_uring the call fails even if it is passed.
        let there = !bare.stdout.starts_with("io_uring_setup");
        assert!(!there || bare.stdout == "fsync by io_uring: 0\n", "{bare:?}");
        let refused = place.held(&here, &["--no-commit"], &words);
        assert_eq!(refused.finished.stdout, "io_uring_setup: Function not implemented\n");
        assert_eq!(refused.counts("io_uring_setup"), [0, 0, 1]);
        let hint = "synconce: hint: if it needs io_uring: synconce run --io-uring pass";
        let failed = refused.finished.status.code() != Some(0);
        assert_eq!(refused.notices().ends_with(hint), failed, "{:?}", refused.finished);
        let passed = place.held(&here, &["--no-commit", "--io-uring", "pass"], &words);
        assert_eq!(passed.finished.stdout, bare.stdout);
        assert_eq!(passed.counts("io_uring_setup"), [0, 1, 0]);
        let notice =
            "synconce: io_uring was let through: the syncs that go through it were not held";
        assert_eq!(passed.notices(), notice);
    });
}

#[test]
fn under_a_debugger_syncs_are_held_and_opens_pass_as_they_are() {
    isolated(|place: &Place| {
        let program = dynamic();
        let traced = ["strace", "-f", "-o", "/dev/null", &program];
        let ways = ["sync-file", "msync-good", "openat-raw", "rwf-write", "openat2", "aio-alone"];
        let words = [&traced[..], &ways].concat();
        let bare = place.bare(&place.directory("bare"), &words);
        let run = place.held(&place.directory("held"), &["--no-commit"], &words);
        // Under a debugger the sync flags stay.
        assert_eq!(bare.stdout, run.finished.stdout);
        assert_eq!(bare.stdout.matches("disk-sync=1").count(), 3, "{}", bare.stdout);
        assert_eq!(run.counts("fsync"), [1, 0, 0]);
        assert_eq!(run.counts("msync"), [3, 0, 0]);
        assert_eq!(run.counts("openat"), [0, 1, 0]);
        assert_eq!(run.counts("pwritev2"), [0, 4, 0]);
        assert_eq!(run.counts("openat2"), [0, 2, 0]);
        assert_eq!(run.counts("io_submit"), [0, 4, 0]);
    });
}

/// Returns the state of `pid` in /proc: `T` when the process is stopped.
fn state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

fn child_named(name: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    })
}

/// Waits until `holds` returns true; returns `false` after [`limit`].
fn soon(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit();
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn a_command_that_is_stopped_amid_its_opens_stops_the_run_and_goes_on() {
    isolated(|place: &Place| {
        let program = dynamic();
        let words = [SYNCONCE, "run", "--no-commit", "--", &program, "rounds", "5000"];
        let group = Group::spawn(&mut place.command(&place.directory("here"), &words)).unwrap();
        assert!(soon(|| child_named("rounds").is_some()), "it did not start");
        let command = child_named("rounds").unwrap();
        for round in 0..20 {
            if state(command).is_none_or(|state| state == 'Z') {
                assert!(round > 3, "it ended too early to be stopped");
                break;
            }
            kill(command, Signal::STOP);
            let stopped = soon(|| state(group.pid()) == Some('T'));
            assert!(stopped, "round {round}: the shell would not learn of the stop");
            kill(group.pid(), Signal::CONT);
            // Wait for the continuation to be passed on: it would undo an earlier stop.
            let goes_on = soon(|| !matches!(state(command), Some('T' | 't')));
            assert!(goes_on, "round {round}: the command does not go on");
            std::thread::sleep(Duration::from_millis(3));
        }
        let status = group.wait(limit()).unwrap().expect("it goes on to its end");
        assert!(status.success());
        assert_eq!(group.stdout().unwrap(), "rounds: 5000 of 5000\n");
    });
}
