//! `synconce hold`

mod restore;
mod run;
mod show;

pub use self::show::{HoldReport, reports};

use crate::arguments::hold::{HoldArguments, HoldVerb, NamedHold, Restore};
use crate::commands::error::{CommandError, as_root, nearest};
use crate::exit;
use crate::text::notice;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use synconce_durable::text::quote;
use synconce_hold::awaited_lock::AwaitedLock;
use synconce_hold::config::{Config, HeldKind, Unusable, name_of, path_of};
use synconce_hold::error::HoldFailure;
use synconce_hold::kind::IF_OTHER;
use synconce_hold::marker_place;
use synconce_hold::overlaps::refuse_unmarked;
use synconce_hold::record::HoldRecord;
use synconce_hold::start::{DaemonStart, Started, start};
use synconce_hold::state_directory;
use synconce_hold::stop::{Left, Stopped, stop};
use synconce_sys::process::{self, ChildChange, Side, WaitFor, Whose};

impl From<HoldFailure> for CommandError {
    fn from(failure: HoldFailure) -> Self {
        Self::in_lines(&failure.to_string()).with_remedy(failure.remedy())
    }
}

impl From<Unusable> for CommandError {
    fn from(error: Unusable) -> Self {
        let hint = match &error {
            Unusable::Read(_, error, holds) if error.kind() == ErrorKind::NotFound => {
                // The page has an example of the file.
                let hint =
                    if holds.is_empty() { "man synconce-hold" } else { "synconce hold status" };
                Some(hint.to_owned())
            }
            Unusable::Kind(_, kind) => Some(hint_for_kind(kind)),
            Unusable::Parse(..) | Unusable::Value(..) => Some("man synconce-hold".to_owned()),
            Unusable::Read(..) | Unusable::Name(_) => None,
        };
        Self::in_lines(&error.to_string()).with_remedy(hint)
    }
}

/// Returns what to write in place of `kind`, which is no kind.
fn hint_for_kind(kind: &str) -> String {
    let words = HeldKind::ALL.iter().map(|kind| kind.word());
    match nearest(&kind.to_lowercase(), words) {
        Some(near) if near != HeldKind::Other.word() => {
            format!("say kind = \"{near}\" in the hold's file; or, {IF_OTHER}")
        }
        _ => IF_OTHER.to_owned(),
    }
}

/// Returns the error with a line for each of `commands`, which has what the command does beside it.
fn with_commands(
    mut message: String,
    commands: &[(String, &str)],
    remedy: Option<String>,
) -> CommandError {
    for (command, what) in commands {
        message += &format!("\n  {command}    # {what}");
    }
    CommandError::in_lines(&message).with_remedy(remedy)
}

/// Starts, stops, recovers or shows holds.
pub fn hold(arguments: HoldArguments) -> Result<ExitCode, CommandError> {
    match &arguments.verb {
        HoldVerb::Status(arguments) => return show::show(arguments),
        HoldVerb::Restore(Restore { name: None }) => return restore::list(),
        _ => {}
    }
    if !rustix::process::geteuid().is_root() {
        return Err(CommandError::from("cannot change a hold: only root may mount on files")
            .hint(as_root()));
    }
    match arguments.verb {
        HoldVerb::Run(arguments) => run::run(&arguments),
        verb => in_child(|| match verb {
            HoldVerb::Start(named) => begin(&named),
            HoldVerb::Stop(named) => end(&named),
            HoldVerb::Recover(arguments) => run::recover(&arguments),
            HoldVerb::Settle(named) => run::settle(&named),
            HoldVerb::Restore(Restore { name: Some(name) }) => restore::restore(&name),
            HoldVerb::Run(_) | HoldVerb::Status(_) | HoldVerb::Restore(_) => Ok(()),
        }),
    }
}

/// Reads the file of the hold `word`, or its marker if the file is gone: a crash may have come
/// between.
fn read_or_recall(word: &OsStr) -> Result<Config, CommandError> {
    let (name, file) = (name_of(word)?, path_of(word));
    match (read(word), HoldRecord::read(&name)) {
        (Err(error), Ok(Some(record))) if !file.exists() => {
            error.lines.iter().for_each(|line| notice(line));
            notice("the marker of the hold says what is held");
            Ok(record.config)
        }
        // Nothing says what was held.
        (Err(error), Err(damage)) if !file.exists() && HoldRecord::is_damage(&damage) => {
            let written = format!("write {} again (man synconce-hold)", quote(&file));
            Err(error.and(HoldFailure::of_marker(&name, damage).into()).hint(format!(
                "{}, then type: synconce hold recover {}; if the held files are gone for good: rm {}",
                set_up(word).unwrap_or(written),
                quote(Path::new(word)),
                quote(&state_directory::marker(&name))
            )))
        }
        (config, _) => config,
    }
}

/// Reads the file of the hold `name`.
fn read(name: &OsStr) -> Result<Config, CommandError> {
    Config::read(name).map_err(|error| {
        // A file of the working directory, without the slash that makes it a path.
        let is_here = Path::new(name).is_file() && path_of(name) != Path::new(name);
        let error = CommandError::from(error);
        if is_here {
            return error
                .hint(format!("synconce hold start {}", quote(&Path::new(".").join(name))));
        }
        match set_up(name) {
            Some(command) => error.hint(command),
            None => error,
        }
    })
}

