//! Processes of a run are killed or stopped: every call is answered, and every interrupted run
//! is reported.

use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use synconce_testkit::harness::{
    AFTER_RELEASE, Place, StartedCommand, daemon, eventually, exists, finish, isolated, kill,
    limit, parent, perl, stall,
};
use synconce_testkit::rig::Rig;

/// Starts a run whose command writes its pid to `before`, and then runs `script`.
fn start(place: &Place, script: &str) -> (StartedCommand, u32) {
    let run = StartedCommand::new(
        &mut place.held(&[], &perl(&format!("say_to('before', $$); {script}"))),
    );
    let command = place.wait_for("before").trim().parse().unwrap();
    (run, command)
}

/// Asserts that the run is listed as interrupted until it is cleared, once.
fn assert_interrupted(place: &Place) {
    // A killed process releases its locks a moment after its end.
    eventually("the run is found interrupted", || place.status(&[]).status.code() == Some(4));
    let status = place.status(&[]);
    assert_eq!(status.status.code(), Some(4), "{status:?}");
    assert!(status.stdout.contains(" interrupted perl "), "{status:?}");
    let json = place.status(&["--json"]);
    assert_eq!(json.status.code(), Some(4));
    let runs: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
    assert_eq!(runs[0]["state"], "interrupted", "{runs}");
    let id = runs[0]["id"].as_str().unwrap();
    assert!(status.stdout.contains(&format!("synconce status --clear {id}")));

    let cleared = place.status(&["--clear", id]);
    assert!(cleared.status.success() && cleared.stdout.is_empty(), "{cleared:?}");
    assert!(place.markers().is_empty());
    assert_eq!(place.status(&["--clear", id]).status.code(), Some(125));
    let status = place.status(&[]);
    assert!(status.status.success() && !status.stdout.contains("interrupted"), "{status:?}");
}

#[test]
fn a_run_whose_frontend_is_killed_ends_and_is_found_interrupted() {
    isolated(|place| {
        let (run, command) = start(place, "sync_file('data'); say_to('synced', 1); sleep 60;");
        place.wait_for("synced");
        let supervisor = place.supervisor();
        kill(run.pid(), Signal::KILL);
        eventually("the command is ended", || !exists(command));
        eventually("the supervisor ends", || !exists(supervisor));
        assert_interrupted(place);
    });
}

#[test]
fn a_run_that_held_nothing_leaves_nothing_when_it_is_killed() {
    isolated(|place| {
        for of_supervisor in [false, true] {
            let (run, command) = start(place, "wait_for('stop');");
            let supervisor = place.supervisor();
            kill(if of_supervisor { supervisor } else { run.pid() }, Signal::KILL);
            place.write("stop", "");
            eventually("all is over", || !exists(command) && !exists(supervisor));
            run.end();
            let status = place.status(&[]);
            assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
            assert!(place.markers().is_empty() && place.run_files().is_empty());
            place.remove("stop");
            place.remove("before");
        }
    });
}

#[test]
fn survivors_of_a_run_whose_frontend_is_killed_get_real_syncs() {
    isolated(|place| {
        let script = format!(
            "sync_file('data'); {} sleep 60;",
            daemon(&format!("say_to('daemon', $$); {AFTER_RELEASE}"))
        );
        let (run, _) = start(place, &script);
        place.wait_for("daemon");
        kill(run.pid(), Signal::KILL);
        eventually("the run is over", || place.status(&[]).status.code() == Some(4));
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        assert_interrupted(place);
    });
}

#[test]
fn a_command_whose_supervisor_is_killed_goes_on_with_real_syncs() {
    isolated(|place| {
        let script = format!("sync_file('data'); say_to('synced', 1); {AFTER_RELEASE} exit 5;");
        let (run, command) = start(place, &script);
        place.wait_for("synced");
        let supervisor = place.supervisor();
        assert_eq!(parent(command), supervisor);
        kill(supervisor, Signal::KILL);
        eventually("the command is the frontend's", || parent(command) == run.pid());
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        assert_eq!(run.end().code(), Some(125));
        assert!(run.text().contains("the supervisor was killed"), "{}", run.text());
        assert_interrupted(place);
    });
}

#[test]
fn a_signal_still_reaches_a_command_whose_supervisor_was_killed() {
    isolated(|place| {
        let script =
            "$SIG{TERM} = sub { say_to('caught', 1); exit 0 }; say_to('waits', 1); sleep 60;";
        let (run, command) = start(place, script);
        place.wait_for("waits");
        kill(parent(command), Signal::KILL);
        eventually("the command is the frontend's", || parent(command) == run.pid());
        kill(run.pid(), Signal::TERM);
        assert_eq!(run.end().code(), Some(125));
        assert_eq!(place.read("caught"), "1\n");
    });
}

/// Syncs in several processes until the file `stop` exists, and writes how often.
const BUSY: &str = "fork; fork; open(my $file, '>', \"data$$\") or die; my $count = 0; \
    until (-e 'stop') { $file->sync or $!{ENOSYS} or die \"sync: $!\"; $count++ } \
    say_to(\"count$$\", $count); exit 0 if $$ != $ENV{FIRST}; 1 while wait != -1; exit 0;";

