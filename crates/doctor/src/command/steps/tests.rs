//! Reports of records with steps of builds.

use crate::command::{
    CommandReport, RecordFormat, RecordSums, StepWaits, compare, examine_record, export_record,
};
use serde_json::{Value, json};
use std::io::{Read, Seek, Write};

fn examined(text: &str) -> CommandReport {
    examine_record(text.as_bytes(), &[]).unwrap()
}

/// Returns a record of a client of a builder, with `lines` about steps.
fn build_record(lines: &[Value]) -> String {
    let first = json!({"record": 1, "command": ["docker", "build", "."]});
    let end = json!({"end": {"Exited": 0}, "at": 9_000_000, "looks": 0, "alone": 0, "lost": 0});
    let lines = std::iter::once(&first).chain(lines).chain([&end]);
    lines.map(|line| format!("{line}\n")).collect()
}

fn of_step(step: u32, wait: Option<u64>) -> Value {
    let mut call = json!({"call": "fsync", "at": 1_000_000, "program": "dpkg", "file": "/var/a",
        "would": "hold", "step": step});
    if let Some(wait) = wait {
        call["wait"] = wait.into();
    }
    call
}

#[test]
fn the_verdict_says_why_no_step_is_seen() {
    let why = "another `synconce doctor` watches them";
    let text = build_record(&[json!({"unseen_steps": why})]);
    let verdict = "docker: no sync was waited for in 9.0 s; build steps are not seen: another `synconce \
                   doctor` watches them";
    let mut report = examined(&text);
    report.explain_unseen_steps("another reason");
    assert_eq!(report.verdict, verdict);
    assert_eq!(export_record(text.as_bytes(), RecordFormat::Stacks).unwrap(), "");
}

/// The script may be the client of a builder, which saves time by a set-up.
#[test]
fn the_verdict_about_a_script_that_was_said_to_build_says_that_no_step_was_seen() {
    let record = |first: Value, lines: &[Value]| {
        let text = build_record(lines);
        text.replacen(text.lines().next().unwrap(), &first.to_string(), 1)
    };
    let script = json!({"record": 1, "command": ["./build.sh"], "watches_steps": true});
    let sync = json!({"call": "fsync", "at": 1, "program": "sh", "file": "/a", "would": "hold", "wait": 5_000_000});
    let of = |first: &Value, lines: &[Value]| examined(&record(first.clone(), lines));
    let mut report = of(&script, &[]);
    let unseen = "./build.sh: no sync was waited for in 9.0 s; no build step was seen";
    assert_eq!(report.verdict, unseen);
    report.explain_unseen_steps("they are seen after `x`");
    assert_eq!(report.verdict, format!("{unseen}; they are seen after `x`"));
    let own = "./build.sh: 1 sync was waited for, 5.0 ms of 9.0 s; no build step was seen";
    assert_eq!(of(&script, std::slice::from_ref(&sync)).verdict, own);
    // `docker buildx` syncs a file of its own.
    let client = build_record(&[sync]);
    let unseen = "docker: 1 sync was waited for, 5.0 ms of 9.0 s; the work of its daemon is not seen: \
                  `synconce doctor --docker`";
    assert_eq!(examined(&client).verdict, unseen);
    let begin = json!({"step": 1, "at": 500_000, "engine": "docker", "command": "/probe"});
    let mut seen = of(&script, &[begin]);
    seen.explain_unseen_steps("they are seen after `x`");
    assert_eq!(seen.verdict, "./build.sh: 1 build step waited for no sync in 9.0 s");
    // Steps of Podman are seen as the command's own processes.
    let podman = json!({"record": 1, "command": ["podman", "ps"], "watches_steps": true});
    let nothing = "podman: no sync was waited for in 9.0 s; `synconce run` saves nothing";
    assert_eq!(of(&podman, &[]).verdict, nothing);
}

