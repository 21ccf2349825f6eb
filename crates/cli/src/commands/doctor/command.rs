//! `synconce doctor -- COMMAND` and `synconce doctor --read FILE`

use super::width::fit;
use super::{Outputs, exit_code};
use crate::arguments::doctor::{Doctor, RecordAs};
use crate::commands::error::CommandError;
use crate::commands::output;
use crate::commands::run::{self, Screen};
use crate::text::{name_for_sudo, printable_json, shell};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, geteuid, getpid, pidfd_getfd, pidfd_open};
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use synconce_doctor::{
    CommandReport, Error, RecordFormat, RecordSums, asks_builder, builds_without_daemon, compare,
    examine_record, export_record,
};
use synconce_run::{Ending, Recording, RunOptions};
use synconce_setup::Engine;
use synconce_sys::reason;

/// Runs the command with its syncs timed, prints the report, and ends as the command did.
pub(super) fn watch(arguments: Doctor, outputs: Outputs) -> Result<ExitCode, CommandError> {
    if synconce_run::is_held() {
        let (why, hint) = if synconce_run::is_in_step() {
            (
                "cannot time the syncs of a command: this build step is held",
                "start `synconce doctor` outside of the build",
            )
        } else {
            (
                "cannot time the syncs of a command: a run of synconce holds this process",
                "start `synconce doctor` outside of the run",
            )
        };
        return Err(outputs.failed(CommandError::from(why).hint(hint)));
    }
    let record = record(arguments.output.as_deref());
    let record = record.map_err(|error| outputs.failed(error.into()))?;
    let words: Vec<_> = env::args_os().collect();
    let own = &words[..words.len().saturating_sub(arguments.command.len())];
    let mut screen = Screen::typed(own, &arguments.command);
    run::warn_of_preloads(&arguments.command);
    let watched = options(&arguments, &record)?;
    let finished = synconce_run::run(&watched, &mut screen);
    // An empty record: the supervisor was killed before it wrote the sums.
    let has_lines = record.metadata().is_ok_and(|meta| meta.len() > 0);
    let error = finished.error.as_ref().filter(|_| !finished.began || !has_lines);
    if let Some(error) = error {
        if let Err(unwritten) = outputs.write_failure(error.to_string()) {
            unwritten.report();
        }
        return Ok(run::end(&finished));
    }
    let report = report_here(&record, &arguments);
    let is_whole = report.as_ref().is_ok_and(|report| report.ended.is_some());
    let kept = arguments.output.as_deref().filter(|_| !is_whole);
    let unwritten = kept.and_then(|path| unwritten(&record, path));
    let printed = match (report, unwritten) {
        (Ok(report), None) => {
            print(&report, outputs).map(|()| exit_code(report.most_seconds(), arguments.fail_on))
        }
        (Ok(report), Some(unwritten)) => print(&report, outputs).and(Err(unwritten)),
        (Err(_), Some(unwritten)) => Err(outputs.failed(unwritten)),
        (Err(error), None) => {
            Err(outputs.failed(format!("cannot read the record: {error}").into()))
        }
    };
    if finished.ending == Ending::Exited(0) && finished.error.is_none() {
        return printed;
    }
    if let Err(error) = printed {
        // The command's own failure says more.
        error.report();
    }
    Ok(run::end(&finished))
}

/// Returns the options of a run that holds nothing, and writes to `record`.
fn options(arguments: &Doctor, record: &File) -> Result<RunOptions, CommandError> {
    let file = record.try_clone();
    let file = file.map_err(|error| format!("cannot keep a record: {}", reason(&error)))?;
    let recording = match &arguments.output {
        Some(_) => Recording::to(file),
        // The record is in memory: only sums are kept, because lines would fill the memory.
        None => Recording::to(RecordSums::to(file)),
    };
    let command = arguments.command.clone();
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_said = arguments.docker || arguments.buildkit;
    // The client of a builder may be behind other programs, such as env.
    let builds = asks_builder(&words) || run::builder_here(&command).is_some();
    Ok(RunOptions {
        command,
        record: Some(Arc::new(recording)),
        watch_steps: is_said || builds,
        ..RunOptions::default()
    })
}

