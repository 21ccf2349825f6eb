//! Scenarios as data: the runner is independent of what it measures.
//!
//! A new scenario is a value of [`Scenario`] with an implementation of [`Steps`] for the parts
//! that need code.

use crate::command::{show, words};
use crate::launcher::Launcher;
use crate::{CommandFailure, Error};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use synconce_sys::search;

/// One benchmark: the compared variants and their fixture.
pub struct Scenario {
    /// Short name, as in `synconce bench NAME`.
    pub name: String,
    /// One-line description for the head of the report.
    pub about: String,
    /// The compared variants, in the order of the report.
    pub variants: Vec<Variant>,
    /// Programs whose version the report contains.
    pub tools: Vec<Tool>,
    /// The code of the scenario.
    pub steps: Box<dyn Steps>,
}

/// A program whose version the report contains.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Name in the report.
    pub(crate) name: String,
    /// Command whose first line of output is the version.
    pub(crate) command: Vec<String>,
}

impl Tool {
    /// Returns a tool that prints its version with `--version`.
    pub(crate) fn new(name: &str, program: &str) -> Self {
        Self { name: name.to_owned(), command: words(&[program, "--version"]) }
    }

    /// Returns synconce itself and other programs of their usual names.
    pub(crate) fn with_synconce(synconce: &Path, others: &[&str]) -> Vec<Self> {
        let own = std::iter::once(Self::new("synconce", &show(synconce)));
        own.chain(others.iter().map(|name| Self::new(name, name))).collect()
    }
}

/// One of the compared ways to do the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name in tables, filters and file names.
    pub name: String,
    /// One-line description of the difference from the other variants.
    pub about: String,
    /// The timed commands, one after another; each `{key}` is replaced from
    /// [`IterationConfig::values`].
    pub commands: Vec<Vec<String>>,
    /// The part to which each command's time belongs, in the order of the commands; commands
    /// of one name form one part. If empty, [`Steps::parts`] finds the parts of a sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// Programs that must exist on the host.
    pub needs: Vec<Need>,
    /// A command that must succeed once, untimed; otherwise the variant is left out with the
    /// command's error. For tools that may be installed and still not work here.
    pub trial: Option<Vec<String>>,
    /// What exit code 0 promises about the data.
    pub promise: Promise,
    /// The number that is measured.
    pub measure: Measure,
    /// How often the commands run per sample; the wall time is divided by it.
    pub repeat: u32,
    /// The variant with which this one is compared; a baseline names itself.
    pub against: String,
}

impl Variant {
    /// Returns a variant that runs one command, is its own baseline, measures wall time and
    /// promises nothing.
    pub fn new<S: Into<String>>(name: &str, command: impl IntoIterator<Item = S>) -> Self {
        Self {
            name: name.to_owned(),
            about: String::new(),
            commands: vec![command.into_iter().map(Into::into).collect()],
            parts: Vec::new(),
            needs: Vec::new(),
            trial: None,
            promise: Promise::Nothing,
            measure: Measure::Wall,
            repeat: 1,
            against: name.to_owned(),
        }
    }

    /// Returns the variant with its command run by `synconce run FLAGS`.
    #[must_use]
    pub(crate) fn held(mut self, synconce: &str, flags: &[&str]) -> Self {
        let before = [&[synconce, "run"], flags, &["--"]].concat();
        self.commands[0].splice(0..0, words(&before));
        self.needs.push(Need::new(synconce, "synconce"));
        self
    }

    /// Whether other variants are compared with this one.
    pub(crate) fn is_baseline(&self) -> bool {
        self.against == self.name
    }
}

/// What exit code 0 of a variant promises about the data on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// All written data is durable.
    Durable,
    /// Data is durable as far as the programs' own syncs cover it, which may not be
    /// everything.
    OwnSyncs,
    /// No data is durable.
    Nothing,
}

/// The measured number of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Wall time of the commands, in milliseconds.
    Wall,
    /// The last word of the last line on standard output, in nanoseconds per call.
    Printed,
}

impl Measure {
    /// Returns the nanoseconds in one unit of the measure.
    pub(crate) fn nanoseconds(self) -> f64 {
        match self {
            Self::Wall => 1e6,
            Self::Printed => 1.0,
        }
    }
}

/// A program or file that a variant needs on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Need {
    /// A program, looked up in PATH unless it has a slash; or the path of another file.
    pub program: String,
    /// The package that contains the program.
    pub package: String,
    /// Whether it is a file that is read, and not a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_data: bool,
}

impl Need {
    /// Returns a need for `program`, which `package` contains.
    pub fn new(program: &str, package: &str) -> Self {
        Self { program: program.to_owned(), package: package.to_owned(), is_data: false }
    }

    /// Returns a need for the file `path`, such as a header, which `package` contains.
    pub(crate) fn file(path: &str, package: &str) -> Self {
        Self { is_data: true, ..Self::new(path, package) }
    }

    /// Whether the program can be executed, or the file exists.
    pub(crate) fn is_met(&self) -> bool {
        if self.is_data {
            return Path::new(&self.program).is_file();
        }
        search::find(&self.program).is_some()
    }
}

