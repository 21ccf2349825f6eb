//! `synconce help` and `version`, and what is printed for a wrong command line.

use crate::arguments::{self, Arguments};
use crate::exit;
use crate::text::{say, shell};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;
use synconce_sys::search;

/// Prints the help of the command `words`, such as `tree run`, as its `--help` does.
pub fn help(words: &[String]) -> ExitCode {
    let mut command = &Arguments::command();
    // A command that runs others would take `--help` for theirs.
    for word in words {
        match command.find_subcommand(word) {
            Some(inner) => command = inner,
            None if command.has_subcommands() || takes(command, word) => break,
            None => return print(&unknown(words)),
        }
    }
    let line = ["synconce"].into_iter().chain(words.iter().map(String::as_str)).chain(["--help"]);
    match arguments::parse(&line.map(OsString::from).collect::<Vec<_>>()) {
        Ok(_) => print(&unknown(words)),
        Err(help) => print(&help),
    }
}

/// Whether `word` is one of the values of an operand, such as `docker` of `setup`.
fn takes(command: &Command, word: &str) -> bool {
    let mut values = command.get_positionals().flat_map(Arg::get_possible_values);
    values.any(|value| value.matches(word, false))
}

/// Prints the version.
pub fn version() -> ExitCode {
    let version = Arguments::command().render_version();
    // A write error is ignored: the reader may have closed the stream.
    let _ = io::stdout().write_all(version.as_bytes());
    ExitCode::SUCCESS
}

/// Prints what clap says about a command line; returns the exit code. Where the first word is
/// a program, the hint names the command that holds its syncs.
pub fn wrong(mut error: Error) -> ExitCode {
    let words: Vec<_> = env::args_os().skip(1).collect();
    suggest_swapped(&mut error, &words);
    let error = &error;
    let Some(program) = mistaken_for_a_command(error, &words) else {
        let code = print(error);
        if lacks_id(error) {
            say("hint: synconce status");
        }
        return code;
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

/// Adds the command to `error` that differs from the first word by two exchanged letters, one
/// added, left out or wrong: in a word as short as `rnu` clap's own measure finds nothing.
fn suggest_swapped(error: &mut Error, words: &[OsString]) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let is_first = words.first().is_some_and(|first| first == OsStr::new(word));
    let is_suggested = error.get(ContextKind::SuggestedSubcommand).is_some();
    if !is_first || is_suggested || is_program(word) {
        return;
    }
    let near = |name: &str| strsim::osa_distance(name, word) == 1;
    let names = Arguments::command();
    let names = names.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
    let near: Vec<_> = names.filter(|name| near(name)).map(str::to_owned).collect();
    if !near.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
    }
}

/// Prints help, the version or an error.
fn print(error: &Error) -> ExitCode {
    // A write error is ignored: the reader may have closed the stream.
    let _ = error.print();
    if error.use_stderr() { exit::FAILED.into() } else { ExitCode::SUCCESS }
}

fn unknown(words: &[String]) -> Error {
    let text = format!("there is no command '{}'", words.join(" "));
    Arguments::command().error(ErrorKind::InvalidSubcommand, text)
}

/// Whether an option has no ID of a run behind it.
fn lacks_id(error: &Error) -> bool {
    let has = |kind, is: fn(&str) -> bool| match error.get(kind) {
        Some(ContextValue::String(text)) => is(text),
        _ => false,
    };
    has(ContextKind::InvalidArg, |option| option.ends_with(" <ID>"))
        && has(ContextKind::InvalidValue, str::is_empty)
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
    search::find(word).is_some()
}
