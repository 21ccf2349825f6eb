//! What a run saved and what it cost.
//!
//! The syncs of the run's own marker are the measure of the disk: each makes a small change
//! durable, as most held calls would have. Nothing else is written or synced to measure.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;
use synconce_filter::{Call, CallProperty};
use synconce_probe::mounts::DeviceId;

/// The single syncs of one marker on a disk.
#[derive(Debug)]
pub(crate) struct MarkerSyncs {
    /// The file system of the marker.
    pub device: Option<DeviceId>,
    pub times: Vec<Duration>,
}

/// Held calls that would each have waited for a disk, by file system; `None` for sync(), which
/// waits for all of them.
#[derive(Debug, Default)]
pub(crate) struct HeldSyncs(HashMap<Option<DeviceId>, u64>);

impl HeldSyncs {
    /// Counts a held `call` on `device`, if the call would have waited for the disk. A start of
    /// writes (sync_file_range) and an open with `O_SYNC` wait for no flush.
    pub(crate) fn count(&mut self, call: Call, device: Option<DeviceId>) {
        if call.is(CallProperty::Waits) {
            *self.0.entry(device).or_default() += 1;
        }
    }

    /// Undoes a `count`.
    pub(crate) fn take_back(&mut self, call: Call, device: Option<DeviceId>) {
        let count = self.0.get_mut(&device).filter(|_| call.is(CallProperty::Waits));
        if let Some(count) = count {
            *count = count.saturating_sub(1);
        }
    }
}

/// What a run saved and what it cost. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Held calls that would each have waited for a disk.
    pub syncs: u64,
    /// The calls of `syncs` on the file system of the marker, whose sync time is known.
    pub timed: u64,
    /// The shortest and the longest sync of the marker.
    pub sync_micros: Option<[u64; 2]>,
    /// The time that the markers took to become durable, and to be removed.
    pub marker_micros: u64,
    /// The wall time of the checkpoints, before the commit at the end.
    pub checkpoint_micros: u64,
    /// The processor time of the supervisor.
    pub supervisor_micros: u64,
}

impl Balance {
    /// Returns the balance of a run whose `markers` took the time `cost`.
    pub(crate) fn from_held(held: &HeldSyncs, markers: &[MarkerSyncs], cost: Duration) -> Self {
        let of_device = |device: &Option<DeviceId>| {
            let mut on_it = markers.iter().filter(|marker| marker.device == *device);
            device.is_none() || on_it.any(|marker| !marker.times.is_empty())
        };
        let on_measured = held.0.iter().filter(|(device, _)| of_device(device));
        let measured = |marker: &&MarkerSyncs| held.0.contains_key(&marker.device);
        let mut times: Vec<_> = if markers.iter().any(|marker| measured(&marker)) {
            markers.iter().filter(measured).flat_map(|marker| &marker.times).collect()
        } else {
            // sync() waits for the disk of the marker, too.
            markers.iter().flat_map(|marker| &marker.times).collect()
        };
        times.sort_unstable();
        let micros = |time: &&Duration| time.as_micros() as u64;
        let ends = times.first().zip(times.last());
        let sync_micros = ends.map(|(shortest, longest)| [micros(shortest), micros(longest)]);
        Self {
            syncs: held.0.values().sum(),
            timed: sync_micros.map_or(0, |_| on_measured.map(|(_, count)| count).sum()),
            sync_micros,
            marker_micros: cost.as_micros() as u64,
            supervisor_micros: processor_micros(),
            ..Self::default()
        }
    }

    /// Returns the shortest and the longest time that the timed syncs would have taken, one by one.
    /// The longest time is the shortest sync of the marker for each call: a longer sync has also
    /// written data of other programs, which happens once in a row of syncs. The sync of the marker
    /// writes the journal and waits for two flushes of the disk
    /// (`jbd2_journal_commit_transaction`). The shortest time is half of that: a sync without new
    /// blocks waits for one flush (`ext4_sync_file`, `xfs_file_fsync`).
    pub fn waited_micros(&self) -> Option<[u64; 2]> {
        let [shortest, _] = self.sync_micros.filter(|_| self.timed > 0)?;
        let most = shortest.saturating_mul(self.timed);
        Some([most / 2, most])
    }

    /// Returns what the run took for its own work: `commit` at its end, checkpoints, markers and
    /// the supervisor, which works while callers wait.
    pub fn cost_micros(&self, commit: u64) -> u64 {
        let own = self.checkpoint_micros + self.marker_micros + self.supervisor_micros;
        own.saturating_add(commit)
    }

    /// Returns the time of `waited_micros` less that of `cost_micros`.
    pub fn saved_micros(&self, commit: u64) -> Option<[u64; 2]> {
        let cost = self.cost_micros(commit);
        self.waited_micros().map(|ends| ends.map(|end| end.saturating_sub(cost)))
    }
}

/// Returns the processor time of this process.
fn processor_micros() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(used).map_or(0, |used| used.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(minor: u32) -> Option<DeviceId> {
        Some(DeviceId { major: 8, minor })
    }

    fn marker(minor: u32, millis: &[u64]) -> MarkerSyncs {
        let times = millis.iter().map(|count| Duration::from_millis(*count)).collect();
        MarkerSyncs { device: on(minor), times }
    }

    #[test]
    fn only_syncs_on_the_file_system_of_the_marker_have_a_known_time() {
        let mut held = HeldSyncs::default();
        for device in [on(1), on(1), on(2), None] {
            held.count(Call::Fsync, device);
        }
        held.count(Call::SyncFileRange, on(1));
        held.count(Call::Fdatasync, on(1));
        held.take_back(Call::Fdatasync, on(1));
        let balance =
            Balance::from_held(&held, &[marker(1, &[9, 8, 20])], Duration::from_millis(50));
        assert_eq!((balance.syncs, balance.timed), (4, 3), "those of the disk, and sync()");
        assert_eq!(balance.sync_micros, Some([8_000, 20_000]));
        assert_eq!(balance.waited_micros(), Some([12_000, 24_000]));
        assert_eq!(balance.marker_micros, 50_000);
    }

    #[test]
    fn without_a_marker_on_that_disk_no_time_is_known() {
        let mut held = HeldSyncs::default();
        held.count(Call::Fsync, on(1));
        for markers in [vec![], vec![marker(3, &[1])], vec![marker(1, &[])]] {
            let balance = Balance::from_held(&held, &markers, Duration::ZERO);
            assert_eq!((balance.syncs, balance.saved_micros(0)), (1, None), "{markers:?}");
        }
    }

    #[test]
    fn what_was_saved_is_less_the_cost_of_the_run() {
        let balance = Balance {
            syncs: 100,
            timed: 100,
            sync_micros: Some([1_000, 9_000]),
            marker_micros: 8_000,
            checkpoint_micros: 2_000,
            supervisor_micros: 10_000,
        };
        assert_eq!(balance.cost_micros(5_000), 25_000);
        assert_eq!(balance.saved_micros(5_000), Some([25_000, 75_000]));
        assert_eq!(balance.saved_micros(60_000), Some([0, 20_000]), "at most that");
        assert_eq!(balance.saved_micros(1 << 40), Some([0, 0]));
    }
}
