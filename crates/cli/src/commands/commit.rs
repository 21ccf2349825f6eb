//! `synconce commit`

use crate::arguments::in_run::Commit;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream};
use crate::commands::run::{Screen, not_durable, not_yet_durable};
use crate::commands::status::{id, others};
use crate::exit;
use crate::text::{name_for_sudo, say, shell};
use std::process::ExitCode;
use synconce_durable::record::RunRecord;
use synconce_run::{RequestError, RunError};

/// Commits a run in flight.
///
/// # Errors
/// Why not everything is durable.
pub fn commit(arguments: &Commit) -> Result<ExitCode, CommandError> {
    let output = Output::open(arguments.json.json.as_deref(), Stream::Output)?;
    let (mut id, mut owner) = (None, others::RunOwner::default());
    if let Some(typed) = arguments.id.as_deref() {
        let known = synconce_run::in_flight().into_iter().map(|run| run.id).collect();
        let meant = id::only(typed, &known)?;
        if !known.contains(&meant) {
            owner = others::owner_of(&meant)?;
        }
        id = Some(meant);
    }
    let report = synconce_run::commit(id.as_deref(), owner.user, &mut Screen::default())
        .map_err(|error| failure(&error))?;
    if let (Some(id), Some(why)) = (&id, owner.unchecked) {
        say(&format!("cannot check that the user of {id} answered: {why}"));
    }
    not_durable(&report).iter().for_each(|line| say(line));
    output.write(&report)?;
    if report.is_durable() {
        return Ok(ExitCode::SUCCESS);
    }
    say("hint: what the run writes on a disk that failed is lost; repair the disk, and run the \
         command again");
    Ok(exit::FAILED.into())
}

fn failure(error: &RequestError) -> CommandError {
    let mut failure = CommandError::from(match error {
        RequestError::Unfinished(places) => not_yet_durable(places),
        _ => error.to_string(),
    });
    if let RequestError::Several(runs) = error {
        failure.lines.extend(runs.iter().map(|run| format!("  {}", line(run))));
    }
    failure.with_remedy(remedy(error))
}

fn line(run: &RunRecord) -> String {
    let private = run.private.as_ref();
    format!("{} {}", run.id, private.map_or_else(String::new, |private| shell(&private.command)))
}

fn remedy(error: &RequestError) -> Option<String> {
    Some(match error {
        RequestError::Several(runs) => format!("synconce commit {}", runs.first()?.id),
        RequestError::NoRun | RequestError::NotInFlight(_) | RequestError::OfTwoUsers { .. } => {
            "`synconce status` lists the runs in flight".to_owned()
        }
        RequestError::InOtherNetwork(id) => format!("in that namespace: synconce commit {id}"),
        RequestError::NoSocket(_) => {
            "the run commits at its end; `synconce status` shows it".to_owned()
        }
        RequestError::OfAnotherUser(id) => format!("sudo {} commit {id}", name_for_sudo()),
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
