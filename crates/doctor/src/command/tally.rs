//! Sums over the calls of a command, in bounded memory for any number of calls.

use super::entries::{RecordedCall, Would};
use super::spread::{Covered, Slope, Spread};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What is known about the calls so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CallTally {
    /// Timed syncs.
    pub timed: Sums,
    pub failed: u64,
    pub bytes: u64,
    pub bytes_known_of: u64,
    pub by_call: Groups,
    pub by_program: Groups,
    pub by_directory: Groups,
    /// Syncs by dpkg of files that only people read, such as documentation.
    pub unread: Sums,
    /// The longest waits, the longest first.
    pub slowest: Vec<Slowest>,
    /// Syncs that `synconce run` would hold.
    pub held: Held,
    /// Calls that were left to the kernel, by their name.
    pub untimed: BTreeMap<String, Untimed>,
    /// When the last call ended, in seconds.
    pub last: f64,
}

/// Syncs with something in common.
#[derive(Clone, Debug, Serialize)]
pub struct SyncGroup {
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

/// Syncs whose group was dropped, because there were too many groups to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dropped {
    /// How many.
    pub calls: u64,
    /// The sum of their waits.
    pub seconds: f64,
}

/// One long wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
const SLOWEST: usize = 20;
/// The most names of system calls that are kept. A record that synconce wrote has fewer.
const CALLS: usize = 100;

/// A number of syncs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sums {
    pub calls: u64,
    pub seconds: f64,
    pub spread: Spread,
}

/// The syncs that `synconce run` would hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Held {
    pub calls: u64,
    pub covered: Covered,
    /// The waits, except those of sync_file_range(2), which only starts writes.
    pub waits: Spread,
    pub slope: Slope,
    /// Bytes of sync_file_range(2).
    pub started: u64,
    /// Bytes of all other syncs.
    pub synced: u64,
    /// Seconds of the longest sync of a whole file system.
    pub whole: f64,
}

/// Calls of one name that were left to the kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Untimed {
    pub calls: u64,
    /// The program of the first of these calls.
    pub program: String,
    /// The file of the first of these calls.
    pub file: Option<String>,
    pub is_held: bool,
}

impl CallTally {
    pub fn add(&mut self, call: RecordedCall) {
        self.last = self.last.max(call.at as f64 / 1e6 + call.seconds());
        let Some(wait) = call.wait else {
            return self.add_untimed(call);
        };
        self.timed.add(wait);
        self.failed += u64::from(call.errno.is_some());
        self.bytes = self.bytes.saturating_add(call.bytes.unwrap_or(0));
        self.bytes_known_of += u64::from(call.bytes.is_some());
        self.by_call.add(&call.call, wait);
        self.by_program.add(&call.program, wait);
        if let Some(directory) = directory(&call) {
            self.by_directory.add(&directory, wait);
        }
        if call.program == "dpkg" && call.file.as_deref().is_some_and(is_unread) {
            self.unread.add(wait);
        }
        if call.would == Would::Hold {
            self.held.add(&call, wait);
        }
        let at = self.slowest.partition_point(|slow| slow.seconds >= call.seconds());
        if at < SLOWEST {
            self.slowest.insert(at, Slowest::from_call(call));
            self.slowest.truncate(SLOWEST);
        }
    }

    fn add_untimed(&mut self, call: RecordedCall) {
        if self.untimed.len() >= CALLS && !self.untimed.contains_key(&call.call) {
            return;
        }
        let RecordedCall { call, program, file, would, .. } = call;
        let first = || Untimed { calls: 0, program, file, is_held: false };
        let untimed = self.untimed.entry(call).or_insert_with(first);
        untimed.calls += 1;
        untimed.is_held |= would != Would::Pass;
    }
}

/// Returns the directory of the file. Pipes and sockets have names without a directory.
fn directory(call: &RecordedCall) -> Option<String> {
    let file = Path::new(call.file.as_ref()?);
    let parent = file.parent().filter(|_| file.is_absolute())?;
    Some(parent.display().to_string())
}

impl Sums {
    pub(super) fn add(&mut self, wait: u64) {
        self.calls += 1;
        self.seconds += wait as f64 / 1e9;
        self.spread.add(wait);
    }
}

impl Held {
    fn add(&mut self, call: &RecordedCall, wait: u64) {
        self.calls += 1;
        self.covered.add(call.at.saturating_mul(1_000), wait);
        let bytes = call.bytes.unwrap_or(0);
        // A sync_file_range(2) starts writes, and the fsync(2) that follows finds the same bytes.
        if call.call == "sync_file_range" {
            self.started = self.started.saturating_add(bytes);
            return;
        }
        self.synced = self.synced.saturating_add(bytes);
        self.waits.add(wait);
        if let Some(bytes) = call.bytes {
            self.slope.add(bytes as f64, call.seconds());
        }
        if matches!(&*call.call, "sync" | "syncfs") {
            self.whole = self.whole.max(call.seconds());
        }
    }
}

/// Sums of syncs by name: of the call, the program or the directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Groups {
    kept: BTreeMap<String, Sums>,
    dropped: Option<Dropped>,
}

/// The number of groups that are kept. At twice this number, the groups with the shortest waits are
/// dropped.
pub(super) const KEPT: usize = 1_000;

impl Groups {
    fn add(&mut self, name: &str, wait: u64) {
        if let Some(sums) = self.kept.get_mut(name) {
            return sums.add(wait);
        }
        if self.kept.len() >= 2 * KEPT {
            self.drop_the_least();
        }
        self.kept.entry(name.to_owned()).or_default().add(wait);
    }

    fn drop_the_least(&mut self) {
        let mut all: Vec<_> = std::mem::take(&mut self.kept).into_iter().collect();
        all.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        let dropped = self.dropped.get_or_insert_default();
        for (_, sums) in all.drain(KEPT..) {
            dropped.calls += sums.calls;
            dropped.seconds += sums.seconds;
        }
        self.kept = all.into_iter().collect();
    }

    /// Returns the groups, the longest waits first, and what was dropped.
    pub fn sorted(&self) -> (Vec<SyncGroup>, Option<Dropped>) {
        let group = |(name, sums): (&String, &Sums)| SyncGroup {
            name: name.clone(),
            calls: sums.calls,
            seconds: sums.seconds,
            median: sums.spread.median(),
            p99: sums.spread.p99(),
        };
        let mut groups: Vec<_> = self.kept.iter().map(group).collect();
        groups.sort_by(|one, other| {
            other.seconds.total_cmp(&one.seconds).then_with(|| one.name.cmp(&other.name))
        });
        (groups, self.dropped)
    }
}

impl Slowest {
    pub(super) fn from_call(call: RecordedCall) -> Self {
        let seconds = call.seconds();
        let RecordedCall { call, file, program, process, ancestry, bytes, .. } = call;
        Self { call, file, program, process, ancestry, bytes, seconds }
    }

    /// Returns the program and what started it.
    pub(crate) fn line(&self) -> String {
        let line: Vec<_> = std::iter::once(&self.program).chain(&self.ancestry).cloned().collect();
        line.join(" < ")
    }
}

/// Directories of /usr/share with files that only people read.
const UNREAD: [&str; 4] = ["doc", "info", "locale", "man"];

/// Whether a file of a package is documentation, a manual page or a translation. Licence
/// texts do not count.
pub(super) fn is_unread(file: &str) -> bool {
    let Some((_, below)) = file.rsplit_once("/usr/share/") else { return false };
    let is_licence = Path::new(below)
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("copyright"));
    let directory = below.split_once('/').map_or("", |(directory, _)| directory);
    UNREAD.contains(&directory) && !is_licence
}
