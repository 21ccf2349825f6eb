//! The runner with trivial commands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use synconce_bench::Error;
use synconce_bench::launcher::Launcher;
use synconce_bench::report::{BenchReport, host::MeasuredHost};
use synconce_bench::runner::{BenchRecord, Settings, WarmUp, run};
use synconce_bench::scenario::{
    Iteration, IterationConfig, Measure, Need, Observation, Scenario, Steps, Variant, select,
};

/// Records the steps that it is asked to do.
struct Recorder {
    lines: Rc<RefCell<Vec<String>>>,
    file: PathBuf,
}

impl Steps for Recorder {
    fn reset(&mut self, iteration: &Iteration<'_>, _: &Launcher) -> Result<IterationConfig, Error> {
        self.note("reset", iteration);
        Ok(IterationConfig {
            values: BTreeMap::from([("file", self.file.display().to_string())]),
            settle: self.file.parent().map(Path::to_path_buf),
            dir: self.file.parent().map(Path::to_path_buf),
            ..IterationConfig::default()
        })
    }

    fn check(&mut self, iteration: &Iteration<'_>, _: &Launcher) -> Result<(), Error> {
        self.note("check", iteration);
        Ok(())
    }

    fn clear(&mut self, iteration: &Iteration<'_>, _: &Launcher) -> Result<(), Error> {
        self.note("clear", iteration);
        Ok(())
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        Ok(vec![Observation { variant: None, summary: "done".to_owned(), details: Vec::new() }])
    }
}

impl Recorder {
    fn note(&self, act: &str, iteration: &Iteration<'_>) {
        let last = if iteration.last { " last" } else { "" };
        self.lines
            .borrow_mut()
            .push(format!("{act} {} {}{last}", iteration.phase, iteration.variant.name));
    }
}

struct Bench {
    scenario: Scenario,
    lines: Rc<RefCell<Vec<String>>>,
    launcher: Launcher,
    dir: tempfile::TempDir,
}

fn bench(variants: Vec<Variant>) -> Bench {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let lines = Rc::new(RefCell::new(Vec::new()));
    let steps = Recorder { lines: Rc::clone(&lines), file: dir.path().join("file") };
    Bench {
        scenario: Scenario {
            name: "dummy".to_owned(),
            about: "nothing much".to_owned(),
            variants,
            tools: Vec::new(),
            steps: Box::new(steps),
        },
        lines,
        launcher: Launcher::new().expect("the launcher starts"),
        dir,
    }
}

impl Bench {
    fn run(&mut self, rounds: u32, warm_up: WarmUp) -> Result<BenchRecord, Error> {
        run(&mut self.scenario, &settings(rounds, warm_up), &self.launcher)
    }
}

fn settings(rounds: u32, warm_up: WarmUp) -> Settings {
    Settings { rounds, warm_up, seed: 3 }
}

fn shell(name: &str, script: &str) -> Variant {
    Variant::new(name, ["sh", "-c", script])
}

#[test]
fn every_round_runs_every_variant_once_and_the_order_changes() {
    let variants: Vec<Variant> = ["a", "b", "c", "d"].map(|n| shell(n, "true")).to_vec();
    let mut bench = bench(variants);
    let record = bench.run(6, WarmUp::Off).expect("it runs");
    let mut orders = Vec::new();
    for round in 1..=6 {
        let mut order: Vec<(u32, &str)> = record
            .measured
            .iter()
            .flat_map(|m| m.samples.iter().map(|s| (s, m.variant.name.as_str())))
            .filter(|(s, _)| s.round == round)
            .map(|(s, name)| (s.position, name))
            .collect();
        order.sort_unstable();
        let positions: Vec<u32> = order.iter().map(|(p, _)| *p).collect();
        assert_eq!(positions, [1, 2, 3, 4]);
        orders.push(order);
    }
    orders.dedup();
    assert!(orders.len() > 1, "no round had another order");
}

