//! `synconce help` and `version`, and what is printed for a wrong command line.

mod options;

use self::options::{suggest_option, with_joined_value, with_moved_option};
use crate::arguments::{self, Arguments, definition};
use crate::commands::error::CommandError;
use crate::commands::output::{Stream, print};
use crate::commands::run::set_up_for;
use crate::commands::wrappers::Wrapper;
use crate::exit;
use crate::text::{name_for_sudo, say, shell};
use anstream::{AutoStream, ColorChoice};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error};
use std::env;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use synconce_setup::{Engine, HeldDaemon};
use synconce_sys::search;
use synconce_tree::record::TreeName;

/// The command that configures engines.
const SETUP: &str = "setup";

/// What other programs call a command, and its name here.
const OTHER_WORDS: [(&str, &str); 9] = [
    ("create", "clone"),
    ("delete", "remove"),
    ("destroy", "remove"),
    ("exec", "run"),
    ("list", "status"),
    ("shell", "run"),
    ("show", "list"),
    ("show", "status"),
    ("snapshot", "clone"),
];

/// What sbuild, schroot, cowbuilder and systemd-nspawn call a verb of `tree`, and its name here.
const OTHER_VERBS: [(&str, &str); 9] = [
    ("build", "run"),
    ("create", "import"),
    ("du", "list"),
    ("history", "log"),
    ("info", "list"),
    ("login", "run"),
    ("prune", "gc"),
    ("status", "list"),
    ("update", "run"),
];

/// Other names of an engine and of its clients, and its name in `setup`. `docker buildx` builds by
/// dockerd unless it has made a builder, `nerdctl` by buildkitd.
const OTHER_ENGINES: [(&str, &str); 10] = [
    ("k8s", "kubernetes"),
    ("kubectl", "kubernetes"),
    ("ctr", "containerd"),
    ("buildx", "docker"),
    ("docker-buildx", "docker"),
    ("moby", "docker"),
    ("buildah", "podman"),
    ("nerdctl", "buildkit"),
    ("apt-get", "apt"),
    ("dpkg", "apt"),
];

/// Prints the help of the command `words`, such as `tree run`, as its `--help` does.
pub fn help(words: &[String]) -> ExitCode {
    let mut command = &definition();
    // A command that runs others would take `--help` for theirs.
    for word in words {
        match command.find_subcommand(word) {
            Some(inner) => command = inner,
            None if command.has_subcommands() || takes(command, word) => break,
            None => return show(&unknown(words)),
        }
    }
    let line = ["synconce"].into_iter().chain(words.iter().map(String::as_str)).chain(["--help"]);
    match arguments::parse(&line.map(OsString::from).collect::<Vec<_>>()) {
        Ok(_) => show(&unknown(words)),
        Err(mut help) => {
            suggest(&mut help, words);
            show(&help)
        }
    }
}

/// Whether `word` is one of the values of an operand, such as `docker` of `setup`.
fn takes(command: &Command, word: &str) -> bool {
    let mut values = command.get_positionals().flat_map(Arg::get_possible_values);
    values.any(|value| value.matches(word, false))
}

/// Prints the version.
///
/// # Errors
/// Standard output cannot be written to.
pub fn version() -> Result<ExitCode, CommandError> {
    print(Arguments::command().render_version())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what clap says about a command line; returns the exit code. Where the first word is
/// a program, the hint names the command that holds its syncs.
pub fn wrong(mut error: Error) -> ExitCode {
    let texts: Vec<_> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    suggest(&mut error, &texts);
    suggest_option(&mut error, &texts);
    suggest_engine(&mut error);
    name_missing_hold(&mut error, &texts);
    if error.kind() == ErrorKind::UnknownArgument && is_passed_on(&error) {
        error.remove(ContextKind::Suggested);
    }
    let error = &error;
    // `synconce -- make`.
    let is_command = texts.first().is_some_and(|word| word == "--");
    let words = &texts[usize::from(is_command)..];
    let Some(program) = mistaken_for_a_command(error, words, is_command) else {
        let code = show(error);
        if let Some(hint) = error.use_stderr().then(|| hint(error, &texts)).flatten() {
            say(&format!("hint: {hint}"));
        }
        return code;
    };
    say(&format!("{program} is not a command of synconce"));
    let run = run_of(words);
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) if !is_command => names.first(),
        _ => None,
    };
    let hint = match (words, similar) {
        // `synconce docker setup`.
        ([engine, verb, ..], _) if verb == SETUP && is_engine(engine) => {
            format!("synconce {SETUP} {engine}")
        }
        (_, Some(name)) => format!("{run}; or: synconce {name}"),
        _ => run,
    };
    say(&format!("hint: {hint}"));
    exit::FAILED.into()
}