/// A client that was found among the processes of a script is as good as the command itself.
#[test]
fn the_verdict_about_a_script_names_the_daemon_of_its_clients() {
    let of = |watches: bool, clients: Value, lines: &[Value]| {
        let first = json!({"record": 1, "command": ["./build.sh"], "watches_steps": watches});
        let end = json!({"end": {"Exited": 0}, "at": 9_000_000, "looks": 0, "alone": 0, "lost": 0,
            "clients": clients});
        let lines = std::iter::once(&first).chain(lines).chain([&end]);
        examined(&lines.map(|line| format!("{line}\n")).collect::<String>()).verdict
    };
    let docker = || json!([{"program": "docker", "builds": true}]);
    let unseen = "./build.sh: no sync was waited for in 9.0 s; the work of its daemon is not seen: \
                  `synconce doctor --docker`";
    let whole = unseen.replace("--docker", "--docker -- ./build.sh");
    assert_eq!(of(false, docker(), &[]), whole);
    // The report of `synconce doctor --docker -- docker build` says the same.
    assert_eq!(of(true, docker(), &[]), unseen);
    let nerdctl = json!([{"program": "nerdctl", "builds": true}]);
    assert!(of(false, nerdctl, &[]).ends_with("`synconce doctor --buildkit -- ./build.sh`"));
    let nerdctl = json!([{"program": "nerdctl", "builds": false}]);
    assert!(of(false, nerdctl, &[]).ends_with("`synconce doctor --containerd`"));
    assert!(of(false, json!([]), &[]).ends_with("`synconce run` saves nothing"));
    let begin = json!({"step": 1, "at": 500_000, "engine": "docker", "command": "/probe"});
    let seen = "./build.sh: 1 build step waited for no sync in 9.0 s";
    assert_eq!(of(true, docker(), &[begin]), seen);
}

#[test]
fn no_more_than_a_thousand_steps_are_told_apart_and_the_syncs_of_all_are_counted() {
    let steps = (1..=1_001).flat_map(|step| {
        let begin = json!({"step": step, "at": step, "engine": "docker", "command": "/probe"});
        [begin, of_step(step, Some(2_000_000))]
    });
    let text = build_record(&steps.collect::<Vec<_>>());
    let build = examined(&text).build.unwrap();
    let ends = [build.steps.first(), build.steps.last()].map(|step| step.unwrap().number);
    assert_eq!((build.steps.len(), ends, build.waits.calls), (1_000, [1, 1_000], 1_001));
    assert!(build.steps.iter().all(|step| step.calls == 1));
    // The same sums while the command runs.
    let mut file = tempfile::tempfile().unwrap();
    let mut sums = RecordSums::to(file.try_clone().unwrap());
    sums.write_all(text.as_bytes()).and_then(|()| sums.flush()).unwrap();
    let mut kept = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut kept)).unwrap();
    let build = examined(&kept).build.unwrap();
    assert_eq!((build.steps.len(), build.waits.calls), (1_000, 1_001));
}

#[test]
fn a_record_without_an_end_lasts_to_the_last_line_about_a_step() {
    let begin = json!({"step": 1, "at": 500_000, "engine": "docker", "command": "/probe"});
    let lines = [begin, of_step(1, Some(2_000_000_000))];
    let cut = |count| {
        let text = build_record(&lines[..count]);
        let whole = text.lines().count() - 1;
        text.lines().take(whole).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(examined(&cut(1)).seconds, 0.5);
    let report = examined(&cut(2));
    let verdict = "docker: 1 sync of 1 build step was waited for, 2.0 s of 3.0 s; held steps do not wait; \
                   the record has no end";
    assert_eq!((report.verdict.as_str(), report.build.unwrap().steps[0].seconds), (verdict, 2.5));
}

#[test]
fn steps_of_a_build_are_told_apart_and_count_apart_from_the_command() {
    let long = format!("/bin/sh -c apt-get {}", "x".repeat(200));
    let text = build_record(&[
        json!({"step": 1, "at": 500_000, "engine": "docker", "command": long}),
        of_step(1, Some(2_000_000_000)),
        json!({"step": 2, "at": 1_000_000, "engine": "buildkit", "command": "/probe", "image": "base"}),
        of_step(2, None),
        of_step(1, Some(1_000_000_000)),
        json!({"step_end": 1, "at": 4_500_000}),
        json!({"step": 3, "at": 5_000_000, "engine": "docker", "command": "true",
            "unseen": "runc 1.0.3 hands no listener over: that takes 1.1"}),
    ]);
    let report = examined(&text);
    assert_eq!((report.waits.calls, report.savings.about, report.most_seconds()), (0, 0.0, 0.0));
    let verdict = "docker: 2 syncs of 2 build steps were waited for, 2.0 s of 9.0 s; held steps do not \
                   wait; 1 not seen";
    assert_eq!(report.verdict, verdict);
    let build = report.build.as_ref().unwrap();
    let of = |step: &StepWaits| (step.calls, step.waits, step.untimed, step.seconds);
    let steps: Vec<_> = build.steps.iter().map(of).collect();
    // A step without an end lasts until the command ends.
    assert_eq!(steps, [(2, 3.0, 0, 4.0), (0, 0.0, 1, 8.0), (0, 0.0, 0, 4.0)]);
    let shown = report.text("synconce run -- docker build .");
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], verdict, "{shown}");
    let line =
        |title: &str| lines.iter().find(|line| line.trim_start().starts_with(title)).unwrap();
    assert!(line("step 1").contains("2    3.0 s  of    4.0 s  apt-get xxx"), "{shown}");
    assert!(line("step 1").len() < 150, "{shown}");
    assert!(line("step 3").contains("not seen: runc 1.0.3 hands no listener over"), "{shown}");
    assert!(line("by program").ends_with("  dpkg"), "{shown}");
    assert!(
        line("not timed").contains("1 fsync by dpkg, /var/a; a held step does not wait"),
        "{shown}"
    );
    let not_seen = "in steps: openat2 and open_by_handle_at with O_SYNC or O_DSYNC; transfers with \
                    RWF_SYNC or RWF_DSYNC; syncs by aio, ioctl and quotactl; unmounts";
    assert!(shown.contains(&format!("\n  not seen     {not_seen}\n")), "{shown}");
    assert_eq!(json!(report)["build"]["not_seen"], not_seen);
    // A run of the client holds nothing.
    assert!(!shown.contains("synconce run"), "{shown}");
    let page = report.page("synconce run -- docker build .", "made");
    assert!(page.contains("Build steps") && page.contains("apt-get xxx"), "{page}");
    assert!(page.contains(not_seen), "{page}");
    let bundle = crate::redacted(&report).unwrap().to_string();
    assert!(bundle.contains(not_seen), "{bundle}");
    assert!(!bundle.contains("apt-get") && !bundle.contains("xxx"), "{bundle}");
}

