//! Held build steps are counted, and `synconce status` shows the counts.

use crate::bundles::{Runtime, config};
use crate::runtimes;
use libtest_mimic::Trial;
use rustix::fs::Mode;
use rustix::process::umask;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use synconce_testkit::harness::{
    Need, Place, StartedCommand, Terminal, binary, eventually, finish, trial,
};
use synconce_testkit::process::Finished;

const PROMTOOL: [Need; 3] =
    [runtimes::RUNC[0], runtimes::RUNC[1], Need::Program("promtool", "prometheus")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(steps_are_counted_and_ordinary_containers_are_not, &runtimes::RUNC),
        trial(a_note_that_fails_fails_no_step, &runtimes::RUNC),
        trial(a_terminal_of_80_columns_shows_a_run_a_hold_and_steps_whole, &runtimes::RUNC),
        trial(promtool_finds_nothing_wrong_with_the_metrics, &PROMTOOL),
    ]
}

fn status(place: &Place, options: &[&str]) -> Finished {
    let shown = place.status(options);
    let none = "synconce: no run in flight or interrupted, no hold, no held build step\n";
    let said = if shown.stdout.is_empty() { none } else { "" };
    assert_eq!((shown.status.code(), shown.stderr.as_str()), (Some(0), said), "{shown:?}");
    shown
}

/// Runs a held step.
fn step(runtime: &Runtime<'_>) {
    let done = runtime.step(&config());
    assert!(done.stdout.contains("fsync 0\n"), "{done:?}");
}