/// Returns the command line that holds the syncs of `words`: a run, or the set-up if `words` start
/// a daemon or a client of one. sudo comes before the run, because programs gain no privileges in a
/// user's run.
fn run_of(words: &[String]) -> String {
    let command: Vec<_> = words.iter().map(OsString::from).collect();
    let held = match &words[0][..] {
        "dockerd" => Some(Engine::Held(HeldDaemon::Docker)),
        "containerd" => Some(Engine::Held(HeldDaemon::Containerd)),
        "buildkitd" => Some(Engine::Held(HeldDaemon::Buildkit)),
        _ => set_up_for(&command),
    };
    if let Some(engine) = held {
        return format!("sudo {} {SETUP} {}", name_for_sudo(), engine.command());
    }
    let arguments: Vec<_> = words[1..].iter().map(String::as_str).collect();
    match Wrapper::of(&words[0], &arguments) {
        Some(Wrapper { options, inner, .. }) if words[0] == "sudo" && !inner.is_empty() => {
            let sudo = shell(&words[..=options.len()]);
            format!("{sudo} {} run -- {}", name_for_sudo(), shell(&words[1 + options.len()..]))
        }
        _ => format!("synconce run -- {}", shell(words)),
    }
}

/// Whether clap advises to put `--` before the option alone: then a run would execute the option.
fn is_passed_on(error: &Error) -> bool {
    match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => {
            tips.iter().any(|tip| tip.to_string().contains("as a value"))
        }
        _ => false,
    }
}

/// Whether `synconce setup` takes `word`.
fn is_engine(word: &str) -> bool {
    definition().find_subcommand(SETUP).is_some_and(|setup| takes(setup, word))
}

/// Returns what to type in place of `words`, where clap's own words do not say it.
fn hint(error: &Error, words: &[String]) -> Option<String> {
    if lacks_id(error) {
        return Some("synconce status".to_owned());
    }
    let is_docker_option =
        |word: &str| matches!(word, "-i" | "-t" | "--rm" | "--interactive" | "--tty");
    let is_option_of_containerd = |word: &str| matches!(word, "--no-sync" | "--no_sync");
    match words {
        [tree, run, ..]
            if tree == "tree"
                && run == "run"
                && names(error, ContextKind::InvalidArg, is_docker_option) =>
        {
            Some("a run has your terminal; synconce tree run --from NAME keeps nothing".to_owned())
        }
        [tree, verbs @ .., source, name]
            if tree == "tree"
                && verbs.last().is_some_and(|verb| verb == "import")
                && names(error, ContextKind::InvalidValue, |value| value == source)
                && name.parse::<TreeName>().is_ok() =>
        {
            let words = [&["synconce".to_owned(), tree.clone()], verbs].concat();
            let words = [&words[..], &[name.clone(), source.clone()]].concat();
            Some(format!("the name of the tree comes first: {}", shell(&words)))
        }
        [tree, help, of @ ..] if tree == "tree" && help == "help" => {
            let words = [&["help".to_owned(), tree.clone()], of].concat();
            Some(format!("synconce {}", shell(&words)))
        }
        [setup, of @ ..]
            if setup == SETUP
                && of.iter().any(|word| word == "containerd")
                && names(error, ContextKind::InvalidArg, is_option_of_containerd) =>
        {
            let instead = format!("synconce {SETUP} containerd --hold");
            Some(format!("{instead}; unlike no_sync, it recovers after a crash"))
        }
        [doctor, command @ ..] if doctor == "doctor" && is_program(command.first()?) => {
            Some(format!("synconce doctor -- {}", shell(command)))
        }
        _ => with_joined_value(error, words).or_else(|| with_moved_option(error, words)),
    }
}

