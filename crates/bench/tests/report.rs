//! The text of a report with fixed samples.

use synconce_bench::report::{BenchReport, host::MeasuredHost};
use synconce_bench::runner::{BenchRecord, LeftOut, Measured, Sample, Settings, WarmUp};
use synconce_bench::scenario::{
    Iteration, IterationConfig, Observation, Promise, SamplePart, Scenario, Steps, Variant,
};
use synconce_bench::{Error, launcher::Launcher};

struct Idle;

impl Steps for Idle {
    fn reset(&mut self, _: &Iteration<'_>, _: &Launcher) -> Result<IterationConfig, Error> {
        Ok(IterationConfig::default())
    }
}

fn host() -> MeasuredHost {
    MeasuredHost {
        started: 1,
        kernel: "Linux 6.18".to_owned(),
        machine: "x86_64".to_owned(),
        cpu: "A Processor".to_owned(),
        cores: 2,
        memory_mib: 4096,
        load: "0.10 0.20 0.30".to_owned(),
        mount: None,
        flush_ms: 4.0,
        tools: [("synconce".to_owned(), "0.1.0".to_owned())].into(),
    }
}

fn measured(name: &str, promise: Promise, values: &[f64]) -> Measured {
    let sample = |(round, value): (u32, &f64)| Sample {
        round,
        position: 1,
        value: *value,
        wall_ms: *value,
        user_ms: 10.0,
        system_ms: 5.0,
        exit_code: 0,
        flushes: Some(6),
        settle_ms: Some(250.0),
        parts: Vec::new(),
    };
    Measured {
        variant: Variant { promise, against: "plain".to_owned(), ..Variant::new(name, ["true"]) },
        samples: (1..).zip(values).map(sample).collect(),
    }
}

fn report(record: BenchRecord) -> BenchReport {
    let scenario = Scenario {
        name: "install".to_owned(),
        about: "a package".to_owned(),
        variants: Vec::new(),
        tools: Vec::new(),
        steps: Box::new(Idle),
    };
    let settings = Settings { rounds: 5, warm_up: WarmUp::Off, seed: 1 };
    BenchReport::new(&scenario, settings, host(), record)
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let mut lines = text.lines();
    lines.find(|line| line.starts_with(start)).expect("the line is there")
}

#[test]
fn a_table_shows_ratio_interval_and_what_is_left_unsafe() {
    let plain = [1000.0, 1010.0, 990.0, 1005.0, 995.0];
    let text = report(BenchRecord {
        measured: vec![
            measured("plain", Promise::OwnSyncs, &plain),
            measured("eatmydata", Promise::Nothing, &plain.map(|v| v / 2.0)),
            measured("synconce", Promise::Durable, &plain.map(|v| v * 0.6)),
        ],
        ..BenchRecord::default()
    })
    .text(None);
    assert!(line(&text, "plain").ends_with("baseline"), "{text}");
    let rival = line(&text, "eatmydata");
    assert!(rival.contains("500 ms") && rival.contains("0.500  [0.49"), "{text}");
    assert!(rival.contains("-500 ms") && rival.contains("0.008"), "{text}");
    assert!(rival.ends_with("250 ms  lower"), "{text}");
    assert!(line(&text, "synconce").ends_with("nothing  lower"), "{text}");
    assert!(line(&text, "disk").ends_with("write + fdatasync 4.00 ms"), "{text}");
}

