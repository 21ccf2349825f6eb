//! The arguments of `synconce tree run`.

use crate::arguments::numbers::{duration, positive};
use crate::completion::values::tree_names;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use synconce_tree::Strategy;
use synconce_tree::record::TreeName;

#[derive(Debug, Args)]
#[command(override_usage = "\
    synconce tree run [OPTIONS] <NAME> [COMMAND]...\n       \
    synconce tree run [OPTIONS] --from <BASE> [COMMAND]...")]
pub struct RunIn {
    /// The clone to run in; taken from the words by `parse`.
    #[arg(skip)]
    pub name: Option<TreeName>,
    /// The command line with `--from NAME` in place of NAME; made by `parse`.
    #[arg(skip)]
    pub from_name: Vec<OsString>,
    /// Run in a clone of BASE that has no name
    #[arg(long, value_name = "BASE", add = ArgValueCompleter::new(tree_names))]
    pub from: Option<TreeName>,
    /// Commit the result as the tree NEW; BASE's own name makes its next generation
    #[arg(long, value_name = "NEW", requires = "from", add = ArgValueCompleter::new(tree_names))]
    pub commit: Option<TreeName>,
    /// Keep N older generations of the committed tree, from now on [default: as before; at first 0]
    #[arg(long, value_name = "N", requires = "commit", value_parser = super::keep())]
    pub keep: Option<u32>,
    /// Throw the result away
    #[arg(long, conflicts_with = "commit")]
    pub discard: bool,
    /// Make the copy for changes by STRATEGY
    #[arg(long, value_parser = super::strategy())]
    pub strategy: Option<Strategy>,
    /// Run as USER of the clone, or UID[:GID] [default: root of the clone]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Mount the path A of the host at B; A:B:ro read-only (may be given several times)
    #[arg(long, value_name = "A:B")]
    pub bind: Vec<String>,
    /// Change to DIR of the clone first
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Give the command the host name NAME [default: the host's]
    #[arg(long, value_name = "NAME", value_parser = hostname)]
    pub hostname: Option<String>,
    /// Give the command the network of the host, or none but a loopback interface of its own
    #[arg(long, value_enum, default_value = "host", value_name = "NETWORK")]
    pub network: Network,
    /// Let uname(2) return the architecture of a 32-bit machine, for builds of i386 programs
    #[arg(long, value_enum, default_value = "linux", value_name = "PERSONALITY")]
    pub personality: Personality,
    /// Limit the memory of the run to BYTES, or to a number with the unit k, m, g or t
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Limit the run to the time of NUMBER processors, such as 1.5
    #[arg(long, value_name = "NUMBER", value_parser = cpus)]
    pub cpus: Option<f64>,
    /// Limit the run to NUMBER processes and threads
    #[arg(long, value_name = "NUMBER", value_parser = positive::<u64>)]
    pub pids_limit: Option<u64>,
    /// End the command after DURATION (90, 30m, 1.5h, 2d). SIGTERM is sent,
    /// and SIGKILL 10 s later. The exit code is 124, and the changes are thrown away
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Set the variable NAME of the command to VALUE, or to the caller's value (may be given
    /// several times)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub setenv: Vec<OsString>,
    /// Set the variables in FILE, which has lines NAME=VALUE or NAME (may be given several times)
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Give the command all variables of the caller
    #[arg(long)]
    pub keep_env: bool,
    /// Hold no syncs
    #[arg(long)]
    pub no_hold: bool,
    /// Print statistics on standard error: calls held and passed, the commit, the wall time
    #[arg(short = 'v', long)]
    pub stats: bool,
    /// The clone NAME, unless --from is given; then the command and its arguments
    /// [default: the shell $SHELL, if the clone has it, or /bin/sh]
    #[arg(trailing_var_arg = true, value_name = "COMMAND", add = ArgValueCompleter::new(tree_names))]
    pub words: Vec<OsString>,
}

/// The network of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// The network of the host
    Host,
    /// A loopback interface of its own
    None,
}

impl From<Network> for synconce_tree::enter::Network {
    fn from(network: Network) -> Self {
        match network {
            Network::Host => Self::Host,
            Network::None => Self::None,
        }
    }
}

/// The architecture that uname(2) returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Personality {
    /// The machine's
    Linux,
    /// That of a 32-bit machine, such as i686
    Linux32,
}

impl From<Personality> for synconce_tree::enter::Personality {
    fn from(personality: Personality) -> Self {
        match personality {
            Personality::Linux => Self::Linux,
            Personality::Linux32 => Self::Linux32,
        }
    }
}

/// Parses a number of bytes, as Docker and Podman do.
fn bytes(text: &str) -> Result<u64, &'static str> {
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[number.len()..] {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        _ => return Err("the units are k, m, g and t"),
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    // With less the kernel kills every command: `--memory 512` is 512 bytes.
    bytes
        .filter(|bytes| *bytes >= 1 << 20)
        .ok_or("it is a whole number of at least 1m, such as 512m")
}

/// Parses a number of processors, of which the kernel knows hundredths.
fn cpus(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok().filter(|number| (0.01..=100_000.0).contains(number));
    number.ok_or("it is a number from 0.01 upwards, such as 1.5")
}

/// Parses a host name (hostname(7)).
fn hostname(text: &str) -> Result<String, &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let has_an_end = !text.is_empty() && !text.starts_with(['-', '.']) && !text.ends_with('-');
    if text.len() > 64 || !has_an_end || !text.bytes().all(is_allowed) {
        return Err("a host name has at most 64 letters, digits, hyphens and dots");
    }
    Ok(text.to_owned())
}