fn start_busy(place: &Place) -> (StartedCommand, u32) {
    start(place, &format!("use Errno; $ENV{{FIRST}} = $$; {BUSY}"))
}

#[test]
fn no_call_is_stuck_when_the_supervisor_is_killed_at_any_moment() {
    isolated(|place| {
        for round in 0..25 {
            let (run, command) = start_busy(place);
            eventually("calls are held", || !place.markers().is_empty());
            std::thread::sleep(Duration::from_micros(round * 731));
            kill(parent(command), Signal::KILL);
            std::thread::sleep(Duration::from_millis(5));
            place.write("stop", "");
            assert_eq!(run.end().code(), Some(125), "round {round}: {}", run.text());
            assert!(!exists(command));
            assert_interrupted(place);
            place.remove("stop");
            place.remove("before");
        }
    });
}

#[test]
fn no_call_is_stuck_when_frontend_and_supervisor_are_killed_at_any_moment() {
    isolated(|place| {
        for round in 0..20 {
            let (run, command) = start_busy(place);
            eventually("calls are held", || !place.markers().is_empty());
            std::thread::sleep(Duration::from_micros(round * 913));
            let mut both = [parent(command), run.pid()];
            if round % 2 == 0 {
                both.reverse();
            }
            // The second process may have ended with the first.
            finish(place.command("kill").arg("-9").args(both.map(|pid| pid.to_string())));
            place.write("stop", "");
            eventually("the command is over", || !exists(command));
            assert_interrupted(place);
            place.remove("stop");
            place.remove("before");
        }
    });
}

#[test]
fn a_killed_command_is_committed_and_its_signal_passed_on() {
    isolated(|place| {
        let (run, command) = start(place, "sync_file('data'); say_to('synced', 1); sleep 60;");
        place.wait_for("synced");
        kill(command, Signal::KILL);
        assert_eq!(run.end().signal(), Some(libc::SIGKILL));
        assert!(place.markers().is_empty());
        assert!(place.status(&[]).status.success());
    });
}

#[test]
fn calls_are_answered_while_the_frontend_is_stopped() {
    isolated(|place| {
        let (run, _) =
            start(place, "wait_for('go'); say_to('after', hold() . ' ' . sync_file('data'));");
        kill(run.pid(), Signal::STOP);
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "held synced\n");
        assert_eq!(run.wait(Duration::from_millis(50)).unwrap(), None);
        kill(run.pid(), Signal::CONT);
        assert!(run.end().success());
    });
}

#[test]
fn calls_are_answered_while_a_stopped_frontend_reads_no_messages() {
    isolated(|place| {
        let script = "my $first = $$; if (!fork) { wait_for('go'); \
            for (1..2000) { kill 'STOP', $first; Time::HiRes::sleep(0.0005); kill 'CONT', $first; } \
            say_to('after', hold() . ' ' . sync_file('data')); exit } \
            until (-e 'after') { Time::HiRes::sleep(0.01) } wait;";
        let (run, _) = start(place, script);
        kill(run.pid(), Signal::STOP);
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "held synced\n");
        kill(run.pid(), Signal::CONT);
        // The frontend may have mirrored the command's last stop, so it is continued until it
        // ends.
        eventually("the run ends", || {
            kill(run.pid(), Signal::CONT);
            run.wait(Duration::from_millis(20)).unwrap().is_some()
        });
        assert!(run.end().success(), "{}", run.text());
    });
}

#[test]
fn a_commit_is_finished_after_a_kill_of_the_frontend() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        let data = rig.path().join("data");
        let script = format!("sync_file('{}'); say_to('held', 1); wait_for('go');", data.display());
        let (run, _) = start(place, &script);
        place.wait_for("held");
        let _stalled = stall(&rig);
        place.write("go", "");
        rig.disk().wait_for_waiting_flush(limit()).unwrap();
        kill(run.pid(), Signal::KILL);
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(3), "{status:?}");
        rig.disk().release_flushes().unwrap();
        eventually("the marker goes", || place.status(&[]).status.success());
        assert!(place.markers().is_empty());
        rig.down().unwrap();
    });
}

#[test]
fn the_frontend_follows_each_stop_and_continue_of_the_command() {
    isolated(|place| {
        for pause in [0, 1, 5, 100] {
            let (run, command) = start(place, "wait_for('stop'); exit 9;");
            kill(command, Signal::STOP);
            std::thread::sleep(Duration::from_millis(pause));
            kill(command, Signal::CONT);
            place.write("stop", "");
            assert_eq!(run.end().code(), Some(9), "after {pause} ms: {}", run.text());
            ["stop", "before"].iter().for_each(|name| place.remove(name));
        }
    });
}

#[test]
fn a_kill_of_a_stopped_command_continues_the_frontend() {
    isolated(|place| {
        for pause in [0, 1, 50] {
            let (run, command) = start(place, "sleep 60;");
            kill(command, Signal::STOP);
            std::thread::sleep(Duration::from_millis(pause));
            kill(command, Signal::KILL);
            assert_eq!(run.end().signal(), Some(libc::SIGKILL), "after {pause} ms: {}", run.text());
            place.remove("before");
        }
    });
}
