//! `prove`: cuts the power of recorded disks, thousands of times, and checks what is found.
//!
//! A *config* is a file system, a place for the marker and a mode. A *recorded run* is one run
//! of a workload in a config on a recording disk. Every recorded run is cut at many places,
//! and each recovered disk is checked by `synconce status` and by manifests. Mutants (a build
//! feature of the tool that removes one step) show that the proof catches a lost step; rivals
//! serve as controls. Trees and holds have rows of their own ([`tree`], [`hold`]). Needs root.
#![forbid(unsafe_code)]

mod background_load;
mod campaign;
mod check;
mod config;
mod cuts;
mod daemons;
mod errors;
mod expected;
mod hold;
mod isolation;
mod matrix;
mod mutants;
mod packages;
mod processes;
mod reach;
mod recording;
mod report;
mod row;
mod step;
mod tool;
mod tree;
mod work;

use clap::Parser;
use config::RunConfig;
use expected::Skipped;
use std::path::PathBuf;
use std::process::ExitCode;
use tool::Tool;

/// The result of every function here. An error is a defect of the proof and fails the row; a
/// finding is not an error.
type Result<T> = std::result::Result<T, Error>;
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Cut the power of recorded disks, and check the recovered disks
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct CommandLine {
    #[command(flatten)]
    arguments: Option<ProveArguments>,
    #[command(subcommand)]
    inner: Option<Inner>,
}

/// The proof of daemons with held files; and hidden commands, this program's own workloads.
#[derive(Debug, clap::Subcommand)]
enum Inner {
    /// Cut the power while a real containerd, dockerd or buildkitd works
    Daemons(daemons::DaemonsArguments),
    #[command(hide = true)]
    Perform(work::Perform),
    #[command(hide = true)]
    Edit(tree::Edit),
    #[command(hide = true)]
    Alter(tree::Alter),
    #[command(hide = true)]
    RunChild(tree::RunChild),
}

#[derive(Debug, clap::Args)]
struct ProveArguments {
    /// Test the tool PROGRAM, as it ships
    #[arg(long, value_name = "PROGRAM")]
    synconce: PathBuf,
    /// Try the mutants of PROGRAM, which is built with the feature `mutants` (default: no mutants)
    #[arg(long, value_name = "PROGRAM")]
    mutants: Option<PathBuf>,
    /// Cut each row N times
    #[arg(long, value_name = "N", default_value_t = 60)]
    cuts: usize,
    /// Cut each mutant at most N times in each configuration
    #[arg(long, value_name = "N", default_value_t = 150)]
    mutant_cuts: usize,
    /// Cut each row of trees N times (default: as --cuts); below 20, make a few of the rows only
    #[arg(long, value_name = "N")]
    tree_cuts: Option<usize>,
    /// Cut each row of holds N times (default: as --cuts); below 20, make a few of the rows only
    #[arg(long, value_name = "N")]
    hold_cuts: Option<usize>,
    /// Kill N times in each row of trees and of holds
    #[arg(long, value_name = "N", default_value_t = 60)]
    kills: usize,
    /// Let each random walk over the verbs of trees (`--only tree-walk`) take SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u64,
    /// Make only the rows on these file systems (default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["ext4", "xfs", "btrfs"])]
    fs: Vec<String>,
    /// Make only the rows whose name contains TEXT; `tree` selects all rows of trees, `hold` those
    /// of holds (default: all)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Run N random programs of one and two operations; the default is more than there are
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pairs: usize,
    /// Run N random programs of three operations; a million is more than there are
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    triples: usize,
    /// Run N random programs of 20 to 60 operations
    #[arg(long, value_name = "N", default_value_t = 100)]
    programs: usize,
    /// Also run real work: package installs, databases, as many files as a kernel source has
    #[arg(long)]
    real: bool,
    /// Pass although programs of rows are not installed; such rows are listed as skipped
    #[arg(long)]
    allow_missing: bool,
    /// Omit the rows of the rivals
    #[arg(long)]
    no_rivals: bool,
    /// Make only what decides the result: no rivals, no removed steps that no file system needs,
    /// and each mutant until one configuration catches it
    #[arg(long)]
    decisive: bool,
    /// Seed the random choices with N
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write every row as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl ProveArguments {
    /// Returns the tool as it ships.
    fn shipped(&self) -> Tool {
        Tool::Synconce(self.synconce.clone())
    }

    fn skipped(&self) -> Skipped {
        if self.allow_missing { Skipped::Passes } else { Skipped::Fails }
    }

    /// Returns the mutant of this name, if mutants are tried.
    fn mutant(&self, mutant: &'static str) -> Option<Tool> {
        let (program, shipped) = (self.mutants.clone()?, self.synconce.clone());
        Some(Tool::Mutant { program, mutant, shipped })
    }

    /// Whether `--only` and `--fs` select the row of this name.
    fn wants(&self, group: &str, name: &str, config: RunConfig) -> bool {
        let name = format!("{group} {name} {config}");
        let kind = config.disk.kind().name();
        if !self.fs.is_empty() && !self.fs.iter().any(|wanted| wanted == kind) {
            return false;
        }
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text))
    }
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let result = match (&line.inner, &line.arguments) {
        (Some(Inner::Daemons(arguments)), _) => {
            isolation::enter().and_then(|()| daemons::prove(arguments))
        }
        (Some(Inner::Perform(arguments)), _) => work::perform(arguments).map(|()| true),
        (Some(Inner::Edit(arguments)), _) => tree::edit(arguments).map(|()| true),
        (Some(Inner::Alter(arguments)), _) => tree::alter(arguments).map(|()| true),
        (Some(Inner::RunChild(arguments)), _) => tree::run_child(arguments).map(|()| true),
        (None, Some(arguments)) => isolation::enter().and_then(|()| matrix::prove(arguments)),
        (None, None) => Err("nothing was asked for; see --help".into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("prove: {error}");
            ExitCode::from(2)
        }
    }
}