/// Returns the command that writes the missing file of the hold `name`, if there is one.
fn set_up(name: &OsStr) -> Option<String> {
    let daemons = ["docker", "buildkit", "containerd"];
    let daemon =
        name.to_str().filter(|name| daemons.contains(name) && !path_of(name.as_ref()).exists());
    daemon.map(|name| format!("synconce setup {name} --hold"))
}

/// Returns the name of the hold that `word` names. The file of a hold may be gone while its files
/// are held or set aside.
///
/// # Errors
/// Says that there is no such hold. Nothing is made for a mistyped name.
fn known(word: &OsStr) -> Result<String, CommandError> {
    let name = name_of(word)?;
    let files = [path_of(word), state_directory::marker(&name), state_directory::journal(&name)];
    if files.iter().any(|path| path.symlink_metadata().is_ok()) {
        Ok(name)
    } else {
        read(word).map(|config| config.name)
    }
}

fn begin(named: &NamedHold) -> Result<(), CommandError> {
    begun(&read(&named.name)?, DaemonStart::Elsewhere).map(drop)
}

/// Starts the hold of `config`, and says what was made.
fn begun(config: &Config, daemon: DaemonStart<'_>) -> Result<Started, CommandError> {
    if synconce_run::is_held() {
        let why = "the syncs of its marker would be held: start it outside of the run";
        return Err(format!("cannot start the hold {} in a run: {why}", config.name).into());
    }
    let started = start(config, daemon, &say_waiting)?;
    say_started(config, &started);
    if let Some(directory) = marker_place::in_memory() {
        let place = directory.display();
        notice(&format!(
            "the marker is in memory, in {place}: after a power cut the files are used unchecked"
        ));
    }
    Ok(started)
}

fn say_started(config: &Config, started: &Started) {
    match started {
        Started::InForce => notice(&format!("the files of {} are held already", config.name)),
        Started::Began { made, unseen_by } => {
            for path in made {
                notice(&format!("made {}, which was missing", path.display()));
            }
            if let Some(first) = unseen_by {
                notice(&format!(
                    "the files are held in this mount namespace alone, which is not the one of \
                     {first}: start the daemon here"
                ));
            }
            let held = config.hold.iter().map(|held| &held.path);
            let trees: Vec<_> = held.filter(|path| has_directories(path)).collect();
            if !trees.is_empty() {
                let trees = trees.iter().map(|path| path.display().to_string());
                let trees = trees.collect::<Vec<_>>().join(" and ");
                notice(&format!(
                    "{trees} is a file system of its own while held: no rename or hard link \
                     crosses its border, and tar --one-file-system and rsync -x skip it"
                ));
            }
        }
    }
}

/// Whether programs may expect a whole tree at `path`.
fn has_directories(path: &Path) -> bool {
    let entries = path.read_dir().into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// Does `act` in a child process, so that a signal ends the command also while a file system is
/// frozen: a process that waits for the file system cannot be killed (fsfreeze(8)). The lock of the
/// hold is the child's, so the next command waits for it.
fn in_child(act: impl FnOnce() -> Result<(), CommandError>) -> Result<ExitCode, CommandError> {
    match process::fork() {
        Ok(Side::Child) => {
            let followed = set_parent_process_death_signal(Some(Signal::KILL));
            let done = followed
                .map_err(|error| format!("cannot follow the end of this command: {error}").into());
            let is_done = done.and_then(|()| act()).map_err(|error| error.report()).is_ok();
            process::exit_now(if is_done { 0 } else { exit::FAILED.0.into() })
        }
        Ok(Side::Parent(child)) => {
            let options = WaitFor { ends: true, block: true, ..WaitFor::default() };
            Ok(match process::wait(Whose::Id(child), options) {
                Ok(Some((_, ChildChange::Exited(code)))) => ExitCode::from(code as u8),
                Ok(Some((_, ChildChange::Killed(signal)))) => exit::by_signal(signal),
                _ => exit::FAILED.into(),
            })
        }
        // The verb works without a child process, but on a frozen file system no signal ends it.
        Err(_) => act().map(|()| ExitCode::SUCCESS),
    }
}

/// Says which lock a verb waits for.
fn say_waiting(lock: &AwaitedLock) {
    notice(&lock.to_string());
}

fn end(named: &NamedHold) -> Result<(), CommandError> {
    let name = known(&named.name)?;
    match stop(&name, &say_waiting)? {
        Stopped::NotInForce => {
            // Without a marker, only the file of the hold says which paths the hold has.
            if let Ok(config) = Config::read(&named.name) {
                refuse_unmarked(&config)?;
            }
            notice(&format!("the hold {name} is not in force"));
        }
        Stopped::Ended(left) => say_left(&name, &left),
    }
    Ok(())
}

/// Says which mounts of the overlays of the hold `name` are left.
fn say_left(name: &str, left: &[Left]) {
    for Left { point, user } in left {
        notice(&format!(
            "the hold {name} has ended; {} stays mounted read-only in the mount namespace of \
             {user}, until its processes end",
            point.display()
        ));
    }
}
