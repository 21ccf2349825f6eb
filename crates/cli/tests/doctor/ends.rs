//! `synconce doctor -- COMMAND`: exit codes, signals, and killed processes.

use crate::command::watched;
use crate::support::{WIDE, rig};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use synconce_testkit::harness::{
    Place, StartedCommand, Terminal, children, eventually, exists, finish, kill, perl, trial,
    under_a_listener, without_call, without_foreign_syncs,
};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(exit_codes_and_signals_are_those_of_the_command, &[]),
        trial(a_costly_command_ends_with_one_unless_it_fails, &[]),
        trial(ctrl_c_ends_the_command_and_the_report_is_printed, &[]),
        trial(a_killed_doctor_ends_the_command, &[]),
        trial(the_wait_of_a_caller_that_was_killed_counts, &[]),
        trial(a_command_that_fails_ends_as_it_did_without_a_report, &[]),
        trial(a_killed_supervisor_leaves_the_command_its_syncs, &[]),
        trial(inside_of_a_run_and_below_a_listener_nothing_is_started, &[]),
        trial(nothing_is_written_beside_the_record, &[]),
        trial(a_filter_because_of_which_nothing_is_timed_is_named_with_its_remedy, &[]),
    ]
}

fn exit_codes_and_signals_are_those_of_the_command(place: &Place) {
    let here = place.path("");
    let end = |words: &[&str]| finish(&mut watched(place, &here, &[], words));
    assert_eq!(end(&["sh", "-c", "exit 42"]).status.code(), Some(42));
    let killed = end(&["sh", "-c", "kill -KILL $$"]);
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    assert!(killed.stderr.contains(": ended by signal 9, "), "{killed:?}");
    let missing = end(&["./none"]);
    assert_eq!(missing.status.code(), Some(127));
    let wanted = "synconce: cannot execute ./none: No such file or directory\n";
    assert_eq!(missing.stderr, wanted);
    place.write("text", "");
    assert_eq!(end(&["./text"]).status.code(), Some(126));
    let wrong = finish(&mut place.synconce(&["doctor", "/", "--", "true"]));
    assert_eq!(wrong.status.code(), Some(125), "{wrong:?}");
    let unwritable = finish(&mut watched(place, &here, &["-o", "/none/x"], &["touch", "ran"]));
    assert_eq!(unwritable.status.code(), Some(125), "{unwritable:?}");
    let wanted = "synconce: cannot write to /none/x: No such file or directory\n";
    assert_eq!(unwritable.stderr, wanted);
    assert!(!place.path("ran").exists());
    finish(&mut watched(place, &here, &["-o", "record"], &["true"]));
    for words in [
        &["--read", "record"][..],
        &["--context", "."],
        &["--full"],
        &["."],
        &["--podman"],
        &["--containerd"],
        &[],
    ] {
        let refused =
            finish(place.synconce(&["doctor", "-o", "new"]).args(words).current_dir(&here));
        assert_eq!(refused.status.code(), Some(125), "{words:?}: {refused:?}");
        assert!(!place.path("new").exists(), "{words:?}");
    }
}

