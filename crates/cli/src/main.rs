//! `synconce`: holds every sync of a command and commits once at its end.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use synconce::arguments::{Arguments, Command};
use synconce::commands::{bench, commit, oci, real, run, setup, status, tree};
use synconce::exit;

fn main() -> ExitCode {
    if let Some(ended) = oci::called_as_runtime() {
        return ended;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A write error is ignored: the reader may have closed the stream.
            let _ = error.print();
            return if error.use_stderr() { exit::FAILED.into() } else { ExitCode::SUCCESS };
        }
    };
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Commit(arguments) => commit::commit(&arguments),
        Command::Real(arguments) => real::real(&arguments),
        Command::Tree(arguments) => tree::tree(arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Setup(arguments) => setup::setup(&arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Oci(arguments) => oci::oci(arguments),
    }
}
