//! The first line of a script that is the command of a run.

use crate::arguments::RunArguments;
use crate::commands::error::CommandError;
use crate::commands::wrappers::{Wrapper, file_name};
use crate::text::shell;
use clap::Args;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, canonicalize};
use std::io::Read;
use std::path::PathBuf;
use synconce_sys::search;

/// Stands for the path of a script, which the kernel appends to the words of its first line.
const SCRIPT: &str = "/script";

/// Refuses a script whose first line starts `synconce run` or `eatmydata` without a program: such a
/// run executes the script, which starts the run again, and so on without end.
///
/// # Errors
/// The refusal.
pub(in crate::commands) fn refuse_own(command: &[OsString]) -> Result<(), CommandError> {
    let Some((path, line)) = command.first().and_then(|it| first_line_of(it)) else {
        return Ok(());
    };
    if !starts_itself(&line) {
        return Ok(());
    }
    let script = shell(&[path.display().to_string()]);
    let why = format!("cannot execute {script}: its first line starts synconce, without a shell");
    let hint = "change its first line to: #!/usr/bin/env -S synconce run -- sh";
    Err(CommandError::from(why).hint(hint))
}

/// Whether `line`, the first one of a script without `#!`, starts this program, with no program for
/// it to run.
fn starts_itself(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    let mut words = &words[..];
    // The option `-S` of env(1) takes the rest of the line.
    while let Some((program, rest)) = words.split_first()
        && file_name(program) != "eatmydata"
        && let Some(wrapper) = Wrapper::of(file_name(program), rest)
    {
        words = wrapper.inner;
    }
    let Some((program, rest)) = words.split_first() else { return false };
    let is_eatmydata = file_name(program) == "eatmydata";
    let has_no_program = match rest {
        words if is_eatmydata => words.iter().all(|word| word.starts_with('-')),
        ["run", options @ ..] => takes_as_command(options, SCRIPT),
        _ => false,
    };
    let is_own = |path: PathBuf| {
        let own = env::current_exe();
        canonicalize(path).is_ok_and(|path| own.is_ok_and(|own| own == path))
    };
    has_no_program && search::find(program).is_some_and(is_own)
}

/// Whether `run` with `options` and then `word` has `word` as its command.
fn takes_as_command(options: &[&str], word: &str) -> bool {
    let run = RunArguments::augment_args(clap::Command::new("run"));
    let words = ["run"].iter().chain(options).chain([&word]);
    let matches = run.try_get_matches_from(words);
    matches.is_ok_and(|it| it.get_one::<OsString>("command").is_some_and(|first| first == word))
}

/// Returns the path of the program `script`, and what follows `#!` in its first line, if it is a
/// script.
pub(super) fn first_line_of(script: &OsStr) -> Option<(PathBuf, String)> {
    let path = search::find(script)?;
    // The kernel reads 256 bytes (BINPRM_BUF_SIZE, execve(2)).
    let mut start = Vec::new();
    File::open(&path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let text = String::from_utf8_lossy(start.strip_prefix(b"#!")?).into_owned();
    let line = text.split('\n').next().map(str::to_owned)?;
    Some((path, line))
}