/// The phase of a benchmark in which a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The variant's trial command, before anything is measured.
    Trial,
    /// An untimed run.
    WarmUp,
    /// A measured round, counted from 1.
    Round(u32),
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trial => write!(f, "trial"),
            Self::WarmUp => write!(f, "warm-up"),
            Self::Round(number) => write!(f, "round {number}"),
        }
    }
}

/// One iteration: one run of one variant.
#[derive(Clone, Copy, Debug)]
pub struct Iteration<'a> {
    /// The phase of the benchmark.
    pub phase: Phase,
    /// Whether this is the last measured round.
    pub last: bool,
    /// The variant that runs.
    pub variant: &'a Variant,
}

impl Iteration<'_> {
    /// Returns the log of the commands.
    pub(crate) fn log(&self, launcher: &Launcher) -> PathBuf {
        self.other_log("", launcher)
    }

    /// Returns the log of another command of the iteration.
    pub(crate) fn other_log(&self, suffix: &str, launcher: &Launcher) -> PathBuf {
        let name = format!("{}-{}{suffix}", self.phase, self.variant.name);
        launcher.log(&name.replace([' ', '/'], "-"))
    }

    /// Returns the error for a command whose work was not done.
    pub(crate) fn error(
        &self,
        command: &[impl AsRef<str>],
        ending: impl Into<String>,
        log: &Path,
    ) -> Error {
        Error::Variant {
            variant: self.variant.name.clone(),
            phase: self.phase.to_string(),
            failure: CommandFailure::new(command, ending, log),
        }
    }
}

/// The fixture of one iteration.
#[derive(Clone, Debug, Default)]
pub struct IterationConfig {
    /// The values that replace `{key}` in the commands.
    pub values: BTreeMap<&'static str, String>,
    /// The working directory of the commands; `None` is that of this process.
    pub dir: Option<PathBuf>,
    /// A path on the file system whose sync is measured after the run, outside the measured
    /// time: the sync covers the data that the variant had not made durable.
    pub settle: Option<PathBuf>,
    /// The daemon that does the work. The times of the daemon and of its reaped children are added
    /// to the command's.
    pub server: Option<Pid>,
    /// The parts that begin with cold caches; the kernel's caches are emptied before each of
    /// their commands, outside the measured time.
    pub cold: Vec<String>,
}

/// One part of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplePart {
    /// The name, the same in all samples of a scenario.
    pub name: String,
    /// The duration in milliseconds.
    pub ms: f64,
}

impl SamplePart {
    pub(crate) fn new(name: &str, ms: f64) -> Self {
        Self { name: name.to_owned(), ms }
    }
}

/// A finding that is not a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The variant concerned, if it is a single one.
    pub variant: Option<String>,
    /// One-line summary.
    pub summary: String,
    /// The evidence, one line each.
    pub details: Vec<String>,
}

impl Observation {
    /// Returns a finding without evidence about all variants.
    pub(crate) fn new(summary: String) -> Self {
        Self { variant: None, summary, details: Vec::new() }
    }
}

/// The code of a scenario. None of it is timed.
pub trait Steps {
    /// Runs once, before everything else.
    ///
    /// # Errors
    /// Any error ends the benchmark.
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let _ = launcher;
        Ok(())
    }

    /// Runs before each iteration: restores the initial state of the fixture.
    ///
    /// # Errors
    /// Any error ends the benchmark, after [`Steps::clear`].
    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error>;

    /// Runs after an iteration with exit code 0: returns the parts of its time. `timed` are
    /// the parts of [`Variant::parts`], and `log` is the complete output.
    ///
    /// # Errors
    /// Any error ends the benchmark, after [`Steps::clear`].
    fn parts(
        &mut self,
        iteration: &Iteration<'_>,
        timed: Vec<SamplePart>,
        log: &Path,
    ) -> Result<Vec<SamplePart>, Error> {
        let _ = (iteration, log);
        Ok(timed)
    }

    /// Runs after an iteration with exit code 0: checks that the work was done.
    ///
    /// # Errors
    /// Any error ends the benchmark, after [`Steps::clear`].
    fn check(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let _ = (iteration, launcher);
        Ok(())
    }

    /// Runs after each iteration, however it ended.
    ///
    /// # Errors
    /// An error ends the benchmark unless the iteration already had one.
    fn clear(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let _ = (iteration, launcher);
        Ok(())
    }

    /// Runs once, after the last round: returns findings that are not times.
    ///
    /// # Errors
    /// Any error ends the benchmark.
    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        Ok(Vec::new())
    }
}

/// Keeps the variants named in `names`, in the scenario's order; no names keep all.
///
/// # Errors
/// [`Error::UnknownVariant`] for a name that no variant has.
pub fn select(variants: Vec<Variant>, names: &[String]) -> Result<Vec<Variant>, Error> {
    if names.is_empty() {
        return Ok(variants);
    }
    let known: Vec<String> = variants.iter().map(|v| v.name.clone()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(Error::UnknownVariant { name: name.clone(), known });
    }
    Ok(variants.into_iter().filter(|v| names.contains(&v.name)).collect())
}
