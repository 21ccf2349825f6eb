//! Runs on a terminal: the command has a terminal of its own.

use crate::site::Site;
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use synconce_testkit::harness::{Place, StartedCommand, Terminal, eventually, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_command_on_a_terminal_has_one_of_its_own, &NEEDS),
        trial(short_work_shows_no_progress, &NEEDS),
        trial(long_work_shows_progress_unless_it_is_quiet, &NEEDS),
        trial(a_command_with_a_pipe_has_no_terminal_of_its_own, &NEEDS),
        trial(a_new_size_reaches_the_command, &NEEDS),
        trial(nothing_that_a_command_wrote_last_is_lost, &NEEDS),
        trial(control_z_stops_a_run_and_a_shell_continues_it, &NEEDS),
        trial(control_c_ends_the_script_around_a_run, &NEEDS),
        trial(a_signal_ends_the_script_around_an_import, &NEEDS),
        trial(a_name_in_a_diff_commands_no_terminal, &NEEDS),
        trial(a_terminal_that_is_closed_ends_a_command_that_runs_and_one_that_reads, &NEEDS),
        trial(a_terminal_that_is_closed_ends_the_job_of_the_command, &NEEDS),
        trial(a_signal_ends_a_run_whose_terminal_takes_no_output, &NEEDS),
        trial(a_kill_leaves_the_terminal_as_it_was, &NEEDS),
        trial(a_stop_that_no_shell_can_end_does_not_stop_the_time, &NEEDS),
    ]
}

/// Returns the words that run `script` in the clone, for a shell that has SYNCONCE.
fn run(site: &Site<'_>, options: &str, script: &str) -> String {
    let store = site.store();
    let store = store.display();
    format!("\"$SYNCONCE\" tree --store '{store}' run clone {options} -- /bin/sh -c '{script}'")
}

fn with_clone(place: &Place) -> Site<'_> {
    let site = with_base(place);
    site.clone_of("base", "clone");
    site
}

fn a_command_on_a_terminal_has_one_of_its_own(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    terminal.resize(31, 97);
    let script = "busybox tty; busybox stty size; echo to >/dev/tty; echo con >/dev/console; \
                  ls -1 /dev/pts; stat -c %u:%g:%a /dev/pts/0; echo er >&2";
    terminal.line(&run(&site, "", script));
    let seen = terminal.prompt();
    let wanted =
        ["/dev/pts/0", "31 97", "to", "con", "0", "ptmx", "0:5:620", "er", ""].join("\r\n");
    assert_eq!(seen, wanted);
    // The terminal is the user's.
    terminal.line(&run(&site, "--user user", "busybox tty; echo x >/dev/pts/0; stat -c %u $0"));
    assert_eq!(terminal.prompt(), "/dev/pts/0\r\nx\r\n0\r\n");
    // Errors that go to a file stay there.
    let script = "echo out; echo err >&2";
    terminal.line(&format!("{} 2>errors; cat errors", run(&site, "", script)));
    assert_eq!(terminal.prompt(), "out\r\nerr\r\n");
    // What is typed reaches the command.
    terminal.line(&run(&site, "", "echo rea\"\"dy; read word; echo =$word="));
    terminal.expect("ready");
    terminal.write("typed\n");
    terminal.expect("=typed=");
    assert_eq!(terminal.code(), "0");
    terminal.line("exit 0");
    assert!(terminal.end().success());
}

fn short_work_shows_no_progress(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    terminal.line("TERM=xterm; export TERM");
    terminal.prompt();
    terminal.line(&run(&site, "", "echo x"));
    assert_eq!(terminal.prompt(), "x\r\n");
    let commit = run(&site, "", "").replace("run clone", "commit clone");
    terminal.line(commit.split(" -- ").next().unwrap());
    assert_eq!(terminal.prompt(), "");
}

fn long_work_shows_progress_unless_it_is_quiet(place: &Place) {
    let site = with_base(place);
    assert!(place.sh("tar c source >whole.tar").status.success());
    let mut terminal = Terminal::shell(place);
    terminal.line("TERM=xterm; export TERM");
    terminal.prompt();
    for (option, shows) in [("", true), ("--quiet", false)] {
        let store = site.store();
        terminal.line(&format!(
            "(head -c 9999 whole.tar; sleep 2; tail -c +10000 whole.tar) | \"$SYNCONCE\" tree --store \
             '{}' import {option} slow{} -",
            store.display(),
            option.len()
        ));
        let seen = terminal.prompt();
        assert_eq!(seen.contains(" entries imported"), shows, "{option}: {seen:?}");
    }
}

fn a_command_with_a_pipe_has_no_terminal_of_its_own(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    for rest in ["| cat", "</dev/null"] {
        terminal.line(&format!("{} {rest}", run(&site, "", "ls /dev/pts; echo a | busybox tty")));
        let seen = terminal.prompt();
        assert_eq!(seen.replace('\r', ""), "ptmx\nnot a tty\n", "{rest}");
    }
    terminal.line("exit 0");
    assert!(terminal.end().success());
}

