//! The supervisor or the frontend is killed while the command starts.
//!
//! strace delays one system call of the start, so that the moment of the kill is determined.

use rustix::process::Signal;
use std::fs;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, children, eventually, exists, finish, isolated, kill, parent,
    perl, process_status,
};

const AS_NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME=/nowhere"];

/// Syncs 40 times and writes how often that failed; runs until the file `stop` exists.
const SYNCS: &str = "say_to('before', $$); my %ends; \
    for (1..40) { $ends{sync_file('data')}++; Time::HiRes::sleep(0.002) } \
    say_to('after', join ', ', map { \"$ends{$_} $_\" } sort keys %ends); \
    wait_for('stop'); exit 5;";

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, as /proc shows them.
const RECEIVE: &str = "0xc0502100";

/// A run under strace, which applies `injection` (see strace(1)) to each of its processes.
struct Traced {
    run: StartedCommand,
    supervisor: u32,
}

impl Traced {
    /// Starts `synconce run OPTIONS -- WORDS` as `user`, which is a prefix of the command.
    fn new(place: &Place, injection: &str, user: &[&str], run: &[&str]) -> Self {
        let mut strace = place.command("strace");
        strace.args(["-f", "-o", "trace", "-e", &format!("inject={injection}")]);
        let run = StartedCommand::new(strace.args(user).args([binary(), "run"]).args(run));
        let mut supervisor = None;
        eventually("there is a supervisor", || {
            supervisor = supervisors().first().copied();
            supervisor.is_some()
        });
        Self { run, supervisor: supervisor.expect("it was found") }
    }

    fn front(&self) -> u32 {
        parent(self.supervisor)
    }

    /// Waits until the supervisor's first thread is in system call `number`.
    fn supervisor_is_in(&self, number: i64) {
        let pid = self.supervisor;
        eventually("the supervisor is in the call", || is_in(pid, pid, number));
    }

    /// Waits until a thread of the supervisor is in ioctl(2) with `request`.
    fn is_in_ioctl(&self, request: &str) {
        let threads = format!("/proc/{}/task", self.supervisor);
        eventually("a thread of the supervisor is in the call", || {
            let entries = fs::read_dir(&threads).into_iter().flatten().flatten();
            let calls = entries.map(|entry| fs::read_to_string(entry.path().join("syscall")));
            calls.flatten().any(|call| {
                let mut words = call.split(' ');
                words.next() == Some(&libc::SYS_ioctl.to_string()) && words.nth(1) == Some(request)
            })
        });
    }

    /// Returns the child that will execute the command, once the child is in system call
    /// `number` under the filter.
    fn child_in(&self, number: i64) -> u32 {
        let mut found = None;
        eventually("the child is in the call", || {
            let mut children = children(self.supervisor).into_iter().map(|(pid, _)| pid);
            found = children
                .find(|pid| is_in(*pid, *pid, number) && process_status(*pid)["Seccomp"] == "2");
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits for the end of the run; expects that it was cut short, with `message`.
    fn ends_cut_short(&self, message: &str) {
        assert_eq!(self.run.end().code(), Some(125), "{}", self.run.text());
        assert!(self.run.text().contains(message), "{}", self.run.text());
    }

    /// Expects that the frontend waits for the command, whose syncs are done, and reports that
    /// the run was cut short.
    fn command_syncs_and_is_waited_for(&self, place: &Place) {
        assert_eq!(place.wait_for("after"), "40 synced\n");
        let command = place.read("before").trim().parse().expect("a process id");
        assert_is_waited_for(command);
        place.write("stop", "");
        self.ends_cut_short("the supervisor was killed after the command had started");
        assert!(!exists(command));
    }
}

/// Asserts that the command `pid` is now a child of the frontend. The end of strace does not
/// show that, because strace ends after all its tracees.
fn assert_is_waited_for(pid: u32) {
    eventually("the supervisor is gone", || supervisors().is_empty());
    let front = process_status(parent(pid));
    assert_eq!(front["Name"], "synconce", "the frontend does not wait for the command");
}

/// Returns the processes of this pid namespace that supervise a run.
fn supervisors() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| {
            name == "synconce-hold\n" && process_status(*pid).get("Tgid") == Some(&pid.to_string())
        })
    };
    pids.filter(named).filter(|pid| exists(*pid)).collect()
}

/// Whether `thread` of `pid` is in system call `number`.
fn is_in(pid: u32, thread: u32, number: i64) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).unwrap_or_default();
    text.split(' ').next() == Some(&number.to_string())
}

fn words(options: &[&str], script: &str) -> Vec<String> {
    let options = options.iter().map(|option| (*option).to_owned());
    // An absolute path: a search in PATH would try several execve(2) calls, each of them
    // delayed.
    let [_, rest @ ..] = perl(script);
    options.chain(["--", "/usr/bin/perl"].map(str::to_owned)).chain(rest).collect()
}

