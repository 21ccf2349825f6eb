//! `synconce hold status`

use super::read;
use crate::arguments::hold::HoldStatusArguments as Arguments;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream, print};
use crate::exit;
use crate::table;
use crate::text::printable;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use synconce_hold::aside::{Journal, Set};
use synconce_hold::config::{AfterCrash, Config, name_of, path_of};
use synconce_hold::error::{HALF_RESTORED, HoldFailure};
use synconce_hold::record::HoldRecord;
use synconce_hold::status::{HoldState, HoldStatus, Look, status};
use synconce_sys::reason;

/// A hold, as it is shown.
#[derive(Debug, Serialize)]
pub struct HoldReport {
    /// What the crate `hold` found.
    #[serde(flatten)]
    pub status: HoldStatus,
    /// The directories with files that were set aside.
    pub set_aside: Vec<PathBuf>,
    /// A command that helps.
    pub advice: Option<String>,
}

impl HoldReport {
    fn from_status(mut status: HoldStatus) -> Self {
        let name = &status.name;
        let journal = Journal::read(name);
        let is_restoring = journal.as_ref().is_ok_and(Journal::is_restoring);
        let advice = match status.state {
            HoldState::Off if is_restoring => Some(format!("synconce hold restore {name}")),
            HoldState::Off | HoldState::Held => None,
            HoldState::Incomplete if status.is_changing => None,
            // The stop says what is to be done about overlays that are elsewhere.
            HoldState::Incomplete if status.missing.is_empty() => {
                Some(format!("synconce hold stop {name}"))
            }
            HoldState::Incomplete => Some(format!("synconce hold start {name}")),
            HoldState::Failed => Some(format!("synconce hold stop {name}")),
            HoldState::Interrupted => Some(format!("synconce hold recover {name}")),
        };
        if is_restoring && status.reason.is_none() {
            status.reason = Some(HALF_RESTORED.to_owned());
        }
        let sets = journal.map(|journal| journal.sets).unwrap_or_default();
        // A recovery that failed has not made all directories of its journal.
        let is_made = |path: &PathBuf| path.try_exists().unwrap_or(true);
        let set_aside = sets.iter().flat_map(Set::directories).filter(is_made).collect();
        Self { status, set_aside, advice }
    }

    /// Whether a crash or a failed disk may have damaged the files.
    pub fn is_interrupted(&self) -> bool {
        matches!(self.status.state, HoldState::Failed | HoldState::Interrupted)
    }

    /// Returns what follows a crash, or the crash that has happened. While nothing is held, a crash
    /// is one without a hold.
    pub fn cost(&self) -> String {
        let status = &self.status;
        let has_happened = status.state == HoldState::Interrupted;
        let what = match status.after_crash {
            AfterCrash::Wipe if has_happened => "the recovery sets the files aside",
            AfterCrash::Wipe => "the files are set aside",
            AfterCrash::Refuse => "the daemon does not start before you decide",
        };
        let what = if has_happened { format!("one has happened; {what}") } else { what.to_owned() };
        match (status.state, &status.cost) {
            (HoldState::Off, _) => "as without a hold".to_owned(),
            (_, Some(cost)) => format!("{what}: {cost}"),
            (_, None) => what,
        }
    }

    /// Returns the lines for people, broken where they are wider than `width`. A command stays
    /// whole, to be copied.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let fit = |line: String| table::fit(&line, width);
        let hint = self.advice.iter().map(|advice| format!("  hint: {advice}"));
        self.facts().into_iter().map(fit).chain(hint).collect()
    }

    /// Returns what there is to say of the hold beside its state and its cost.
    fn facts(&self) -> Vec<String> {
        let status = &self.status;
        let mut lines = Vec::new();
        if let Some(why) = &status.reason {
            lines.push(format!("  {why}"));
        }
        for path in &status.missing {
            lines.push(format!("  not held: {}", printable(&path.display().to_string())));
        }
        if !status.guarded && status.state == HoldState::Held {
            lines.push("  no guard: a second daemon could open the files without the hold".into());
        }
        let is_held =
            matches!(status.state, HoldState::Held | HoldState::Incomplete | HoldState::Failed);
        if is_held && status.paths.iter().any(|path| path.is_dir()) {
            let skipped = "tar --one-file-system and rsync -x";
            lines.push(format!("  a held directory is skipped by {skipped}"));
        }
        for writer in &status.synced_at_open {
            lines.push(format!("  not held: files that {writer} opened with O_SYNC or O_DSYNC"));
        }
        for path in &self.set_aside {
            let path = printable(&path.display().to_string());
            lines.push(format!("  set aside after a crash, until `hold settle`: {path}"));
        }
        lines
    }
}

