//! `--stats`, `--json[=FILE]` and `--quiet`.

use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(statistics_say_the_wall_time_and_the_commit, &[]),
        trial(statistics_of_a_sealed_run_say_what_is_not_counted, &[]),
        trial(statistics_without_a_commit_say_why, &[]),
        trial(json_to_a_file_does_not_mix_with_the_output_of_the_command, &[]),
        trial(json_to_a_descriptor_is_appended_to_what_is_there, &[]),
        trial(a_file_for_json_that_cannot_be_opened_stops_the_run_before_its_start, &[]),
        trial(a_fifo_for_json_without_a_reader_is_named, &[]),
        trial(json_to_a_closed_standard_output_is_an_error, &[]),
        trial(a_run_in_a_run_leaves_the_file_for_json_alone, &[]),
        trial(a_quiet_run_prints_no_notice, &[]),
        trial(a_quiet_status_says_by_its_exit_code, &[]),
        trial(a_dry_run_of_setup_is_also_json, &[]),
    ]
}

/// Asserts that `text` is a time such as `2026-11-23T03:40:12Z`.
fn assert_iso(text: &Value) {
    let text = text.as_str().unwrap_or_else(|| panic!("{text}"));
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00Z", "{text}");
}

fn statistics_say_the_wall_time_and_the_commit(place: &Place) {
    for option in ["--stats", "-v"] {
        let run = place.run(&[option], &["sync", "."]);
        assert!(run.status.success(), "{run:?}");
        for line in ["\nfsync ", "\ncommit /", "\ncommit in all ", "\nwall time "] {
            assert!(format!("\n{}", run.stderr).contains(line), "{line:?}: {run:?}");
        }
    }
    let run = place.run(&["--json"], &["sync", "."]);
    let stats: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_iso(&stats["started"]);
    assert_eq!((&stats["outcome"], &stats["sealed"]), (&"committed".into(), &false.into()));
    let (wall, commit) = (stats["wall_micros"].as_u64(), stats["commit"]["micros"].as_u64());
    assert!(commit > Some(0) && wall >= commit, "{stats}");
}

fn statistics_of_a_sealed_run_say_what_is_not_counted(place: &Place) {
    let run = place.run(&["--sealed", "--stats"], &["sync", "."]);
    for text in ["not counted (sealed)\n", "\ncommit /", "\ncommit in all ", "\nwall time "] {
        assert!(run.stderr.contains(text), "{text:?}: {run:?}");
    }
    let run = place.run(&["--sealed", "--json"], &["sync", "."]);
    let line = run.stderr.lines().find(|line| line.starts_with('{')).unwrap();
    let stats: Value = serde_json::from_str(line).unwrap();
    assert_eq!(stats["sealed"], true);
    assert!(!stats["commit"]["file_systems"].as_array().unwrap().is_empty(), "{stats}");
}

fn statistics_without_a_commit_say_why(place: &Place) {
    let plain = place.run(&["-v"], &["true"]);
    assert!(plain.stderr.starts_with("commit none: no sync was held\nwall time "), "{plain:?}");
    let asked = place.run(&["-v", "--no-commit"], &["true"]);
    let nothing = "commit none: it was not asked for; no sync was held\nwall time ";
    assert!(asked.stderr.starts_with(nothing), "{asked:?}");
    // A sealed run counts no calls.
    for (options, words) in [(&["-v"][..], &["sync", "."][..]), (&["-v", "--sealed"], &["true"])] {
        let run = place.run(&[options, &["--no-commit"]].concat(), words);
        assert!(run.stderr.contains("\ncommit none: it was not asked for\nwall time "), "{run:?}");
    }
}

fn a_fifo_for_json_without_a_reader_is_named(place: &Place) {
    let fifo = place.text("fifo");
    assert!(place.bare(&["mkfifo", &fifo]).status.success());
    let json = format!("--json={fifo}");
    let run = StartedCommand::new(&mut place.held(&[&json], &["true"]));
    let said = format!("synconce: {fifo} is a FIFO: waiting for a process that reads it\n");
    eventually("the wait is named", || run.text() == said);
    let text = fs::read_to_string(&fifo).unwrap();
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    assert!(run.end().success());
}

fn json_to_a_file_does_not_mix_with_the_output_of_the_command(place: &Place) {
    let script = "sync .; echo out; echo err >&2";
    let run = place.run(&["--json=stats.json"], &["sh", "-c", script]);
    assert_eq!((&run.stdout[..], &run.stderr[..]), ("out\n", "err\n"), "{run:?}");
    let stats: Value = serde_json::from_str(&place.read("stats.json")).unwrap();
    assert_eq!(stats["calls"]["fsync"]["held"], 1, "{stats}");
    let status = place.status(&["--json=status.json"]);
    assert_eq!((status.status.code(), &status.stdout[..]), (Some(0), ""), "{status:?}");
    assert_eq!(place.read("status.json"), "[]\n");
}

