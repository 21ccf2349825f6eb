//! Scenario `cost`: micro-benchmarks of the tool's own overhead.
//!
//! Five groups, interleaved: the start of a command, the start of a container, a held fsync, a
//! call that the filter does not inspect, and a call whose flags it inspects. The loops are
//! `synconce bench loop KIND N [FILE]`, which prints nanoseconds per call on its last line.

mod container;

use crate::Error;
use crate::command::{show, words};
use crate::harness::{Common, Harness};
use crate::launcher::Launcher;
use crate::report::{BenchReport, quantity};
use crate::scenario::{
    Iteration, IterationConfig, Measure, Need, Observation, Promise, Scenario, Steps, Tool, Variant,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Starts of `true` per sample.
const STARTS: u32 = 20;
/// Held fsync calls per sample. A sample has five times as many openat calls and fifty times as
/// many getppid calls.
const CALLS: u64 = 20_000;
/// Real fsync calls per sample: fewer, because each may wait for a disk.
const SYNCS: u64 = 200;

/// Ways to run a command: name, and flags of `synconce run`; `bare` has no flags.
const WAYS: [(&str, Option<&[&str]>); 5] = [
    ("bare", None),
    ("supervised", Some(&[])),
    ("supervised-no-commit", Some(&["--no-commit"])),
    ("sealed", Some(&["--sealed"])),
    ("sealed-no-commit", Some(&["--sealed", "--no-commit"])),
];

/// The loops: call, operand, and the number of calls relative to the held fsync loop. The
/// factors make all loops take about as long, so that none measures only the warm-up.
const LOOPS: [(&str, Option<&str>, u64); 3] =
    [("fsync", Some("{file}"), 1), ("getppid", None, 50), ("openat", Some("{file}"), 5)];

/// Runs the scenario and returns its report. The disk of the work directory matters for the bare
/// fsync.
///
/// # Errors
/// A variant fails, or an interrupt arrives. The logs of a failure stay in place, and the error
/// names them.
pub fn measure(common: &Common, synconce: &Path) -> Result<BenchReport, Error> {
    let harness = Harness { scenario: "cost", spared: true, ..Harness::default() };
    let scenario = |synconce: &Path| scenario(&common.dir, synconce);
    let mut report = harness.measure(common, synconce, scenario)?;
    let median = |name: &str| {
        let found = report.results.iter().find(|result| result.measured.variant.name == name)?;
        Some(found.summary.as_ref()?.median * found.measured.variant.measure.nanoseconds())
    };
    let saving = median("fsync/bare").zip(median("fsync/supervised-no-commit"));
    report.findings.extend(saving.map(|(bare, held)| finding(bare, held)));
    Ok(report)
}

/// The number of syncs in the example with which the report ends.
const JOB: f64 = 1_000.0;

/// Returns the sentence about what [`JOB`] held syncs save if an fsync takes `bare` nanoseconds,
/// and held `held`. It fits in 80 columns.
fn finding(bare: f64, held: f64) -> Observation {
    let job = match JOB * (bare - held) {
        saved if saved > 0.0 => format!("save about {}", quantity(saved)),
        _ => "save nothing".to_owned(),
    };
    let (bare, held) = (quantity(bare), quantity(held));
    let summary = format!("an fsync takes {bare} here, {held} held: 1,000 held syncs {job}");
    Observation::new(summary)
}

fn scenario(dir: &Path, synconce: &Path) -> Result<Scenario, Error> {
    Ok(Scenario {
        name: "cost".to_owned(),
        about: "start of a command, and time per system call".to_owned(),
        variants: variants(synconce),
        tools: Tool::with_synconce(synconce, &[]),
        steps: Box::new(CostFixture::new(dir, synconce)?),
    })
}

fn variants(synconce: &Path) -> Vec<Variant> {
    let program = show(synconce);
    let mut found = Vec::new();
    for (way, flags) in WAYS {
        found.push(Variant {
            repeat: STARTS,
            ..variant("start", way, flags, &program, words(&["true"]))
        });
    }
    found.extend(container::variants(synconce));
    for (kind, operand, factor) in LOOPS {
        // The commit is not part of the time that a loop prints.
        for (way, flags) in WAYS.into_iter().filter(|(way, _)| !is_committing(way)) {
            let bare_fsync = kind == "fsync" && flags.is_none();
            let count = if bare_fsync { SYNCS } else { CALLS * factor };
            let mut command = words(&[&program, "bench", "loop", kind, &count.to_string()]);
            command.extend(operand.map(str::to_owned));
            found.push(Variant {
                measure: Measure::Printed,
                needs: vec![Need::new(&program, "synconce")],
                ..variant(kind, way, flags, &program, command)
            });
        }
    }
    found
}

fn is_committing(way: &str) -> bool {
    way == "supervised" || way == "sealed"
}

fn variant(
    group: &str,
    way: &str,
    flags: Option<&[&str]>,
    program: &str,
    command: Vec<String>,
) -> Variant {
    let bare = Variant {
        about: format!("{group}, {way}"),
        promise: Promise::Nothing,
        against: format!("{group}/bare"),
        ..Variant::new(&format!("{group}/{way}"), command)
    };
    match flags {
        None => bare,
        Some(flags) => bare.held(program, flags),
    }
}

/// The fixture: one file for all loops, and bundles for containers.
struct CostFixture {
    dir: tempfile::TempDir,
    synconce: PathBuf,
}

impl CostFixture {
    fn new(parent: &Path, synconce: &Path) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("synconce-bench-")
            .tempdir_in(parent)
            .map_err(Error::io("make a directory in", parent))?;
        Ok(Self { dir, synconce: synconce.to_owned() })
    }
}

impl Steps for CostFixture {
    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        _launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        let path = |name: &str| self.dir.path().join(name);
        if iteration.variant.name.starts_with("container/") {
            container::make_bundles(&path("containers"), &self.synconce)?;
        }
        let value = |name: &'static str| (name, show(&path(name)));
        let values = BTreeMap::from(["file", "containers"].map(value));
        Ok(IterationConfig { values, ..IterationConfig::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_a_bare_baseline_and_all_its_members_name_it() {
        let all = variants(Path::new("/opt/synconce"));
        for variant in &all {
            let baseline = all.iter().find(|v| v.name == variant.against);
            assert!(baseline.is_some_and(Variant::is_baseline), "{}", variant.name);
        }
    }

    #[test]
    fn the_last_sentence_says_what_a_job_saves_on_this_disk() {
        let said = |bare: f64, held: f64| finding(bare, held).summary;
        let wanted =
            "an fsync takes 8.00 ms here, 24.0 us held: 1,000 held syncs save about 7.98 s";
        assert_eq!(said(8e6, 24e3), wanted);
        assert!(said(2e3, 24e3).ends_with("1,000 held syncs save nothing"));
        let longest = said(123.4e6, 123.4e3);
        assert!(longest.len() <= 80, "{longest}");
    }
}
