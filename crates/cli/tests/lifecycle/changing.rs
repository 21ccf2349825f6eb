//! Calls that go on without their sync flag, and are stopped, killed or interrupted meanwhile.

use rustix::process::Signal;
use std::time::Duration;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, finish, isolated, kill, parent, perl, process_status,
};

/// Returns the field `name` of `/proc/PID/status`; empty once the process is gone.
fn status_field(pid: u32, name: &str) -> String {
    process_status(pid).remove(name).unwrap_or_default()
}

/// Takes a lease on the file `leased`: an open of it waits until the file `release` exists
/// (fcntl(2), F_SETLEASE).
pub fn lend(place: &Place) -> StartedCommand {
    let lease = perl(
        "$SIG{IO} = sub { say_to('asked', 1) }; open(my $file, '+>', 'leased') or die; \
         fcntl($file, 1024, 1) or die \"F_SETLEASE: $!\"; say_to('lent', 1); \
         wait_for('release'); fcntl($file, 1024, 2) or die;",
    );
    let holder = StartedCommand::new(place.command(&lease[0]).args(&lease[1..]));
    place.wait_for("lent");
    holder
}

/// A child whose open, without its sync flag, waits until the lease is released.
const BLOCKED: &str =
    "use Fcntl; if (!fork) { sysopen(my $file, 'leased', O_WRONLY | O_SYNC) or die; exit } ";

#[test]
fn a_stop_of_the_command_is_passed_on_while_another_process_waits_in_its_open() {
    isolated(|place| {
        let holder = lend(place);
        let script = format!("{BLOCKED} say_to('before', $$); wait_for('stop'); wait; exit 9;");
        let words = perl(&script);
        let run = StartedCommand::new(&mut place.held(&[], &words));
        let command: u32 = place.wait_for("before").trim().parse().unwrap();
        place.wait_for("asked");
        for _ in 0..100 {
            kill(command, Signal::STOP);
            eventually("the frontend stops", || status_field(run.pid(), "State").starts_with('T'));
            kill(run.pid(), Signal::CONT);
            eventually("the command goes on", || !status_field(command, "State").starts_with('T'));
        }
        place.write("stop", "");
        place.write("release", "");
        assert_eq!(run.end().code(), Some(9), "{}", run.text());
        assert!(holder.end().success(), "{}", holder.text());
    });
}

/// Runs `words`, which write the pid of the command to `before`. Stops the command and
/// continues the frontend, several times; then writes the file `stop`, and expects the exit
/// code `code`.
fn assert_stops_are_passed_on(place: &Place, words: &[&str], code: i32) {
    let run = StartedCommand::new(&mut place.held(&[], words));
    let command: u32 = place.wait_for("before").trim().parse().unwrap();
    for _ in 0..5 {
        kill(command, Signal::STOP);
        eventually("the frontend stops", || status_field(run.pid(), "State").starts_with('T'));
        kill(run.pid(), Signal::CONT);
        eventually("a thread goes on", || is_running(command));
    }
    place.write("stop", "");
    assert_eq!(run.end().code(), Some(code), "{}", run.text());
    ["before", "stop"].iter().for_each(|name| place.remove(name));
}

/// Whether a thread of `pid` runs: it is neither stopped by a signal nor by a tracer.
fn is_running(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut ids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.any(|id| status_field(id, "State").starts_with(['R', 'S', 'D']))
}

#[test]
fn a_stop_is_passed_on_in_a_pid_namespace_without_the_process_group() {
    isolated(|place| {
        // The group began outside, so that its id is 0 inside.
        let script = "\"$0\" run -- sh -c 'kill -STOP $$; exit 9' & frontend=$!
            until ! [ -e /proc/$frontend/exe ] || grep -q '^State:.T' /proc/$frontend/status; do
                sleep 0.01
            done
            kill -CONT $frontend; wait $frontend";
        let mut command = place.command("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
        let run = finish(command.arg(binary()));
        assert_eq!(run.status.code(), Some(9), "{run:?}");
    });
}

#[test]
fn a_stop_of_a_command_whose_first_thread_has_ended_is_passed_on() {
    isolated(|place| {
        let script = "import ctypes, os, threading, time\n\
            def work():\n\
            \x20   open('new', 'w').write(f'{os.getpid()}\\n'); os.rename('new', 'before')\n\
            \x20   while not os.path.exists('stop'): time.sleep(0.005)\n\
            \x20   os._exit(9)\n\
            threading.Thread(target=work).start(); ctypes.CDLL(None).syscall(EXIT, 0)\n";
        let script = script.replace("EXIT", &libc::SYS_exit.to_string());
        assert_stops_are_passed_on(place, &["python3", "-c", &script], 9);
    });
}

#[test]
fn a_stop_of_a_command_that_a_debugger_has_is_passed_on() {
    isolated(|place| {
        let script = "echo $$ >new; mv new before; until [ -e stop ]; do sleep 0.01; done; exit 9";
        let words = ["strace", "-D", "-o", "/dev/null", "sh", "-c", script];
        assert_stops_are_passed_on(place, &words, 9);
    });
}

#[test]
fn a_command_that_is_killed_amid_its_own_changed_calls_ends_its_run() {
    isolated(|place| {
        for round in 0..40_u64 {
            let words = perl(
                "use Fcntl; say_to('before', $$); for (;;) { \
                 sysopen(my $file, 'data', O_WRONLY | O_CREAT | O_SYNC) or die }",
            );
            let run = StartedCommand::new(&mut place.held(&[], &words));
            let command: u32 = place.wait_for("before").trim().parse().unwrap();
            std::thread::sleep(Duration::from_micros(round * 137));
            kill(command, Signal::KILL);
            let status = run.end();
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            assert_eq!(signal, Some(9), "round {round}: {}", run.text());
            place.remove("before");
        }
    });
}

const SIGTERM_AND_SIGALRM: u64 = 1 << 14 | 1 << 13;

#[test]
fn no_signal_stays_blocked_when_the_supervisor_is_killed_during_many_calls() {
    isolated(|place| {
        let stormy = "use Fcntl; $SIG{ALRM} = sub {}; \
            Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0.0001, 0.0001); \
            say_to('before', $$); until (-e 'stop') { \
            sysopen(my $file, 'data', O_WRONLY | O_CREAT | O_SYNC) or $!{EINTR} or die \"$!\" } \
            Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0, 0); say_to('rests', 1); \
            wait_for('end');";
        for round in 0..30_u64 {
            let run = StartedCommand::new(&mut place.held(&[], &perl(stormy)));
            let command: u32 = place.wait_for("before").trim().parse().unwrap();
            std::thread::sleep(Duration::from_micros(20_000 + round * 311));
            kill(parent(command), Signal::KILL);
            eventually("nothing is blocked", || {
                let blocked = u64::from_str_radix(&status_field(command, "SigBlk"), 16);
                blocked.is_ok_and(|mask| mask & SIGTERM_AND_SIGALRM == 0)
            });
            place.write("stop", "");
            place.wait_for("rests");
            place.write("end", "");
            assert_eq!(run.end().code(), Some(125), "round {round}: {}", run.text());
            ["before", "stop", "rests", "end"].iter().for_each(|name| place.remove(name));
            let status = place.status(&["--json"]);
            let runs: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
            for run in runs.as_array().into_iter().flatten() {
                place.status(&["--clear", run["id"].as_str().unwrap()]);
            }
        }
    });
}
