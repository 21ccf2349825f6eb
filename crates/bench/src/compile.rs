//! Scenario `compile`: a build, which hardly syncs, so that it pays the tool's overhead
//! without a gain.
//!
//! Every variant runs the same command through the same shell, in a fresh copy of one prepared
//! tree, at the same path.

mod mark;
mod stage;

use crate::Error;
use crate::install::{require_disk, resolve};
use crate::launcher::Launcher;
use crate::report::Report;
use crate::report::host::Host;
use crate::runner::{Settings, WarmUp, run};
use crate::scenario::{Need, Promise, Scenario, Tool, Variant, select};
use stage::Stage;
use std::path::{Path, PathBuf};

/// What to build, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The source tree; it is copied and never written.
    pub source: PathBuf,
    /// Work directory on the disk under test.
    pub dir: PathBuf,
    /// The value of `{jobs}` in the commands.
    pub jobs: u32,
    /// The build command, a line for sh(1).
    pub command: String,
    /// The command that prepares the tree, once and untimed, a line for sh(1).
    pub prepare: Option<String>,
    /// Measured rounds.
    pub rounds: u32,
    /// Untimed runs before the rounds. The default, the baseline once, fills the page cache
    /// with the compiler, and shows that the command builds something.
    pub warm_up: WarmUp,
    /// Names of the variants; empty means all.
    pub variants: Vec<String>,
    /// Seed of the order and of the bootstrap.
    pub seed: u64,
}

impl Options {
    /// Returns the defaults for a source tree and a work directory.
    pub fn new(source: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            dir: dir.into(),
            jobs: 2,
            command: "make -j{jobs}".to_owned(),
            prepare: None,
            rounds: 10,
            warm_up: WarmUp::Baselines,
            variants: Vec::new(),
            seed: 1,
        }
    }
}

/// The name of the baseline.
const BARE: &str = "bare";

/// The other variants: name, difference, promise of exit code 0, flags of `synconce run`. Only
/// the disk of the tree is committed: a commit of other disks would measure other work of this
/// machine.
const WAYS: [(&str, &str, Promise, &[&str]); 3] = [
    ("supervised-no-commit", "held, no commit", Promise::Nothing, &["--no-commit"]),
    ("supervised", "held, one commit", Promise::Durable, &["--commit-only", "{tree}"]),
    (
        "sealed-no-commit",
        "held in the kernel, no commit",
        Promise::Nothing,
        &["--sealed", "--no-commit"],
    ),
];

/// Build programs whose version is relevant and that have an option to print it.
const BUILDERS: [&str; 3] = ["make", "ninja", "cargo"];

/// Runs the scenario and returns its report.
///
/// # Errors
/// See [`crate::compile()`]. The logs of a failure stay in place, and the error names them.
pub fn measure(options: &Options, synconce: &Path) -> Result<Report, Error> {
    std::fs::create_dir_all(&options.dir).map_err(Error::io("create", &options.dir))?;
    require_disk(&options.dir)?;
    let synconce = resolve(synconce);
    let launcher = Launcher::new()?.sparing(&synconce);
    let result = with_launcher(options, &synconce, &launcher);
    if matches!(result, Err(Error::Variant { .. } | Error::Helper { .. })) {
        launcher.keep_logs();
    }
    result
}

fn with_launcher(options: &Options, synconce: &Path, launcher: &Launcher) -> Result<Report, Error> {
    let settings =
        Settings { rounds: options.rounds, warm_up: options.warm_up, seed: options.seed };
    let mut scenario = scenario(options, synconce)?;
    let host = Host::read(&options.dir, &scenario.tools, launcher)?;
    let mut record = run(&mut scenario, &settings, launcher)?;
    record.findings.extend(mark::judge(&record.measured, settings.seed));
    Ok(Report::new(&scenario, settings, host, record))
}

fn scenario(options: &Options, synconce: &Path) -> Result<Scenario, Error> {
    let stage = Stage::new(options)?;
    Ok(Scenario {
        name: "compile".to_owned(),
        about: format!("{} in a copy of {}", stage.command(), options.source.display()),
        dir: options.dir.clone(),
        variants: select(variants(stage.command(), synconce), &options.variants)?,
        tools: tools(stage.command(), synconce),
        steps: Box::new(stage),
    })
}

fn tools(command: &str, synconce: &Path) -> Vec<Tool> {
    let builder = program(command).filter(|program| BUILDERS.contains(program));
    let synconce = synconce.display().to_string();
    let named = [("synconce", synconce.as_str()), ("cc", "cc")].into_iter();
    named
        .chain(builder.map(|builder| (builder, builder)))
        .map(|(name, program)| Tool {
            name: name.to_owned(),
            command: vec![program.to_owned(), "--version".to_owned()],
        })
        .collect()
}

fn variants(command: &str, synconce: &Path) -> Vec<Variant> {
    let build = shell(command);
    let bare = Variant {
        about: "the build by itself".to_owned(),
        promise: Promise::OwnSyncs,
        ..Variant::new(BARE, build.clone())
    };
    let program = synconce.display().to_string();
    let ours = WAYS.map(|(name, about, promise, flags)| {
        let before = [&[program.as_str(), "run"], flags, &["--"]].concat();
        let words = before.into_iter().map(str::to_owned).chain(build.clone());
        Variant {
            about: about.to_owned(),
            promise,
            against: BARE.to_owned(),
            needs: vec![Need::new(&program, "synconce")],
            ..Variant::new(name, words)
        }
    });
    std::iter::once(bare).chain(ours).collect()
}

/// Returns the command with which sh(1) executes a line.
fn shell(line: &str) -> Vec<String> {
    ["sh", "-c", line].map(str::to_owned).to_vec()
}

/// Returns the program with which a line starts, if no shell is needed to find out.
fn program(line: &str) -> Option<&str> {
    let first = line.split_whitespace().find(|word| !word.contains('='))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
    first.chars().all(plain).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_runs_the_same_line_and_is_compared_with_bare() {
        let all = variants("make -j2", Path::new("/opt/synconce"));
        assert_eq!(all.len(), 4);
        for variant in &all {
            let words = &variant.commands[0];
            assert_eq!(words[words.len() - 3..], ["sh", "-c", "make -j2"], "{}", variant.name);
            assert_eq!(variant.against, BARE);
        }
        assert!(all[0].is_baseline());
    }

    #[test]
    fn only_the_variant_that_commits_promises_durability_and_it_commits_the_tree_alone() {
        let all = variants("make", Path::new("/opt/synconce"));
        let durable: Vec<&Variant> =
            all.iter().filter(|variant| variant.promise == Promise::Durable).collect();
        assert_eq!(durable.len(), 1);
        let start = ["/opt/synconce", "run", "--commit-only", "{tree}", "--", "sh"];
        assert_eq!(durable[0].commands[0][..6], start);
    }

    #[test]
    fn a_program_is_told_from_assignments_before_it_and_not_guessed() {
        assert_eq!(program("CC=gcc make -j2 && true"), Some("make"));
        assert_eq!(program("(cd src; make)"), None);
        assert_eq!(program("./build.sh"), None);
        assert_eq!(program(""), None);
    }
}
