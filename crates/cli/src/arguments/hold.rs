//! `synconce hold`

use super::Json;
use crate::completion::values;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;

#[derive(Debug, Args)]
pub struct HoldArguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: HoldVerb,
}

// The verbs of `synconce hold`.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum HoldVerb {
    /// Hold the files of NAME: their syncs succeed at once, for every process
    ///
    /// Start the hold before the daemon. The marker is durable before the first file is held.
    /// Nothing happens if the files are held already.
    Start(NamedHold),
    /// End the hold: make the files durable, and their syncs real again
    ///
    /// Stop the daemon first. Nothing happens if the hold is not in force. The file of the hold
    /// may be gone by then.
    Stop(NamedHold),
    /// Show holds, what they hold, and what a crash of the machine would cost now
    ///
    /// A hold is `off`, `held`, `incomplete` (some paths are not mounted, so their syncs are
    /// real, or a stop was cut short), `failed` (the disk lost a write, so every sync fails) or
    /// `interrupted` (the machine, the disk or a file system stopped while the files were held).
    ///
    /// The fields of the JSON are in `man synconce-hold-status`.
    ///
    /// Exit code: 0 no hold is interrupted, 4 a hold was interrupted or has failed, 125 `status`
    /// failed.
    Status(HoldStatusArguments),
    /// After a crash of the machine: make the files fit for the daemon's start
    ///
    /// Does nothing unless the machine stopped, or the disk failed, while the files were held.
    /// Otherwise the setting after_crash decides. `wipe` sets the files aside: the daemon
    /// starts without them. `refuse` fails, and prints the commands that decide.
    Recover(Recover),
    /// Remove what `recover` set aside, once the daemon has started without it
    Settle(NamedHold),
    /// Put back what `recover` set aside: the files are as the crash left them
    ///
    /// Stop the daemon and the hold first. Nothing is overwritten: what the daemon has made anew is
    /// kept beside the files until `settle`. A restore that was cut short is finished by the next
    /// one, or by `recover`; until then the hold does not start. Without NAME, lists the holds
    /// whose files are set aside.
    Restore(Restore),
    /// Recover, start the hold, run a daemon, and stop the hold when the daemon ends
    ///
    /// For machines without systemd. The exit code is the daemon's own; 125 if synconce failed,
    /// 126 if COMMAND cannot be executed, 127 if it is not found.
    Run(HoldRunArguments),
}

// The hold that a verb is about.
#[derive(Debug, Args)]
pub struct NamedHold {
    /// The hold: /etc/synconce/hold.d/NAME.toml, or the path of such a file
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(values::holds))]
    pub name: OsString,
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The hold, as for `start` [default: put nothing back, and list the holds]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(values::holds))]
    pub name: Option<OsString>,
}

#[derive(Debug, Args)]
pub struct HoldStatusArguments {
    /// The holds to show [default: all of /etc/synconce/hold.d, and all in force]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(values::holds))]
    pub names: Vec<OsString>,
    /// Print only the daemon's unit of each hold, one a line, for scripts
    #[arg(long, conflicts_with = "json")]
    pub units: bool,
    /// Where the holds are printed as JSON.
    #[command(flatten)]
    pub json: Json,
}

#[derive(Debug, Args)]
pub struct Recover {
    /// The hold.
    #[command(flatten)]
    pub named: NamedHold,
    /// Set the files aside, whatever after_crash says
    #[arg(long, conflicts_with = "keep")]
    pub wipe: bool,
    /// Keep the files as they are, whatever after_crash says: you have checked them
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct HoldRunArguments {
    /// The hold.
    #[command(flatten)]
    pub named: NamedHold,
    /// The daemon and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