/// Shows holds.
pub(super) fn show(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let output = Output::open(arguments.json.json.as_deref(), Stream::Output)?;
    let (reports, errors) = if arguments.names.is_empty() {
        reports()?
    } else {
        split({
            let look = Look::default();
            arguments.names.iter().map(move |name| report(name, &look))
        })
    };
    output.write_or(&reports, || {
        if arguments.units {
            return print(reports.iter().filter_map(unit_line).collect::<String>());
        }
        let has_text = !reports.is_empty() || errors.is_empty();
        if has_text { print(text(&reports)) } else { Ok(()) }
    })?;
    for error in &errors {
        error.report();
    }
    Ok(if reports.iter().any(HoldReport::is_interrupted) {
        exit::INTERRUPTED.into()
    } else if !errors.is_empty() {
        exit::FAILED.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn split(
    all: impl Iterator<Item = (Option<HoldReport>, Option<CommandError>)>,
) -> (Vec<HoldReport>, Vec<CommandError>) {
    let (reports, errors): (Vec<_>, Vec<_>) = all.unzip();
    (reports.into_iter().flatten().collect(), errors.into_iter().flatten().collect())
}

/// Returns the hold that `word` names, and what is wrong with its name, marker or file. Both are
/// returned for a hold in force whose file has a mistake, so that the hold would not start again.
fn report(word: &OsStr, look: &Look) -> (Option<HoldReport>, Option<CommandError>) {
    let name = match name_of(word) {
        Ok(name) => name,
        Err(error) => return (None, Some(error.into())),
    };
    let config = read(word);
    match status(&name, config.as_ref().ok(), look) {
        Err(error) => (None, Some(HoldFailure::of_marker(&name, error).into())),
        Ok(None) => (None, config.err()),
        // The file of a hold may be removed while the hold is in force.
        Ok(Some(found)) => {
            (Some(HoldReport::from_status(found)), config.err().filter(|_| path_of(word).exists()))
        }
    }
}

/// Returns all holds: those that have a file, and those that are in force. One that cannot be
/// read hides no other: the second list says why.
///
/// # Errors
/// The directories cannot be read.
pub fn reports() -> Result<(Vec<HoldReport>, Vec<CommandError>), CommandError> {
    let configured = Config::names();
    let configured =
        configured.map_err(|error| format!("cannot list holds: {}", reason(&error)))?;
    let marked = HoldRecord::names().map_err(|error| error.to_string())?;
    let names: BTreeSet<_> = configured.into_iter().chain(marked).collect();
    let look = Look::default();
    Ok(split(names.iter().map(|name| report(OsStr::new(name), &look))))
}

fn unit_line(report: &HoldReport) -> Option<String> {
    report.status.unit.as_ref().map(|unit| format!("{unit}\n"))
}

fn text(reports: &[HoldReport]) -> String {
    if reports.is_empty() {
        return "no holds\n".to_owned();
    }
    let mut rows = vec![["NAME", "STATE", "SINCE", "FILES", "AFTER CRASH"].map(str::to_owned)];
    rows.extend(reports.iter().map(row));
    let width = table::width_of(io::stdout());
    let whole = table::render(&rows, None, &[]);
    let widest = whole.lines().map(|line| line.chars().count()).max();
    // The cost of a crash is never cut: it gets a line of its own.
    let is_narrow = width.is_some_and(|width| widest > Some(width));
    if is_narrow {
        rows.iter_mut().for_each(|row| row[4].clear());
    }
    let table = table::render(&rows, width, &[4, 3, 2]);
    let mut lines = table.lines().map(str::to_owned);
    let mut text: Vec<_> = lines.next().into_iter().collect();
    for (line, report) in lines.zip(reports) {
        text.push(line);
        if is_narrow {
            text.push(table::fit(
                &format!("  after a crash: {}", printable(&report.cost())),
                width,
            ));
        }
        text.extend(report.lines(width));
    }
    text.join("\n") + "\n"
}

fn row(report: &HoldReport) -> [String; 5] {
    let status = &report.status;
    let started = status.started.clone().unwrap_or_else(|| "-".to_owned());
    let state = status.state.word().to_owned();
    let cells =
        [status.name.clone(), state, started, status.paths.len().to_string(), report.cost()];
    cells.map(|cell| printable(&cell))
}
