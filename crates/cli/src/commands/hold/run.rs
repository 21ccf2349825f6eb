//! `synconce hold recover`, `settle` and `run`

use super::{Trouble, stem};
use crate::arguments::hold::{Named, Recover, Run};
use crate::commands::signal_forwarder::SignalForwarder;
use crate::exit;
use crate::text::say;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use synconce_daemon::config::Config;
use synconce_daemon::start::start;
use synconce_daemon::stop::stop;
use synconce_sys::reason;

/// Recovers a hold.
pub(super) fn recover(arguments: &Recover) -> Result<(), Trouble> {
    let config = Config::read(&arguments.named.name)?;
    let _ = config;
    Ok(())
}

/// Removes what was set aside.
pub(super) fn settle(named: &Named) -> Result<(), Trouble> {
    let _ = stem(&named.name);
    Ok(())
}

/// Runs a daemon whose files are held.
pub(super) fn run(arguments: &Run) -> ExitCode {
    match held(arguments) {
        Ok(code) => code,
        Err(trouble) => trouble.report(),
    }
}

fn held(arguments: &Run) -> Result<ExitCode, Trouble> {
    let config = Config::read(&arguments.named.name)?;
    start(&config)?;
    let forwarder = SignalForwarder::new();
    let forwarder =
        forwarder.map_err(|error| format!("cannot handle signals: {}", reason(&error)))?;
    let ended = command(arguments, &forwarder);
    stop(&config.name)?;
    Ok(match ended {
        Ok(status) => code(status),
        Err(code) => code.into(),
    })
}

fn command(arguments: &Run, forwarder: &SignalForwarder) -> Result<ExitStatus, exit::Code> {
    let (program, words) = arguments.command.split_first().ok_or(exit::FAILED)?;
    let cannot = |act: &str, error: &std::io::Error| {
        say(&format!("cannot {act} {}: {}", program.display(), reason(error)));
    };
    let mut child = Command::new(program).args(words).spawn().map_err(|error| {
        cannot("execute", &error);
        error.raw_os_error().map_or(exit::FAILED, exit::not_executed)
    })?;
    let passed_on = forwarder.pass_on_to(&child);
    let ended = passed_on.and_then(|()| child.wait());
    ended.map_err(|error| {
        cannot("wait for", &error);
        exit::FAILED
    })
}

fn code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::FAILED.into(),
    }
}
