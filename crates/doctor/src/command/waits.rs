//! Counts and waits of the syncs, in all and by group.

use super::tally::{CallTally, Dropped, Slowest, SyncGroup};
use serde::Serialize;

/// The syncs of a command.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    /// The number of timed syncs.
    pub calls: u64,
    /// How many of these failed.
    pub failed: u64,
    /// The sum of all waits, in seconds. Waits at the same time do not add up to the time of the
    /// command.
    pub seconds: f64,
    /// Seconds in which at least one sync was waited for that `synconce run` holds.
    pub covered: f64,
    /// The bytes that the syncs had to write, as far as the kernel said.
    pub bytes: u64,
    /// How many syncs the kernel gave the bytes of.
    pub bytes_known_of: u64,
    /// By system call.
    pub by_call: Vec<SyncGroup>,
    /// By program.
    pub by_program: Vec<SyncGroup>,
    /// By directory of the file.
    pub by_directory: Vec<SyncGroup>,
    /// Syncs of programs that are not among `by_program`.
    pub dropped_programs: Option<Dropped>,
    /// Syncs in directories that are not among `by_directory`.
    pub dropped_directories: Option<Dropped>,
    /// The longest waits.
    pub slowest: Vec<Slowest>,
}

impl Waits {
    pub(super) fn from_tally(tally: &CallTally) -> Self {
        let (by_program, dropped_programs) = tally.by_program.sorted();
        let (by_directory, dropped_directories) = tally.by_directory.sorted();
        Self {
            calls: tally.timed.calls,
            failed: tally.failed,
            seconds: tally.timed.seconds,
            covered: tally.held.covered.seconds(),
            bytes: tally.bytes,
            bytes_known_of: tally.bytes_known_of,
            by_call: tally.by_call.sorted().0,
            by_program,
            by_directory,
            dropped_programs,
            dropped_directories,
            slowest: tally.slowest.clone(),
        }
    }
}

/// Calls that sync, or can make later writes sync, and were left to the kernel untimed.
#[derive(Clone, Debug, Serialize)]
pub struct NotCovered {
    /// The system call.
    pub call: String,
    /// How many.
    pub calls: u64,
    /// The program of the first.
    pub program: String,
    /// The file of the first.
    pub file: Option<String>,
    /// What of the command has no time because of these calls.
    pub what: &'static str,
    /// Whether `synconce run` takes the syncs away.
    pub is_held: bool,
}

impl NotCovered {
    pub(super) fn from_tally(tally: &CallTally) -> Vec<Self> {
        let kinds = tally.untimed.iter().map(|(call, untimed)| Self {
            call: call.clone(),
            calls: untimed.calls,
            program: untimed.program.clone(),
            file: untimed.file.clone(),
            what: what(call),
            is_held: untimed.is_held,
        });
        kinds.collect()
    }
}

/// Calls of which the caller's file is out of reach.
pub(super) const UNEXAMINED: &str = "calls whose caller could not be examined";

/// Returns what has no time because of a call.
fn what(call: &str) -> &'static str {
    match call {
        "open" | "openat" | "openat2" | "open_by_handle_at" => {
            "writes to files that were opened with O_SYNC or O_DSYNC"
        }
        "preadv2" | "pwritev2" => "transfers with RWF_SYNC or RWF_DSYNC",
        "io_submit" => "syncs among requests of aio",
        "io_uring_setup" => "syncs through io_uring",
        "msync" => "syncs of mapped memory",
        "umount2" => "the sync at the end of a mount",
        "ioctl" => "syncs by ioctl, such as a freeze",
        "quotactl" | "quotactl_fd" => "syncs of quotas",
        "seccomp" | "prctl" => "a filter of the program's own, which may work otherwise here",
        _ => UNEXAMINED,
    }
}
