//! Signals that are sent to synconce reach the command, whatever runs it.

use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use synconce_testkit::harness::{
    Place, StartedCommand, Terminal, binary, eventually, finish, isolated, kill, perl, stall,
};
use synconce_testkit::rig::Rig;

/// Counts every signal that can be caught, except SIGCHLD, and writes the counts at SIGTERM.
const COUNTS: &str = "my %count; for my $number (1 .. 31, 34 .. 64) { \
    next if grep { $_ == $number } 9, 19, 17; \
    my $note = sub { say_to(\"caught-$number\", ++$count{$number}); \
        if ($number == 15) { say_to('all', join(' ', map { \"$_:$count{$_}\" } \
            sort { $a <=> $b } keys %count)); exit 5 } }; \
    POSIX::sigaction($number, POSIX::SigAction->new($note)) or die $number; } \
    say_to('before', $$); Time::HiRes::sleep(0.01) while 1;";

/// The signals that are passed on, and do not stop synconce; SIGTERM last.
fn sent() -> Vec<i32> {
    let kept = [4, 5, 7, 8, 9, 11, 17, 18, 19, 20, 21, 22, 31, 15];
    (1..32).chain(34..=64).filter(|signal| !kept.contains(signal)).chain([15]).collect()
}

fn send(pid: u32, number: i32) {
    let words = [format!("-{number}"), pid.to_string()];
    assert!(std::process::Command::new("kill").args(words).status().unwrap().success());
}

/// Sends every signal to the process that `words` start. Returns how often the program that
/// counts got each.
fn counts(place: &Place, words: &[&str]) -> String {
    for file in fs::read_dir(place.path(".")).unwrap().flatten() {
        let name = file.file_name().into_string().unwrap();
        if name.starts_with("caught-") || ["before", "all"].contains(&name.as_str()) {
            place.remove(&name);
        }
    }
    let run = StartedCommand::new(place.command(words[0]).args(&words[1..]));
    place.wait_for("before");
    for signal in sent() {
        send(run.pid(), signal);
        eventually(&format!("{signal} arrives: {words:?}"), || {
            !place.read(&format!("caught-{signal}")).is_empty()
        });
    }
    assert_eq!(run.end().code(), Some(5), "{words:?}: {}", run.text());
    place.read("all")
}

#[test]
fn every_signal_reaches_the_command_once() {
    isolated(|place| {
        let program = perl(COUNTS);
        let program = program.each_ref().map(String::as_str);
        let bare = counts(place, &program);
        let synconce = binary();
        for around in [
            &[synconce, "run", "--"][..],
            &[synconce, "run", "--sealed", "--"],
            &[synconce, "real", "--"],
        ] {
            assert_eq!(counts(place, &[around, &program].concat()), bare, "{around:?}");
        }
        // The process that gets the signals is the parent of the one that counts.
        let inner = "exec \"$SYNCONCE\" real -- \"$@\"";
        let words = [&["sh", "-c", inner, "sh"], &program[..]].concat();
        let around = [synconce, "run", "--"];
        assert_eq!(
            counts(
                place,
                &[&around[..], &["env", &format!("SYNCONCE={synconce}")], &words].concat()
            ),
            bare
        );
    });
}

#[test]
fn a_timer_from_before_ends_the_command() {
    isolated(|place| {
        let alarm = "alarm 1; exec @ARGV";
        for around in [&[][..], &[binary(), "run", "--"], &[binary(), "run", "--sealed", "--"]] {
            let words = [&["perl", "-e", alarm, "--"], around, &["sleep", "50"]].concat();
            let run = StartedCommand::new(place.command(words[0]).args(&words[1..]));
            assert_eq!(run.end().signal(), Some(libc::SIGALRM), "{words:?}: {}", run.text());
        }
    });
}

#[test]
fn a_change_of_the_terminals_size_reaches_the_command_once() {
    isolated(|place| {
        // One dimension at a time: stty(1) sets each by a call of its own. The last sleep lets a
        // second signal arrive; a test that passes does not depend on it.
        let script = "my $count = 0; $SIG{WINCH} = sub { $count++ }; for my $change (1 .. 5) { \
                      my $rows = 40 + $change; system(\"stty rows $rows\"); \
                      Time::HiRes::sleep(0.01) until $count >= $change; } \
                      Time::HiRes::sleep(0.2); say_to('counted', $count);";
        place.write("script", &perl(script)[2]);
        let bare = "perl script".to_owned();
        for line in [bare, format!("{} run -- perl script", binary())] {
            let mut terminal = Terminal::shell(place);
            terminal.line(&line);
            assert_eq!(place.wait_for("counted"), "5\n", "{line}");
            terminal.write("exit\n");
            terminal.end();
            place.remove("counted");
        }
    });
}

