//! `manifest`: writes the manifest of a tree, and compares two trees.
//!
//! Exit codes, as of diff(1): 0 identical or written, 1 different, 2 error (the reason is on
//! stderr).
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};
use synconce_testkit::{Error, Result};

const DIFFERENT: u8 = 1;
const FAILED: u8 = 2;

/// List or compare trees: content, modes, owners, links, attributes, devices
#[derive(Parser)]
#[command(name = "manifest")]
struct ManifestArguments {
    #[command(subcommand)]
    command: ManifestCommand,
}

#[derive(Subcommand)]
enum ManifestCommand {
    /// Write the manifest of a tree to stdout, as JSON
    Of {
        /// List this tree
        tree: PathBuf,
        #[command(flatten)]
        options: OptionArgs,
    },
    /// Compare two trees or manifests, and print one line for each difference
    Diff {
        /// Compare this directory, or this file with a manifest
        first: PathBuf,
        /// With this directory, or this file with a manifest
        second: PathBuf,
        #[command(flatten)]
        options: OptionArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct OptionArgs {
    /// Omit paths that match GLOB, and all below them: `var/log`, `**/*.pyc`
    #[arg(long, value_name = "GLOB")]
    ignore: Vec<String>,
    /// Include the times of the last change
    #[arg(long)]
    mtimes: bool,
}

impl OptionArgs {
    fn build(&self) -> Result<ManifestOptions> {
        let options = if self.mtimes {
            ManifestOptions::default().mtimes()
        } else {
            ManifestOptions::default()
        };
        self.ignore.iter().try_fold(options, |options, glob| options.ignore(glob))
    }
}

fn main() -> ExitCode {
    run(ManifestArguments::parse().command).unwrap_or_else(|error| {
        eprintln!("manifest: {error}");
        ExitCode::from(FAILED)
    })
}

fn run(command: ManifestCommand) -> Result<ExitCode> {
    match command {
        ManifestCommand::Of { tree, options } => {
            println!("{}", json(&Manifest::with(tree, &options.build()?)?));
            Ok(ExitCode::SUCCESS)
        }
        ManifestCommand::Diff { first, second, options, json: as_json } => {
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

fn load(path: &Path, options: &ManifestOptions) -> Result<Manifest> {
    if path.is_dir() {
        return Manifest::with(path, options);
    }
    let failed = |act: &'static str| move |source| Error::Io { act, path: path.to_owned(), source };
    let text = fs::read(path).map_err(failed("read"))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| failed("parse")(error.into()))?;
    Ok(manifest.without_ignored(options))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("text and numbers serialise")
}