#[test]
fn parts_are_a_table_of_medians_where_a_sample_has_any() {
    let mut whole = measured("plain", Promise::Nothing, &[10.0, 20.0, 30.0]);
    for (sample, ms) in whole.samples.iter_mut().zip([1.0, 5.0, 2.0]) {
        sample.parts = vec![SamplePart { name: "load".to_owned(), ms }];
    }
    whole.samples[0].parts.push(SamplePart { name: "run".to_owned(), ms: 7.0 });
    let other = measured("other", Promise::Nothing, &[10.0]);
    let text =
        report(BenchRecord { measured: vec![whole, other], ..BenchRecord::default() }).text(None);
    let (_, parts) = text.split_once("parts, medians\n").expect("there are parts");
    let plain = line(parts, "plain");
    assert!(plain.contains("2.00 ms") && plain.ends_with("7.00 ms"), "{text}");
    assert!(line(parts, "other").ends_with('-'), "{text}");
    let none = report(BenchRecord {
        measured: vec![measured("plain", Promise::Nothing, &[1.0])],
        ..BenchRecord::default()
    });
    assert!(!none.text(None).contains("parts"), "{}", none.text(None));
}

#[test]
fn parts_that_are_timed_apart_have_their_spread_and_the_ratio_to_the_baselines_own() {
    let apart = |name: &str, against: &str, times: [f64; 3]| {
        let mut one = measured(name, Promise::Nothing, &[10.0, 20.0, 30.0]);
        one.variant.parts = vec!["clone".to_owned()];
        one.variant.against = against.to_owned();
        for (sample, ms) in one.samples.iter_mut().zip(times) {
            sample.parts = vec![SamplePart { name: "clone".to_owned(), ms }];
        }
        one
    };
    let slow = apart("tree/slow", "tree/slow", [80.0, 90.0, 100.0]);
    let fast = apart("tree/fast", "tree/slow", [8.0, 9.0, 10.0]);
    let other = measured("other", Promise::Nothing, &[10.0]);
    let report =
        report(BenchRecord { measured: vec![slow, fast, other], ..BenchRecord::default() });
    assert!(report.results[0].parts[0].comparison.is_none());
    let comparison = report.results[1].parts[0].comparison.expect("the baseline has it, too");
    assert!((comparison.ratio - 0.1).abs() < 1e-9);
    assert!(report.results[2].parts.is_empty());
    let text = report.text(None);
    let (_, table) = text.split_once("\nclone ").expect("the part has a table");
    let fast = line(table, "tree/fast");
    assert!(fast.contains("8.00 ms .. 10.0 ms") && fast.contains("0.100"), "{text}");
    assert!(fast.contains("tree/slow: "), "{text}");
}

#[test]
fn a_null_result_is_printed_as_one() {
    let text = report(BenchRecord {
        measured: vec![
            measured("plain", Promise::OwnSyncs, &[1.0, 2.0, 3.0, 4.0, 5.0]),
            measured("other", Promise::Nothing, &[1.5, 2.5, 2.9, 3.5, 4.5]),
        ],
        ..BenchRecord::default()
    })
    .text(None);
    assert!(line(&text, "other").ends_with("no difference shown"), "{text}");
}

#[test]
fn a_variant_without_a_measured_baseline_is_marked() {
    let text = report(BenchRecord {
        measured: vec![measured("eatmydata", Promise::Nothing, &[1.0, 2.0])],
        ..BenchRecord::default()
    })
    .text(None);
    assert!(line(&text, "eatmydata").ends_with("plain was not measured"), "{text}");
}

#[test]
fn what_was_left_out_and_found_stands_below_the_table() {
    let text = report(BenchRecord {
        left_out: vec![LeftOut {
            variant: "rival".to_owned(),
            reason: "rival is not installed".to_owned(),
            package: Some("rival-package".to_owned()),
        }],
        findings: vec![Observation {
            variant: Some("eatmydata".to_owned()),
            summary: "12 of 99 entries differ from plain".to_owned(),
            details: (1..=12).map(|n| format!("/path/{n}: content")).collect(),
        }],
        ..BenchRecord::default()
    })
    .text(None);
    let end = "\
left out: rival: rival is not installed; the package rival-package brings it
eatmydata: 12 of 99 entries differ from plain
";
    assert!(text.contains(end), "{text}");
    assert!(text.contains("  /path/10: content\n  and 2 more"), "{text}");
}
