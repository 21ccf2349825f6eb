//! Limits of a run: its control groups, and what is said when a limit was reached.

use super::store::say_left;
use crate::arguments::tree::RunIn;
use crate::commands::error::CommandError;
use crate::text::say;
use std::path::{Path, PathBuf};
use synconce_probe::systemd;
use synconce_sys::namespace;
use synconce_tree::{Groups, Limits, Reached, Session};

/// The control groups of a run, if it has limits.
pub struct Limited(Option<Groups>);

impl Limited {
    /// Makes the control groups for the limits among the arguments.
    pub fn begin(session: &Session<'_>, arguments: &RunIn) -> Result<Self, CommandError> {
        let &RunIn { memory, cpus, pids_limit: pids, .. } = arguments;
        let limits = Limits { memory, cpus, pids };
        if limits == Limits::default() {
            return Ok(Self(None));
        }
        session.limit(&limits).map(Some).map(Self).map_err(|error| {
            let failure = CommandError::from(error);
            if !namespace::is_first_user_namespace() && is_delegated_by_systemd() {
                failure.hint(
                    "`systemd-run --user --scope --property=Delegate=yes sh` starts a shell whose \
                     runs can have limits",
                )
            } else {
                failure
            }
        })
    }

    /// Returns the directories of the control groups.
    pub fn groups(&self) -> &[PathBuf] {
        self.0.as_ref().map_or(&[], Groups::directories)
    }

    /// Says which limits the run has reached, and removes the control groups.
    pub fn end(self) {
        let Some(groups) = self.0 else { return };
        let Reached { killed, forks } = groups.reached();
        if killed > 0 {
            let processes = if killed == 1 { "process" } else { "processes" };
            say(&format!("at the limit of memory the kernel killed {killed} {processes}"));
        }
        if forks > 0 {
            let times = if forks == 1 { "once" } else { "again and again" };
            say(&format!("at the limit of processes a fork failed {times}"));
        }
        say_left(&groups.remove());
    }
}

/// Returns whether systemd may give a user control groups: systemd runs, and all controllers are of
/// version 2.
fn is_delegated_by_systemd() -> bool {
    systemd::is_running() && Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}
