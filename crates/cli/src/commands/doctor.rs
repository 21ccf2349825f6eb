//! `synconce doctor`

mod bundle;
mod command;
mod engine;
mod file;
mod width;

use crate::arguments::doctor::Doctor;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream};
use crate::exit;
use crate::text::{bytes, name_for_sudo, say, shell};
use file::ReportFile;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::env;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use synconce_doctor::{
    ContextDirectory, Depth, Error, ExamineOptions, Observer, examine, examine_context,
};
use synconce_sys::search;
use synconce_sys::signals::is_ignored;
use width::fit;

/// Examines a directory and prints what was found.
pub fn doctor(arguments: Doctor) -> Result<ExitCode, CommandError> {
    // The last word of a command can be `--`, too.
    let ends_options = env::args_os().next_back().is_some_and(|word| word == "--");
    if arguments.command.is_empty() && ends_options {
        return Err(CommandError::from("cannot time a command: there is none after --")
            .hint("synconce doctor -- COMMAND; of a directory: synconce doctor PATH"));
    }
    let outputs = Outputs::open(&arguments)?;
    if !arguments.command.is_empty() {
        return command::watch(arguments, outputs);
    }
    if let Some(record) = &arguments.read {
        return command::read(record, outputs, &arguments);
    }
    let failure = |error: Error| outputs.failed(failure(&error, &arguments));
    // Before the engine is asked: a mistyped directory is not the engine's fault.
    let context = arguments.context.as_deref().map(ContextDirectory::open).transpose();
    let context = context.map_err(failure)?;
    // Before signals are only noted: Ctrl-C ends a question that nothing answers.
    let asked = engine::ask(&arguments).map_err(failure)?;
    let mut watch = TerminalObserver::new();
    if let Some(context) = context {
        let examined = examine_context(context, asked.as_ref(), &mut watch);
        watch.bar.finish_and_clear();
        let report = examined.map_err(failure)?;
        outputs.write(&report, || report.text(), |made| report.page(made))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = ExamineOptions {
        path: asked.as_ref().map_or_else(|| arguments.path.clone(), |it| it.data_root.clone()),
        depth: if arguments.full { Depth::Full } else { Depth::Quick },
        is_held: synconce_run::is_held() && !synconce_run::is_in_step(),
        engine: asked,
        ignored: arguments.ignore.clone(),
    };
    let examined = examine(&options, &mut watch);
    watch.bar.finish_and_clear();
    let report = examined.map_err(failure)?;
    outputs.write(&report, || report.text(), |made| report.page(made))?;
    Ok(exit_code(report.most_seconds(), arguments.fail_on))
}

/// Where a report goes, beside or in place of the terminal.
struct Outputs {
    json: Output,
    page: Option<ReportFile>,
    bundle: Option<ReportFile>,
    /// The stream of text, and of JSON without a file.
    stream: Stream,
}

impl Outputs {
    /// Opens what `arguments` name. Called before the work, so that a mistyped path loses no
    /// report.
    ///
    /// # Errors
    /// An output cannot be written.
    fn open(arguments: &Doctor) -> Result<Self, CommandError> {
        let [page, bundle] = ReportFile::check(arguments)?;
        let stream = if arguments.command.is_empty() { Stream::Output } else { Stream::Errors };
        let json = Output::open(arguments.json.json.as_deref(), stream)?;
        Ok(Self { json, page, bundle, stream })
    }

    /// Writes `report` to JSON, page and bundle. Without JSON, prints the text.
    ///
    /// # Errors
    /// An output cannot be written. The others are written all the same.
    fn write(
        self,
        report: &impl Serialize,
        text: impl FnOnce() -> String,
        page: impl FnOnce(&str) -> String,
    ) -> Result<(), CommandError> {
        let stream = self.stream;
        let all = [
            self.json.write_or(report, || stream.print(fit(&text(), stream))),
            self.page.map_or(Ok(()), |file| file.write(|made| Ok(page(made)))),
            self.bundle.map_or(Ok(()), |file| file.write(|made| bundle::text(report, made))),
        ];
        let errors = all.into_iter().filter_map(Result::err);
        errors.reduce(CommandError::and).map_or(Ok(()), Err)
    }

    /// Writes a bundle that has `error` in place of a report: a user also asks for help if an
    /// engine does not answer. Returns `error`, and why there is no bundle.
    fn failed(&self, error: CommandError) -> CommandError {
        // A signal has no message.
        if error.lines.is_empty() {
            return error;
        }
        match self.write_failure(error.lines.join("; ")) {
            Ok(()) => error,
            Err(other) => error.and(other),
        }
    }

    /// Writes the bundle with `error` in place of a report.
    ///
    /// # Errors
    /// The bundle cannot be written.
    fn write_failure(&self, error: String) -> Result<(), CommandError> {
        let bundle = self.bundle.as_ref();
        bundle.map_or(Ok(()), |file| file.write(|made| bundle::text(&FailedReport { error }, made)))
    }
}

/// What a bundle has in place of a report.
#[derive(Serialize)]
struct FailedReport {
    error: String,
}

/// Returns the exit code of a report whose costliest finding costs `seconds`, with `--fail-on`.
fn exit_code(seconds: f64, limit: Option<Duration>) -> ExitCode {
    let is_costly = limit.is_some_and(|limit| seconds >= limit.as_secs_f64());
    if is_costly { exit::COSTLY.into() } else { ExitCode::SUCCESS }
}

fn failure(error: &Error, arguments: &Doctor) -> CommandError {
    let here = Path::new("");
    let doctor = |path: &Path| {
        let path = if path == here { Path::new(".") } else { path };
        shell(&["synconce".into(), "doctor".into(), path.display().to_string()])
    };
    let hint = match error {
        // The temporary files are removed.
        Error::Interrupted(signal) => {
            return CommandError::in_lines("").ended_by(Some(*signal));
        }
        Error::Engine { .. } | Error::Elsewhere(_) => engine::hint(error, arguments),
        Error::NotAllowed(_) if engine::flag(arguments).is_some() => engine::hint(error, arguments),
        Error::ReadOnly(_) => {
            Some("synconce doctor DIRECTORY, with a directory that can be written".to_owned())
        }
        Error::NotDirectory(path) => path.parent().map(doctor),
        Error::NotAllowed(path) => {
            let path = shell(&[path.display().to_string()]);
            Some(format!("sudo {} doctor {path}", name_for_sudo()))
        }
        // `synconce doctor make`.
        Error::Io { path, .. } if *path == arguments.path && search::find(path).is_some() => {
            Some(format!("synconce doctor -- {}", shell(&[path.display().to_string()])))
        }
        Error::Io { path, error, .. }
            if error.kind() == ErrorKind::NotFound
                && path.is_relative()
                && env::current_dir().is_err() =>
        {
            let why = "with its absolute path: the current directory was removed";
            Some(format!("synconce doctor DIRECTORY, {why}"))
        }
        Error::Io { path, error, .. }
            if *path == arguments.path && error.kind() == ErrorKind::NotFound =>
        {
            let nearest = path.ancestors().skip(1).find(|above| *above == here || above.is_dir());
            // `/` has little to do with a mistyped path.
            nearest.filter(|above| above.parent().is_some() || *above == here).map(doctor)
        }
        _ => None,
    };
    CommandError::from(error.to_string()).with_remedy(hint)
}

/// Shows what is measured, on a terminal only, and notes signals.
struct TerminalObserver {
    bar: ProgressBar,
    /// The signal that has arrived; 0 if none has.
    signal: Arc<AtomicUsize>,
}

impl TerminalObserver {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("synconce: measuring {msg} [{elapsed}]");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let signal = Arc::<AtomicUsize>::default();
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            if !is_ignored(number) {
                // Without the handler the signal ends the process, and its files stay.
                let flag = Arc::clone(&signal);
                let _ = signal_hook::flag::register_usize(number, flag, number as usize);
            }
        }
        Self { bar, signal }
    }
}

impl Observer for TerminalObserver {
    fn will_write(&mut self, count: u64, directory: &Path) {
        let (count, directory) = (bytes(count), directory.display());
        say(&format!("temporary files of at most {count} in {directory}, removed at the end"));
    }

    fn begins(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    fn interrupted(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