/// Prints the report of a record that was kept.
pub(super) fn read(
    path: &Path,
    outputs: Outputs,
    arguments: &Doctor,
) -> Result<ExitCode, CommandError> {
    if let Some(format) = arguments.format {
        output::print(of_file(path, |file| export(BufReader::new(file), format))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let examined = |path| of_file(path, |file| report(&file, &arguments.ignore));
    let report = examined(path).map_err(|error| outputs.failed(error))?;
    if let Some(earlier) = &arguments.against {
        let compared = compare(&examined(earlier)?, &report);
        let (json, stream) = (outputs.json, outputs.stream);
        json.write_or(&compared, || stream.print(fit(&compared.text(), stream)))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&report, outputs)?;
    Ok(exit_code(report.most_seconds(), arguments.fail_on))
}

/// Returns what `read` makes of the record at `path`.
fn of_file<T>(path: &Path, read: impl FnOnce(File) -> Result<T, Error>) -> Result<T, CommandError> {
    let opened = File::open(path).map_err(|error| reason(&error));
    let made = opened.and_then(|file| read(file).map_err(|error| error.to_string()));
    made.map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

fn export(record: impl BufRead, format: RecordAs) -> Result<String, Error> {
    match format {
        RecordAs::Trace => {
            export_record(record, RecordFormat::Trace).map(|json| printable_json(&json))
        }
        RecordAs::Stacks => export_record(record, RecordFormat::Stacks),
    }
}

/// Creates the file of the record at `path`, or in memory if there is no path.
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
    // The report is read back from this file, so a pipe or a device is refused.
    if file.metadata().is_ok_and(|meta| meta.is_file()) {
        Ok(file)
    } else {
        Err(format!("cannot write to {name}: not a regular file"))
    }
}

/// Returns why the record at `path`, which lacks its last line, could not be written. The
/// supervisor writes the record and cannot report an error. So this writes one more byte, which
/// fails for the same reason.
fn unwritten(mut record: &File, path: &Path) -> Option<CommandError> {
    let length = record.metadata().ok()?.len();
    record.seek(SeekFrom::End(0)).ok()?;
    match record.write_all(b"\n") {
        Ok(()) => {
            // The command was cut short for another reason.
            let _ = record.set_len(length);
            None
        }
        Err(error) => {
            let failure = format!("cannot write to {}: {}", path.display(), reason(&error));
            Some(CommandError::from(failure).hint("name a file on another disk by -o"))
        }
    }
}

fn report(mut record: &File, ignored: &[String]) -> Result<CommandReport, Error> {
    // The record of a pipe has no position, and is read as it comes.
    let _ = record.rewind();
    examine_record(BufReader::new(record), ignored)
}

/// Returns the report of a command that ran on this machine. A record that is read may be another
/// machine's.
fn report_here(record: &File, arguments: &Doctor) -> Result<CommandReport, Error> {
    let mut report = report(record, &arguments.ignore)?;
    if let Some(why) = unseen_steps(arguments) {
        report.explain_unseen_steps(&why);
    }
    // For Docker the verdict says so of each build whose steps are seen.
    if builds_without_daemon(&report.command) && run::is_set_up(Engine::Podman) {
        report.explain_waits("held steps do not wait: podman is set up");
    }
    if is_getfd_refused() {
        let remedy = remedy_of_filter();
        report.explain_unexamined(&format!("a seccomp filter refuses pidfd_getfd(2): {remedy}"));
    }
    Ok(report)
}

/// Whether a filter refuses pidfd_getfd(2), with which doctor syncs the file of a caller. Without a
/// filter each process can copy its own descriptor.
fn is_getfd_refused() -> bool {
    let own = pidfd_open(getpid(), PidfdFlags::empty());
    let got = own.and_then(|own| pidfd_getfd(&own, own.as_raw_fd(), PidfdGetfdFlags::empty()));
    matches!(got, Err(Errno::PERM))
}

/// Returns what makes a filter allow pidfd_getfd(2). The default profiles of Docker and Podman
/// allow the call to a container that has CAP_SYS_PTRACE. If this process can have that capability,
/// another filter refuses the call: that of a unit of systemd, or a container's own profile.
fn remedy_of_filter() -> &'static str {
    if capability_is_in_bounding_set(CapabilitySet::SYS_PTRACE).is_ok_and(|has| !has) {
        "docker run --cap-add SYS_PTRACE"
    } else {
        "allow it in the container's profile, or in a unit by SystemCallFilter=pidfd_getfd"
    }
}

/// Returns why steps of the builder that the command asks are not seen, or may not be.
fn unseen_steps(arguments: &Doctor) -> Option<String> {
    let engine = match arguments {
        Doctor { docker: true, .. } => Engine::Docker,
        Doctor { buildkit: true, .. } => Engine::Buildkit,
        _ => run::builder_here(&arguments.command)?,
    };
    let is_root = geteuid().is_root();
    let synconce = if is_root { "synconce".to_owned() } else { name_for_sudo() };
    let set_up = format!("{synconce} setup {}", engine.command());
    if !run::is_asked_here(engine) {
        return None;
    }
    Some(if !run::is_set_up(engine) {
        if is_root {
            format!("build steps are seen after `{set_up}`")
        } else {
            format!("with root, build steps are seen after `sudo {set_up}`")
        }
    } else if is_root {
        format!("if a step ran, `{set_up} --check` says why it was not seen")
    } else {
        "build steps are seen with root".to_owned()
    })
}

fn print(report: &CommandReport, outputs: Outputs) -> Result<(), CommandError> {
    let words = ["synconce", "run", "--"].map(str::to_owned);
    let again = shell(&[&words[..], &report.command].concat());
    outputs.write(report, || report.text(&again), |made| report.page(&again, made))
}
