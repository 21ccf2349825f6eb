//! Options that another command has, or that stand in another place.

use super::names;
use crate::arguments::definition;
use crate::text::shell;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

/// What sbuild, schroot, cowbuilder, systemd-nspawn and Docker call an option of `tree run`, and
/// its name here.
const OTHER_OPTIONS: [(&str, &str); 14] = [
    ("-c", "--from"),
    ("--chroot", "--from"),
    ("-d", "--directory"),
    ("-w", "--directory"),
    ("--chdir", "--directory"),
    ("--workdir", "--directory"),
    ("-e", "--setenv"),
    ("-E", "--setenv"),
    ("--env", "--setenv"),
    ("--bindmounts", "--bind"),
    ("--bind-ro", "--bind"),
    ("--volume", "--bind"),
    ("-u", "--user"),
    ("--as", "--commit"),
];

/// Suggests the option of `tree run` for an option that another builder has, and that of statistics
/// for `--verbose`.
pub(super) fn suggest_option(error: &mut Error, words: &[String]) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let has_stats = |command: &Command| {
        command.get_arguments().any(|option| option.get_long() == Some("stats"))
    };
    if option == "--verbose" && has_stats(command_of(&definition(), words)) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String("--stats".to_owned()));
        return;
    }
    let other = OTHER_OPTIONS.iter().find(|(other, _)| other == option);
    // `tree` has options of its own before `run`.
    let mut before = words.iter().take_while(|word| !word.starts_with(option.as_str()));
    if let Some((_, name)) = other
        && before.next().is_some_and(|word| word == "tree")
        && before.any(|word| word == "run")
    {
        error.insert(ContextKind::SuggestedArg, ContextValue::String((*name).to_owned()));
    }
}

/// Returns the command line with an option and its value in one word, if the value begins with a
/// dash: clap would read such a value as an option.
pub(super) fn with_joined_value(error: &Error, words: &[String]) -> Option<String> {
    let root = definition();
    let command = command_of(&root, words);
    let takes_next = |word: &str| {
        let option = |arg: &&Arg| arg.get_long().is_some_and(|long| word[2..] == *long);
        word.starts_with("--")
            && command
                .get_arguments()
                .find(option)
                .is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
    };
    let is_unknown = |value: &str| {
        let start = |unknown: &str| value.starts_with('-') && value.starts_with(unknown);
        error.kind() == ErrorKind::UnknownArgument && names(error, ContextKind::InvalidArg, start)
    };
    let at = words.windows(2).position(|pair| takes_next(&pair[0]) && is_unknown(&pair[1]))?;
    let joined = vec![format!("{}={}", words[at], words[at + 1])];
    let line = [&words[..at], &joined, &words[at + 2..]].concat();
    Some(format!("synconce {}", shell(&line)))
}

/// Returns the command line with the options behind the command that has them, such as
/// `synconce -v run`: `synconce` itself has none.
pub(super) fn with_moved_option(error: &Error, words: &[String]) -> Option<String> {
    let is_unknown = |word: &str| names(error, ContextKind::InvalidArg, |option| option == word);
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let at = words.iter().position(|word| is_unknown(name_of(word)))?;
    let (before, behind) = words.split_at(at);
    let count = behind.iter().take_while(|word| word.starts_with('-')).count();
    let (options, behind) = behind.split_at(count);
    let root = definition();
    let mut command = command_of(&root, before);
    let mut depth = 0;
    while let Some(inner) = behind.get(depth).and_then(|word| command.find_subcommand(word)) {
        (command, depth) = (inner, depth + 1);
    }
    let has = |word: &String| command.get_arguments().any(|arg| is_written(arg, name_of(word)));
    if depth == 0 || !options.iter().all(has) {
        return None;
    }
    let (verbs, behind) = behind.split_at(depth);
    Some(format!("synconce {}", shell(&[before, verbs, options, behind].concat())))
}

/// Returns an option without the value that is joined to it.
fn name_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// Whether `word` is the option `arg`.
fn is_written(arg: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => {
            arg.get_short().is_some_and(|short| word.strip_prefix('-') == Some(&*short.to_string()))
        }
    }
}

/// Returns the command of synconce in `words`, such as `tree run`.
fn command_of<'a>(root: &'a Command, words: &[String]) -> &'a Command {
    let words = words.iter().take_while(|word| *word != "--");
    words.fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
}
