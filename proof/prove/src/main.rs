//! `prove`: cuts the power of recorded disks, thousands of times, and judges what is found.
//!
//! A *config* is a file system, a place for the marker and a mode. A *recorded run* is one run
//! of a workload in a config on a recording disk. Every recorded run is cut at many places,
//! and each recovered disk is judged by `synconce status` and by manifests. Mutants (a build
//! feature of the tool that removes one step) show that the proof catches a lost step; rivals
//! serve as controls. Trees have rows of their own ([`tree`]). Needs root.
#![forbid(unsafe_code)]

mod background_load;
mod config;
mod cuts;
mod errors;
mod expected;
mod isolation;
mod judge;
mod matrix;
mod mutants;
mod reach;
mod recording;
mod report;
mod row;
mod tool;
mod tree;
mod work;

use clap::Parser;
use config::Config;
use std::path::PathBuf;
use std::process::ExitCode;

/// The result of every function here. An error is a defect of the proof and ends it; a finding
/// is not an error.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Cut the power of recorded disks and judge what is found
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct CommandLine {
    #[command(flatten)]
    arguments: Option<Arguments>,
    #[command(subcommand)]
    inner: Option<Inner>,
}

/// Hidden commands: this program's own workloads.
#[derive(Debug, clap::Subcommand)]
enum Inner {
    #[command(hide = true)]
    Perform(work::Perform),
    #[command(hide = true)]
    Edit(tree::Edit),
    #[command(hide = true)]
    Alter(tree::Alter),
    #[command(hide = true)]
    Leash(tree::Leash),
}

#[derive(Debug, clap::Args)]
struct Arguments {
    /// The tool, as it ships
    #[arg(long, value_name = "PROGRAM")]
    synconce: PathBuf,
    /// The tool, built with the feature `mutants`; without it no mutant is tried
    #[arg(long, value_name = "PROGRAM")]
    mutants: Option<PathBuf>,
    /// Cuts of each row
    #[arg(long, value_name = "N", default_value_t = 60)]
    cuts: usize,
    /// Cuts of each mutant in each config, at most
    #[arg(long, value_name = "N", default_value_t = 150)]
    mutant_cuts: usize,
    /// Cuts of each row of trees [default: as --cuts]; fewer than 20 make a few rows only
    #[arg(long, value_name = "N")]
    tree_cuts: Option<usize>,
    /// Kills of each row of trees
    #[arg(long, value_name = "N", default_value_t = 60)]
    kills: usize,
    /// How long each random walk over the verbs of trees takes (`--only tree-walk`)
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u64,
    /// Only rows on these file systems
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["ext4", "xfs", "btrfs"])]
    fs: Vec<String>,
    /// Only rows whose name contains one of these; `tree` is all rows of trees
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Random programs of one and two operations; by default all of them
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pairs: usize,
    /// Random programs of three operations; a million is more than there are
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    triples: usize,
    /// Random programs of 20 to 60 operations
    #[arg(long, value_name = "N", default_value_t = 100)]
    programs: usize,
    /// Real work, too: installs, databases, a kernel's worth of files
    #[arg(long)]
    real: bool,
    /// Let rows pass whose programs are not installed here; they are named all the same
    #[arg(long)]
    allow_missing: bool,
    /// Leave the rivals out
    #[arg(long)]
    no_rivals: bool,
    /// Where the choices start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write every row as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Whether `--only` and `--fs` select the row of this name.
    fn wants(&self, group: &str, name: &str, config: Config) -> bool {
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
        (Some(Inner::Perform(arguments)), _) => work::perform(arguments).map(|()| true),
        (Some(Inner::Edit(arguments)), _) => tree::edit(arguments).map(|()| true),
        (Some(Inner::Alter(arguments)), _) => tree::alter(arguments).map(|()| true),
        (Some(Inner::Leash(arguments)), _) => tree::leash(arguments).map(|()| true),
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
