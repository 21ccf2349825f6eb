//! The arguments of `synconce tree run`.

use super::Strategy;
use crate::completion::values::tree_names;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;
use synconce_tree::record::Name;

/// `synconce tree run`
#[derive(Debug, Args)]
#[command(override_usage = "\
    synconce tree run [OPTIONS] <NAME> [COMMAND]...\n       \
    synconce tree run [OPTIONS] --from <BASE> [COMMAND]...")]
pub struct RunIn {
    /// The clone to run in; taken from the words by `parse`.
    #[arg(skip)]
    pub name: Option<Name>,
    /// The command line with `--from NAME` in place of NAME; made by `parse`.
    #[arg(skip)]
    pub from_name: Vec<OsString>,
    /// Run in a clone of BASE that has no name
    #[arg(long, value_name = "BASE", add = ArgValueCompleter::new(tree_names))]
    pub from: Option<Name>,
    /// Commit the result as the tree NEW; BASE's own name makes its next generation
    #[arg(long, value_name = "NEW", requires = "from", add = ArgValueCompleter::new(tree_names))]
    pub commit: Option<Name>,
    /// Throw the result away
    #[arg(long, conflicts_with = "commit")]
    pub discard: bool,
    /// Make the copy for changes by STRATEGY
    #[arg(long, value_enum)]
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

/// Parses a host name (hostname(7)).
fn hostname(text: &str) -> Result<String, &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let has_an_end = !text.is_empty() && !text.starts_with(['-', '.']) && !text.ends_with('-');
    if text.len() > 64 || !has_an_end || !text.bytes().all(is_allowed) {
        return Err("a host name has at most 64 letters, digits, hyphens and dots");
    }
    Ok(text.to_owned())
}
