//! Scenario `cost`: micro-benchmarks of the tool's own overhead.
//!
//! Five groups, interleaved: the start of a command, the start of a container, a held fsync, a
//! call that the filter does not inspect, and a call whose flags it inspects. The loops are
//! `synconce bench loop KIND N [FILE]`, which prints nanoseconds per call on its last line.

mod container;

use crate::Error;
use crate::install::resolve;
use crate::launcher::Launcher;
use crate::report::Report;
use crate::report::host::Host;
use crate::runner::{Settings, WarmUp, run};
use crate::scenario::{
    Iteration, Measure, Need, Place, Promise, Scenario, Steps, Tool, Variant, select,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where and how often to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Directory for the file that is synced; its disk matters for the bare fsync.
    pub dir: PathBuf,
    /// Measured rounds.
    pub rounds: u32,
    /// Starts of `true` per sample.
    pub starts: u32,
    /// Held fsync calls per sample. A sample has five times as many openat calls and fifty
    /// times as many getppid calls.
    pub calls: u64,
    /// Real fsync calls per sample: fewer, because each may wait for a disk.
    pub syncs: u64,
    /// Names of the variants; empty means all.
    pub variants: Vec<String>,
    /// Seed of the order and of the bootstrap.
    pub seed: u64,
}

impl Options {
    /// Returns the defaults for a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            rounds: 20,
            starts: 20,
            calls: 20_000,
            syncs: 200,
            variants: Vec::new(),
            seed: 1,
        }
    }
}

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
const LOOPS: [(&str, &str, u64); 3] =
    [("fsync", "{file}", 1), ("getppid", "", 50), ("openat", "{file}", 5)];

/// Runs the scenario and returns its report.
///
/// # Errors
/// See [`crate::cost()`].
pub fn measure(options: &Options, synconce: &Path) -> Result<Report, Error> {
    std::fs::create_dir_all(&options.dir).map_err(Error::io("create", &options.dir))?;
    let synconce = resolve(synconce);
    let launcher = Launcher::new()?.sparing(&synconce);
    let result = with_launcher(options, &synconce, &launcher);
    if matches!(result, Err(Error::Variant { .. } | Error::Helper { .. })) {
        launcher.keep_logs();
    }
    result
}

fn with_launcher(options: &Options, synconce: &Path, launcher: &Launcher) -> Result<Report, Error> {
    let settings = Settings { rounds: options.rounds, warm_up: WarmUp::All, seed: options.seed };
    let mut scenario = scenario(options, synconce)?;
    let host = Host::read(&options.dir, &scenario.tools, launcher)?;
    let record = run(&mut scenario, &settings, launcher)?;
    Ok(Report::new(&scenario, settings, host, record))
}

fn scenario(options: &Options, synconce: &Path) -> Result<Scenario, Error> {
    Ok(Scenario {
        name: "cost".to_owned(),
        about: "start of a command, and time per system call".to_owned(),
        dir: options.dir.clone(),
        variants: select(variants(options, synconce), &options.variants)?,
        tools: vec![Tool {
            name: "synconce".to_owned(),
            command: vec![synconce.display().to_string(), "--version".to_owned()],
        }],
        steps: Box::new(Stage::new(&options.dir, synconce)?),
    })
}

fn variants(options: &Options, synconce: &Path) -> Vec<Variant> {
    let program = synconce.display().to_string();
    let mut found = Vec::new();
    for (way, flags) in WAYS {
        found.push(Variant {
            repeat: options.starts,
            ..variant("start", way, flags, &program, vec!["true".to_owned()])
        });
    }
    found.extend(container::variants(synconce));
    for (kind, inner, factor) in LOOPS {
        // The commit is not part of the time that a loop prints.
        for (way, flags) in WAYS.into_iter().filter(|(way, _)| !is_committing(way)) {
            let bare_fsync = kind == "fsync" && flags.is_none();
            let count = if bare_fsync { options.syncs } else { options.calls * factor };
            let words = [&program, "bench", "loop", kind, &count.to_string(), inner];
            let words = words.into_iter().filter(|word| !word.is_empty());
            let command = words.map(str::to_owned).collect();
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
    inner: Vec<String>,
) -> Variant {
    let mut command = Vec::new();
    let mut needs = Vec::new();
    if let Some(flags) = flags {
        command.extend([program, "run"].map(str::to_owned));
        command.extend(flags.iter().map(|flag| (*flag).to_owned()));
        command.push("--".to_owned());
        needs.push(Need::new(program, "synconce"));
    }
    command.extend(inner);
    Variant {
        needs,
        about: format!("{group}, {way}"),
        promise: Promise::Nothing,
        against: format!("{group}/bare"),
        ..Variant::new(&format!("{group}/{way}"), command)
    }
}

/// The fixture: one file for all loops, and bundles for containers.
struct Stage {
    dir: tempfile::TempDir,
    synconce: PathBuf,
}

impl Stage {
    fn new(parent: &Path, synconce: &Path) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("synconce-bench-")
            .tempdir_in(parent)
            .map_err(Error::io("make a directory in", parent))?;
        Ok(Self { dir, synconce: synconce.to_owned() })
    }
}

impl Steps for Stage {
    fn reset(&mut self, turn: &Iteration<'_>, _launcher: &Launcher) -> Result<Place, Error> {
        let path = |name: &str| self.dir.path().join(name);
        if turn.variant.name.starts_with("container/") {
            container::furnish(&path("containers"), &self.synconce)?;
        }
        let value = |name: &str| (name.to_owned(), path(name).display().to_string());
        Ok(Place { values: BTreeMap::from(["file", "containers"].map(value)), ..Place::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_a_bare_baseline_and_all_its_members_name_it() {
        let all = variants(&Options::new("/tmp"), Path::new("/opt/synconce"));
        assert_eq!(all.len(), 5 + 3 + 3 * 3);
        for variant in &all {
            let baseline = all.iter().find(|v| v.name == variant.against);
            assert!(baseline.is_some_and(Variant::is_baseline), "{}", variant.name);
        }
    }

    #[test]
    fn a_loop_under_the_tool_runs_the_same_loop_as_the_bare_one() {
        let all = variants(&Options::new("/tmp"), Path::new("/opt/synconce"));
        let command = |name: &str| {
            let found = all.iter().find(|v| v.name == name).expect("it exists");
            found.commands[0].join(" ")
        };
        assert_eq!(
            command("openat/sealed-no-commit"),
            format!("/opt/synconce run --sealed --no-commit -- {}", command("openat/bare"))
        );
        assert_eq!(command("start/bare"), "true");
    }
}
