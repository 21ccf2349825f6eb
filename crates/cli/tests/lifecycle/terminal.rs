//! A run on a terminal: Ctrl-C, Ctrl-Z, job control and the hang-up.

use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use synconce_testkit::harness::{
    AFTER_RELEASE, Place, StartedCommand, Terminal, binary, daemon, eventually, exists, isolated,
    kill, perl,
};

/// Writes a perl program that runs `script`, in which `ready` prints "ready" and `nap` waits a
/// moment. Returns the command line that runs the program under a hold.
fn program(place: &Place, script: &str) -> String {
    let [_, _, text] = perl(&format!(
        "$| = 1; sub ready {{ print \"ready\\n\" }} \
         sub nap {{ Time::HiRes::sleep(0.01) }} {script}"
    ));
    place.write("program", &text);
    "$SYNCONCE run -- perl program".to_owned()
}

#[test]
fn ctrl_c_ends_the_command_and_the_shell_sees_death_by_that_signal() {
    isolated(|place| {
        let run = program(place, "sync_file('data'); ready; sleep 60;");
        let mut terminal = Terminal::shell(place);
        terminal.line(&run);
        terminal.expect("ready\r\n");
        terminal.write("\u{3}");
        assert_eq!(terminal.code(), "130");
        assert!(place.markers().is_empty(), "what was interrupted is committed");
        terminal.write("exit\n");
        terminal.end();

        // On Ctrl-C, bash ends a script only if SIGINT also killed the command that was running.
        let script = format!("{run}; echo went on");
        let mut terminal = Terminal::start(place, &["bash", "-c", &script]);
        terminal.expect("ready\r\n");
        terminal.write("\u{3}");
        assert_eq!(terminal.end().signal(), Some(libc::SIGINT));
    });
}

/// The frontend, which leads the process group, reads SIGINT before SIGUSR1. So the command has got
/// what the frontend passes on of SIGINT once it gets SIGUSR1.
#[test]
fn ctrl_c_reaches_a_command_that_handles_it_once() {
    isolated(|place| {
        let run = program(
            place,
            "my ($caught, $passed) = (0, 0); $SIG{INT} = sub { $caught++ }; \
             $SIG{USR1} = sub { $passed = 1 }; ready; nap until $caught; \
             system 'kill', '-USR1', getpgrp; nap until $passed; \
             print \"caught $caught\\n\"; exit 7;",
        );
        let mut terminal = Terminal::shell(place);
        terminal.line(&run);
        terminal.expect("ready\r\n");
        terminal.write("\u{3}");
        terminal.expect("caught 1\r\n");
        assert_eq!(terminal.code(), "7");
    });
}

#[test]
fn a_command_that_ignores_ctrl_c_goes_on() {
    isolated(|place| {
        let run =
            program(place, "$SIG{INT} = 'IGNORE'; ready; print 'got ', scalar <STDIN>; exit 3;");
        let mut terminal = Terminal::shell(place);
        terminal.line(&run);
        terminal.expect("ready\r\n");
        terminal.write("\u{3}");
        terminal.write("hello\n");
        terminal.expect("got hello\r\n");
        assert_eq!(terminal.code(), "3");
    });
}

#[test]
fn ctrl_z_stops_the_run_and_fg_continues_it() {
    isolated(|place| {
        let run = program(
            place,
            "my $times = 0; $SIG{CONT} = sub { print 'continued ', ++$times, \"\\n\" }; \
             ready; while (<STDIN>) { print \"got $_\"; print sync_file('data'), \"\\n\"; exit 4 if /last/ }",
        );
        let mut terminal = Terminal::shell(place);
        terminal.line(&run);
        terminal.expect("ready\r\n");
        for (times, word) in [(1, "first"), (2, "second")] {
            terminal.write("\u{1a}");
            terminal.expect("Stopped");
            assert_eq!(terminal.code(), "148");
            terminal.line("jobs");
            terminal.expect("Stopped");
            terminal.line("fg");
            terminal.expect(&format!("continued {times}\r\n"));
            terminal.write(&format!("{word}\n"));
            terminal.expect(&format!("got {word}\r\n"));
            terminal.expect("synced\r\n");
        }
        terminal.write("last\n");
        terminal.expect("synced\r\n");
        assert_eq!(terminal.code(), "4");
    });
}

