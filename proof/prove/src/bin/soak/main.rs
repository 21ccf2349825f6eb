//! `soak`: a steady load under one run for a given time, and runs whose processes are killed
//! at random.
//!
//! Shows that no call is ever stuck, that the supervisor leaks neither descriptors nor memory,
//! and that no interrupted run is forgotten. Needs root, for the disk rig.
#![forbid(unsafe_code)]

mod kills;
mod load;
mod memory;
mod processes;
mod steady;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The result of every function here.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Load one run for long, or kill its parts at random
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A steady load: no stuck call, no growth
    Steady {
        /// The tool
        #[arg(long, value_name = "PROGRAM")]
        synconce: PathBuf,
        /// For how long
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        seconds: u64,
    },
    /// Signals, and the OOM killer, to the tool's processes at random moments
    Kills {
        /// The tool
        #[arg(long, value_name = "PROGRAM")]
        synconce: PathBuf,
        /// How many runs
        #[arg(long, value_name = "N", default_value_t = 60)]
        rounds: u64,
        /// Where the choices start
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// The load itself
    #[command(hide = true)]
    Load {
        /// Where to work
        directory: PathBuf,
        /// For how long, in milliseconds
        millis: u64,
    },
    /// Takes memory until the kernel kills somebody
    #[command(hide = true)]
    Eat {
        /// The cgroup to be in
        cgroup: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().what {
        What::Steady { synconce, seconds } => steady::run(&synconce, seconds),
        What::Kills { synconce, rounds, seed } => kills::run(&synconce, rounds, seed),
        What::Load { directory, millis } => load::run(&directory, millis),
        What::Eat { cgroup } => memory::eat(&cgroup),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command `synconce` with its own state and runtime directories below `place`.
fn tool(synconce: &std::path::Path, place: &std::path::Path) -> Command {
    let mut command = Command::new(synconce);
    command.env("SYNCONCE_STATE_DIR", place.join("state"));
    command.env("SYNCONCE_REGISTRY_DIR", place.join("registry"));
    command.env("SYNCONCE_RUNTIME_DIR", place.join("runtime"));
    command
}

/// Returns the command line that starts the load below `directory`.
fn load_words(directory: &std::path::Path, millis: u64) -> Result<Vec<String>> {
    let own = std::env::current_exe()?.display().to_string();
    Ok(vec![own, "load".into(), directory.display().to_string(), millis.to_string()])
}
