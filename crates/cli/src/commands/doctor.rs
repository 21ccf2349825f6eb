//! `synconce doctor`

mod command;
mod engine;
mod page;
mod width;

use crate::arguments::doctor::Doctor;
use crate::commands::json::{Sink, Stream};
use crate::exit;
use crate::text::{bytes, say, shell};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use page::PageFile;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use synconce_doctor::{
    BuildContext, Depth, Error, ExamineOptions, Observer, PlaceReport, examine, examine_context,
};
use synconce_sys::signals::is_ignored;
use width::fit;

/// Examines a directory and prints what was found.
pub fn doctor(arguments: Doctor) -> ExitCode {
    if !arguments.command.is_empty() {
        return command::watch(arguments);
    }
    if env::args_os().next_back().is_some_and(|word| word == "--") {
        say("cannot time a command: there is none after --");
        say("hint: synconce doctor -- COMMAND; of a directory: synconce doctor PATH");
        return exit::FAILED.into();
    }
    let outputs = match Outputs::open(&arguments, Stream::Output) {
        Ok(outputs) => outputs,
        Err(code) => return code,
    };
    if let Some(record) = &arguments.read {
        return command::read(record, outputs, &arguments);
    }
    // Before signals are only noted: Ctrl-C ends a question that nothing answers.
    let asked = match engine::ask(&arguments) {
        Ok(asked) => asked,
        Err(error) => return fail(&error, &arguments),
    };
    let mut watch = TerminalObserver::new();
    if let Some(directory) = &arguments.context {
        let examined = examine_context(directory, &mut watch);
        let views = Views { text: BuildContext::text, page: BuildContext::page };
        return print(watch, examined, outputs, views, &arguments)
            .map_or_else(|code| code, |_| ExitCode::SUCCESS);
    }
    let options = ExamineOptions {
        path: asked.as_ref().map_or_else(|| arguments.path.clone(), |it| it.data_root.clone()),
        depth: if arguments.full { Depth::Full } else { Depth::Quick },
        is_held: synconce_run::is_held() && !synconce_run::is_in_step(),
        engine: asked,
        ignored: arguments.ignore.clone(),
    };
    let examined = examine(&options, &mut watch);
    let is_costly = |report: &PlaceReport| {
        arguments.fail_on.is_some_and(|limit| report.most_seconds() >= f64::from(limit))
    };
    let views = Views { text: PlaceReport::text, page: PlaceReport::page };
    match print(watch, examined, outputs, views, &arguments) {
        Ok(report) if is_costly(&report) => exit::COSTLY.into(),
        Ok(_) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

/// Where a report goes, beside or in place of the terminal.
struct Outputs {
    json: Option<Sink>,
    page: Option<PageFile>,
}

impl Outputs {
    /// Opens what `arguments` name. Called before the work, so that a mistyped path loses no report.
    ///
    /// # Errors
    /// An output cannot be written, which is said.
    fn open(arguments: &Doctor, stream: Stream) -> Result<Self, ExitCode> {
        let html = arguments.html.as_deref();
        let opened = PageFile::check(html).and_then(|page| {
            Ok(Self { page, json: Sink::open(arguments.json.json.as_deref(), stream)? })
        });
        opened.map_err(|error| {
            say(&error);
            if html == Some(Path::new("-")) {
                say("hint: synconce doctor --html report.html");
            }
            exit::FAILED.into()
        })
    }

    /// Writes `report` to JSON and page. Without JSON, writes the text to `stream`.
    ///
    /// # Errors
    /// A message for the user. The other outputs are written all the same.
    fn write(
        self,
        report: &impl Serialize,
        stream: Stream,
        text: impl FnOnce() -> String,
        page: impl FnOnce(&str) -> String,
    ) -> Result<(), String> {
        let printed = match self.json {
            Some(sink) => sink.write(report),
            None => Sink::Standard(stream).write_text(&fit(&text(), stream)),
        };
        let written = self.page.map_or(Ok(()), |file| file.write(page));
        match (printed, written) {
            (Err(error), Err(other)) => Err(format!("{}; {other}", error.message)),
            (Err(error), Ok(())) => Err(error.message),
            (Ok(()), written) => written,
        }
    }
}

/// How a report is shown.
struct Views<T> {
    text: fn(&T) -> String,
    /// By what made the page, and when.
    page: fn(&T, &str) -> String,
}

/// Prints and returns the report `examined`, or returns the exit code of a failure.
fn print<T: Serialize>(
    watch: TerminalObserver,
    examined: Result<T, Error>,
    outputs: Outputs,
    views: Views<T>,
    arguments: &Doctor,
) -> Result<T, ExitCode> {
    watch.bar.finish_and_clear();
    let report = examined.map_err(|error| match error {
        // The temporary files are removed: end by the signal, as the caller expects.
        Error::Interrupted(signal) => exit::by_signal(signal),
        error => fail(&error, arguments),
    })?;
    let page = |made: &str| (views.page)(&report, made);
    let written = outputs.write(&report, Stream::Output, || (views.text)(&report), page);
    written.map(|()| report).map_err(|error| {
        say(&error);
        exit::FAILED.into()
    })
}

fn fail(error: &Error, arguments: &Doctor) -> ExitCode {
    say(&error.to_string());
    let doctor =
        |path: &Path| shell(&["synconce".into(), "doctor".into(), path.display().to_string()]);
    let hint = match error {
        Error::Engine { .. } | Error::Elsewhere(_) => engine::hint(error, arguments),
        Error::NotAllowed(_) if engine::flag(arguments).is_some() => engine::hint(error, arguments),
        Error::ReadOnly(_) => {
            Some("synconce doctor DIRECTORY, with a directory that can be written".to_owned())
        }
        Error::NotDirectory(path) => path.parent().map(|parent| {
            if parent == Path::new("") { doctor(Path::new(".")) } else { doctor(parent) }
        }),
        Error::NotAllowed(path) => Some(format!("sudo {}", doctor(path))),
        _ => None,
    };
    if let Some(hint) = hint {
        say(&format!("hint: {hint}"));
    }
    exit::FAILED.into()
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