#[test]
fn a_run_in_the_background_that_reads_the_terminal_is_stopped_until_fg() {
    isolated(|place| {
        let run = program(place, "ready; print 'got ', scalar <STDIN>; exit 6;");
        let mut terminal = Terminal::shell(place);
        terminal.line(&format!("{run} &"));
        terminal.expect("ready\r\n");
        // bash reports that a job was stopped before the next prompt.
        eventually("the job is stopped", || {
            terminal.line("jobs");
            terminal.expect("perl program").contains("Stopped")
        });
        terminal.line("fg");
        terminal.write("hello\n");
        terminal.expect("got hello\r\n");
        assert_eq!(terminal.code(), "6");
    });
}

#[test]
fn an_interactive_shell_works_under_a_hold() {
    isolated(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("$SYNCONCE run -- bash --norc --noprofile --noediting -i");
        assert_eq!(terminal.code(), "0");
        terminal.line("test -n \"$SYNCONCE_RUN\" && echo in\"side\"");
        terminal.expect("inside\r\n");
        // Job control of the inner shell.
        terminal.line("perl -e '$| = 1; $SIG{CONT} = sub { print \"on\\n\" }; print \"job\\n\"; sleep 60 while 1'");
        terminal.expect("job\r\n");
        terminal.write("\u{1a}");
        terminal.expect("Stopped");
        terminal.line("fg");
        terminal.expect("on\r\n");
        terminal.write("\u{3}");
        assert_eq!(terminal.code(), "130");
        terminal.line("exit 5");
        terminal.expect("exit\r\n");
        assert_eq!(terminal.code(), "5");
        terminal.line("echo $((6 * 7))");
        terminal.expect("42\r\n");
        terminal.line("exit 0");
        assert!(terminal.end().success());
    });
}

#[test]
fn a_held_shell_that_suspends_itself_is_continued_by_fg() {
    isolated(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("$SYNCONCE run -- bash --norc --noprofile --noediting -i");
        assert_eq!(terminal.code(), "0");
        terminal.line("suspend");
        terminal.expect("Stopped");
        assert_eq!(terminal.code(), "147", "stopped by SIGSTOP");
        terminal.line("fg");
        terminal.line("exit 8");
        terminal.expect("exit\r\n");
        assert_eq!(terminal.code(), "8");
    });
}

#[test]
fn a_stop_of_the_whole_job_is_undone_by_continuing_it_once() {
    isolated(|place| {
        let script = "$SIG{CONT} = sub { print \"on\\n\" }; ready; nap until -e 'stop'; exit 6;";
        let run = program(place, script);
        let mut terminal = Terminal::shell(place);
        terminal.line(&format!("{run} &"));
        terminal.expect("ready\r\n");
        terminal.line("kill -STOP %1");
        eventually("the job is stopped", || {
            terminal.line("jobs");
            terminal.expect("perl program").contains("Stopped")
        });
        terminal.line("bg");
        terminal.expect("on\r\n");
        terminal.line("jobs");
        terminal.expect("Running");
        place.write("stop", "");
        terminal.line("wait %1");
        assert_eq!(terminal.code(), "6");
    });
}

#[test]
fn a_signal_to_the_frontend_alone_reaches_the_command() {
    isolated(|place| {
        for (name, signal) in [
            ("TERM", Signal::TERM),
            ("INT", Signal::INT),
            ("HUP", Signal::HUP),
            ("QUIT", Signal::QUIT),
            ("USR1", Signal::USR1),
            ("USR2", Signal::USR2),
        ] {
            let script = format!(
                "$SIG{{{name}}} = sub {{ say_to('caught', '{name}'); exit 11 }}; \
                 say_to('before', $$); sleep 60;"
            );
            let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
            place.wait_for("before");
            kill(run.pid(), signal);
            assert_eq!(run.end().code(), Some(11), "{name}: {}", run.text());
            assert_eq!(place.read("caught"), format!("{name}\n"));
            place.remove("before");
        }
    });
}

#[test]
fn a_signal_that_comes_before_the_command_is_not_lost() {
    isolated(|place| {
        for round in 0..20 {
            let run = StartedCommand::new(&mut place.held(&[], &["sleep", "25"]));
            std::thread::sleep(std::time::Duration::from_micros(round * 400));
            kill(run.pid(), Signal::TERM);
            assert_eq!(run.end().signal(), Some(libc::SIGTERM), "round {round}: {}", run.text());
        }
    });
}