fn a_new_size_reaches_the_command(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    terminal.resize(24, 80);
    let script = "trap \"busybox stty size; exit 4\" WINCH; echo rea\"\"dy; \
                  while :; do sleep 0.05; done";
    terminal.line(&run(&site, "", script));
    terminal.expect("ready");
    terminal.resize(50, 132);
    terminal.expect("50 132");
    assert_eq!(terminal.code(), "4");
}

fn nothing_that_a_command_wrote_last_is_lost(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    for _ in 0..3 {
        terminal.line(&run(&site, "", "seq 1 20000; echo the last"));
        let seen = terminal.prompt();
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!((lines.len(), lines.last().copied()), (20001, Some("the last")));
    }
}

fn control_z_stops_a_run_and_a_shell_continues_it(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    terminal.line("stty -g >before");
    for options in ["", "--timeout 1h"] {
        terminal.line(&run(&site, options, "echo rea\"\"dy; cat; echo en\"\"ded"));
        terminal.expect("ready");
        terminal.write("one\n");
        terminal.expect("one\r\none");
        terminal.write("\x1a");
        terminal.expect("Stopped");
        terminal.line("stty -g >after; cmp before after && echo sa\"\"me");
        terminal.expect("same");
        terminal.line("fg");
        terminal.write("two\n");
        terminal.expect("two\r\ntwo");
        terminal.write("\x04");
        terminal.expect("ended");
        terminal.line("stty -g >after; cmp before after && echo sa\"\"me");
        terminal.expect("same");
    }
    terminal.line("exit 0");
    assert!(terminal.end().success());
}

fn control_c_ends_the_script_around_a_run(place: &Place) {
    let site = with_clone(place);
    let command = run(&site, "", "echo beg\"\"un; sleep 1000");
    let script =
        place.write("script", &format!("for i in 1 2; do {command}; echo not reached; done\n"));
    let mut terminal = Terminal::shell(place);
    terminal.line(&format!("bash {}", script.display()));
    terminal.expect("begun");
    terminal.write("\x03");
    assert_eq!(terminal.code(), "130");
    terminal.line("exit 0");
    assert!(terminal.end().success());
    site.well(&["fsck"]);
}

fn a_signal_ends_the_script_around_an_import(place: &Place) {
    let site = with_base(place);
    let store = site.store();
    let import = format!(
        "\"$SYNCONCE\" tree --store '{}' import endless /dev/zero; echo not reached",
        store.display()
    );
    let script =
        place.write("script", &format!("echo beg\"\"un; for i in 1 2; do {import}; done\n"));
    let mut terminal = Terminal::shell(place);
    let sessions = || fs::read_dir(store.join("sessions")).unwrap().count();
    terminal.line(&format!("bash {}", script.display()));
    terminal.expect("begun");
    eventually("the import has begun", || sessions() > 0);
    terminal.write("\x03");
    assert_eq!(terminal.code(), "130");
    // The signal also ends the shell of the script, at once if the shell does not wait for the
    // import yet.
    eventually("the import has removed its session", || sessions() == 0);
    terminal.line("exit 0");
    assert!(terminal.end().success());
    for signal in [Signal::TERM, Signal::HUP] {
        let import = StartedCommand::new(&mut site.tree(&["import", "endless", "/dev/zero"]));
        eventually("the import has begun", || sessions() > 0);
        import.signal(signal).unwrap();
        assert_eq!(import.end().signal(), Some(signal.as_raw()), "{}", import.text());
        assert!(import.text().contains("Operation canceled"), "{}", import.text());
        assert_eq!(sessions(), 0);
    }
}

/// Runs `script` on a terminal, closes the terminal once the script prints `ready`, and waits until
/// the run has ended.
fn end_by_hang_up(site: &Site<'_>, script: &str) {
    let mut terminal = Terminal::shell(site.place);
    terminal.line(&run(site, "", script));
    terminal.expect("ready");
    terminal.hang_up();
    terminal.end();
    eventually("the run has ended", || {
        site.ends(&["run", "clone", "--", "/bin/true"]).status.success()
    });
}

fn a_terminal_that_is_closed_ends_a_command_that_runs_and_one_that_reads(place: &Place) {
    let site = with_clone(place);
    let runs = "trap \"echo end >/data/runs; exit 0\" HUP; echo rea\"\"dy; \
                while :; do sleep 0.05; done";
    let reads = "trap \"\" HUP; echo rea\"\"dy; cat; echo end >/data/reads";
    for (script, file) in [(runs, "/data/runs"), (reads, "/data/reads")] {
        end_by_hang_up(&site, script);
        assert_eq!(site.sh("clone", &format!("cat {file}")), "end\n");
    }
}

/// The command waits for a child, as make(1) does after SIGHUP.
fn a_terminal_that_is_closed_ends_the_job_of_the_command(place: &Place) {
    let site = with_clone(place);
    // The child says that it runs: a sleep that began after the signal would not end.
    let script = "trap \"echo end >/data/waits\" HUP; \
                  sh -c \"printf re%sdy a; exec sleep 1000\"; exit 0";
    end_by_hang_up(&site, script);
    assert_eq!(site.sh("clone", "cat /data/waits"), "end\n");
}

