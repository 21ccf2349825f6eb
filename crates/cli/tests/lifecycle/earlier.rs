//! What a run and `status` print about an earlier run that was interrupted.

use std::fs;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, isolated, perl, without_fuse_notice,
};

const NOTICE: &str =
    "synconce: an earlier run was interrupted; `synconce status` shows what to do\n";

/// Leaves an interrupted run whose command runs until the file `stop` exists.
fn interrupt(place: &Place, script: &str) -> StartedCommand {
    let words =
        perl(&format!("sync_file('data'); {script} kill 'KILL', getppid; wait_for('stop');"));
    let before = place.markers().len();
    let run = StartedCommand::new(&mut place.held(&[], &words));
    eventually("it is interrupted", || place.markers().len() > before);
    eventually("the supervisor is gone", || {
        place.run_files().is_empty() || {
            place.status(&[]).status.code() == Some(4) && place.run_files().is_empty()
        }
    });
    run
}

fn end(place: &Place, run: &StartedCommand) {
    place.write("stop", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
    place.remove("stop");
}

#[test]
fn a_note_of_a_printed_notice_follows_no_link() {
    isolated(|place| {
        place.write("data", "x");
        place.write("precious", "theirs");
        let interrupted = interrupt(place, "");
        end(place, &interrupted);
        for name in ["state/.reported.json.new", "state/reported.json"] {
            std::os::unix::fs::symlink(place.path("precious"), place.path(name)).unwrap();
            let notices = || place.run(&[], &["sync", "data"]).stderr;
            assert_eq!((notices(), notices()), (NOTICE.to_owned(), String::new()), "{name}");
            assert_eq!(place.read("precious"), "theirs", "{name}");
            place.remove("state/reported.json");
        }
    });
}

#[test]
fn an_interrupted_run_is_reported_by_one_later_run_a_boot() {
    isolated(|place| {
        let synconce = binary();
        place.write("data", "x");
        let notices =
            |options: &[&str]| without_fuse_notice(&place.run(options, &["sync", "data"]).stderr);
        assert_eq!(notices(&[]), "");
        let interrupted = interrupt(place, "");
        end(place, &interrupted);
        assert_eq!(notices(&["--no-commit"]), "", "it has no state directory");
        assert_eq!(notices(&[]), NOTICE);
        assert_eq!(notices(&["--sealed"]), "");
        assert_eq!(notices(&[]), "");

        let later = interrupt(place, "");
        assert_eq!(notices(&["--sealed"]), NOTICE, "another one, later");
        end(place, &later);
        assert_eq!(notices(&[]), "");
        let note = place.path("state/reported.json");
        let text = fs::read_to_string(&note).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        fs::write(&note, text.replace(boot.trim(), "another-boot")).unwrap();
        let script = format!("{synconce} run -- sync data");
        assert_eq!(place.sh(&script).stderr, NOTICE, "the first of a boot, once with an inner run");

        for run in place.markers() {
            let id = run.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(place.status(&["--clear", &id]).status.success());
        }
        fs::remove_file(&note).unwrap();
        assert_eq!(notices(&[]), "");
        assert!(!note.exists(), "a run that finds nothing writes nothing");
    });
}

#[test]
fn a_run_does_not_take_one_in_flight_for_an_interrupted_one() {
    isolated(|place| {
        place.write("data", "x");
        let run = place.start("sync data; touch ready; until [ -e stop ]; do sleep 0.01; done");
        eventually("it is marked", || place.path("ready").exists());
        assert_eq!(place.sh("sync data").stderr, "");
        place.write("stop", "");
        assert!(run.end().success());
    });
}

#[test]
fn what_a_run_cannot_note_or_read_does_not_keep_it_from_starting() {
    isolated(|place| {
        place.write("data", "x");
        let interrupted = interrupt(place, "");
        end(place, &interrupted);
        fs::create_dir(place.path("state/reported.json")).unwrap();
        for name in ["a.json", "b.private"] {
            fs::create_dir(place.path("state/runs").join(name)).unwrap();
        }
        for _ in 0..2 {
            let run = place.run(&[], &["sync", "data"]);
            assert!(run.status.success(), "{run:?}");
            assert_eq!(run.stderr, NOTICE, "it is reported again rather than never");
        }
    });
}

#[test]
fn status_names_the_processes_of_an_interrupted_run_before_any_hint() {
    isolated(|place| {
        // One process has the run's environment; the other has an empty one and a session of
        // its own.
        let child = "if (!fork) { POSIX::setsid(); exec 'env', '-i', 'perl', '-e', \
                     'sleep 1 until -e \"stop\"' } wait_for('data'); say_to('pid', $$);";
        let run = interrupt(place, child);
        let pid: u64 = place.wait_for("pid").trim().parse().unwrap();
        let of = |pid: u64| format!("perl (pid {pid})");
        eventually("both are named", || {
            place.status(&[]).stdout.matches("perl (pid ").count() == 2
        });
        let status = place.status(&[]);
        let lines: Vec<_> = status.stdout.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with("still running: ")).unwrap();
        assert!(lines[at].contains(&of(pid)), "{status:?}");
        assert!(lines[at + 1].starts_with("wait for the processes "), "{status:?}");
        let kill = lines[at + 2].strip_prefix("kill ").unwrap();
        let pids: Vec<u64> = kill.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert!(pids.len() == 2 && pids.contains(&pid), "{status:?}");
        assert!(lines[at + 3].starts_with("files that it wrote "), "{status:?}");

        let shown = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let json = shown(&place.status(&["--json"]).stdout);
        let running = json[0]["running"].as_array().unwrap();
        assert!(running.iter().any(|it| it["pid"] == pid && it["name"] == "perl"), "{json}");
        // A container that has a boot id of its own runs them.
        let marker = place.markers().remove(0);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        fs::write(&marker, fs::read_to_string(&marker).unwrap().replace(boot.trim(), "own"))
            .unwrap();
        assert!(place.status(&[]).stdout.contains(&of(pid)), "{:?}", place.status(&[]));
        // The marker was the only record of the running processes, so a `--clear` names them.
        let (id, text) = (json[0]["id"].as_str().unwrap(), fs::read(&marker).unwrap());
        let cleared = place.status(&["--clear", id]);
        assert!(cleared.status.success() && !marker.exists(), "{cleared:?}");
        let named = format!("synconce: cleared {id}\nsynconce: processes of {id} ");
        assert!(cleared.stderr.starts_with(&named), "{cleared:?}");
        assert!(pids.iter().all(|pid| cleared.stderr.contains(&of(*pid))), "{cleared:?}");
        assert_eq!(cleared.stderr.lines().count(), 2, "{cleared:?}");
        fs::write(&marker, text).unwrap();
        end(place, &run);
        eventually("all have ended", || !place.status(&[]).stdout.contains("still running"));
        assert_eq!(shown(&place.status(&["--json"]).stdout)[0]["running"], serde_json::json!([]));
        assert!(!place.status(&[]).stdout.contains("\n      kill "));
    });
}