/// Docker's default profile refuses the call to a container without CAP_SYS_PTRACE. A container's
/// own profile, or a unit of systemd, can refuse the call to a process that has the capability.
fn a_filter_because_of_which_nothing_is_timed_is_named_with_its_remedy(place: &Place) {
    let here = place.path("");
    place.write("file", "");
    let doctor = watched(place, &here, &[], &["sync", "file"]);
    let filter = without_call(libc::SYS_pidfd_getfd, libc::EPERM);
    let refused = |words: &[&str], remedy: &str| {
        let mut filtered = place.command("setpriv");
        filtered.args(words).args(&filter).arg(doctor.get_program()).args(doctor.get_args());
        let ended = finish(filtered.current_dir(&here).env("COLUMNS", WIDE));
        assert!(ended.status.success(), "{ended:?}");
        let said =
            ": calls whose caller could not be examined; a seccomp filter refuses pidfd_getfd(2): ";
        let verdict = ended.stderr.lines().next().unwrap();
        assert!(
            verdict.starts_with("sync: no sync was timed in ")
                && verdict.ends_with(&format!("{said}{remedy}")),
            "{ended:?}"
        );
    };
    let without = ["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    refused(&without, "docker run --cap-add SYS_PTRACE");
    refused(
        &[],
        "allow it in the container's profile, or in a unit by SystemCallFilter=pidfd_getfd",
    );
}

fn a_costly_command_ends_with_one_unless_it_fails(place: &Place) {
    let record = |code: u32| {
        let call = r#"{"call":"fsync","thread":1,"wait":9000000,"would":"hold","at":"#;
        let calls: String = (0..1000).map(|at| format!("{call}{}}}\n", at * 10_000)).collect();
        format!(
            "{{\"record\":1,\"command\":[\"x\"]}}\n{calls}{{\"end\":{{\"Exited\":{code}}},\
             \"at\":10000000,\"looks\":1000,\"alone\":1000,\"lost\":1000000}}\n"
        )
    };
    place.write("record", &record(0));
    let end = |limit: &str| {
        let words = ["doctor", "--read", "record", "--fail-on", limit];
        finish(&mut place.synconce(&words)).status.code()
    };
    assert_eq!((end("8"), end("9")), (Some(1), Some(0)));
    assert_eq!((end("0.01"), end("0.5m")), (Some(1), Some(0)));
    let here = place.path("");
    let fails = watched(place, &here, &["--fail-on", "1"], &["sh", "-c", "exit 3"]);
    assert_eq!(finish(&mut { fails }).status.code(), Some(3));
}

fn ctrl_c_ends_the_command_and_the_report_is_printed(place: &Place) {
    let mut terminal = Terminal::shell(place);
    // Not sh: dash notes a Ctrl-C that comes before its fork, and waits for the child first.
    terminal.line("$SYNCONCE doctor -- perl -e '$| = 1; print \"ready\\n\"; sleep 600'");
    terminal.expect("ready\r\n");
    terminal.write("\u{3}");
    terminal.expect("perl: no sync was waited for in ");
    terminal.expect("ended by signal 2");
    assert_eq!(terminal.code(), "130");
}

/// Starts a command under doctor that writes its pid to `pid`, waits for `go`, and syncs.
fn start(place: &Place) -> (StartedCommand, u32, u32) {
    let words = perl(
        "say_to('pid', $$); Time::HiRes::sleep(0.01) until -e 'go'; \
         sync_file('data'); say_to('synced', hold());",
    );
    let started = StartedCommand::new(&mut watched(place, &place.path(""), &[], &words));
    let command = place.wait_for("pid").trim().parse().unwrap();
    let supervisor = children(started.pid())[0].0;
    (started, supervisor, command)
}

fn a_killed_doctor_ends_the_command(place: &Place) {
    let (started, supervisor, command) = start(place);
    kill(started.pid(), Signal::KILL);
    eventually("the command ends", || !exists(command));
    eventually("the supervisor ends", || !exists(supervisor));
    let status = place.status(&[]);
    assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
}

fn the_wait_of_a_caller_that_was_killed_counts(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = rig(FsKind::Ext4, 0);
    // Before the stall: a commit of the journal that waits for a flush would keep the shell from
    // it.
    std::fs::write(rig.path().join("file"), "x").unwrap();
    rig.disk().stall_flushes().unwrap();
    let [go, gone] = ["go", "gone"].map(|name| place.text(name));
    let wait = format!("until [ -e {go} ]; do :; done; kill -9 $!; wait; echo >{gone}");
    let script = format!("sync file & {wait}");
    let started = StartedCommand::new(&mut watched(place, rig.path(), &[], &["sh", "-c", &script]));
    rig.disk().wait_for_waiting_flush(Duration::from_secs(60)).unwrap();
    place.write("go", "");
    place.wait_for("gone");
    // The report measures the commit, which needs the disk.
    rig.disk().release_flushes().unwrap();
    started.end();
    let said = started.text();
    assert!(said.contains("sh: 1 sync was waited for, "), "{said}");
    rig.down().unwrap();
}

fn a_command_that_fails_ends_as_it_did_without_a_report(place: &Place) {
    let end = |code: &str| {
        let exit = format!("exit {code}");
        let mut watched = watched(place, &place.path(""), &[], &["sh", "-c", &exit]);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        watched.stderr(full).status().unwrap().code()
    };
    assert_eq!((end("7"), end("0")), (Some(7), Some(125)));
}

fn a_killed_supervisor_leaves_the_command_its_syncs(place: &Place) {
    let (started, supervisor, _) = start(place);
    kill(supervisor, Signal::KILL);
    place.write("go", "");
    assert_eq!(place.wait_for("synced"), "free\n");
    let ended = started.end();
    assert_eq!(ended.code(), Some(125), "{}", started.text());
    assert!(started.text().contains("the supervisor was killed"), "{}", started.text());
}

fn inside_of_a_run_and_below_a_listener_nothing_is_started(place: &Place) {
    let synconce = place.synconce(&[]).get_program().to_str().unwrap().to_owned();
    let inner = [&synconce, "doctor", "--", "touch", "ran"];
    let held = place.run(&[], &inner);
    let wanted = "synconce: cannot time the syncs of a command: a run of synconce holds this \
                  process\nsynconce: hint: start `synconce doctor` outside of the run\n";
    assert_eq!((held.status.code(), &*held.stderr), (Some(125), wanted));
    let around = under_a_listener();
    let words: Vec<_> = around.iter().map(String::as_str).chain(inner).collect();
    let below = place.bare(&words);
    assert_eq!(below.status.code(), Some(125), "{below:?}");
    assert!(below.stderr.contains("synconce: cannot time the calls of the command: "), "{below:?}");
    assert!(!place.path("ran").exists());
}

fn nothing_is_written_beside_the_record(place: &Place) {
    let here = place.path("");
    let script = "env | grep -c SYNCONCE_RUN=; true";
    let ended = finish(&mut watched(place, &here, &["-o", "record"], &["sh", "-c", script]));
    assert_eq!(ended.stdout, "0\n", "{ended:?}");
    let left = crate::support::names(&here);
    assert_eq!(left, ["record"], "{left:?}");
}