fn a_signal_ends_a_run_whose_terminal_takes_no_output(place: &Place) {
    let site = with_clone(place);
    let shared = site.fresh("shared");
    fs::create_dir(&shared).unwrap();
    let option = format!("--bind {}:/mnt", shared.display());
    let started = |option: &str, script: &str| {
        // Synconce's own last line is not the subject.
        let script = format!("read go; exec {} 2>errors", run(&site, option, script));
        let mut terminal = Terminal::start(place, &["sh", "-c", &script]);
        terminal.stop_output();
        terminal.write("\n");
        terminal
    };
    // The command ends before the signal, or by it.
    for (signal, last) in [(Signal::TERM, "exit 3"), (Signal::HUP, "exec sleep 1000")] {
        let script = format!("echo text; echo >/mnt/written; {last}");
        let mut terminal = started(&option, &script);
        let written = shared.join("written");
        eventually("the command has written", || written.exists());
        fs::remove_file(&written).unwrap();
        let leader = Pid::from_raw(terminal.leader().cast_signed()).unwrap();
        kill_process(leader, signal).unwrap();
        let status = terminal.end();
        assert!(!status.success(), "{last}: {status:?}");
    }
    let mut terminal = started("--timeout 1", "echo text; exec sleep 1000");
    assert_eq!(terminal.end().code(), Some(124));
}

fn a_kill_leaves_the_terminal_as_it_was(place: &Place) {
    let site = with_clone(place);
    let mut terminal = Terminal::shell(place);
    // The inner shell does not restore modes, as bash does.
    let command = run(&site, "", "echo rea\"\"dy; sleep 1000").replace('\'', "'\\''");
    terminal.line(&format!(
        "dash -c 'stty -g >before; {command}; stty -g >after'; cmp before after && echo sa\"\"me"
    ));
    terminal.expect("ready");
    let killed = place
        .sh("for process in /proc/[0-9]*; do case $(tr '\\0' ' ' <$process/cmdline) in \
         *synconce*' tree enter '*) kill -9 ${process#/proc/}; break;; esac; done");
    assert!(killed.status.success(), "{killed:?}");
    terminal.expect("same");
    terminal.line("exit 0");
    assert!(terminal.end().success());
}

fn a_stop_that_no_shell_can_end_does_not_stop_the_time(place: &Place) {
    let site = with_clone(place);
    // The run leads the session of its terminal, as in a container or a script.
    let started = |options: &str, script: &str, rest: &str| {
        let script = format!("exec {} {rest}", run(&site, options, script));
        Terminal::start(place, &["sh", "-c", &script])
    };
    for rest in ["", "</dev/null"] {
        let mut terminal = started("--timeout 1", "kill -STOP $$; exit 3", rest);
        assert_eq!(terminal.end().code(), Some(124), "{rest}");
    }
    // A SIGCONT to the run, or to its process group, continues the command.
    for send in [kill_process, kill_process_group] {
        let mut terminal = started("--timeout 1h", "kill -STOP $$; exit 3", "");
        let leader = Pid::from_raw(terminal.leader().cast_signed()).unwrap();
        let stat = format!("/proc/{}/stat", leader.as_raw_nonzero());
        eventually("the command goes on and ends", || {
            // Before setsid(1) there is no such group.
            let _ = send(leader, Signal::CONT);
            fs::read_to_string(&stat).unwrap().contains(") Z ")
        });
        assert_eq!(terminal.end().code(), Some(3));
    }
    // No shell can end the stop of a Ctrl-Z.
    let mut terminal = started("--timeout 1h", "echo rea\"\"dy; read word; exit 3", "");
    terminal.expect("ready");
    terminal.write("\x1a");
    terminal.write("\n");
    assert_eq!(terminal.end().code(), Some(3));
    // A shell continues its job.
    let mut terminal = Terminal::shell(place);
    terminal.line(&run(&site, "--timeout 1h", "kill -STOP $$; exit 3"));
    terminal.expect("Stopped");
    terminal.line("fg");
    assert_eq!(terminal.code(), "3");
    terminal.line("exit 0");
    assert!(terminal.end().success());
}

fn a_name_in_a_diff_commands_no_terminal(place: &Place) {
    let site = with_clone(place);
    site.sh("clone", r"echo x >/data/$(printf 'a\033[2Jb')");
    let store = site.store();
    let mut terminal = Terminal::shell(place);
    let diff = format!("\"$SYNCONCE\" tree --store '{}' diff clone 2>errors", store.display());
    terminal.line(&diff);
    assert_eq!(terminal.prompt(), "A data/a\\u{1b}[2Jb\r\n");
    terminal.line(&format!("{diff} >diff; {diff} -0"));
    assert_eq!(terminal.prompt(), "A data/a\x1b[2Jb\0");
    assert_eq!(place.read("diff"), "A data/a\x1b[2Jb\n");
    terminal.line("exit 0");
    assert!(terminal.end().success());
}
