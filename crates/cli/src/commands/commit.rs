//! `synconce commit`

use crate::arguments::in_run::Commit;
use crate::commands::json::{Sink, Stream};
use crate::commands::run::{Screen, not_durable, not_yet_durable};
use crate::commands::status::id;
use crate::exit;
use crate::text::{say, shell};
use std::process::ExitCode;
use synconce_durable::record::RunRecord;
use synconce_run::{RequestError, RunError};

/// Commits a run in flight.
pub fn commit(arguments: &Commit) -> ExitCode {
    let json = match Sink::open(arguments.json.json.as_deref(), Stream::Output) {
        Ok(json) => json,
        Err(error) => {
            say(&error);
            return exit::FAILED.into();
        }
    };
    let id = arguments.id.as_deref().map(|typed| {
        let known = synconce_run::in_flight().into_iter().map(|run| run.id);
        id::only(typed, &known.collect())
    });
    let id = match id.transpose() {
        Ok(id) => id,
        Err(error) => {
            say(&error);
            return exit::FAILED.into();
        }
    };
    match synconce_run::commit(id.as_deref(), &mut Screen::default()) {
        Ok(report) => {
            not_durable(&report).iter().for_each(|line| say(line));
            match json.map(|sink| sink.write(&report)).transpose() {
                Ok(_) if report.is_durable() => return ExitCode::SUCCESS,
                Ok(_) => say(
                    "hint: what the run writes on a disk that failed is lost; repair the disk, \
                              and run the command again",
                ),
                Err(error) => say(&error.message),
            }
        }
        Err(error) => fail(&error),
    }
    exit::FAILED.into()
}

fn fail(error: &RequestError) {
    match error {
        RequestError::Unfinished(places) => say(&not_yet_durable(places)),
        _ => say(&error.to_string()),
    }
    if let RequestError::Several(runs) = error {
        runs.iter().for_each(|run| say(&format!("  {}", line(run))));
    }
    if let Some(hint) = remedy(error) {
        say(&format!("hint: {hint}"));
    }
}

fn line(run: &RunRecord) -> String {
    let private = run.private.as_ref();
    format!("{} {}", run.id, private.map_or_else(String::new, |private| shell(&private.command)))
}

fn remedy(error: &RequestError) -> Option<String> {
    Some(match error {
        RequestError::Several(runs) => format!("synconce commit {}", runs.first()?.id),
        RequestError::NoRun | RequestError::NotInFlight(_) => {
            "`synconce status` lists the runs in flight".to_owned()
        }
        RequestError::OfAnotherUser(id) => format!("sudo synconce commit {id}"),
        RequestError::Unfinished(_) => "the commit goes on in the background".to_owned(),
        RequestError::Run(error @ (RunError::NoDisk(_) | RunError::Path(_))) => {
            let elsewhere =
                "in another directory, everything else is committed: cd / && synconce commit";
            error.remedy().unwrap_or(elsewhere.into()).into_owned()
        }
        RequestError::Run(error) => RunError::remedy(error)?.into_owned(),
        RequestError::BuildStep => "leave `synconce commit` out of the Dockerfile".to_owned(),
        RequestError::OutOfReach | RequestError::Call(..) | RequestError::NoResult => return None,
    })
}
