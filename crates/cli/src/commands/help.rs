//! `synconce help` and `version`, and what is printed for a wrong command line.

use crate::arguments::{self, Arguments};
use crate::exit;
use crate::text::{say, shell};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

/// Prints the help of the command `words`, such as `tree run`.
pub fn help(words: &[String]) -> ExitCode {
    let mut command = Arguments::command();
    command.build();
    for word in words {
        // A word that is no command is reported as on a command line.
        let Some(inner) = command.find_subcommand(word) else { return wrong(&no_command(words)) };
        command = inner.clone();
    }
    end(command.print_long_help().map_err(Error::from))
}

/// Prints the version.
pub fn version() -> ExitCode {
    let words = ["synconce", "--version"].map(OsString::from);
    end(arguments::parse(&words).map(drop).or_else(|version| version.print().map_err(Error::from)))
}

/// Prints what clap says about a command line; returns the exit code. Where the first word is
/// a program, the hint names the command that holds its syncs.
pub fn wrong(error: &Error) -> ExitCode {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let Some(program) = mistaken_for_a_command(error, &words) else {
        // A write error is ignored: the reader may have closed the stream.
        let _ = error.print();
        return if error.use_stderr() { exit::FAILED.into() } else { ExitCode::SUCCESS };
    };
    say(&format!("{program} is not a command of synconce"));
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let command = shell(&words.iter().map(text).collect::<Vec<_>>());
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.first(),
        _ => None,
    };
    let or = similar.map(|name| format!("; or: synconce {name}")).unwrap_or_default();
    say(&format!("hint: synconce run -- {command}{or}"));
    exit::FAILED.into()
}

/// Returns the error of the command line `words`, which name no command.
fn no_command(words: &[String]) -> Error {
    let line = ["synconce".to_owned()].into_iter().chain(words.iter().cloned());
    let line: Vec<_> = line.chain(["--help".to_owned()]).map(OsString::from).collect();
    match arguments::parse(&line) {
        // The last command takes words of its own.
        Ok(_) => unknown(words),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => unknown(words),
        Err(error) => error,
    }
}

fn unknown(words: &[String]) -> Error {
    let text = format!("there is no command '{}'", words.join(" "));
    Arguments::command().error(ErrorKind::InvalidSubcommand, text)
}

/// Returns the first of `words` if it was taken for a command of synconce and is a program.
fn mistaken_for_a_command(error: &Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    (words.first()? == OsStr::new(word) && is_program(word)).then(|| word.clone())
}

/// Whether a shell would execute `word`: a file in PATH, or a path.
fn is_program(word: &str) -> bool {
    let executes = |path: &Path| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    match word.contains('/') {
        true => executes(Path::new(word)),
        false => env::var_os("PATH").is_some_and(|path| {
            env::split_paths(&path).any(|directory| executes(&directory.join(word)))
        }),
    }
}

fn end(printed: Result<(), Error>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        // A write error is ignored: the reader may have closed the stream.
        Err(_) => exit::FAILED.into(),
    }
}