/// Takes hidden commands out of clap's suggestions for the mistyped command in `words`. If a
/// command differs by one letter (added, left out, wrong) or by two exchanged letters, only such
/// commands are suggested: clap's own measure finds nothing for a word as short as `rnu`.
fn suggest(error: &mut Error, words: &[String]) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let above = words.iter().take_while(|one| *one != word);
    let root = definition();
    let command =
        above.fold(&root, |command, word| command.find_subcommand(word).unwrap_or(command));
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
    let shown: Vec<_> = shown.map(str::to_owned).collect();
    let is_near = |name: &&String| strsim::osa_distance(name, word) == 1;
    let near: Vec<_> = shown.iter().filter(is_near).cloned().collect();
    let verbs = if command.get_name() == "tree" { &OTHER_VERBS[..] } else { &[] };
    let other = verbs.iter().chain(&OTHER_WORDS).filter(|(other, _)| other == word);
    let other = other.map(|(_, name)| (*name).to_owned());
    let other: Vec<_> = other.filter(|name| shown.contains(name)).collect();
    let names = match error.get(ContextKind::SuggestedSubcommand) {
        _ if !near.is_empty() => near,
        _ if !other.is_empty() => other,
        Some(ContextValue::Strings(names)) => {
            names.iter().filter(|name| shown.contains(name)).cloned().collect()
        }
        _ => Vec::new(),
    };
    error.remove(ContextKind::SuggestedSubcommand);
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
}

/// Suggests the engine for a word that means it.
fn suggest_engine(error: &mut Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidValue) else { return };
    let other = OTHER_ENGINES.iter().find(|(other, _)| other == word);
    if let Some((_, name)) = other
        && names(error, ContextKind::InvalidArg, |argument| argument == "<ENGINE>")
    {
        error.insert(ContextKind::SuggestedValue, ContextValue::String((*name).to_owned()));
    }
}

/// Names NAME as missing from `hold run -- COMMAND`: clap takes the only word behind `--` for NAME.
fn name_missing_hold(error: &mut Error, words: &[String]) {
    let is_only_word =
        matches!(words, [hold, run, end, _] if hold == "hold" && run == "run" && end == "--");
    if is_only_word && error.kind() == ErrorKind::MissingRequiredArgument {
        error.insert(ContextKind::InvalidArg, ContextValue::Strings(vec!["<NAME>".to_owned()]));
    }
}

/// Prints help, the version or an error.
fn show(error: &Error) -> ExitCode {
    let is_error = error.use_stderr();
    let (stream, colors) = if is_error {
        (Stream::Errors, AutoStream::choice(&io::stderr()))
    } else {
        (Stream::Output, AutoStream::choice(&io::stdout()))
    };
    let text = error.render();
    let text = match colors {
        ColorChoice::Never => text.to_string(),
        _ => text.ansi().to_string(),
    };
    match stream.print(text) {
        Err(unwritten) if !is_error => unwritten.end(),
        _ if is_error => exit::FAILED.into(),
        _ => ExitCode::SUCCESS,
    }
}

fn unknown(words: &[String]) -> Error {
    let text = format!("there is no command '{}'", words.join(" "));
    Arguments::command().error(ErrorKind::InvalidSubcommand, text)
}

/// Whether an option has no ID of a run behind it.
fn lacks_id(error: &Error) -> bool {
    names(error, ContextKind::InvalidArg, |option| option.contains(" <ID>"))
        && names(error, ContextKind::InvalidValue, str::is_empty)
}

/// Whether `error` has a text of this kind, which `is` accepts.
fn names(error: &Error, kind: ContextKind, is: impl Fn(&str) -> bool) -> bool {
    matches!(error.get(kind), Some(ContextValue::String(text)) if is(text))
}

/// Returns the first of `words` if the parser read it as a verb of synconce, but it is a program or
/// a path, or stands behind `--`.
fn mistaken_for_a_command(error: &Error, words: &[String], is_command: bool) -> Option<String> {
    let is_other = |word: &str| is_command || word.contains('/') || is_program(word);
    let first = words.first()?;
    let is_taken = names(error, ContextKind::InvalidSubcommand, |word| word == first);
    (is_taken && is_other(first)).then(|| first.clone())
}

/// Whether a shell would execute `word`: a file in PATH, or a path.
fn is_program(word: &str) -> bool {
    search::find(word).is_some()
}
