//! From words to arguments: what clap does, and `tree run NAME COMMAND` without `--`.

use super::tree::{RunIn, TreeVerb};
use super::{Arguments, Command};
use clap::error::ErrorKind;
use clap::{CommandFactory, Error, Parser};
use std::ffi::OsString;
use synconce_tree::record::TreeName;

/// Parses a command line; its first word is the program's name.
///
/// # Errors
/// The command line is wrong, or asks for help or the version.
pub fn parse(words: &[OsString]) -> Result<Arguments, Error> {
    // Many programs print their version so. Before a command it is --stats at the wrong place.
    if let [program, word] = words
        && word == "-v"
    {
        return Arguments::try_parse_from([program, &OsString::from("-V")]);
    }
    let first = Arguments::try_parse_from(words)?;
    let Some(run) = run_in(&first) else { return Ok(first) };
    if run.from.is_some() {
        return Ok(first);
    }
    // clap cannot express that the first word is a name unless --from is given, and that
    // options may follow the name. So the name is taken out, and the rest is parsed again.
    let name = run.words.first().ok_or_else(missing_name)?;
    let name = name.to_string_lossy().parse::<TreeName>();
    let name = name.map_err(|why| at_run().error(ErrorKind::ValueValidation, why))?;
    let at = words.len() - run.words.len();
    let rest: Vec<_> = words[..at].iter().chain(&words[at + 1..]).collect();
    let mut second = Arguments::try_parse_from(rest)?;
    if let Command::Tree(tree) = &mut second.command
        && let TreeVerb::Run(run) = &mut tree.verb
    {
        if run.from.is_some() {
            let text = "NAME cannot be used with '--from <BASE>'; options precede COMMAND";
            return Err(at_run().error(ErrorKind::ArgumentConflict, text));
        }
        run.name = Some(name);
        run.from_name = with_from(words, at);
    }
    Ok(second)
}

/// Returns `words` with `--from NAME` in place of NAME, the word at `at`.
fn with_from(words: &[OsString], at: usize) -> Vec<OsString> {
    // `run -- NAME COMMAND` has the end of the options before the name.
    let end = if words[at - 1] == "--" { at - 1 } else { at };
    let from = ["--from".into(), words[at].clone()];
    [&words[..end], &from, &words[end..at], &words[at + 1..]].concat()
}

fn run_in(arguments: &Arguments) -> Option<&RunIn> {
    match &arguments.command {
        Command::Tree(tree) => match &tree.verb {
            TreeVerb::Run(run) => Some(run),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the definition of all commands with their options.
pub fn definition() -> clap::Command {
    let mut command = Arguments::command();
    command.build();
    command
}

/// Returns the definition of `tree run`, whose usage an error shows.
fn at_run() -> clap::Command {
    let command = definition();
    let run = command.find_subcommand("tree").and_then(|tree| tree.find_subcommand("run"));
    run.cloned().unwrap_or(command)
}

fn missing_name() -> Error {
    at_run().error(ErrorKind::MissingRequiredArgument, "name a clone, or a base with --from")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_command_are_defined_once_it_is_parsed() {
        let verbs = |command: &clap::Command| {
            command.find_subcommand("tree").is_some_and(clap::Command::has_subcommands)
        };
        assert!(!verbs(&Arguments::command()));
        assert!(verbs(&definition()));
    }
}