fn text(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// Kills the supervisor while the child is in system call `number`, which `injection` delays.
fn kill_supervisor_in(
    place: &Place,
    injection: &str,
    number: i64,
    user: &[&str],
    run: &[&str],
) -> Traced {
    let traced = Traced::new(place, injection, user, run);
    traced.child_in(number);
    kill(traced.supervisor, Signal::KILL);
    traced
}

#[test]
fn a_command_syncs_and_is_waited_for_when_the_supervisor_is_killed_as_soon_as_it_runs() {
    isolated(|place| {
        for options in [&[][..], &["--no-commit"]] {
            let run = words(options, SYNCS);
            let traced = Traced::new(place, "setsid:delay_enter=1000000", &[], &text(&run));
            // The supervisor makes this call for the first time once the command runs.
            traced.supervisor_is_in(libc::SYS_setsid);
            kill(traced.supervisor, Signal::KILL);
            traced.command_syncs_and_is_waited_for(place);
            ["before", "after", "stop", "data"].iter().for_each(|name| place.remove(name));
        }
        assert!(place.markers().is_empty(), "nothing was held");
    });
}

#[test]
fn a_command_syncs_and_is_waited_for_when_the_supervisor_is_killed_before_its_execution() {
    isolated(|place| {
        for (injection, number) in [
            ("execve:delay_enter=1000000", libc::SYS_execve),
            ("seccomp:delay_exit=1000000", libc::SYS_seccomp),
        ] {
            let run = words(&[], SYNCS);
            let traced = kill_supervisor_in(place, injection, number, &[], &text(&run));
            traced.command_syncs_and_is_waited_for(place);
            ["before", "after", "stop", "data"].iter().for_each(|name| place.remove(name));
        }
    });
}

#[test]
fn a_sealed_command_is_waited_for_when_the_supervisor_is_killed_while_it_starts() {
    isolated(|place| {
        let script = "say_to('before', $$); sync_file('data'); wait_for('stop'); exit 5;";
        let run = words(&["--sealed"], script);
        let injection = "execve:delay_enter=1000000";
        let traced = kill_supervisor_in(place, injection, libc::SYS_execve, &[], &text(&run));
        let command = place.wait_for("before").trim().parse().unwrap();
        assert_is_waited_for(command);
        place.write("stop", "");
        traced.ends_cut_short("the supervisor was killed after the command had started");
        assert!(!exists(command));
        assert_eq!(place.status(&[]).status.code(), Some(4), "it is found interrupted");
    });
}

/// Gives the user nobody the directories that the user's runs write to.
fn for_nobody(place: &Place) {
    let directories = [".", "state", "runtime"].map(|name| place.text(name));
    for directory in &directories {
        fs::create_dir_all(directory).expect("a directory of ours");
    }
    let chown = finish(place.command("chown").arg("65534:65534").args(directories));
    assert!(chown.status.success(), "{chown:?}");
}

#[test]
fn a_users_command_syncs_and_is_waited_for_when_the_supervisor_is_killed_before_its_execution() {
    isolated(|place| {
        for_nobody(place);
        let run = words(&["--commit-only", "."], SYNCS);
        let injection = "execve:delay_enter=1000000";
        let traced =
            kill_supervisor_in(place, injection, libc::SYS_execve, &AS_NOBODY, &text(&run));
        traced.command_syncs_and_is_waited_for(place);
    });
}

#[test]
fn the_first_call_is_answered_when_the_supervisor_is_killed_as_it_receives_it() {
    isolated(|place| {
        let run = words(&[], SYNCS);
        // The supervisor's first ioctl(2) tries whether a profile refuses the call, the second asks
        // the kernel to wake it on the same processor; the third receives.
        let injection = "ioctl:delay_exit=1000000:when=3";
        let traced = Traced::new(place, injection, &[], &text(&run));
        traced.is_in_ioctl(RECEIVE);
        kill(traced.supervisor, Signal::KILL);
        traced.command_syncs_and_is_waited_for(place);
    });
}

#[test]
fn a_kill_of_the_supervisor_before_the_start_is_reported_as_a_command_that_did_not_start() {
    isolated(|place| {
        let run = words(&[], SYNCS);
        // The frontend makes the supervisor by this call, and the supervisor makes the
        // command.
        let traced = Traced::new(place, "clone:delay_enter=1000000", &[], &text(&run));
        traced.supervisor_is_in(libc::SYS_clone);
        kill(traced.supervisor, Signal::KILL);
        traced.ends_cut_short("the supervisor was killed before the command started");
        assert_eq!(place.read("before"), "");
        assert!(place.status(&[]).status.success(), "nothing was interrupted");
    });
}

/// A filter of others kills the child that calls seccomp(2). Before Linux 5.16 the supervisor dies
/// by the same signal, because it shares its memory with the child.
#[test]
fn a_supervisor_that_dies_with_its_child_in_seccomp_is_reported_with_the_setting_that_helps() {
    isolated(|place| {
        let mut strace = place.command("strace");
        // Only the supervisor calls listen(2), before it makes the child.
        strace.args(["-f", "-o", "trace", "-e", "inject=listen:signal=SYS"]);
        let run = finish(strace.args([binary(), "run", "--", "true"]));
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        assert!(run.stderr.contains("cannot install the seccomp filter: "), "{run:?}");
        assert!(run.stderr.contains("SystemCallFilter=seccomp"), "{run:?}");
        assert!(place.status(&[]).status.success(), "nothing was interrupted");
    });
}

#[test]
fn a_kill_before_a_failed_execve_is_reported_as_a_command_that_did_not_start() {
    isolated(|place| {
        let injection = "execve:delay_enter=1000000";
        let run = ["--", "/no/such/program"];
        let traced = kill_supervisor_in(place, injection, libc::SYS_execve, &[], &run);
        traced.ends_cut_short("the supervisor was killed before the command started");
    });
}

#[test]
fn a_command_whose_frontend_is_killed_while_it_starts_is_ended() {
    isolated(|place| {
        let run = words(&[], "say_to('before', $$); sleep 60;");
        let traced = Traced::new(place, "execve:delay_enter=1000000", &[], &text(&run));
        let command = traced.child_in(libc::SYS_execve);
        kill(traced.front(), Signal::KILL);
        eventually("all is over", || !exists(command) && !exists(traced.supervisor));
    });
}