#[test]
fn the_sums_of_steps_and_the_formats_of_other_programs_have_what_the_lines_have() {
    let lines = build_record(&[
        json!({"step": 1, "at": 0, "engine": "docker", "command": "a"}),
        of_step(1, Some(5_000_000)),
        json!({"step_end": 1, "at": 2_000_000}),
        of_step(1, Some(5_000_000)),
    ]);
    let mut file = tempfile::tempfile().unwrap();
    let mut sums = RecordSums::to(file.try_clone().unwrap());
    sums.write_all(lines.as_bytes()).unwrap();
    sums.flush().unwrap();
    file.rewind().unwrap();
    let mut kept = String::new();
    file.read_to_string(&mut kept).unwrap();
    assert_eq!(json!(examined(&kept)), json!(examined(&lines)));
    assert_eq!(examined(&lines).build.unwrap().waits.calls, 2);
    let stacks = export_record(lines.as_bytes(), RecordFormat::Stacks).unwrap();
    assert_eq!(stacks, "step_1;dpkg;fsync 10000\n", "the lines about the step end nothing");
}

#[test]
fn steps_of_two_records_are_compared_by_their_commands() {
    let step = |number: u32, command: &str| json!({"step": number, "at": 500_000, "engine": "docker", "command": command});
    let before = build_record(&[
        step(1, "apt"),
        of_step(1, Some(3_000_000_000)),
        step(2, "true"),
        step(3, "gone"),
    ]);
    let now = build_record(&[
        step(1, "true"),
        step(2, "apt"),
        of_step(2, Some(1_000_000_000)),
        step(3, "true"),
    ]);
    let compared = compare(&examined(&before), &examined(&now));
    let verdict = "docker: waits for syncs of build steps were 3.0 s of 9.0 s before, and are 1.0 s of 9.0 s now";
    assert_eq!(compared.verdict, verdict);
    let build = compared.build.as_ref().unwrap();
    assert_eq!(build.covered, [3.0, 1.0]);
    let steps: Vec<_> = build.by_step.iter().map(|it| (&*it.name, it.calls, it.seconds)).collect();
    let none = ([0, 0], [0.0, 0.0]);
    let wanted = [("apt", [1, 1], [3.0, 1.0]), ("true", none.0, none.1), ("gone", none.0, none.1)];
    assert_eq!(steps, wanted);
    assert_eq!(build.by_program[0].name, "dpkg");
    let text = compared.text();
    let lines = [
        "  by step            1    3.0 s       1    1.0 s  apt\n",
        "  by program         1    3.0 s       1    1.0 s  dpkg\n",
    ];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    let stacks = export_record(before.as_bytes(), RecordFormat::Stacks).unwrap();
    assert_eq!(stacks, "step_1;dpkg;fsync 3000000\n");
    let trace: Value =
        serde_json::from_str(&export_record(before.as_bytes(), RecordFormat::Trace).unwrap())
            .unwrap();
    assert_eq!(trace[0]["args"]["step"], 1, "{trace:#}");
}
