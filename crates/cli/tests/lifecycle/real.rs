//! `synconce real`: the syncs of one command are real, those of all others stay held.

use crate::checkpoints::flushes;
use crate::commit::rig;
use rustix::process::Signal;
use std::path::Path;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, daemon, eventually, isolated, kill, parent, perl,
    without_foreign_syncs,
};
use synconce_testkit::process::Finished;

/// Runs a perl script under `synconce run OPTIONS`. In the script, `real` starts another one
/// under `synconce real`.
fn run(place: &Place, options: &[&str], script: &str) -> Finished {
    let mut command = place.held(options, &perl(&format!("{REAL} {script}")));
    synconce_testkit::harness::finish(
        command.env("SYNCONCE", binary()).env("PRELUDE", &perl("")[2]),
    )
}

const REAL: &str = r#"sub real { return system($ENV{SYNCONCE}, "real", "--", "perl", "-e", "$ENV{PRELUDE} $_[0]"); }"#;

fn sync(path: &Path) -> String {
    format!("sync_file('{}');", path.display())
}

#[test]
fn only_the_syncs_of_the_command_and_its_descendants_reach_the_disk() {
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        let rig = rig();
        let own = sync(&rig.path().join("data"));
        let below = format!("if (!fork) {{ {own} exit; }} wait;");
        // Before, during and after the command, the script itself is held.
        let beside = format!("{own} real(q{{say_to('during', 1); wait_for('go');}}); {own}");
        for (script, is_real) in [
            (format!("real(q{{{own}}})"), true),
            (format!("real(q{{{below}}})"), true),
            // Perl sets the name of the process, too, which is no UTF-8 then.
            (format!("real(q{{$0 = chr(255); {own}}})"), true),
            (format!("if (!fork) {{ real(q{{wait_for('go');}}); exit; }} {own} wait;"), false),
            (beside, false),
        ] {
            place.write("go", "");
            let options = ["--no-commit", "--stats", "--json"];
            let before = flushes(&rig);
            let ran = run(place, &options, &script);
            assert!(ran.status.success(), "{ran:?}");
            let stats = serde_json::from_str::<serde_json::Value>(&ran.stderr);
            let stats = stats.unwrap_or_else(|_| panic!("{ran:?}"));
            let fsync = &stats["calls"]["fsync"];
            let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
            let numbers = [&fsync["held"], &fsync["passed"], &fsync["reasons"]["real"]].map(number);
            assert_eq!(numbers[1..], [u64::from(is_real); 2], "{script}: {ran:?}");
            assert_eq!(numbers[0] > 0, !is_real, "{script}: {ran:?}");
            assert_eq!(flushes(&rig) > before, is_real, "{script}");
        }
        rig.down().unwrap();
    });
}

#[test]
fn an_open_of_the_command_keeps_its_o_sync() {
    isolated(|place| {
        let flags = "use Fcntl; sysopen(my $file, 'data', O_WRONLY | O_CREAT | O_SYNC) or die; \
                     open(my $info, '<', '/proc/self/fdinfo/' . fileno($file)); \
                     print grep { /^flags/ } <$info>;";
        let ran = run(place, &[], &format!("{flags} close STDOUT; real(q{{}});"));
        assert_eq!(ran.stdout, "flags:\t02100001\n", "held: {ran:?}");
        let ran = run(place, &[], &format!("real(q{{{flags}}});"));
        assert_eq!(ran.stdout, "flags:\t06110001\n", "{ran:?}");
    });
}

#[test]
fn a_daemon_of_the_command_keeps_its_real_syncs_until_and_after_the_command_ends() {
    isolated(|place| {
        let rig = rig();
        let own = sync(&rig.path().join("data"));
        let begin = daemon(&format!(
            "wait_for('first'); {own} say_to('one', 1); wait_for('second'); {own} say_to('two', 1)"
        ));
        place.write("daemon", &begin);
        let script = "real(q{do './daemon' or die $@; wait_for('leave');}); say_to('left', 1); \
                      wait_for('end');";
        let mut command = place.held(&["--no-commit"], &perl(&format!("{REAL} {script}")));
        let run =
            StartedCommand::new(command.env("SYNCONCE", binary()).env("PRELUDE", &perl("")[2]));
        let real = |go: &str, done: &str| {
            let before = flushes(&rig);
            place.write(go, "");
            place.wait_for(done);
            flushes(&rig) > before
        };
        assert!(real("first", "one"), "while the command runs");
        place.write("leave", "");
        place.wait_for("left");
        assert!(real("second", "two"), "after the command has ended");
        place.write("end", "");
        assert!(run.end().success(), "{}", run.text());
        rig.down().unwrap();
    });
}

