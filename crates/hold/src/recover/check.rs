//! Whether a held database is whole.

mod sqlite;

use crate::bolt;
use crate::config::Held;
use crate::config::Kind;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use synconce_sys::reason;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The database is whole.
    Whole,
    /// The database is damaged, in these words.
    Damaged(String),
    /// It is not known whether the database is whole, for this reason.
    Unknown(String),
}

/// Signals by which a person or a service manager ends a check; they say nothing about the
/// database.
const ENDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::KILL, Signal::HUP, Signal::QUIT, Signal::PIPE];

/// Checks `held` of the hold `name` by the `command` of the hold's file, or by its kind. The
/// command's output goes to the standard error of this process. The caller has the hold's lock.
pub(super) fn check(name: &str, held: &Held, command: Option<&[String]>) -> Verdict {
    match held.path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Verdict::Damaged("it is missing".to_owned()),
        Err(error) => return Verdict::Unknown(reason(&error)),
    }
    match (command, held.kind) {
        (Some(words), _) => by_command(words, &held.path),
        (None, Kind::Bolt) => by_pages(&held.path),
        (None, Kind::Sqlite) => sqlite::check(name, &held.path),
        // A check of etcd's database alone leaves out its write-ahead log.
        (None, Kind::Lmdb | Kind::Etcd | Kind::Postgresql | Kind::Other) => Verdict::Unknown(
            "there is no check for this kind of database; \"check\" in the hold's file names one"
                .to_owned(),
        ),
    }
}

/// Checks every page of the bolt database at `path`.
fn by_pages(path: &Path) -> Verdict {
    match bolt::check(path) {
        Ok(Ok(_)) => Verdict::Whole,
        Ok(Err(damage)) => Verdict::Damaged(damage.to_string()),
        Err(error) => Verdict::Unknown(reason(&error)),
    }
}

fn by_command(words: &[String], path: &Path) -> Verdict {
    let word = |word: &String| match word.as_str() {
        "{}" => OsString::from(path),
        _ => OsString::from(word),
    };
    let words: Vec<_> = words.iter().map(word).collect();
    let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let Some((program, arguments)) = words.split_first() else {
        return Verdict::Unknown("the check has no command".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // Standard output is for what synconce itself was asked for.
    if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
        command.stdout(stderr);
    }
    match command.status() {
        Err(error) => Verdict::Unknown(format!("cannot run {shown}: {}", reason(&error))),
        Ok(status) => verdict(&shown, status),
    }
}

fn verdict(shown: &str, status: ExitStatus) -> Verdict {
    let was_ended = |signal: i32| ENDED.iter().any(|ended| ended.as_raw() == signal);
    match (status.code(), status.signal()) {
        (Some(0), _) => Verdict::Whole,
        // A shell that cannot run the check itself.
        (Some(code @ (126 | 127)), _) => {
            Verdict::Unknown(format!("{shown} could not run: exit code {code}"))
        }
        (_, Some(signal)) if was_ended(signal) => {
            Verdict::Unknown(format!("{shown} was ended by signal {signal}"))
        }
        _ => Verdict::Damaged(format!("{shown}: {status}")),
    }
}

#[cfg(test)]
mod tests;
