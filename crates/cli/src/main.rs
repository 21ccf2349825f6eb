//! `synconce`: holds every sync of a command and commits once at its end.
#![forbid(unsafe_code)]

use signal_hook::consts::SIGXFSZ;
use std::process::ExitCode;
use std::sync::Arc;
use synconce::arguments::{self, Command};
use synconce::commands::error::CommandError;
use synconce::commands::{
    bench, commit, doctor, eatmydata, help, hold, oci, promise, real, run, setup, status, tree,
};
use synconce::completion;
use synconce_durable::standard_paths;
use synconce_durable::text::quote;
use synconce_sys::origin;
use synconce_sys::signals::is_ignored;

fn main() -> ExitCode {
    report_size_limit();
    origin::learn_of_children();
    if let Some(ended) = oci::called_as_runtime() {
        return ended;
    }
    if let Some(ended) = eatmydata::called_as_eatmydata() {
        return ended;
    }
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(ended) = completion::answer(&words) {
        return ended;
    }
    let arguments = match arguments::parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => return help::wrong(error),
    };
    let ended = refuse_relative().and_then(|()| promise::keep(&arguments.command));
    let ended = ended.and_then(|()| carry_out(arguments.command));
    ended.unwrap_or_else(|error| error.end())
}

/// Refuses a relative path in a variable of our directories.
fn refuse_relative() -> Result<(), CommandError> {
    let Some((variable, path)) = standard_paths::relative() else { return Ok(()) };
    let refusal = format!("cannot use {variable}={}: it is no absolute path", path.display());
    let absolute = std::path::absolute(&path).unwrap_or(path);
    Err(CommandError::from(refusal).hint(format!("export {variable}={}", quote(&absolute))))
}

fn carry_out(command: Command) -> Result<ExitCode, CommandError> {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Commit(arguments) => commit::commit(&arguments),
        Command::Real(arguments) => real::real(&arguments),
        Command::Hold(arguments) => hold::hold(arguments),
        Command::Tree(arguments) => tree::tree(arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Setup(arguments) => setup::setup(&arguments),
        Command::Doctor(arguments) => doctor::doctor(arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Help(arguments) => Ok(help::help(&arguments.command)),
        Command::Version => help::version(),
        Command::Oci(arguments) => Ok(oci::oci(arguments)),
    }
}

/// Makes a write above the limit of file sizes fail with `EFBIG`, which synconce reports, instead
/// of SIGXFSZ (setrlimit(2), RLIMIT_FSIZE). Commands get the default action again (execve(2)).
fn report_size_limit() {
    if !is_ignored(SIGXFSZ) {
        // Without the handler the signal ends synconce.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}
