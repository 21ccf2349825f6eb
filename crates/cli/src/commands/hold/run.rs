//! `synconce hold recover`, `settle` and `run`

use super::restore::say_restored;
use super::{
    CommandError, begun, known, read, read_or_recall, say_left, say_waiting, with_commands,
};
use crate::arguments::hold::{HoldRunArguments, NamedHold, Recover};
use crate::commands::signal_forwarder::SignalForwarder;
use crate::exit;
use crate::text::{notice, say};
use std::process::{Command, ExitCode, ExitStatus};
use synconce_durable::text::shown;
use synconce_hold::aside::{self, AsideError};
use synconce_hold::config::Config;
use synconce_hold::error::HoldFailure;
use synconce_hold::recover::{self, Decision, Layers, RecoverError, Recovered, SetAside};
use synconce_hold::runtime::only_runner;
use synconce_hold::start::{DaemonStart, Started, refuse_second_daemon};
use synconce_hold::stop::{Stopped, stop};
use synconce_sys::reason;

/// Recovers a hold.
pub(super) fn recover(arguments: &Recover) -> Result<(), CommandError> {
    let config = read_or_recall(&arguments.named.name)?;
    let decision = if arguments.wipe {
        Decision::Wipe
    } else if arguments.keep {
        Decision::Keep
    } else {
        Decision::ByFile
    };
    decided(&config, decision)
}

/// Recovers, and says what was done: a recovery that changes something is never silent.
fn decided(config: &Config, decision: Decision) -> Result<(), CommandError> {
    let done = recover::recover(config, decision, &say_waiting);
    let name = &config.name;
    match done.map_err(|error| refused(&error))? {
        Recovered::Clean | Recovered::Untouched => {}
        Recovered::Kept { reason } => {
            say(&format!("hold {name}: {reason}; the files are used as they are"));
        }
        Recovered::SetAside(aside) => say_set_aside(config, &aside),
        Recovered::PutBack(restored) => say_restored(name, &restored),
    }
    Ok(())
}

fn say_set_aside(config: &Config, aside: &SetAside) {
    let cost = config.cost.as_ref().map(|cost| format!(": {cost}")).unwrap_or_default();
    let done = if aside.paths.is_empty() {
        "no file was there to be set aside"
    } else {
        "the files are set aside"
    };
    say(&format!("hold {}: {}; {done}{cost}", config.name, aside.reason));
    say_layers(&aside.layers);
    if config.docker_root.is_some() {
        // dockerd syncs the file, but not its rename. Without a hold, BuildKit's next transaction
        // on the same disk makes the rename durable.
        say("docker's list of images may be up to 30 seconds older than the crash");
    }
    if !aside.commands.is_empty() {
        say("until the daemon has started once, this puts everything back, while the daemon and \
             the hold are stopped:");
        say(&format!("  synconce hold restore {}", config.name));
    }
}

fn say_layers(layers: &Layers) {
    let (unreferenced, damaged, images, containers) = match layers {
        Layers::NotAsked => return,
        Layers::Left(why) => return say(&format!("layers of docker were left as they are: {why}")),
        Layers::SetAside { unreferenced, damaged, images, containers } => {
            (unreferenced, damaged, images, containers)
        }
    };
    say(&format!("{unreferenced} layers of docker to which nothing refers are set aside, too"));
    if *damaged > 0 {
        say(&format!(
            "{damaged} layers of docker that the crash damaged are set aside, too: images that \
             have them must be pulled or built again"
        ));
    }
    if !images.is_empty() {
        say(&format!("docker no longer has these images: {}", images.join(", ")));
    }
    if !containers.is_empty() {
        say(&format!(
            "the crash damaged layers of these containers of docker, which cannot start: {}; \
             remove the containers and their images",
            containers.join(", ")
        ));
    }
}

fn refused(error: &RecoverError) -> CommandError {
    with_commands(error.to_string(), &error.commands(), error.remedy())
}

impl From<AsideError> for CommandError {
    fn from(error: AsideError) -> Self {
        Self::in_lines(&error.to_string()).with_remedy(error.remedy())
    }
}

/// Removes what was set aside.
pub(super) fn settle(named: &NamedHold) -> Result<(), CommandError> {
    Ok(settled(&known(&named.name)?)?)
}

fn settled(name: &str) -> Result<(), AsideError> {
    let count = aside::settle(name, &say_waiting)?;
    if count > 0 {
        notice(&format!("hold {name}: removed {count} files that were set aside"));
    }
    Ok(())
}

/// Runs a daemon whose files are held.
pub(super) fn run(arguments: &HoldRunArguments) -> Result<ExitCode, CommandError> {
    let config = read(&arguments.named.name)?;
    // Until the end: between the steps no `restore` may put files back.
    let Some(_place) = only_runner(&config.name, &say_waiting)? else {
        return Err(HoldFailure::Running(config.name).into());
    };
    // A signal ends the wait for another command, and a recovery, which the next one continues.
    decided(&config, Decision::ByFile)?;
    let forwarder = SignalForwarder::later();
    let forwarder =
        forwarder.map_err(|error| format!("cannot handle signals: {}", reason(&error)))?;
    // A signal must not end synconce between the start and the stop.
    let started = begun(&config, DaemonStart::Child(&|| forwarder.begin()))?;
    // A hold that was in force has begun before.
    forwarder.begin();
    if started == Started::InForce {
        refuse_second_daemon(&config)?;
    }
    let ended = command(arguments, &forwarder);
    if let Stopped::Ended(left) = stop(&config.name, &say_waiting)? {
        say_left(&config.name, &left);
    }
    Ok(match ended {
        Ok(status) => {
            // The daemon has run without what was set aside, and ended by itself.
            if status.success() {
                match settled(&config.name) {
                    // A command that used no held file.
                    Err(error @ AsideError::NotStarted(_)) => notice(&error.to_string()),
                    settled => settled?,
                }
            }
            exit::of_command(status)
        }
        Err(code) => code.into(),
    })
}

fn command(
    arguments: &HoldRunArguments,
    forwarder: &SignalForwarder,
) -> Result<ExitStatus, exit::Code> {
    let (program, words) = arguments.command.split_first().ok_or(exit::FAILED)?;
    let cannot = |act: &str, error: &std::io::Error| {
        let program = program.to_string_lossy();
        say(&format!("cannot {act} {}: {}", shown(&program), reason(error)));
    };
    let mut child = Command::new(program).args(words).spawn().map_err(|error| {
        cannot("execute", &error);
        error.raw_os_error().map_or(exit::FAILED, exit::not_executed)
    })?;
    let passed_on = forwarder.pass_on_to(&child);
    let ended = passed_on.and_then(|()| child.wait());
    ended.map_err(|error| {
        cannot("wait for", &error);
        exit::FAILED
    })
}