#[test]
fn commands_of_one_name_are_one_part_of_the_time() {
    let sleep = |seconds: &str| ["sleep", seconds].map(str::to_owned).to_vec();
    let variant = Variant {
        commands: vec![sleep("0.02"), sleep("0.05"), sleep("0.01")],
        parts: ["work", "sync", "work"].map(str::to_owned).to_vec(),
        ..shell("a", "true")
    };
    let mut bench = bench(vec![variant, shell("b", "true")]);
    let record = bench.run(1, WarmUp::Off).expect("it runs");
    let parts = &record.measured[0].samples[0].parts;
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["work", "sync"]);
    assert!(parts[0].ms >= 30.0 && parts[1].ms >= 50.0, "{parts:?}");
    let sum = parts[0].ms + parts[1].ms;
    assert!((sum - record.measured[0].samples[0].wall_ms).abs() < 1e-6);
    assert!(record.measured[1].samples[0].parts.is_empty());
}

#[test]
fn the_steps_frame_every_iteration_and_only_the_last_round_is_called_last() {
    let mut bench = bench(vec![shell("a", "true")]);
    bench.run(2, WarmUp::All).expect("it runs");
    assert_eq!(
        *bench.lines.borrow(),
        [
            "reset warm-up a",
            "check warm-up a",
            "clear warm-up a",
            "reset round 1 a",
            "check round 1 a",
            "clear round 1 a",
            "reset round 2 a last",
            "check round 2 a last",
            "clear round 2 a last",
        ]
    );
}

#[test]
fn only_baselines_are_warmed_up_when_that_is_asked() {
    let other = Variant { against: "a".to_owned(), ..shell("b", "true") };
    let mut bench = bench(vec![shell("a", "true"), other]);
    let record = bench.run(1, WarmUp::Baselines).expect("it runs");
    let lines = bench.lines.borrow();
    assert!(lines.contains(&"reset warm-up a".to_owned()));
    assert!(!lines.contains(&"reset warm-up b".to_owned()));
    assert!(record.measured.iter().all(|m| m.samples.len() == 1));
}

#[test]
fn a_failing_variant_stops_the_run_with_its_name_and_a_log_of_the_reason() {
    let mut bench = bench(vec![shell("broken", "echo no space left >&2; exit 7")]);
    let error = bench.run(1, WarmUp::Off).expect_err("it fails");
    let text = error.to_string();
    let Error::Variant { variant, failure, .. } = error else {
        panic!("another error: {text}");
    };
    assert_eq!(variant, "broken");
    assert!(text.contains("round 1") && text.contains("exit status: 7"), "{text}");
    assert!(text.contains(&failure.log.display().to_string()), "{text}");
    assert!(text.ends_with("\n  no space left"), "{text}");
    let logged = std::fs::read_to_string(failure.log).expect("the log is there");
    assert_eq!(logged, "no space left\n");
    let lines = bench.lines.borrow();
    assert_eq!(lines.last().map(String::as_str), Some("clear round 1 broken last"));
}

#[test]
fn an_absent_rival_is_named_with_its_package_and_the_others_run() {
    let rival = Variant {
        needs: vec![Need::new("no-such-program", "rival-package")],
        ..shell("rival", "true")
    };
    let mut bench = bench(vec![shell("a", "true"), rival]);
    let record = bench.run(1, WarmUp::Off).expect("it runs");
    assert_eq!(record.measured.len(), 1);
    let left = &record.left_out[0];
    assert_eq!(left.variant, "rival");
    assert_eq!(left.reason, "no-such-program is not installed");
    assert_eq!(left.package.as_deref(), Some("rival-package"));
}

#[test]
fn a_rival_that_is_installed_and_does_not_work_is_left_out_with_its_error() {
    let rival = Variant {
        trial: Some(["sh", "-c", "echo no cgroup; exit 1"].map(str::to_owned).to_vec()),
        ..shell("rival", "true")
    };
    let mut bench = bench(vec![shell("a", "true"), rival]);
    let record = bench.run(1, WarmUp::Off).expect("it runs");
    assert_eq!(record.left_out[0].reason, "trial ended with exit status: 1: no cgroup");
    assert!(bench.lines.borrow().contains(&"clear trial rival".to_owned()));
}

#[test]
fn with_no_variant_left_the_error_lists_what_was_left_out() {
    let rival = Variant {
        needs: vec![Need::new("no-such-program", "rival-package")],
        ..shell("rival", "true")
    };
    let error = bench(vec![rival]).run(1, WarmUp::Off).expect_err("nothing is left");
    let text = error.to_string();
    assert!(text.contains("rival (no-such-program is not installed)"), "{text}");
}