#[test]
fn the_command_stays_real_if_synconce_real_is_killed() {
    isolated(|place| {
        let rig = rig();
        let own = sync(&rig.path().join("data"));
        let script = format!(
            "my $code = real(q{{say_to('pid', $$); wait_for('go'); {own} say_to('done', 1);}}); \
             say_to('code', $code); wait_for('done');"
        );
        let words = perl(&format!("{REAL} {script}"));
        // The process that was started, and the command's parent: without the parent, the first
        // one still returns how the command ended.
        for (is_parent, code) in [(false, "9\n"), (true, "0\n")] {
            forget(place, &["pid", "code", "go", "done"]);
            let mut command = place.held(&["--no-commit"], &words);
            let run =
                StartedCommand::new(command.env("SYNCONCE", binary()).env("PRELUDE", &perl("")[2]));
            let pid: u32 = place.wait_for("pid").trim().parse().unwrap();
            kill(if is_parent { parent(pid) } else { parent(parent(pid)) }, Signal::KILL);
            let before = flushes(&rig);
            place.write("go", "");
            place.wait_for("done");
            assert!(flushes(&rig) > before, "{is_parent}");
            assert_eq!(place.wait_for("code"), code);
            assert!(run.end().success(), "{}", run.text());
        }
        rig.down().unwrap();
    });
}

#[test]
fn the_commands_end_is_known_whenever_its_parent_is_killed() {
    isolated(|place| {
        // With a pause, the caller notices the killed parent before it becomes the command's new
        // parent. If it did not wait for that, one in ten would fail. Without a pause, the command
        // ends before its parent. If the parent reaped the command before it reports, one in four
        // would fail.
        let many = r#"i=0
            while [ $i -lt 50 ]; do
                "$SYNCONCE" real -- sh -c 'sleep 0.0$1; kill -9 $PPID; sleep 0.01; exit 7' sh $((i % 2))
                [ $? -eq 7 ] || exit 1
                "$SYNCONCE" real -- sh -c 'kill -9 $PPID; exit 7'
                [ $? -eq 7 ] || exit 2
                i=$((i + 1))
            done"#;
        let mut command = place.held(&["--no-commit"], &["sh", "-c", many]);
        let ran = synconce_testkit::harness::finish(command.env("SYNCONCE", binary()));
        assert!(ran.status.success(), "{ran:?}");
    });
}

#[test]
fn an_unknown_end_of_the_command_is_an_error_with_a_message() {
    isolated(|place| {
        // The second prctl(2) of the command's parent: the command has not started.
        let kill = "inject=prctl:signal=KILL:when=2";
        let words = ["strace", "-f", "-qq", "-o", "trace", "-e", kill, binary(), "real", "true"];
        let run = place.run(&["--no-commit"], &words);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        let lost = "cannot find out how the command ended: its parent, synconce-real, was killed";
        assert_eq!(run.stderr, format!("synconce: {lost}\n"));
    });
}

