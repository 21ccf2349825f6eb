//! Runs: the exit status of a command, its signals, its streams, and what it leaves.

use crate::roots;
use crate::site::{Site, limit, same};
use crate::verbs::{NEEDS, names, set, waiting, with_base};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use synconce_testkit::harness::trial;
use synconce_testkit::harness::{Place, StartedCommand, Terminal, binary, eventually, kill};
use synconce_testkit::process;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(what_runs_is_neither_removed_nor_run_twice, &NEEDS),
        trial(a_run_ends_as_its_command, &NEEDS),
        trial(every_signal_reaches_the_command, &NEEDS),
        trial(control_c_ends_a_run_as_it_ends_the_command, &NEEDS),
        trial(standard_input_and_output_are_the_commands, &NEEDS),
        trial(no_process_is_left_by_a_run, &NEEDS),
        trial(a_run_is_kept_or_discarded_by_its_option, &NEEDS),
        trial(a_run_that_changes_nothing_leaves_the_tree_as_committed, &NEEDS),
        trial(a_run_that_makes_directories_beyond_the_longest_path_keeps_them, &NEEDS),
        trial(a_run_that_was_killed_is_reported_once_and_undone, &NEEDS),
    ]
}

fn what_runs_is_neither_removed_nor_run_twice(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let run = waiting(&site, &["clone"], "echo kept >/data/kept");
    site.refused(125, &["run", "clone", "--", "/bin/true"], &["clone"]);
    site.refused(125, &["remove", "clone"], &["clone"]);
    site.refused(125, &["commit", "clone"], &["clone"]);
    site.refused(125, &["squash", "clone"], &["clone"]);
    // The base is not in use, and neither is another clone.
    site.clone_of("base", "other");
    assert_eq!(site.sh("other", "echo beside"), "beside\n");
    site.well(&["remove", "base"]);
    site.well(&["gc", "--wait"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert_eq!(site.sh("clone", "cat /data/kept; head -n 1 /data/other"), "kept\nanother\n");
    site.remove("clone");
    site.well(&["fsck"]);
}

fn a_run_that_changes_nothing_leaves_the_tree_as_committed(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    // The mount points of these files are made, and removed again.
    for file in ["hosts", "resolv.conf"] {
        fs::remove_file(source.join("etc").join(file)).unwrap();
    }
    site.import("base", &source);
    site.clone_of("base", "clone");
    site.sh("clone", "cat /data/file /etc/hosts >/dev/null");
    // A directory that has its old time again is the same.
    let back = "touch -r /mnt /dev/shm/t; echo >/mnt/x; rm /mnt/x; touch -r /dev/shm/t /mnt";
    site.sh("clone", back);
    site.well(&["clone", "clone", "same"]);
    // Directories alone can differ, too.
    let anew = "cd /data; touch -r directory /dev/shm/d; touch -r . /dev/shm/t; rm -r directory; \
                mkdir directory; touch -r /dev/shm/d directory; touch -r /dev/shm/t .";
    for (script, change) in [
        (anew, "D data/directory/inner\n"),
        ("chmod 700 /mnt", "C mnt\n"),
        ("mkdir /mnt/new", "A mnt/new\n"),
    ] {
        site.sh("same", script);
        let shown = site.ends(&["diff", "same"]);
        assert_eq!((shown.status.code(), &shown.stdout[..]), (Some(1), change), "{script}");
        site.well(&["discard", "same"]);
    }
}

fn a_run_that_makes_directories_beyond_the_longest_path_keeps_them(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    // In the tree the path has 4,085 bytes. In the store it has more than 4,096.
    let deep = "cd /data; n=$(printf %0203d 0); for _ in $(seq 20); do mkdir $n; cd $n; done";
    site.sh("clone", deep);
    let added = site.diff("base", "clone").into_iter().filter(|(kind, _)| *kind == 'A');
    assert_eq!(added.count(), 20);
    // The time of the lowest directory alone.
    site.well(&["commit", "clone"]);
    site.sh("clone", &format!("{}; touch -d @7 .", deep.replace("mkdir $n;", "")));
    site.sh("clone", &format!("{}; stat -c %Y . | grep -x 7", deep.replace("mkdir $n;", "")));
}

fn a_run_ends_as_its_command(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    for code in [0, 1, 7, 125, 126, 127, 255] {
        let finished = site.run("clone", &["/bin/sh", "-c", &format!("exit {code}")]);
        assert_eq!(finished.status.code(), Some(code), "{finished:?}");
        assert_eq!(finished.stdout + &finished.stderr, "");
    }
    // busybox's shell ignores signal 3.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGKILL, libc::SIGUSR1, libc::SIGTERM] {
        let script = format!("kill -{signal} $$; sleep 20");
        let finished = site.run("clone", &["/bin/sh", "-c", &script]);
        assert_eq!(finished.status.signal(), Some(signal), "{finished:?}");
    }
    fs::write(place.path("source/data/plain"), "no right to execute\n").unwrap();
    site.import("strange", &place.path("source"));
    site.clone_of("strange", "odd");
    for (words, code) in [
        (&["no-such-command"][..], 127),
        (&["/no/such/file"], 127),
        (&["/data/plain"], 126),
        (&["/data"], 126),
    ] {
        let finished = site.run("odd", words);
        assert_eq!(finished.status.code(), Some(code), "{words:?}: {finished:?}");
        assert!(finished.stderr.starts_with("synconce: "), "{finished:?}");
        assert!(finished.stderr.contains(words[0]), "{finished:?}");
    }
    // The command is searched for in the tree, by the tree's PATH.
    assert_eq!(site.run("odd", &["echo", "a b", "", "c"]).stdout, "a b  c\n");
    // What a failed command has written is kept, like the changes of a successful one.
    let failed = site.run("clone", &["/bin/sh", "-c", "echo written >/data/written; exit 3"]);
    assert_eq!(failed.status.code(), Some(3));
    assert_eq!(site.sh("clone", "cat /data/written"), "written\n");
}

fn control_c_ends_a_run_as_it_ends_the_command(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let store = site.store();
    let store = store.to_str().unwrap();
    let mut terminal = Terminal::shell(place);
    terminal.line(&format!(
        "\"$SYNCONCE\" tree --store '{store}' run clone -- /bin/sh -c \
         'echo beg\"\"un; sleep 1000; echo not reached'"
    ));
    terminal.expect("begun");
    terminal.write("\x03");
    assert_eq!(terminal.code(), "130");
    terminal.line(&format!(
        "\"$SYNCONCE\" tree --store '{store}' run clone -- /bin/sh -c \
         'trap \"echo cau\"\"ght; exit 9\" INT; echo beg\"\"un; while :; do sleep 0.05; done'"
    ));
    terminal.expect("begun");
    terminal.write("\x03");
    terminal.expect("caught");
    assert_eq!(terminal.code(), "9");
    terminal.line("exit");
    assert!(terminal.end().success());
    // The interrupted run blocks nothing and causes no notice.
    let next = site.run("clone", &["/bin/true"]);
    assert!(next.status.success() && next.stderr.is_empty(), "{next:?}");
    site.well(&["fsck"]);
}

fn every_signal_reaches_the_command(place: &Place) {
    let site = with_base(place);
    for options in [&[][..], &["--no-hold"]] {
        for signal in ["HUP", "INT", "USR1", "ALRM", "TERM", "URG", "WINCH", "PWR", "34", "64"] {
            let script = format!(
                "trap 'echo {signal}; exit 6' {signal}; echo ready; while :; do sleep 0.05; done"
            );
            let words = [&["run", "--from", "base"], options, &["--", "/bin/sh", "-c", &script]];
            let run = StartedCommand::new(&mut site.tree(&words.concat()));
            eventually("the command runs", || run.text() == "ready\n");
            let sent = place.bare(&["kill", &format!("-{signal}"), &run.pid().to_string()]);
            assert!(sent.status.success(), "{sent:?}");
            assert_eq!(run.end().code(), Some(6), "{options:?} {signal}: {}", run.text());
            assert_eq!(run.text(), format!("ready\n{signal}\n"), "{options:?}");
        }
    }
}

fn standard_input_and_output_are_the_commands(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let mut cat = site.tree(&["run", "clone", "--", "/bin/sh", "-c", "cat; echo told >&2"]);
    cat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cat.spawn().unwrap();
    let text = "all that comes\n".repeat(100_000);
    let mut stdin = child.stdin.take().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(output.stdout.len(), text.len());
    assert!(output.stdout == text.as_bytes());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "told\n");
    // If the reader exits, SIGPIPE ends the command, as without synconce.
    let script = format!(
        "\"$0\" tree --store '{}' run clone -- /bin/sh -c 'yes' | head -n 1",
        site.store().display()
    );
    let mut ended = place.command("bash");
    let ended = process::run(ended.args(["-c", &script, binary()]), limit()).unwrap();
    assert_eq!(ended.stdout, "y\n", "{ended:?}");
    // The command inherits no descriptor of synconce, but those of its caller.
    let list = ["/bin/busybox", "ls", "/proc/self/fd"];
    let bare = place.bare(&list);
    assert_eq!(site.run("clone", &list).stdout, bare.stdout);
    let held = format!(
        "exec 7</dev/null; \"$0\" tree --store '{}' run clone -- ls /proc/self/fd",
        site.store().display()
    );
    let held = process::run(place.command("bash").args(["-c", &held, binary()]), limit()).unwrap();
    assert!(held.stdout.lines().any(|line| line == "7"), "{held:?}");
}

