//! Counts and waits of the syncs, in all and by group.

use super::record::{Call, Record, Would};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

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
    pub by_call: Vec<Group>,
    /// By program.
    pub by_program: Vec<Group>,
    /// By directory of the file.
    pub by_directory: Vec<Group>,
    /// The longest waits.
    pub slowest: Vec<Slowest>,
}

/// Syncs with something in common.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The call, program or directory.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// The sum of their waits.
    pub seconds: f64,
    /// Their median wait in seconds.
    pub median: f64,
    /// The 99th percentile of their waits in seconds.
    pub p99: f64,
}

/// One long wait.
#[derive(Clone, Debug, Serialize)]
pub struct Slowest {
    /// The system call.
    pub call: String,
    /// The file.
    pub file: Option<String>,
    /// The program.
    pub program: String,
    /// Its process.
    pub process: u32,
    /// Names of its ancestors up to the command, nearest first.
    pub ancestry: Vec<String>,
    /// The bytes of the file that were not on the disk.
    pub bytes: Option<u64>,
    /// The wait in seconds.
    pub seconds: f64,
}

/// How many of the longest waits are kept.
const SLOWEST: usize = 5;

impl Waits {
    pub(super) fn of(record: &Record) -> Self {
        let timed = || record.calls.iter().filter(|call| call.is_timed());
        let mut slowest: Vec<_> = timed().collect();
        slowest.sort_by_key(|call| std::cmp::Reverse(call.wait));
        slowest.truncate(SLOWEST);
        let directory = |call: &Call| {
            // Pipes and sockets have names without a directory.
            let file = Path::new(call.file.as_ref()?);
            let parent = file.parent().filter(|_| file.is_absolute())?;
            Some(parent.display().to_string())
        };
        Self {
            calls: timed().count() as u64,
            failed: timed().filter(|call| call.errno.is_some()).count() as u64,
            seconds: timed().map(Call::seconds).sum(),
            covered: union(timed().filter(|call| call.is_saved())),
            bytes: timed().filter_map(|call| call.bytes).sum(),
            bytes_known_of: timed().filter(|call| call.bytes.is_some()).count() as u64,
            by_call: groups(record, |call| Some(call.call.clone())),
            by_program: groups(record, |call| Some(call.program.clone())),
            by_directory: groups(record, directory),
            slowest: slowest.into_iter().map(Slowest::of).collect(),
        }
    }
}

impl Slowest {
    fn of(call: &Call) -> Self {
        Self {
            call: call.call.clone(),
            file: call.file.clone(),
            program: call.program.clone(),
            process: call.process,
            ancestry: call.ancestry.clone(),
            bytes: call.bytes,
            seconds: call.seconds(),
        }
    }
}

/// Returns the seconds in which at least one of `calls` was in progress.
fn union<'a>(calls: impl Iterator<Item = &'a Call>) -> f64 {
    let mut spans: Vec<_> = calls.map(|call| (call.at as f64 / 1e6, call.seconds())).collect();
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut sum, mut reached) = (0.0, 0.0_f64);
    for (begin, wait) in spans {
        let end = begin + wait;
        sum += (end - begin.max(reached)).max(0.0);
        reached = reached.max(end);
    }
    sum
}

/// Returns the groups by `key`, the longest waits first.
fn groups(record: &Record, key: impl Fn(&Call) -> Option<String>) -> Vec<Group> {
    let groups = record.by(key).into_iter().map(|(name, calls)| {
        let mut waits: Vec<f64> = calls.iter().map(|call| call.seconds()).collect();
        waits.sort_by(f64::total_cmp);
        Group {
            name,
            calls: calls.len() as u64,
            seconds: waits.iter().sum(),
            median: waits[waits.len() / 2],
            p99: waits[(waits.len() * 99).div_ceil(100) - 1],
        }
    });
    let mut groups: Vec<_> = groups.collect();
    groups.sort_by(|one, other| {
        other.seconds.total_cmp(&one.seconds).then_with(|| one.name.cmp(&other.name))
    });
    groups
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
    pub(super) fn of(record: &Record) -> Vec<Self> {
        let mut kinds: BTreeMap<&str, Self> = BTreeMap::new();
        for call in record.calls.iter().filter(|call| !call.is_timed()) {
            let what = what(&call.call);
            let kind = kinds.entry(&call.call).or_insert_with(|| Self {
                call: call.call.clone(),
                calls: 0,
                program: call.program.clone(),
                file: call.file.clone(),
                what,
                is_held: false,
            });
            kind.calls += 1;
            kind.is_held |= call.would != Would::Pass;
        }
        kinds.into_values().collect()
    }
}

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
        _ => "calls whose caller could not be examined",
    }
}