#[test]
fn a_child_of_a_daemon_is_real_although_its_parent_ends_after_synconce_real() {
    isolated(|place| {
        let rig = rig();
        let own = sync(&rig.path().join("data"));
        // Each process of the daemon ends before its child goes on.
        let inner = format!("wait_for('sync'); {own} say_to('done', 1);");
        let child = format!("if (!fork) {{ {inner} exit; }}");
        let begin = daemon(&format!("wait_for('fork'); {child} say_to('forked', $$);"));
        place.write("daemon", &begin);
        let script = "my $code = real(q{do './daemon' or die $@; say_to('pid', $$); wait_for('leave');}); \
                      say_to('code', $code); wait_for('end');";
        let words = perl(&format!("{REAL} {script}"));
        for is_killed in [false, true] {
            forget(place, &["pid", "leave", "code", "fork", "forked", "sync", "done", "end"]);
            let mut command = place.held(&["--no-commit"], &words);
            let run =
                StartedCommand::new(command.env("SYNCONCE", binary()).env("PRELUDE", &perl("")[2]));
            let pid: u32 = place.wait_for("pid").trim().parse().unwrap();
            if is_killed {
                kill(parent(parent(pid)), Signal::KILL);
            } else {
                place.write("leave", "");
            }
            assert_eq!(place.wait_for("code"), if is_killed { "9\n" } else { "0\n" });
            place.write("fork", "");
            let parent: u32 = place.wait_for("forked").trim().parse().unwrap();
            eventually("the daemon ends", || !Path::new(&format!("/proc/{parent}")).exists());
            let before = flushes(&rig);
            place.write("sync", "");
            place.wait_for("done");
            assert!(flushes(&rig) > before, "killed: {is_killed}");
            place.write("leave", "");
            place.write("end", "");
            assert!(run.end().success(), "{}", run.text());
        }
        rig.down().unwrap();
    });
}

/// Removes the files by which an earlier run reported.
fn forget(place: &Place, names: &[&str]) {
    names.iter().for_each(|name| drop(std::fs::remove_file(place.path(name))));
}

#[test]
fn the_exit_is_the_commands_own_in_a_run_and_outside() {
    isolated(|place| {
        for (script, code) in
            [("exit 7", 7), ("exit 0", 0), ("kill 9, $$", 137), ("kill 15, $$", 143)]
        {
            let words =
                perl(&format!("exec($ENV{{SYNCONCE}}, 'real', '--', 'perl', '-e', '{script}');"));
            let mut bare = place.command("sh");
            bare.args(["-c", "\"$@\" 2>/dev/null; exit $?", "sh"]).args(&words);
            bare.env("SYNCONCE", binary());
            let mut held = place.held(&[], &["sh", "-c", "\"$@\" 2>/dev/null; exit $?", "sh"]);
            held.args(&words).env("SYNCONCE", binary());
            for command in [&mut bare, &mut held] {
                let ended = synconce_testkit::harness::finish(command);
                assert_eq!(ended.status.code(), Some(code), "{script}: {ended:?}");
            }
        }
        for (words, code) in [("no-such-command", 127), ("/", 126)] {
            for options in [None, Some(&[][..])] {
                let real = [binary(), "real", "--", words];
                let ended = match options {
                    Some(options) => place.run(options, &real),
                    None => place.bare(&real),
                };
                assert_eq!(ended.status.code(), Some(code), "{ended:?}");
                let named = format!("synconce: cannot execute {words}: ");
                assert!(ended.stderr.starts_with(&named), "{ended:?}");
            }
        }
    });
}

#[test]
fn in_a_sealed_run_the_command_does_not_start() {
    isolated(|place| {
        let run = place.run(&["--sealed"], &[binary(), "real", "--", "touch", "started"]);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        assert!(
            run.stderr.contains("synconce: cannot make syncs real: this run is sealed"),
            "{run:?}"
        );
        assert!(run.stderr.contains("synconce: hint: start the run without --sealed"), "{run:?}");
        assert!(!place.path("started").exists());
    });
}

#[test]
fn a_signal_to_the_parent_reaches_the_command() {
    isolated(|place| {
        let script = "$SIG{TERM} = sub { say_to('term', 1); exit 3 }; say_to('pid', $$); \
                      Time::HiRes::sleep(0.01) while 1;";
        let mut command =
            place.held(&[], &perl(&format!("{REAL} exit(real(q{{{script}}}) >> 8);")));
        let run =
            StartedCommand::new(command.env("SYNCONCE", binary()).env("PRELUDE", &perl("")[2]));
        let pid: u32 = place.wait_for("pid").trim().parse().unwrap();
        kill(parent(parent(pid)), Signal::TERM);
        eventually("the handler runs", || place.path("term").exists());
        assert_eq!(run.end().code(), Some(3), "{}", run.text());
    });
}