#[test]
fn the_hang_up_of_the_terminal_ends_the_command_but_not_the_commit_or_a_daemon() {
    isolated(|place| {
        let script = format!(
            "sync_file('data'); {} say_to('command', $$); sleep 60;",
            daemon(&format!("say_to('daemon', $$); {AFTER_RELEASE}"))
        );
        let run = program(place, &script);
        let mut terminal = Terminal::shell(place);
        terminal.line(&run);
        let command = place.wait_for("command").trim().parse().unwrap();
        let daemon = place.wait_for("daemon").trim().parse().unwrap();
        assert_eq!(place.status(&[]).status.code(), Some(3));
        terminal.hang_up();
        eventually("the command ends", || !exists(command));
        terminal.end();
        eventually("the run is committed", || place.status(&[]).status.success());
        assert!(place.markers().is_empty());
        assert!(exists(daemon));
        assert!(place.status(&[]).stdout.contains(" serving "));
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        eventually("the supervisor ends", || place.run_files().is_empty());
    });
}

/// In `tmux new-window 'synconce run ...'` and `ssh -t HOST synconce run ...`, synconce leads the
/// session. The kernel sends the hang-up to the leader alone.
#[test]
fn the_hang_up_of_a_terminal_whose_session_synconce_leads_ends_the_command() {
    isolated(|place| {
        let handles = "$SIG{HUP} = sub { exit 4 };";
        let ignores = "$SIG{HUP} = 'IGNORE';";
        let leaves = "POSIX::setsid();";
        // The kernel continues the leader, too.
        let stops = "$SIG{HUP} = sub { exit 4 }; $main::stops = 1;";
        let run = &[binary(), "run", "--"][..];
        let sealed = &[binary(), "run", "--sealed", "--"][..];
        for (around, does, code) in [
            (&[][..], handles, 4),
            (run, handles, 4),
            (sealed, handles, 4),
            (run, stops, 4),
            (sealed, stops, 4),
            (run, ignores, 5),
            (run, leaves, 5),
            (sealed, leaves, 5),
        ] {
            let script = format!(
                "{does} $SIG{{USR1}} = sub {{ exit 5 }}; sync_file('data'); \
                 say_to('begun', $$); kill 'STOP', $$ if $main::stops; \
                 for (1..600) {{ Time::HiRes::sleep(0.1) }}"
            );
            let program = perl(&script);
            let program = program.each_ref().map(String::as_str);
            let mut terminal = Terminal::start(place, &[around, &program].concat());
            let pid = place.wait_for("begun").trim().to_owned();
            let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            eventually("the command stops", || does != stops || stat().contains(") T "));
            terminal.hang_up();
            if code == 5 {
                // The frontend reads SIGHUP before SIGUSR1, and passes on SIGUSR1 in any case.
                kill(terminal.leader(), Signal::USR1);
            }
            assert_eq!(terminal.end().code(), Some(code), "{around:?} {does}");
            assert!(place.markers().is_empty(), "{around:?} {does}");
            place.remove("begun");
        }
    });
}

/// tmux, screen and script(1) continue the leader of a session that they started.
#[test]
fn the_leader_of_a_session_stops_with_its_command_until_it_is_continued() {
    isolated(|place| {
        let program = perl("sync_file('data'); kill 'STOP', $$; exit 6;");
        let program = program.each_ref().map(String::as_str);
        let mut terminal =
            Terminal::start(place, &[&[binary(), "run", "--"], &program[..]].concat());
        let stat = format!("/proc/{}/stat", terminal.leader());
        let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
        eventually("the leader stops", is_stopped);
        kill(terminal.leader(), Signal::CONT);
        assert_eq!(terminal.end().code(), Some(6));
    });
}

/// The leader of the session has no process ID in the pid namespace of the run.
#[test]
fn the_hang_up_of_a_terminal_from_outside_of_the_pid_namespace_ends_the_command() {
    isolated(|place| {
        let program =
            perl("$SIG{HUP} = sub { exit 4 }; sync_file('data'); say_to('begun', $$); sleep 60;");
        // The shell ends by the hang-up. Then the kernel sends SIGHUP to its job.
        let inside = "unshare --pid --fork --mount-proc \"$@\"; echo $? > code";
        let line = format!("env --ignore-signal=HUP sh -c '{inside}' sh \"$@\"; true");
        let words = ["bash", "-c", &line, "bash", binary(), "run", "--"];
        let program = program.each_ref().map(String::as_str);
        let mut terminal = Terminal::start(place, &[&words[..], &program].concat());
        place.wait_for("begun");
        terminal.hang_up();
        assert_eq!(terminal.end().signal(), Some(libc::SIGHUP));
        assert_eq!(place.wait_for("code"), "4\n");
        assert!(place.markers().is_empty());
    });
}