fn no_process_is_left_by_a_run(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let alive = || {
        let script =
            "for exe in /proc/[0-9]*/exe; do readlink $exe; done; cat /proc/[0-9]*/cmdline";
        let running = place.sh(script).stdout;
        running.contains("bin/busybox") || running.contains("4321.5")
    };
    let left = "(setsid sleep 4321.5 </dev/null >/dev/null 2>&1 &) ; sleep 0.2; \
                (trap '' TERM HUP INT; sleep 4321.5 >/dev/null 2>&1) & sleep 0.2; echo done";
    let finished = site.run("clone", &["/bin/sh", "-c", left]);
    assert_eq!((finished.stdout.as_str(), finished.status.code()), ("done\n", Some(0)));
    eventually("the daemon has ended with the run", || !alive());
    // The daemon also ends if the command is killed, and if the run is terminated.
    let finished = site.run("clone", &["/bin/sh", "-c", &format!("{left}; kill -9 $$")]);
    assert_eq!(finished.status.signal(), Some(libc::SIGKILL), "{finished:?}");
    eventually("the daemon has ended with the command", || !alive());
    let run = waiting(&site, &["clone"], "");
    kill(run.pid(), Signal::TERM);
    assert!(!run.end().success());
    eventually("everybody has ended", || !alive());
    assert_eq!(site.sh("clone", "echo again"), "again\n");
}

