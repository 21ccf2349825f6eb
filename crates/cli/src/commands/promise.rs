//! Commands whose exit code 0 says that something is durable.
//!
//! Inside a run their syncs would be held. Some of them replace what is durable already, and the
//! commit of the run comes too late for that, or never. So each of them asks for real syncs.

use crate::arguments::hold::{HoldVerb, Restore};
use crate::arguments::tree::{TreeVerb, Verify};
use crate::arguments::{Command, Configured};
use crate::commands::error::CommandError;
use crate::commands::real::sealed;
use synconce_run::RealError;

/// Makes the syncs of this process real if `command` promises that something is durable.
///
/// # Errors
/// Why the syncs stay held.
pub fn keep(command: &Command) -> Result<(), CommandError> {
    let real = || synconce_run::make_syncs_real().map(drop);
    let kept = match command {
        // Without a default, so that a new verb is decided here.
        Command::Tree(tree) => match &tree.verb {
            TreeVerb::Init(_)
            | TreeVerb::Import(_)
            | TreeVerb::Clone(_)
            | TreeVerb::Mount(_)
            | TreeVerb::Commit(_)
            | TreeVerb::Discard(_)
            | TreeVerb::Protect(_)
            | TreeVerb::Unprotect(_)
            | TreeVerb::Rename(_)
            | TreeVerb::Restore(_)
            | TreeVerb::Squash(_)
            | TreeVerb::Verify(Verify { accept: true, .. } | Verify { content: true, .. }) => {
                real()
            }
            TreeVerb::Remove(remove) if !remove.dry_run => real(),
            // The syncs of the command stay held: `tree run` asks after the command's end.
            TreeVerb::Run(run) if run.commit.is_some() => synconce_run::refuse_if_sealed(),
            // They call `keep_if`.
            TreeVerb::Verify(_) | TreeVerb::Fsck => Ok(()),
            TreeVerb::Remove(_)
            | TreeVerb::Run(_)
            | TreeVerb::Umount(_)
            | TreeVerb::Log(_)
            | TreeVerb::Diff(_)
            | TreeVerb::Export(_)
            | TreeVerb::List
            | TreeVerb::Gc(_)
            | TreeVerb::Enter(_) => Ok(()),
        },
        Command::Hold(hold) => match &hold.verb {
            HoldVerb::Status(_) | HoldVerb::Restore(Restore { name: None }) => Ok(()),
            _ => real(),
        },
        // The engine stores what a build step sets up, as it stores the other files of the step.
        Command::Setup(_) if synconce_run::is_in_step() => Ok(()),
        Command::Setup(setup)
            if !setup.dry_run && !setup.check && setup.engine != Configured::Kubernetes =>
        {
            real()
        }
        Command::Status(status) if !status.clear.is_empty() => real(),
        _ => Ok(()),
    };
    kept.map_err(refused)
}

/// Like [`keep`], for a command that promises something only if `syncs`: in a sealed run the
/// others work.
///
/// # Errors
/// Why the syncs stay held; the error of `syncs`.
pub fn keep_if(syncs: impl Fn() -> Result<bool, CommandError>) -> Result<(), CommandError> {
    match synconce_run::make_syncs_real() {
        Ok(_) => Ok(()),
        Err(RealError::Sealed | RealError::BuildStep) if !syncs()? => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: RealError) -> CommandError {
    sealed(&error, "type it outside of the run, or start the run without --sealed")
}
