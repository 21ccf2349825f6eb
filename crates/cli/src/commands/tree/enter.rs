//! `synconce tree enter`: the process that starts a command in a clone.

use crate::arguments::tree::Enter;
use crate::exit;
use crate::text::say;
use std::io;
use std::process::ExitCode;
use synconce_tree::enter::{self, Ending, EnterSpec};

/// Enters the clone, runs the command and ends with the command's exit status.
pub fn enter(arguments: Enter) -> ExitCode {
    let spec = match serde_json::from_str::<EnterSpec>(&arguments.how) {
        Ok(spec) => EnterSpec { command: arguments.command, ..spec },
        Err(error) => {
            say(&format!("cannot enter a tree: {error}"));
            return exit::FAILED.into();
        }
    };
    match enter::enter(&spec) {
        // An exit code has 8 bits.
        Ok(Ending::Exited(code)) => ExitCode::from(code as u8),
        Ok(Ending::Killed(signal)) => exit::by_signal(signal),
        Ok(Ending::NotExecuted { command, errno }) => {
            say(&format!("cannot execute {command}: {}", io::Error::from_raw_os_error(errno)));
            exit::not_executed(errno).into()
        }
        Err(error) => {
            say(&error.to_string());
            exit::FAILED.into()
        }
    }
}