fn a_run_is_kept_or_discarded_by_its_option(place: &Place) {
    let site = with_base(place);
    let (wanted, before) = (site.content("base"), site.layers());
    let script = "echo new >/data/new; cat /data/new";
    for words in [
        &["run", "--from", "base", "--", "/bin/sh", "-c", script][..],
        &["run", "--from", "base", "--discard", "--", "/bin/sh", "-c", script],
    ] {
        assert_eq!(site.well(words).stdout, "new\n");
        assert_eq!(names(&site), set(&["base"]), "{words:?}");
    }
    site.keep("base", "new", &["/bin/sh", "-c", script]);
    assert_eq!(names(&site), set(&["base", "new"]));
    assert_eq!(site.sh("new", "cat /data/new"), "new\n");
    site.assert_unchanged("what was kept", "base", &before);
    same("the base", &wanted, &site.content("base"));
    // The tree of a failed command is not kept.
    let failed = site.ends(&["run", "--from", "base", "--commit", "bad", "--", "/bin/false"]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert_eq!(names(&site), set(&["base", "new"]));
    let both = ["run", "--from", "base", "--commit", "x", "--discard", "--", "/bin/true"];
    assert!(!site.ends(&both).status.success());
    site.well(&["gc", "--wait"]);
    site.well(&["fsck"]);
}

fn a_run_that_was_killed_is_reported_once_and_undone(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    site.sh("clone", "echo before >/data/log");
    site.well(&["commit", "clone"]);
    let wanted = site.content("clone");
    let run = waiting(&site, &["clone"], "");
    run.signal(Signal::KILL).unwrap();
    run.end();
    // A process that exits has the lease a moment longer than /proc shows its program.
    eventually("the lease is free", || {
        let sessions = site.store().join("sessions");
        let look = format!("for one in {}/*; do flock -n $one true; done", sessions.display());
        place.bare(&["sh", "-ec", &look]).status.success()
    });
    let next = site.ends(&["list"]);
    let second = site.ends(&["list"]);
    assert!(next.status.success() && second.status.success());
    let counts = [&next, &second].map(|list| list.stderr.matches("clone").count());
    assert_eq!((counts[0].min(1), counts[1]), (1, 0), "told once: {next:?} {second:?}");
    same("the clone of a run that was killed", &wanted, &site.content("clone"));
    assert_eq!(site.sh("clone", "cat /data/log"), "before\n");
    site.well(&["fsck"]);
    let left = fs::read_dir(site.store().join("sessions")).unwrap().count();
    assert_eq!(left, 0, "sessions that are over");
}