fn json_to_a_closed_standard_output_is_an_error(place: &Place) {
    for json in ["--json", "--json=/dev/stdout", "--json=/dev/fd/1"] {
        let script = format!("exec \"$0\" status {json} >&-");
        let ended = finish(place.command("sh").args(["-c", &script, binary()]));
        assert_eq!(ended.status.code(), Some(125), "{json}: {ended:?}");
        assert!(ended.stderr.contains("Bad file descriptor"), "{json}: {ended:?}");
    }
}

fn a_run_in_a_run_leaves_the_file_for_json_alone(place: &Place) {
    place.write("stats.json", "before");
    let inner = [binary(), "run", "--json=stats.json", "--", "sync", "."];
    for options in [&["--no-commit"][..], &["--no-commit", "--sealed"]] {
        let run = place.run(options, &inner);
        assert!(run.status.success(), "{run:?}");
        assert!(run.stderr.contains("no statistics: this run is inside another one"), "{run:?}");
        assert_eq!(place.read("stats.json"), "before");
    }
}

fn json_to_a_descriptor_is_appended_to_what_is_there(place: &Place) {
    let script = "echo first >&3; \"$0\" run --json=/dev/fd/3 -- sh -c 'echo command >&3'; \
                  echo last >&3";
    let mut shell = place.command("sh");
    let ended = finish(shell.args(["-c", &format!("exec 3>log; {script}"), binary()]));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let log = place.read("log");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("first", "command", "last"), "{log}");
    assert!(serde_json::from_str::<Value>(lines[2]).is_ok(), "{log}");
    let closed = place.run(&["--json=/dev/fd/77"], &["touch", "made"]);
    assert_eq!(closed.status.code(), Some(125), "{closed:?}");
    assert_eq!(closed.stderr, "synconce: cannot write to /dev/fd/77: Bad file descriptor\n");
}

fn a_file_for_json_that_cannot_be_opened_stops_the_run_before_its_start(place: &Place) {
    let run = place.run(&["--json=none/stats.json"], &["touch", "made"]);
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    let wanted = "synconce: cannot write to none/stats.json: No such file or directory\n";
    assert_eq!(run.stderr, wanted);
    assert!(!place.path("made").exists());
}

fn a_quiet_run_prints_no_notice(place: &Place) {
    // A marker in memory is reason for a notice.
    let run = |options: &[&str]| {
        let mut run = place.held(options, &["sync", "."]);
        finish(run.env("SYNCONCE_STATE_DIR", format!("/dev/shm/manners-{}", std::process::id())))
    };
    let (loud, quiet, short) = (run(&[]), run(&["--quiet"]), run(&["-q"]));
    fs::remove_dir_all(format!("/dev/shm/manners-{}", std::process::id())).unwrap();
    assert!(loud.stderr.contains("the marker is in memory"), "{loud:?}");
    for quiet in [quiet, short] {
        assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    }
    let failed = place.run(&["-q", "--commit-only", "/proc"], &["true"]);
    assert!(failed.stderr.starts_with("synconce: cannot use --commit-only /proc: "), "{failed:?}");
}

fn a_quiet_status_says_by_its_exit_code(place: &Place) {
    assert_eq!(place.status(&["-q"]).status.code(), Some(0));
    let run = place.start("sync .; echo held >ready; read line <go; true");
    place.bare(&["mkfifo", "go"]);
    place.wait_for("ready");
    let quiet = place.status(&["-q"]);
    assert_eq!((quiet.status.code(), &quiet.stdout[..]), (Some(3), ""), "{quiet:?}");
    place.write("go", "\n");
    assert!(run.end().success(), "{}", run.text());
}

fn a_dry_run_of_setup_is_also_json(place: &Place) {
    for directory in ["root/etc/docker", "root/usr/bin", "root/usr/sbin"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    for program in ["synconce-oci", "runc"] {
        place.write(&format!("root/usr/bin/{program}"), "#!/bin/sh\n");
        place.bare(&["chmod", "+x", &format!("root/usr/bin/{program}")]);
    }
    let before = place.bare(&["find", "root", "-ls"]).stdout;
    let text = finish(&mut place.synconce(&["setup", "docker", "-n", "--root", "root"]));
    assert!(text.status.success(), "{text:?}");
    assert!(text.stderr.ends_with("synconce: dry run: nothing was written\n"), "{text:?}");
    let quiet = finish(&mut place.synconce(&["setup", "docker", "-nq", "--root", "root"]));
    assert_eq!((&quiet.stdout, &quiet.stderr[..]), (&text.stdout, ""), "{quiet:?}");
    let json = finish(&mut place.synconce(&["setup", "docker", "-n", "--root", "root", "--json"]));
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&report["dry_run"], &report["diff"]), (&true.into(), &text.stdout.into()));
    assert!(
        !report["changes"].as_array().unwrap().is_empty() && json.stderr.is_empty(),
        "{json:?}"
    );
    assert_eq!(place.bare(&["find", "root", "-ls"]).stdout, before);
}