fn steps_are_counted_and_ordinary_containers_are_not(place: &Place) {
    let runtime = Runtime::new(place, "runc");
    let ordinary = runtime.ordinary(runtime.wrapped(), &config());
    assert!(ordinary.stdout.contains("fsync EBADF\n"), "{ordinary:?}");
    assert_eq!(status(place, &[]).stdout, "", "no step was held");
    assert_eq!(status(place, &["--json"]).stdout.trim(), "[]");
    let none = status(place, &["--format", "prometheus"]).stdout;
    assert!(none.contains("synconce_runs{state=\"interrupted\"} 0\n"), "{none}");
    assert!(!none.contains("build_step"), "{none}");

    // The directory of run files is for all users, also if an engine has another umask.
    assert!(!place.path("runtime").exists());
    umask(Mode::RWXG | Mode::RWXO);
    step(&runtime);
    let mode = std::fs::metadata(place.path("runtime")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "{mode:o}");
    let one = status(place, &[]).stdout;
    let first = "buildkit: 1 build step held since the boot, 1 with the root as mounted \
                 (last reason: it is not a mounted overlay), the last 20";
    assert!(one.starts_with(first), "{one}");
    step(&runtime);
    assert!(status(place, &[]).stdout.starts_with("buildkit: 2 build steps held since"));
    let json = status(place, &["--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (steps, last) = (&json[0]["steps"], &json[0]["steps"]["last"]);
    assert_eq!((&steps["engine"], &steps["count"]), (&"buildkit".into(), &2.into()), "{json}");
    assert!(json[0]["state"] == "counted" && last["time"].is_u64(), "{json}");
    let roots = (&steps["volatile"], &steps["as_mounted"]);
    assert_eq!(roots, (&0.into(), &2.into()), "the root is no overlay: {json}");
    assert_eq!(steps["as_mounted_reason"], "it is not a mounted overlay", "{json}");
    let metrics = status(place, &["--format", "prometheus"]).stdout;
    let counted = "\nsynconce_build_steps_held_total{engine=\"buildkit\"} 2\n";
    let time = format!(
        "\nsynconce_last_build_step_timestamp_seconds{{engine=\"buildkit\"}} {}\n",
        last["time"]
    );
    assert!(metrics.contains(counted) && metrics.contains(&time), "{metrics}");
    // A run in flight changes no exit code: a script can go on by `&&`.
    let synconce = binary();
    let run = place.run(&[], &["sh", "-c", &format!("{synconce} status --format prometheus")]);
    assert!(run.status.success(), "{run:?}");
    assert!(run.stdout.contains("synconce_runs{state=\"in-flight\"} 1\n"), "{run:?}");
    for other in ["--json", "--quiet", "--clear=x"] {
        let refused = place.status(&["--format", "prometheus", other]);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    }
    // What cannot be read is no 0 in a metric.
    std::fs::remove_dir_all(place.path("runtime")).unwrap();
    place.write("runtime", "");
    let unread = place.status(&["--format", "prometheus"]);
    assert_eq!((unread.status.code(), unread.stdout.as_str()), (Some(125), ""), "{unread:?}");
}

fn a_note_that_fails_fails_no_step(place: &Place) {
    let runtime = Runtime::new(place, "runc");
    step(&runtime);
    // The directory of the counts cannot be made.
    let directory = place.path("runtime/steps");
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "").unwrap();
    step(&runtime);
    assert_eq!(status(place, &[]).stdout, "");
}

fn a_terminal_of_80_columns_shows_a_run_a_hold_and_steps_whole(place: &Place) {
    let runtime = Runtime::new(place, "runc");
    step(&runtime);
    // A directory with a path of the usual length.
    let bound = place.bare(&["mount", "--bind", ".", "/mnt"]);
    assert!(bound.status.success(), "{bound:?}");
    let held = "/mnt/lib/containerd/databases";
    let cost = "images are pulled again, and containers are made again";
    place.write(
        "docker.toml",
        &format!(
            "after_crash = \"wipe\"\ncost = \"{cost}\"\n[[hold]]\npath = \"{held}\"\nkind = \"other\"\n"
        ),
    );
    let hold = |verb: &str| {
        let done = finish(&mut place.synconce(&["hold", verb, "./docker.toml"]));
        assert!(done.status.success(), "{done:?}");
    };
    std::fs::create_dir_all(held).unwrap();
    place.bare(&["mkfifo", "lib/stop"]);
    hold("start");
    crash_and_start_again(place, held, hold);
    let mut run = place.held(&[], &["sh", "-c", "read line <stop"]);
    let run = StartedCommand::new(run.current_dir("/mnt/lib"));
    eventually("the run is there", || place.run_files().len() == 1);

    let whole = place.status(&[]).stdout;
    let mut terminal = Terminal::shell(place);
    terminal.resize(24, 80);
    terminal.line("$SYNCONCE status");
    let shown = terminal.prompt();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&shown), words(&whole));
    for part in [
        " in-flight sh -c ",
        "hold docker: held since ",
        cost,
        ".synconce-aside-docker-1",
        "build step held",
    ] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    let long: Vec<_> = shown.lines().filter(|line| line.trim_end().chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?} {shown}");
    terminal.line("exit 0");
    terminal.end();
    place.write("lib/stop", "\n");
    assert!(run.end().success());
    hold("stop");
}

/// Leaves the hold as after a crash, after which the daemon has started on a new directory.
fn crash_and_start_again(place: &Place, held: &str, hold: impl Fn(&str)) {
    let crash = format!(
        "umount {held}; pkill -KILL -x synconce-guard; \
         while pgrep -r D,R,S,T -x synconce-guard >/dev/null; do sleep 0.01; done; \
         sed -i 's/\"boot\": \"/&x/' state/holds/docker.json"
    );
    let crash = place.bare(&["sh", "-ec", &crash]);
    assert!(crash.status.success(), "{crash:?}");
    hold("recover");
    std::fs::create_dir(held).unwrap();
    hold("start");
}

fn promtool_finds_nothing_wrong_with_the_metrics(place: &Place) {
    let runtime = Runtime::new(place, "runc");
    step(&runtime);
    let check = |text: &str| {
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = promtool.stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let metrics = status(place, &["--format", "prometheus"]).stdout;
    assert_eq!(check(&metrics), (Some(0), String::new()), "{metrics}");
    // The tool sees a wrong name.
    let wrong = metrics.replace("_held_total", "_held");
    assert_ne!(check(&wrong), (Some(0), String::new()), "{wrong}");
}
