//! Scenarios as data: the runner knows nothing of what it measures.
//!
//! A new scenario is a value of [`Scenario`] with an implementation of
//! [`Steps`] for the parts that need code; the runner stays untouched.

use crate::Error;
use crate::launcher::Launcher;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One benchmark: what is compared, and how the stage is set.
pub struct Scenario {
    /// Short name, as in `synconce bench NAME`.
    pub name: String,
    /// One line for the report's head.
    pub about: String,
    /// The directory whose file system is under test.
    pub dir: PathBuf,
    /// What is compared, in the order of the report.
    pub variants: Vec<Variant>,
    /// Programs whose version belongs in the report.
    pub tools: Vec<Tool>,
    /// The code behind it.
    pub steps: Box<dyn Steps>,
}

/// A program whose version the report names.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Name in the report.
    pub name: String,
    /// Command whose first line of output is the version.
    pub command: Vec<String>,
}

/// One way of doing the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name in tables, filters and file names.
    pub name: String,
    /// One line: what is different about it.
    pub about: String,
    /// The timed commands, one after another; `{key}` is filled from
    /// [`Place::values`].
    pub commands: Vec<Vec<String>>,
    /// The part that each command's time is, in their order; commands of one name
    /// are one part. Without names a sample has the parts that [`Steps::parts`] finds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// What must be there for it to run at all.
    pub needs: Vec<Need>,
    /// A command that must succeed once, untimed, or the variant is left out
    /// with its error: for tools that are installed and yet may not work here.
    pub trial: Option<Vec<String>>,
    /// What its exit code 0 says about the data.
    pub promise: Promise,
    /// Which number counts.
    pub measure: Measure,
    /// How often the commands run for one sample; the wall time is divided by it.
    pub repeat: u32,
    /// The variant it is compared with; a baseline names itself.
    pub against: String,
}

impl Variant {
    /// A variant that runs one command, is its own baseline, counts wall time
    /// and promises nothing.
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

    /// True for a variant that others are compared with.
    pub fn is_baseline(&self) -> bool {
        self.against == self.name
    }
}

/// What exit code 0 of a variant says about the data on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// All that was written is durable.
    Durable,
    /// Durable as far as the programs' own syncs reach, which need not be everything.
    OwnSyncs,
    /// Nothing is.
    Nothing,
}

/// The number that a sample contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Wall time of the commands, in milliseconds.
    Wall,
    /// The last word of the last line on standard output, in nanoseconds per call.
    Printed,
}

impl Measure {
    /// Nanoseconds in one unit of the measure.
    pub fn nanoseconds(self) -> f64 {
        match self {
            Self::Wall => 1e6,
            Self::Printed => 1.0,
        }
    }
}

/// Something a variant needs on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Need {
    /// A program, looked up in PATH unless it has a slash.
    pub program: String,
    /// The package that brings it.
    pub package: String,
}

impl Need {
    /// A need for `program`, which `package` brings.
    pub fn new(program: &str, package: &str) -> Self {
        Self { program: program.to_owned(), package: package.to_owned() }
    }

    /// True if the program can be executed.
    pub fn is_met(&self) -> bool {
        let executable = |path: &Path| {
            path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        };
        if self.program.contains('/') {
            return executable(Path::new(&self.program));
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&search).any(|dir| executable(&dir.join(&self.program)))
    }
}

/// Where in a benchmark a command runs.
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

/// One run of one variant.
#[derive(Clone, Copy, Debug)]
pub struct Iteration<'a> {
    /// Where in the benchmark.
    pub phase: Phase,
    /// True in the last measured round.
    pub last: bool,
    /// What is run.
    pub variant: &'a Variant,
}

impl Iteration<'_> {
    /// What files about it are called, without an extension.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.phase, self.variant.name).replace([' ', '/'], "-")
    }
}

/// The stage of one turn.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Replaces `{key}` in the commands.
    pub values: BTreeMap<String, String>,
    /// Where the commands start; nothing is where we are.
    pub dir: Option<PathBuf>,
    /// A path on the file system whose sync is measured, untimed, after the
    /// run: what the variant left at risk.
    pub settle: Option<PathBuf>,
    /// A daemon that does the work: its time, with that of the children it has
    /// waited for, is the command's.
    pub server: Option<Pid>,
    /// The parts that begin with cold caches; the kernel's are emptied before each
    /// of their commands, outside the time.
    pub cold: Vec<String>,
}

/// One part of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The same in all samples of a scenario.
    pub name: String,
    /// How long it took, in milliseconds.
    pub ms: f64,
}

/// Something found out besides the times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The variant concerned, if it is one.
    pub variant: Option<String>,
    /// One line.
    pub summary: String,
    /// The evidence, a line each.
    pub details: Vec<String>,
}

/// The code of a scenario. None of it is timed.
pub trait Steps {
    /// Once, before everything else.
    ///
    /// # Errors
    /// Any error ends the benchmark.
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let _ = launcher;
        Ok(())
    }

    /// Before each turn: brings the stage to its start state.
    ///
    /// # Errors
    /// Any error ends the benchmark, after [`Steps::clear`].
    fn reset(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<Place, Error>;

    /// After a turn that ended with exit code 0: the parts of its time, of which
    /// `timed` are those of [`Variant::parts`] and `log` is all that it printed.
    ///
    /// # Errors
    /// Any error ends the benchmark, after [`Steps::clear`].
    fn parts(
        &mut self,
        turn: &Iteration<'_>,
        timed: Vec<Part>,
        log: &Path,
    ) -> Result<Vec<Part>, Error> {
        let _ = (turn, log);
        Ok(timed)
    }

    /// After a turn that ended with exit code 0: was the work really done?
    ///
    /// # Errors
    /// Any error ends the benchmark, after [`Steps::clear`].
    fn check(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let _ = (turn, launcher);
        Ok(())
    }

    /// After each turn, however it ended.
    ///
    /// # Errors
    /// An error ends the benchmark unless the turn had one already.
    fn clear(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let _ = (turn, launcher);
        Ok(())
    }

    /// Once, after the last round: what was found besides the times.
    ///
    /// # Errors
    /// Any error ends the benchmark.
    fn conclude(&mut self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }
}

/// Replaces every `{key}` of a command by its value; other braces stay.
pub fn fill(command: &[String], values: &BTreeMap<String, String>) -> Vec<String> {
    command
        .iter()
        .map(|word| {
            values
                .iter()
                .fold(word.clone(), |word, (key, value)| word.replace(&format!("{{{key}}}"), value))
        })
        .collect()
}

/// Keeps the variants named in `names`, in the scenario's order; no names keeps all.
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
