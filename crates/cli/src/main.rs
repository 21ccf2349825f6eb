//! `synconce`: hold every sync of a command, commit once, prove it.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use synconce::arguments::{Arguments, Command};
use synconce::commands::{bench, oci, run, setup, status, tree};
use synconce::exit;

fn main() -> ExitCode {
    if let Some(ended) = oci::called_as_runtime() {
        return ended;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed stream is the reader's choice.
            let _ = error.print();
            return if error.use_stderr() { exit::FAILED.into() } else { ExitCode::SUCCESS };
        }
    };
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Tree(arguments) => tree::tree(arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Setup(arguments) => setup::setup(&arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Oci(arguments) => oci::oci(arguments),
    }
}
