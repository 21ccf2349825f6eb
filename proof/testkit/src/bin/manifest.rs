//! `manifest`: writes the manifest of a tree, and compares two trees.
//!
//! Exit codes, as of diff(1): 0 identical or written, 1 different, 2 error (the reason is on
//! stderr).
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use synconce_testkit::manifest::{Manifest, Options, diff};
use synconce_testkit::{Error, Result};

const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

/// What a tree contains, and where two differ: content, mode, owner, links, attributes, devices.
#[derive(Parser)]
#[command(name = "manifest")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the manifest of a tree to stdout, as JSON
    Of {
        /// The tree
        tree: PathBuf,
        #[command(flatten)]
        options: OptionArgs,
    },
    /// Compare two trees, or manifests written before; one line a difference
    Diff {
        /// A directory, or a file with a manifest
        first: PathBuf,
        /// A directory, or a file with a manifest
        second: PathBuf,
        #[command(flatten)]
        options: OptionArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct OptionArgs {
    /// Leave out what matches, from the root of the tree, and all below it: `var/log`, `**/*.pyc`
    #[arg(long, value_name = "GLOB")]
    ignore: Vec<String>,
    /// Take in the times of the last change
    #[arg(long)]
    mtimes: bool,
}

impl OptionArgs {
    fn build(&self) -> Result<Options> {
        let options = if self.mtimes { Options::default().mtimes() } else { Options::default() };
        self.ignore.iter().try_fold(options, |options, glob| options.ignore(glob))
    }
}

fn main() -> ExitCode {
    run(Arguments::parse().command).unwrap_or_else(|error| {
        eprintln!("manifest: {error}");
        ExitCode::from(TROUBLE)
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Of { tree, options } => {
            println!("{}", json(&Manifest::with(tree, &options.build()?)?));
            Ok(ExitCode::SUCCESS)
        }
        Command::Diff { first, second, options, json: as_json } => {
            let options = options.build()?;
            let differences = diff(&load(&first, &options)?, &load(&second, &options)?);
            if as_json {
                println!("{}", json(&differences));
            } else {
                differences.iter().for_each(|difference| println!("{difference}"));
            }
            Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
        }
    }
}

fn load(path: &Path, options: &Options) -> Result<Manifest> {
    if path.is_dir() {
        return Manifest::with(path, options);
    }
    let trouble =
        |act: &'static str| move |source| Error::Io { act, path: path.to_owned(), source };
    let text = fs::read(path).map_err(trouble("read"))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| trouble("understand")(error.into()))?;
    Ok(manifest.without_ignored(options))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("text and numbers serialise")
}
