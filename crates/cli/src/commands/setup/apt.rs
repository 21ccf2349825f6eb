//! `synconce setup apt`

use super::{Changed, DRY_RUN, SetupReport, check, edits};
use crate::arguments::Setup;
use crate::commands::error::CommandError;
use crate::text::say;
use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Stdio};
use synconce_setup::apt::{self, Plan};
use synconce_setup::error::Error;
use synconce_setup::host::Host;

/// Puts the wrappers in place, or takes them away.
pub(super) fn carry_out(arguments: &Setup, host: &Host) -> Result<SetupReport, CommandError> {
    if arguments.runtime.is_some() {
        return Err(CommandError::from("cannot use --runtime for apt: it calls no runtime")
            .hint(format!("leave it out: {}", host.setup("apt"))));
    }
    Ok(if arguments.undo { undo(arguments, host)? } else { set_up(arguments, host)? })
}

fn set_up(arguments: &Setup, host: &Host) -> Result<SetupReport, Error> {
    let plan = match arguments {
        Setup { check: true, .. } => apt::plan_missing(host),
        Setup { dry_run: true, .. } => apt::plan(host),
        _ => apt::set_up(host),
    };
    let plan = match plan {
        Err(error) if arguments.check => return check::refused(SetupReport::default(), error),
        plan => plan?,
    };
    let mut report = report(&plan, host, arguments);
    let is_set_up = report.changes.is_empty();
    let setup = check::setup_command(host, "apt");
    if arguments.check {
        report.set_up = Some(is_set_up);
        report.notes.push(if is_set_up {
            "apt is set up".to_owned()
        } else if let Some(new) = plan.new_programs() {
            let were = if new.len() == 1 { "was" } else { "were" };
            let new = new.join(" and ");
            format!("apt is set up, but not {new}, which {were} installed later: type {setup}")
        } else if report.changes.iter().all(|change| change.act == "renewed") {
            format!(
                "the wrappers of apt are edited, of another version of synconce, or call one that \
                 is not there or that other users than root can change: renew them by {setup}"
            )
        } else {
            format!("apt is not set up: it would be by {setup}")
        });
        for path in plan.changeable(host) {
            let path = path.display();
            report.notes.push(format!("{path}: can be changed by other users than root"));
        }
        if is_set_up {
            report.notes.extend(notes_if_not_held(host));
        }
        return Ok(report);
    }
    if !plan.missing.is_empty() {
        let missing = plan.missing.join(", ");
        report.notes.push(format!(
            "not installed, and left out: {missing}; after you install one, repeat: {setup}"
        ));
    }
    if arguments.dry_run {
        report.notes.push(DRY_RUN.to_owned());
        return Ok(report);
    }
    report.notes.push(if is_set_up {
        "apt is set up already: nothing was changed".to_owned()
    } else {
        "from now on, each call that changes packages is a run".to_owned()
    });
    report.notes.extend(notes_if_not_held(host));
    Ok(report)
}

/// Returns what to print if no call of apt can be a run here.
fn notes_if_not_held(host: &Host) -> Vec<String> {
    let Some(NotHeld { why, remedy }) = why_not_held(host) else { return Vec::new() };
    let hint = remedy.map(|command| format!("hint: {command}"));
    [format!("but here apt runs without a hold: {why}")].into_iter().chain(hint).collect()
}

/// Why no call of apt can be a run here, and the command that helps.
struct NotHeld {
    why: String,
    remedy: Option<&'static str>,
}

impl From<String> for NotHeld {
    fn from(why: String) -> Self {
        Self { why, remedy: None }
    }
}

/// Tries a run, as the wrappers do (`wrapper.sh`), and returns why no call of apt can be a run
/// here. Only root installs packages, and another root may get other rights.
fn why_not_held(host: &Host) -> Option<NotHeld> {
    if !host.is_running() || !rustix::process::geteuid().is_root() {
        return None;
    }
    const STATUS: &str = "/proc/self/status";
    let rights = |status: &str| {
        status.lines().find(|line| line.starts_with("NoNewPrivs:")).map(str::to_owned)
    };
    let mut trial = Command::new("/proc/self/exe");
    let trial = trial.args(["run", "--quiet", "--", "cat", STATUS]).stdin(Stdio::null()).output();
    match trial {
        Err(error) if error.kind() == ErrorKind::NotFound => Some(NotHeld {
            why: "cannot start /proc/self/exe: /proc is not mounted".to_owned(),
            remedy: Some("mount -t proc proc /proc"),
        }),
        Err(error) => Some(format!("cannot start /proc/self/exe: {error}").into()),
        Ok(ran) if ran.status.success() => {
            // The trial may report an interrupted run, which is reported only once.
            let said = String::from_utf8_lossy(&ran.stderr);
            said.lines().for_each(|line| say(line.strip_prefix("synconce: ").unwrap_or(line)));
            let ours = fs::read_to_string(STATUS).unwrap_or_default();
            let is_same = rights(&String::from_utf8_lossy(&ran.stdout)) == rights(&ours);
            (!is_same).then(|| {
                "a run sets no_new_privs here, for lack of CAP_SYS_ADMIN: sudo would fail in scripts"
                    .to_owned()
                    .into()
            })
        }
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr);
            let mut lines = said.lines().filter_map(|line| line.strip_prefix("synconce: "));
            let error = lines.rfind(|line| !line.starts_with("hint: "));
            Some(error.unwrap_or("a run fails").to_owned().into())
        }
    }
}

fn undo(arguments: &Setup, host: &Host) -> Result<SetupReport, Error> {
    let edits = edits(arguments);
    let plan =
        if arguments.dry_run { apt::plan_undo(host, edits)? } else { apt::undo(host, edits)? };
    let mut report = report(&plan, host, arguments);
    if arguments.dry_run {
        report.notes.push(DRY_RUN.to_owned());
        return Ok(report);
    }
    if report.changes.is_empty() {
        report.notes.push("apt was not set up by synconce: there is nothing to undo".to_owned());
    }
    Ok(report)
}

/// Returns the changes of `plan`; for a dry run or a check, a line of text for each.
fn report(plan: &Plan, host: &Host, arguments: &Setup) -> SetupReport {
    let changes = plan.changes(host);
    let dry_run = arguments.dry_run || arguments.check;
    let lines = changes.iter().map(|change| {
        let (path, real) = (change.path.display(), change.real.display());
        match change.act {
            "diverted" => format!("divert {path} to {real}, and put a wrapper in its place\n"),
            "renewed" => format!("renew the wrapper {path}\n"),
            "removed" => format!("remove the wrapper {path}\n"),
            _ => format!("restore {path} from {real}\n"),
        }
    });
    let diff = dry_run.then(|| lines.collect());
    let gone = changes.iter().filter(|change| change.act == "removed" && !dry_run);
    let gone =
        gone.map(|change| format!("{} was a wrapper whose program is gone", change.path.display()));
    let notes = gone.collect();
    let changed = changes.iter().map(|change| Changed {
        act: change.act,
        path: change.path.display().to_string(),
        saved: change.saved.as_ref().map(|path| path.display().to_string()),
    });
    SetupReport { dry_run, changes: changed.collect(), diff, notes, ..SetupReport::default() }
}
