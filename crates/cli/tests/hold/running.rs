//! `hold run`: a daemon whose files are held while it runs.

use crate::support::{end, failed, sh, with_hold};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use synconce_testkit::harness::{StartedCommand, Terminal, binary, eventually, kill};

#[test]
fn the_files_are_held_while_the_command_runs_and_its_exit_code_is_passed_on() {
    with_hold("", |_, fixture| {
        let script = "\"$0\" hold status ./t.toml; exit 7";
        let binary = binary();
        let ended = fixture.run(&["sh", "-c", script, binary]);
        assert_eq!(ended.status.code(), Some(7), "{}", ended.stderr);
        assert!(ended.stdout.contains(" held "), "{}", ended.stdout);
        assert_eq!(fixture.state(), "off");
        for (command, code) in [("/absent", 127), ("/etc/passwd", 126)] {
            let ended = fixture.run(&[command]);
            assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
            assert_eq!(fixture.state(), "off");
        }
    });
}

#[test]
fn a_signal_reaches_the_daemon_and_the_hold_ends_with_it() {
    with_hold("", |place, fixture| {
        let script = "trap 'kill $!; exit 5' TERM; echo up >up; sleep 600 & wait";
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", script];
        let running = StartedCommand::new(&mut place.synconce(&words));
        place.wait_for("up");
        kill(running.pid(), Signal::TERM);
        assert_eq!(running.end().code(), Some(5));
        assert_eq!(fixture.state(), "off");
        let ended = fixture.run(&["sh", "-c", "kill -KILL $$"]);
        assert_eq!(ended.status.signal(), Some(9), "{}", ended.stderr);
        assert_eq!(fixture.state(), "off");
    });
}

/// The kernel sends the hang-up to the leader of the session alone, which is synconce here.
#[test]
fn the_hang_up_of_a_terminal_reaches_a_daemon_of_its_session_only() {
    with_hold("", |place, fixture| {
        let script = "trap 'exit 4' HUP; trap 'exit 5' USR1; echo up >up; \
                      while :; do sleep 0.01; done";
        for (own_session, code) in [(&[][..], 4), (&["setsid"], 5)] {
            let words = [binary(), "hold", "run", "./t.toml", "--"];
            let words = [&words[..], own_session, &["sh", "-c", script]].concat();
            let mut terminal = Terminal::start(place, &words);
            place.wait_for("up");
            place.remove("up");
            terminal.hang_up();
            if code == 5 {
                // synconce reads SIGHUP before SIGUSR1, and passes on SIGUSR1 in any case.
                kill(terminal.leader(), Signal::USR1);
            }
            assert_eq!(terminal.end().code(), Some(code), "{own_session:?}");
            assert_eq!(fixture.state(), "off");
        }
    });
}

#[test]
fn every_signal_reaches_the_daemon() {
    with_hold("", |place, fixture| {
        for (signal, name) in [
            (Signal::USR1, "USR1"),
            (Signal::USR2, "USR2"),
            (Signal::ALARM, "ALRM"),
            (Signal::POWER, "PWR"),
            (Signal::XCPU, "XCPU"),
            (Signal::URG, "URG"),
            (Signal::WINCH, "WINCH"),
            (Signal::INT, "INT"),
        ] {
            let script = format!("trap 'kill $!; exit 6' {name}; echo up >up; sleep 600 & wait");
            let words = ["hold", "run", "./t.toml", "--", "sh", "-c", &script];
            let running = StartedCommand::new(&mut place.synconce(&words));
            place.wait_for("up");
            place.remove("up");
            kill(running.pid(), signal);
            assert_eq!(running.end().code(), Some(6), "{name}: {}", running.text());
            assert_eq!(fixture.state(), "off", "{name}");
        }
    });
}

#[test]
fn an_empty_name_of_a_command_is_quoted_and_the_hold_stops() {
    with_hold("", |_, fixture| {
        let ended = fixture.run(&[""]);
        assert_eq!(ended.status.code(), Some(127), "{ended:?}");
        let said = "synconce: cannot execute '': No such file or directory\n";
        assert!(ended.stderr.ends_with(said), "{ended:?}");
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn the_guard_of_a_run_ends_by_the_signal_of_a_shutdown() {
    with_hold("", |place, fixture| {
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", "echo up >up; exec sleep 600"];
        let running = StartedCommand::new(&mut place.synconce(&words));
        place.wait_for("up");
        place.bare(&["pkill", "-TERM", "-x", "synconce-guard"]);
        eventually("the guard ends", || {
            !place.bare(&["pgrep", "--runstates", "R,S,D", "-x", "synconce-guard"]).status.success()
        });
        kill(running.pid(), Signal::TERM);
        running.end();
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_kill_of_synconce_leaves_the_hold_in_force_for_the_next_start() {
    with_hold("", |place, fixture| {
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", "echo up >up; exec sleep 600"];
        let running = StartedCommand::new(&mut place.synconce(&words));
        place.wait_for("up");
        kill(running.pid(), Signal::KILL);
        running.end();
        assert_eq!(fixture.state(), "held");
        end(running);
        assert_eq!(fixture.run(&["true"]).status.code(), Some(0));
        assert_eq!(fixture.state(), "off");
    });
}

/// The begin of the hint of a daemon without a unit.
const HINT: &str = "synconce: hint: stop the daemon; or: ";

#[test]
fn a_daemon_that_a_killed_run_has_left_gets_no_second_one_beside_it() {
    with_hold("", |place, fixture| {
        let script = format!("exec 3<>'{}'; echo up >up; exec sleep 600", fixture.file().display());
        let running = StartedCommand::new(
            &mut place.synconce(&["hold", "run", "./t.toml", "--", "sh", "-c", &script]),
        );
        place.wait_for("up");
        kill(running.pid(), Signal::KILL);
        running.end();
        let refused = fixture.run(&["touch", "ran"]);
        let hint = refused.stderr.lines().last().and_then(|line| line.strip_prefix(HINT));
        let command = hint.expect("a command").to_owned();
        failed(refused, &["are held already", "in use by sleep"]);
        assert!(!place.path("ran").exists());
        assert_eq!(fixture.state(), "held");
        sh(place, &command);
        end(running);
        assert_eq!(fixture.run(&["true"]).status.code(), Some(0));
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_second_run_does_not_end_the_hold_of_the_first() {
    with_hold("", |place, fixture| {
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", "echo up >up; exec sleep 600"];
        let running = StartedCommand::new(&mut place.synconce(&words));
        place.wait_for("up");
        failed(fixture.run(&["true"]), &["another \"synconce hold run\""]);
        assert_eq!(fixture.state(), "held");
        kill(running.pid(), Signal::TERM);
        running.end();
        assert_eq!(fixture.state(), "off");
    });
}
