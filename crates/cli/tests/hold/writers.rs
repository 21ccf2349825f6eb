//! No process writes below an overlay while another one writes through it: locks through an overlay
//! are no locks below.

use crate::losses::send;
use crate::private::traced_verb;
use crate::support::{HoldOnRig, end, failed, stays, with_hold};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use synconce_testkit::harness::{StartedCommand, binary, eventually, finish};

/// What keeps a file below a held directory in use.
const USERS: [&str; 3] = ["exec 3<>data", "exec 3<data", ":"];

/// The command of a container, which has the mounts of the test and a /proc of its own.
const CONTAINER: &str = "exec \"$0\" hold start ./t.toml";

/// Calls `start`, and stops the process by SIGSTOP after it has looked at all processes and before
/// its first mount.
fn stopped(fixture: &HoldOnRig<'_>) -> (StartedCommand, Pid) {
    // An earlier start may have left its trace.
    let _ = fs::remove_file(fixture.place.path("trace"));
    let stop = ["-e", "inject=fsopen:signal=STOP:when=1"];
    let start = traced_verb(fixture, "start", "fsopen", &stop);
    let mut stopped = None;
    eventually("the start is stopped", || {
        let trace = fs::read_to_string(fixture.place.path("trace")).unwrap_or_default();
        let line = trace.lines().find(|line| line.ends_with("--- stopped by SIGSTOP ---"));
        stopped = line.and_then(|line| line.split(' ').next()?.parse().ok());
        stopped.is_some()
    });
    (start, stopped.and_then(Pid::from_raw).expect("a process id"))
}

/// Starts a shell that works in the held directory and does `script`.
fn user(fixture: &HoldOnRig<'_>, script: &str) -> StartedCommand {
    let directory = fixture.directory().display().to_string();
    stays(fixture.place, &["sh"], &format!("cd '{directory}'; {script}"))
}

/// Returns a held file, a start that has mounted the overlay and waits for a user of the file below
/// to end, and that user.
fn mounted_read_only(fixture: &HoldOnRig<'_>) -> (PathBuf, StartedCommand, StartedCommand) {
    let data = fixture.directory().join("data");
    fs::write(&data, "data").unwrap();
    let (start, pid) = stopped(fixture);
    let user = user(fixture, "exec 3<>data");
    kill_process(pid, Signal::CONT).unwrap();
    eventually("the overlay is mounted", || {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains("/databases rw")
    });
    (data, start, user)
}

#[test]
fn a_file_that_is_opened_between_the_look_and_the_mount_is_not_taken_into_a_hold() {
    with_hold("", |_, fixture| {
        fs::write(fixture.directory().join("data"), "data").unwrap();
        let before = fixture.everything();
        for script in USERS {
            let (start, pid) = stopped(fixture);
            let user = user(fixture, script);
            kill_process(pid, Signal::CONT).unwrap();
            assert_eq!(start.end().code(), Some(125), "{script}: {}", start.text());
            assert!(start.text().contains("in use by s"), "{script}: {}", start.text());
            assert_eq!(fixture.state(), "off", "{script}");
            assert_eq!(fixture.everything(), before, "{script}");
            end(user);
        }
        fixture.ok("start");
        fs::write(fixture.directory().join("data"), "new").unwrap();
        fixture.ok("stop");
    });
}

#[test]
fn nothing_is_written_through_a_hold_before_its_start_has_looked_for_files_below() {
    with_hold("", |_, fixture| {
        let (data, start, user) = mounted_read_only(fixture);
        assert!(fs::write(&data, "new").is_err());
        end(user);
        eventually("the start has ended", || fixture.state() == "held");
        fs::write(&data, "new").unwrap();
        fixture.ok("stop");
        // The tracer has followed the guard.
        assert_eq!(start.end().code(), Some(0), "{}", start.text());
        assert_eq!(fs::read_to_string(&data).unwrap(), "new");
    });
}

#[test]
fn a_repeated_start_opens_no_overlay_while_a_file_below_is_open() {
    with_hold("", |_, fixture| {
        let (data, start, user) = mounted_read_only(fixture);
        end(start);
        eventually("the start has ended", || {
            fixture.status().0["reason"].as_str().is_some_and(|it| it.contains("was cut short"))
        });
        fixture.fails("start", &["in use by s"]);
        assert!(fs::write(&data, "new").is_err());
        end(user);
        fixture.ok("start");
        fs::write(&data, "new").unwrap();
        fixture.ok("stop");
    });
}

#[test]
fn a_file_that_a_process_out_of_sight_writes_is_not_taken_into_a_hold() {
    with_hold("", |place, fixture| {
        let data = fixture.directory().join("below/data");
        fs::create_dir(data.parent().unwrap()).unwrap();
        fs::write(&data, "data").unwrap();
        let before = fixture.everything();
        let (one, other) = UnixStream::pair().unwrap();
        send(&one, &fs::File::options().write(true).open(&data).unwrap());
        fixture.fails("start", &["in use by another process"]);
        assert_eq!(fixture.everything(), before);
        drop((one, other));
        // In another container with the same volume.
        let writer = user(fixture, "exec 3<>below/data");
        let words = ["--pid", "--fork", "--mount-proc", "sh", "-c", CONTAINER, binary()];
        let started = finish(place.command("unshare").args(words));
        failed(started, &["in use by another process"]);
        end(writer);
        fixture.ok("start");
        fixture.ok("stop");
    });
}

/// A daemon starts at the moment at which a start of the hold has made the file of the daemon.
#[test]
fn a_file_that_a_refused_start_made_stays_if_a_process_has_opened_it_meanwhile() {
    with_hold("", |place, fixture| {
        fs::remove_file(fixture.file()).unwrap();
        let file = fixture.file().display().to_string();
        let script = "until test -e \"$0\"; do :; done; exec 3<>\"$0\"
            until test -e go; do sleep 0.01; done; echo data >&3";
        let daemon = StartedCommand::new(place.command("sh").args(["-c", script, &file]));
        // The look at all processes begins late enough for the daemon.
        let late = ["-P", "/proc", "-e", "inject=getdents64:delay_enter=500000"];
        let start = traced_verb(fixture, "start", "getdents64", &late);
        assert_eq!(start.end().code(), Some(125), "{}", start.text());
        assert!(start.text().contains("in use by sh"), "{}", start.text());
        place.write("go", "");
        assert_eq!(daemon.end().code(), Some(0), "{}", daemon.text());
        assert_eq!(fs::read_to_string(&file).unwrap(), "data\n");
    });
}
