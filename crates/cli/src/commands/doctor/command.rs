//! `synconce doctor -- COMMAND` and `synconce doctor --read FILE`

use super::Outputs;
use crate::arguments::doctor::Doctor;
use crate::commands::json::Stream;
use crate::commands::run::{self, Screen};
use crate::exit;
use crate::text::{say, shell};
use rustix::fs::MemfdFlags;
use std::env;
use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use synconce_doctor::{CommandReport, Error, RecordSums, examine_record};
use synconce_run::{Ending, Recording, RunOptions};
use synconce_sys::reason;

/// Runs the command with its syncs timed, prints the report, and ends as the command did.
pub(super) fn watch(arguments: Doctor) -> ExitCode {
    if synconce_run::is_held() {
        say_held();
        return exit::FAILED.into();
    }
    let outputs = match Outputs::open(&arguments, Stream::Errors) {
        Ok(outputs) => outputs,
        Err(code) => return code,
    };
    let record = match record(arguments.output.as_deref()) {
        Ok(record) => record,
        Err(error) => {
            say(&error);
            return exit::FAILED.into();
        }
    };
    let words: Vec<_> = env::args_os().collect();
    let own = &words[..words.len().saturating_sub(arguments.command.len())];
    let mut screen = Screen::typed(own, &arguments.command);
    run::warn_of_preloads();
    let recording = match (record.try_clone(), &arguments.output) {
        (Ok(file), Some(_)) => Recording::to(file),
        // Lines would fill the memory.
        (Ok(file), None) => Recording::to(RecordSums::to(file)),
        (Err(error), _) => {
            say(&format!("cannot keep a record: {}", reason(&error)));
            return exit::FAILED.into();
        }
    };
    let recording = Some(Arc::new(recording));
    let watched =
        RunOptions { command: arguments.command, record: recording, ..RunOptions::default() };
    let finished = synconce_run::run(&watched, &mut screen);
    if !finished.began {
        return run::end(&finished);
    }
    if record.metadata().is_ok_and(|meta| meta.len() == 0) && finished.error.is_some() {
        // The sums were lost with the supervisor.
        return run::end(&finished);
    }
    let report = report(&record, &arguments.ignore)
        .map_err(|error| format!("cannot read the record: {error}"));
    let printed =
        report.and_then(|report| print(&report, outputs, Stream::Errors).map(|()| report));
    let has_succeeded = finished.ending == Ending::Exited(0) && finished.error.is_none();
    match printed {
        Ok(report) if has_succeeded && is_costly(&report, arguments.fail_on) => exit::COSTLY.into(),
        Ok(_) => run::end(&finished),
        Err(error) => {
            say(&error);
            // The command's own failure says more.
            if has_succeeded { exit::FAILED.into() } else { run::end(&finished) }
        }
    }
}

/// Says why no command can be watched by a process whose syncs are held.
fn say_held() {
    if synconce_run::is_in_step() {
        say("cannot time the syncs of a command: this build step is held");
        say("hint: start `synconce doctor` outside of the build");
    } else {
        say("cannot time the syncs of a command: a run of synconce holds this process");
        say("hint: start `synconce doctor` outside of the run");
    }
}

/// Prints the report of a record that was kept.
pub(super) fn read(path: &Path, outputs: Outputs, arguments: &Doctor) -> ExitCode {
    let opened = File::open(path).map_err(|error| reason(&error));
    let examined = |file| report(&file, &arguments.ignore).map_err(|error| error.to_string());
    let report = opened.and_then(examined);
    let printed = match report {
        Ok(report) => print(&report, outputs, Stream::Output).map(|()| report),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    };
    match printed {
        Ok(report) if is_costly(&report, arguments.fail_on) => exit::COSTLY.into(),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            exit::FAILED.into()
        }
    }
}

/// Makes the file of the record, in memory without a path.
fn record(path: Option<&Path>) -> Result<File, String> {
    let made = match path {
        Some(path) => {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true).open(path)
        }
        None => {
            let made = rustix::fs::memfd_create("synconce-record", MemfdFlags::CLOEXEC);
            made.map(File::from).map_err(io::Error::from)
        }
    };
    let name = path.map_or_else(|| "memory".to_owned(), |path| path.display().to_string());
    let file = made.map_err(|error| format!("cannot write to {name}: {}", reason(&error)))?;
    // The report is made from the file.
    if file.metadata().is_ok_and(|meta| meta.is_file()) {
        Ok(file)
    } else {
        Err(format!("cannot write to {name}: not a regular file"))
    }
}

fn report(mut record: &File, ignored: &[String]) -> Result<CommandReport, Error> {
    // The record of a pipe has no position, and is read as it comes.
    let _ = record.rewind();
    examine_record(BufReader::new(record), ignored)
}

fn print(report: &CommandReport, outputs: Outputs, stream: Stream) -> Result<(), String> {
    let words = ["synconce", "run", "--"].map(str::to_owned);
    let again = shell(&[&words[..], &report.command].concat());
    let page = |made: &str| report.page(&again, made);
    outputs.write(report, stream, || report.text(&again), page)
}

fn is_costly(report: &CommandReport, limit: Option<u32>) -> bool {
    limit.is_some_and(|limit| report.most_seconds() >= f64::from(limit))
}
