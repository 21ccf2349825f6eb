//! Completion in a shell: the scripts in `docs/completions` call synconce, and clap's engine
//! answers from the definition of the arguments.

pub(crate) mod values;

use self::values::starting_with;
use crate::arguments::{self, Command, definition};
use crate::commands::output::print;
use crate::exit;
use crate::text::say;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use std::env;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Names the shell whose script calls synconce, or is `COMMAND`.
pub const VARIABLE: &str = "SYNCONCE_COMPLETE";
/// Asks where the command of a run begins, whose words the shell completes itself.
const COMMAND: &str = "command";

/// Answers a completion script, if one called synconce as `synconce -- WORD...`.
pub fn answer(words: &[OsString]) -> Option<ExitCode> {
    let asked = env::var_os(VARIABLE)?;
    if asked == COMMAND {
        let typed = words.iter().skip(2).cloned().collect::<Vec<_>>();
        if let Some(at) = command_at(&typed) {
            // A write error is ignored: the script has gone.
            let _ = print(format!("{at}\n"));
        }
        return Some(ExitCode::SUCCESS);
    }
    // The arguments do not refer to this completer, because it reads them.
    let of_help = |argument: clap::Arg| argument.add(ArgValueCompleter::new(commands));
    let definition =
        || definition().mut_subcommand("help", |help| help.mut_arg("command", of_help));
    let engine = CompleteEnv::with_factory(definition).var(VARIABLE);
    match engine.try_complete(words.iter(), env::current_dir().ok().as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(error) => {
            say(&format!("cannot complete: {error}"));
            Some(exit::FAILED.into())
        }
    }
}

/// Returns the index in `words` at which the command that synconce starts begins; the last word
/// is the one at the cursor.
fn command_at(words: &[OsString]) -> Option<usize> {
    // bash makes three words of `--root=/target`.
    let mut joined: Vec<OsString> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_split = at > 0 && (word == "=" || words[at - 1] == "=");
        match joined
            .last_mut()
            .filter(|last| is_split && last.as_encoded_bytes().starts_with(b"--"))
        {
            Some(last) => last.push(word),
            None => joined.push(word.clone()),
        }
    }
    let count = match arguments::parse(&joined).ok()?.command {
        Command::Run(run) => run.command.len(),
        Command::Real(real) => real.command.len(),
        Command::Tree(tree) => tree.verb.command()?.len(),
        _ => return None,
    };
    (count > 0).then(|| words.len() - count)
}

/// Completes the names of commands, for `help`.
fn commands(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<_> = env::args_os().skip_while(|word| word != "help").skip(1).collect();
    let above = words.len().saturating_sub(1);
    let mut command = definition();
    for word in &words[..above] {
        let Some(inner) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            return Vec::new();
        };
        command = inner.clone();
    }
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let named = |inner: &clap::Command| {
        CompletionCandidate::new(inner.get_name().to_owned()).help(inner.get_about().cloned())
    };
    starting_with(current, shown.map(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Option<usize> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        command_at(&words)
    }

    #[test]
    fn the_command_of_a_run_is_found_by_the_words_before_the_cursor() {
        assert_eq!(at("synconce run -- apt-get ins"), Some(3));
        assert_eq!(at("synconce run --root /x apt-get --y"), Some(4));
        assert_eq!(at("synconce run --root = /x -- ap"), Some(6));
        assert_eq!(at("synconce run -- "), Some(3));
        assert_eq!(at("synconce real -- apt-g"), Some(3));
        assert_eq!(at("synconce tree run work ls"), Some(4));
        assert_eq!(at("synconce tree run --from base -- ls -"), Some(6));
        assert_eq!(at("synconce tree run wo"), None);
        assert_eq!(at("synconce run --root "), None);
        assert_eq!(at("synconce status "), None);
    }
}