#[test]
fn execve_of_an_ordinary_user_is_never_interrupted() {
    isolated(|place| {
        // The handler has no SA_RESTART. The timer stays over execve(2), and ends the program.
        let script = "POSIX::sigaction(14, POSIX::SigAction->new(sub {})); my %ends; \
            for (1 .. 100) { if (!(my $child = fork)) { \
                Time::HiRes::setitimer(0, 0.0001, 0.0001); \
                no warnings; exec '/bin/true'; POSIX::_exit($!{EINTR} ? 77 : 78); } \
                wait; $ends{$? >> 8}++; } print join ' ', map { \"$_:$ends{$_}\" } keys %ends;";
        let program = perl(script);
        let user = ["setpriv", "--reuid=64122", "--regid=64122", "--clear-groups"];
        for around in [&[][..], &[binary(), "run", "--no-commit", "--"]] {
            let words: Vec<_> = user.iter().chain(around).copied().collect();
            let words = [words, program.each_ref().map(String::as_str).to_vec()].concat();
            let ended = finish(place.command(words[0]).args(&words[1..]));
            assert_eq!(ended.stdout, "0:100", "{around:?}: {ended:?}");
        }
    });
}

/// Runs a command in a pid namespace of its own.
const UNSHARE: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];
/// Sends SIGTERM as another user, with the right to do so.
const KILL: [&str; 6] =
    ["setpriv", "--reuid=64122", "--inh-caps=+kill", "--ambient-caps=+kill", "kill", "-TERM"];

/// Sends SIGTERM to a run that `unshare` starts, and again by the command `again` or by this
/// process during the commit. Asserts whether the run `waits` for the commit. Returns false if the
/// machine was too busy to send both within half a second.
fn sends_sigterm_twice(place: &Place, unshare: &[&str], again: &[&str], waits: bool) -> bool {
    let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
    let data = rig.path().join("data");
    let program = perl(&format!("sync_file('{}'); say_to('held', 1); sleep 60;", data.display()));
    // The first process of a pid namespace ends after the commit: all others end with it.
    let shell = "\"$@\"; echo $? >ended; until [ -e over ]; do sleep 0.1; done";
    let words = [unshare, &["sh", "-c", shell, "sh", binary(), "run", "--"]].concat();
    let mut command = place.command(words[0]);
    let run = StartedCommand::new(command.args(&words[1..]).args(&program));
    place.wait_for("held");
    let generations = if unshare.is_empty() { 1 } else { 2 };
    let pid = (0..generations).fold(run.pid(), |pid, _| only_child(pid));
    let stalled = stall(&rig);
    // As by timeout(1), which signals the process and then its group.
    let term = || kill(pid, Signal::TERM);
    term();
    let first = Instant::now();
    eventually("the commit begins", || place.status(&[]).stdout.contains(" committing "));
    if again.is_empty() {
        term();
    } else {
        let sent = place.bare(&[again, &[&pid.to_string()]].concat());
        assert!(sent.status.success(), "{sent:?}");
    }
    let is_in_time = first.elapsed() < Duration::from_millis(500);
    if waits {
        let ended = run.wait(Duration::from_millis(300)).unwrap();
        assert!(
            ended.is_none() && (!is_in_time || place.read("ended").is_empty()),
            "{}",
            run.text()
        );
    } else {
        place.wait_for("ended");
        assert!(run.text().contains("not yet durable: "), "{}", run.text());
    }
    rig.disk().release_flushes().unwrap();
    let code = if waits { "143\n" } else { "125\n" };
    assert!(place.wait_for("ended") == code || waits && !is_in_time, "{}", run.text());
    eventually("it is durable", || place.markers().is_empty());
    place.write("over", "");
    run.end();
    drop(stalled);
    ["held", "ended", "over"].iter().for_each(|name| place.remove(name));
    rig.down().unwrap();
    is_in_time
}

fn only_child(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

#[test]
fn a_sigterm_that_arrives_twice_does_not_cut_the_wait_short() {
    isolated(|place| {
        for unshare in [&[][..], &UNSHARE] {
            eventually("both signals are sent in time", || {
                sends_sigterm_twice(place, unshare, &[], true)
            });
        }
    });
}

#[test]
fn a_sigterm_of_another_user_outside_of_the_pid_namespace_ends_the_wait() {
    isolated(|place| {
        eventually("both signals are sent in time", || {
            sends_sigterm_twice(place, &UNSHARE, &KILL, false)
        });
    });
}