#[test]
fn a_printed_value_is_the_last_word_of_the_last_line() {
    let variant =
        Variant { measure: Measure::Printed, ..shell("loop", "echo noise; echo per call 94.5") };
    let record = bench(vec![variant]).run(1, WarmUp::Off).expect("it runs");
    assert_eq!(record.measured[0].samples[0].value, 94.5);
    let silent = Variant { measure: Measure::Printed, ..shell("silent", "true") };
    let error = bench(vec![silent]).run(1, WarmUp::Off).expect_err("no number");
    assert!(error.to_string().contains("it printed no number"), "{error}");
}

#[test]
fn all_commands_and_repeats_are_timed_and_the_placeholders_are_filled_in() {
    let mut variant = shell("two", "printf a >> {file}; sleep 0.02");
    variant.commands.push(["sh", "-c", "printf b >> {file}"].map(str::to_owned).to_vec());
    variant.repeat = 3;
    let mut bench = bench(vec![variant]);
    let file = bench.dir.path().join("file");
    let record = bench.run(1, WarmUp::Off).expect("it runs");
    let sample = &record.measured[0].samples[0];
    assert_eq!(std::fs::read_to_string(file).expect("it was written"), "ababab");
    assert!(sample.wall_ms >= 60.0, "{}", sample.wall_ms);
    assert!((sample.value - sample.wall_ms / 3.0).abs() < 1e-9);
    assert!(sample.settle_ms.is_some());
}

#[test]
fn commands_and_trials_start_in_the_directory_of_the_iteration() {
    let variant = Variant {
        trial: Some(["sh", "-c", "pwd > trial"].map(str::to_owned).to_vec()),
        ..shell("a", "pwd > timed")
    };
    let mut bench = bench(vec![variant]);
    bench.run(1, WarmUp::Off).expect("it runs");
    for name in ["trial", "timed"] {
        let file = bench.dir.path().join(name);
        let message = std::fs::read_to_string(file).expect("it was written there");
        assert_eq!(Path::new(message.trim()), bench.dir.path());
    }
}

#[test]
fn processor_time_of_a_command_is_counted() {
    let variant = shell("busy", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
    let record = bench(vec![variant]).run(1, WarmUp::Off).expect("it runs");
    let sample = &record.measured[0].samples[0];
    assert!(sample.user_ms > 1.0, "{}", sample.user_ms);
}

#[test]
fn a_program_that_does_not_exist_is_an_error_with_its_name() {
    let variant = Variant::new("a", ["/no/such/program"]);
    let error = bench(vec![variant]).run(1, WarmUp::Off).expect_err("it cannot run");
    assert!(error.to_string().starts_with("cannot run /no/such/program: No such file"), "{error}");
}

#[test]
fn a_filter_keeps_the_scenarios_order_and_refuses_unknown_names() {
    let all = || vec![shell("a", "true"), shell("b", "true"), shell("c", "true")];
    let names = ["c".to_owned(), "a".to_owned()];
    let kept = select(all(), &names).expect("the names are known");
    assert_eq!(kept.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let error = select(all(), &["d".to_owned()]).expect_err("it is not known");
    assert_eq!(error.to_string(), "no variant d; there are a, b, c");
}

#[test]
fn a_report_survives_json_with_every_sample() {
    let slow = Variant { against: "quick".to_owned(), ..shell("slow", "sleep 0.02") };
    let mut bench = bench(vec![shell("quick", "true"), slow]);
    let host = MeasuredHost::read(bench.dir.path(), &[], &bench.launcher).expect("it can be read");
    let record = bench.run(5, WarmUp::Off).expect("it runs");
    let report = BenchReport::new(&bench.scenario, settings(5, WarmUp::Off), host, record);
    let json = serde_json::to_vec(&report).expect("numbers and text");
    let back: BenchReport = serde_json::from_slice(&json).expect("it can be read back");
    assert_eq!(back, report);
    assert!(back.results.iter().all(|r| r.measured.samples.len() == 5));
    let comparison = back.results[1].comparison.expect("there is a baseline");
    assert!(comparison.ratio > 1.0);
}
