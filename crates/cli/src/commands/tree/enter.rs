//! `synconce tree enter`: the process that starts a command in a clone.

use crate::arguments::tree::Enter;
use crate::exit;
use crate::text::{needs_a_shell, say, shell};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use synconce_durable::text::shown;
use synconce_sys::reason;
use synconce_tree::enter::{self, Bind, Ending, EnterSpec};

/// Enters the clone, runs the command and ends with the command's exit status.
pub fn enter(arguments: Enter) -> ExitCode {
    let Enter { root, user, bind: bind_words, directory, hostname, .. } = arguments;
    let bind = |words: &[OsString]| Bind {
        source: words[0].clone(),
        target: words[1].clone(),
        read_only: words[2] == "ro",
    };
    let spec = EnterSpec {
        root: root.into_os_string(),
        command: arguments.command,
        user,
        binds: bind_words.chunks_exact(3).map(bind).collect(),
        directory: directory.map(PathBuf::into_os_string),
        hostname,
        network: arguments.network.into(),
        personality: arguments.personality.into(),
        timeout: arguments.timeout,
        groups: arguments.group,
    };
    let only_word = match &spec.command[..] {
        [only] => only.to_str(),
        _ => None,
    };
    match enter::enter(&spec) {
        // An exit code has 8 bits.
        Ok(Ending::Exited(code)) => ExitCode::from(code as u8),
        Ok(Ending::Killed(signal)) => exit::by_signal(signal),
        Ok(Ending::NotExecuted { command, errno }) => {
            say(&format!(
                "cannot execute {}: {}",
                shown(&command),
                reason(&io::Error::from_raw_os_error(errno))
            ));
            if let Some(hint) =
                only_word.filter(|_| errno == Errno::NOENT.raw_os_error()).and_then(unquoted)
            {
                say(&format!("hint: {hint}"));
            }
            exit::not_executed(errno).into()
        }
        Ok(Ending::Refused(why)) => {
            say(&why);
            exit::FAILED.into()
        }
        Err(error) => {
            say(&error.to_string());
            exit::FAILED.into()
        }
    }
}

/// Returns what to type instead if `line` is a whole command line in one word, such as
/// `"make install"`.
fn unquoted(line: &str) -> Option<String> {
    if !line.contains(' ') {
        return None;
    }
    Some(if needs_a_shell(line) {
        format!("a shell does it: sh -c {}", shell(&[line.to_owned()]))
    } else {
        format!("leave the quotes out: {line}")
    })
}
