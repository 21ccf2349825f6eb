//! What a failing run prints: the cause, and a next step that helps.

use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, finish, isolated, kill,
};

/// Returns the exit code of `synconce run WORDS...`, started in a shell after `limit`, and its
/// output. The output goes through a pipe, because limits on file sizes do not affect pipes.
fn under(place: &Place, limit: &str, words: &[&str]) -> (Option<i32>, Vec<String>) {
    let mut shell = place.command("sh");
    let script = format!("{{ {limit}; \"$@\"; echo $?; }} 2>&1 | cat");
    shell.args(["-c", &script, "sh", binary(), "run"]).args(words);
    let ended = finish(&mut shell);
    let mut lines: Vec<_> = ended.stdout.lines().map(str::to_owned).collect();
    (lines.pop().and_then(|code| code.parse().ok()), lines)
}

fn assert_fails((code, lines): &(Option<i32>, Vec<String>), cause: &str, hint: Option<&str>) {
    assert_eq!(*code, Some(125), "{lines:?}");
    assert!(lines[0].starts_with("synconce: cannot ") && lines[0].contains(cause), "{lines:?}");
    let hint = hint.map(|hint| format!("synconce: hint: {hint}"));
    assert_eq!(lines.get(1), hint.as_ref(), "{lines:?}");
}

#[test]
fn a_limit_is_named_as_the_cause_and_ends_no_process_of_synconce() {
    isolated(|place| {
        let command = ["--", "touch", "started"];
        let files = "raise the limit of file sizes (ulimit -f)";
        assert_fails(&under(place, "ulimit -f 0", &command), "File too large", Some(files));
        let sealed = [&["--sealed"][..], &command].concat();
        assert_fails(&under(place, "ulimit -f 0", &sealed), "File too large", Some(files));
        for limit in 5..16 {
            let (code, lines) = under(place, &format!("ulimit -n {limit}"), &command);
            if code == Some(0) {
                fs::remove_file(place.path("started")).unwrap();
                continue;
            }
            let lines = lines.join("\n");
            assert!(!lines.contains("seccomp(2)"), "{limit}: {lines}");
            assert!(lines.contains("Too many open files"), "{limit}: {lines}");
        }
        assert!(!place.path("started").exists());
        assert!(place.markers().is_empty());
    });
}

#[test]
fn a_path_that_cannot_be_committed_is_not_reported_as_a_marker_error() {
    isolated(|place| {
        let command = ["--", "touch", "started"];
        let missing = [&["--commit-only", "missing"][..], &command].concat();
        assert_fails(&under(place, ":", &missing), "missing: No such file or directory", None);
        let memory = [&["--commit-only", "/proc"][..], &command].concat();
        assert_fails(&under(place, ":", &memory), "/proc: it is on no disk file system", None);
        assert!(!place.path("started").exists());
    });
}

/// Kills the supervisor of a run that waits for the file `stop`; returns the output of the
/// frontend.
fn killed(place: &Place, options: &[&str], script: &str) -> String {
    let script = format!("{script} echo yes >ready; while ! [ -e stop ]; do sleep 0.05; done");
    let run = StartedCommand::new(&mut place.held(options, &["sh", "-c", &script]));
    place.wait_for("ready");
    kill(place.supervisor(), Signal::KILL);
    place.write("stop", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
    ["stop", "ready"].into_iter().for_each(|name| place.remove(name));
    // Removes the files of the killed supervisor.
    fs::remove_dir_all(place.path("runtime")).unwrap();
    run.text()
}

#[test]
fn after_a_kill_of_the_supervisor_the_hint_names_status_only_if_there_is_a_marker() {
    isolated(|place| {
        let died = "synconce: the supervisor was killed after the command had started\n";
        let message = killed(place, &["--no-commit"], "sync stop 2>/dev/null;");
        assert_eq!(message, format!("{died}synconce: hint: run the command again\n"));
        let message = killed(place, &[], "");
        let safe = "no sync had been held, so nothing is lost; run the command again";
        assert_eq!(message, format!("{died}synconce: hint: {safe}\n"));
        assert_eq!(place.status(&[]).status.code(), Some(0));
        let message = killed(place, &[], "sync .;");
        let marked =
            "the run is marked as interrupted; `synconce status` shows what to do about it";
        assert_eq!(message, format!("{died}synconce: hint: {marked}\n"));
        eventually("status shows it", || place.status(&[]).status.code() == Some(4));
        let message = killed(place, &[], "sync .; rm -r state;");
        let unmarked = "nothing marks the run; throw its result away and run it again";
        assert!(message.ends_with(&format!("{died}synconce: hint: {unmarked}\n")), "{message}");
    });
}

#[test]
fn a_marker_whose_path_is_not_utf8_is_found_after_a_kill_of_the_supervisor() {
    isolated(|place| {
        let state = place.path("").join(OsStr::from_bytes(b"state-\xff"));
        let script = "sync .; echo yes >ready; while ! [ -e stop ]; do sleep 0.05; done";
        let mut run = place.held(&[], &["sh", "-c", script]);
        let run = StartedCommand::new(run.env("SYNCONCE_STATE_DIR", &state));
        place.wait_for("ready");
        kill(place.supervisor(), Signal::KILL);
        place.write("stop", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        assert!(run.text().contains("hint: the run is marked as interrupted; "), "{}", run.text());
        assert!(state.join("runs").is_dir());
    });
}

#[test]
fn a_target_without_a_directory_for_the_marker_is_refused_with_the_cause() {
    isolated(|place| {
        for name in ["dangling", "round", "file"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        symlink("/nowhere", place.path("dangling/var")).unwrap();
        symlink("var", place.path("round/var")).unwrap();
        place.write("file/var", "");
        for (name, what) in [
            ("dangling", "a link that leads nowhere"),
            ("round", "a link that leads nowhere"),
            ("file", "a file"),
        ] {
            let refused = place.run(&["--root", name], &["touch", "started"]);
            assert_eq!(refused.status.code(), Some(125), "{refused:?}");
            let path = format!("{}/var/lib/synconce/runs", place.text(name));
            let wanted = format!(
                "synconce: hint: the path of the second marker has {what} in place of a directory: \
                 namei {path}\n"
            );
            assert!(refused.stderr.ends_with(&wanted), "{refused:?}");
        }
        assert!(!place.path("started").exists());
    });
}
