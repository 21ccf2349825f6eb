//! `soak`: a steady load under one run for a given time, and runs whose processes are killed
//! at random.
//!
//! Shows that no call is ever stuck, that the supervisor leaks neither descriptors nor memory,
//! and that every interrupted run is reported. Needs root, for the disk rig.
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

/// Load one run for a long time, or kill processes of runs at random moments
#[derive(Debug, Parser)]
struct SoakArguments {
    #[command(subcommand)]
    what: SoakKind,
}

#[derive(Debug, Subcommand)]
enum SoakKind {
    /// Load one run steadily; fail on a stuck call or on growth of the supervisor
    Steady {
        /// Test the tool PROGRAM
        #[arg(long, value_name = "PROGRAM")]
        synconce: PathBuf,
        /// Run the load for SECONDS
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        seconds: u64,
    },
    /// Kill processes of runs at random moments, by signals and by the OOM killer
    Kills {
        /// Test the tool PROGRAM
        #[arg(long, value_name = "PROGRAM")]
        synconce: PathBuf,
        /// Make N runs, with one kill each
        #[arg(long, value_name = "N", default_value_t = 60)]
        rounds: u64,
        /// Seed the random choices with N
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Make the load
    #[command(hide = true)]
    Load {
        /// Work in this directory
        directory: PathBuf,
        /// Run for this many milliseconds
        millis: u64,
    },
    /// Take memory until the kernel kills a process of the cgroup
    #[command(hide = true)]
    Allocate {
        /// Enter this cgroup
        cgroup: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match SoakArguments::parse().what {
        SoakKind::Steady { synconce, seconds } => steady::run(&synconce, seconds),
        SoakKind::Kills { synconce, rounds, seed } => kills::run(&synconce, rounds, seed),
        SoakKind::Load { directory, millis } => load::run(&directory, millis),
        SoakKind::Allocate { cgroup } => memory::allocate(&cgroup),
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
