//! The progress of devices, and the amount of dirty data.

mod below;

use crate::mounts::DeviceId;
use crate::version;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

// Field indexes of Documentation/block/stat.rst, from 0.
const WRITES: usize = 4;
const IN_FLIGHT: usize = 8;
const DISCARDS: usize = 11;
/// Reads, writes, discards and flushes.
const COMPLETED: [usize; 4] = [0, WRITES, DISCARDS, 15];
/// Sectors that were read, written and discarded.
const TRANSFERRED: [usize; 3] = [2, 6, 13];

/// Returns the number of bytes in the host's page cache that are dirty or being written back
/// (`/proc/meminfo`), or 0 if it cannot be read.
pub fn dirty_bytes() -> u64 {
    dirty_in(&text_of("/proc/meminfo"))
}

fn dirty_in(meminfo: &str) -> u64 {
    let kib = |name: &str| {
        meminfo
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok()
            })
            .unwrap_or(0)
    };
    (kib("Dirty:") + kib("Writeback:")) * 1024
}

/// Returns a number that changes while the file system `device` on `source` is being written: the
/// transferred sectors of its block devices, and of the disks below the files of loop devices with
/// pending requests. Flushes do not count: each sync(2) on the host flushes the disk even of a
/// frozen file system. If no block device is known (zfs, overlay), or the kernel keeps no counts of
/// one, the number is the host's dirty bytes.
pub fn movement(device: DeviceId, source: &str) -> u64 {
    below::Sample::new().movement_of_file_system(device, source)
}

/// Returns the device number of the block device at the path `source`.
fn block_device(source: impl AsRef<Path>) -> Option<DeviceId> {
    let meta = std::fs::metadata(source).ok().filter(|meta| meta.file_type().is_block_device())?;
    let rdev = meta.rdev();
    Some(DeviceId { major: rustix::fs::major(rdev), minor: rustix::fs::minor(rdev) })
}

/// Returns the number of sectors that were read, written and discarded, from
/// `/sys/dev/block/M:m/stat`.
fn transferred(device: DeviceId) -> Option<u64> {
    let fields = numbers(&attribute(device, "stat")?);
    Some(TRANSFERRED.iter().filter_map(|at| fields.get(*at)).sum())
}

/// Whether `device` has pending requests, as far as the kernel counts them.
fn may_be_busy(device: DeviceId) -> bool {
    let fields = attribute(device, "stat").map(|text| numbers(&text));
    let requests = fields.and_then(|fields| fields.get(IN_FLIGHT).copied());
    requests != Some(0) || !is_counted(device) || !counts_pending_flushes()
}

/// Whether a flush is among the pending requests of a disk until it ends (Linux 6.10).
fn counts_pending_flushes() -> bool {
    let names = rustix::system::uname();
    version::numbers(&names.release().to_string_lossy()).is_some_and(|linux| linux >= (6, 10))
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// The progress of this machine's disks, from one sample to the next.
#[derive(Debug, Default)]
pub struct Disks {
    looks: u64,
    /// The completed requests of each disk, and the sample in which it last made progress.
    seen: BTreeMap<DeviceId, (u64, u64)>,
    slowest: u64,
    low: Option<u64>,
    steps: u64,
    /// The disks with pending requests, and the sample in which each last made progress.
    busy: Vec<(DeviceId, u64)>,
    /// The sample in which the number of steps last changed.
    last_step: u64,
}

impl Disks {
    /// Returns a number that changes while every disk with pending requests completes requests. A
    /// loop device also makes progress while the disk below its file does. The number changes, too,
    /// when the host's dirty bytes reach a new minimum, for file systems without a disk. A single
    /// disk that hangs keeps the number constant, once the dirty bytes fall no further.
    pub fn movement(&mut self) -> u64 {
        let text = diskstats();
        let sample = below::Sample::new();
        self.look(&text, dirty_bytes(), |disk| sample.movement_below(disk))
    }

    /// Returns the device files of the disks with pending requests that have completed none
    /// since the number of [`Disks::movement`] last changed.
    pub fn hanging(&self) -> Vec<PathBuf> {
        let name = |device| node(device).unwrap_or_else(|| device.to_string().into());
        let hanging = self.hanging_devices();
        hanging.into_iter().filter(|device| !is_partition(*device)).map(name).collect()
    }

    fn hanging_devices(&self) -> Vec<DeviceId> {
        let hanging = self.busy.iter().filter(|(_, moved)| *moved <= self.last_step);
        hanging.map(|(device, _)| *device).collect()
    }

    /// `movement_below` is asked for disks with pending requests.
    fn look(
        &mut self,
        diskstats: &str,
        dirty: u64,
        movement_below: impl Fn(DeviceId) -> u64,
    ) -> u64 {
        self.looks += 1;
        self.busy.clear();
        for (device, fields) in diskstats.lines().filter_map(disk) {
            let is_busy = fields.get(IN_FLIGHT).is_some_and(|requests| *requests > 0);
            let below = if is_busy { movement_below(device) } else { 0 };
            let done: u64 = COMPLETED.iter().filter_map(|at| fields.get(*at)).sum();
            let done = done.wrapping_add(below);
            let still = self.seen.get(&device).filter(|last| is_busy && last.0 == done);
            let moved = still.map_or(self.looks, |last| last.1);
            self.seen.insert(device, (done, moved));
            self.busy.extend(is_busy.then_some((device, moved)));
        }
        let slowest = self.busy.iter().map(|(_, moved)| *moved).min().unwrap_or(self.slowest);
        let is_low = self.low.is_none_or(|low| dirty < low);
        if is_low {
            self.low = Some(dirty);
        }
        if is_low || slowest != self.slowest {
            self.slowest = slowest;
            self.steps += 1;
            self.last_step = self.looks;
        }
        self.steps
    }
}

/// Parses a line of `/proc/diskstats` into the disk and its fields
/// (Documentation/admin-guide/iostats.rst).
fn disk(line: &str) -> Option<(DeviceId, Vec<u64>)> {
    let mut words = line.split_whitespace();
    let device =
        DeviceId { major: words.next()?.parse().ok()?, minor: words.next()?.parse().ok()? };
    let _name = words.next()?;
    Some((device, words.map_while(|word| word.parse().ok()).collect()))
}

/// The number of completed writes and discards of each whole disk of this machine. Requests to
/// a partition count for its disk. Stores the text of `/proc/diskstats` and parses it only for
/// a comparison, because most runs never compare.
#[derive(Clone, Debug, Default)]
pub struct Writes(String);

impl Writes {
    /// Returns the current counts; none if neither /proc nor /sys has them.
    pub fn now() -> Self {
        Self(diskstats())
    }

    fn counts(&self) -> BTreeMap<DeviceId, u64> {
        let count = |(device, fields): (DeviceId, Vec<u64>)| {
            Some((device, fields.get(WRITES)? + fields.get(DISCARDS).unwrap_or(&0)))
        };
        self.0.lines().filter_map(disk).filter_map(count).collect()
    }

    /// Returns the whole disks that have completed more writes than in `earlier`, and those
    /// for which the kernel keeps no counts.
    pub fn disks_written_since(&self, earlier: &Self) -> Vec<DeviceId> {
        let (now, earlier) = (self.counts(), earlier.counts());
        let before = |device| earlier.get(device).copied().unwrap_or(0);
        let changed = now.iter().filter(|(device, count)| before(device) != **count);
        let changed = changed.map(|(device, _)| *device);
        let silent = now.keys().copied().filter(|device| !is_counted(*device));
        let mut disks: Vec<DeviceId> =
            changed.chain(silent).filter(|d| !is_partition(*d)).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    }
}

/// Returns the text of `/proc/diskstats`. A /proc of processes only (`subset=pid`, proc(5)) has no
/// such file; then the same numbers come from /sys.
fn diskstats() -> String {
    let text = text_of("/proc/diskstats");
    if text.is_empty() { diskstats_of_sysfs() } else { text }
}

fn diskstats_of_sysfs() -> String {
    let disks = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let line = |disk: std::fs::DirEntry| {
        let number = std::fs::read_to_string(disk.path().join("dev")).ok()?;
        let numbers = std::fs::read_to_string(disk.path().join("stat")).ok()?;
        let name = disk.file_name();
        Some(format!("{} {} {numbers}", number.trim().replace(':', " "), name.display()))
    };
    disks.filter_map(line).collect()
}

/// Returns the text of a file in `/proc`, or an empty text if it cannot be read. Its size is
/// not known before; with enough space for the whole text one read(2) suffices.
fn text_of(path: &str) -> String {
    let mut text = String::with_capacity(32 << 10);
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_or_else(|_| String::new(), |_| text)
}

fn attribute(device: DeviceId, name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/dev/block/{device}/{name}")).ok()
}

fn is_partition(device: DeviceId) -> bool {
    attribute(device, "partition").is_some()
}

/// Whether the kernel counts the requests of `device` (`queue/iostats` in sysfs). A disk
/// without a size, such as a loop device without a file, has no requests to count.
fn is_counted(device: DeviceId) -> bool {
    let is = |name, value: &str| attribute(device, name).is_some_and(|text| text.trim() == value);
    !is("queue/iostats", "0") || is("size", "0")
}

/// Returns a text that changes when the disk `device` is replaced, such as a loop device that
/// gets another file (`diskseq` in sysfs, Linux 5.15). Returns `None` if the disk is gone or
/// unknown.
pub fn identity(device: DeviceId) -> Option<String> {
    attribute(device, "size").filter(|size| size.trim() != "0")?;
    Some(attribute(device, "diskseq").unwrap_or_default())
}

/// Returns the kernel's name of the block device `device`: drivers name their directories in sysfs
/// and /proc after it.
pub fn name(device: DeviceId) -> Option<OsString> {
    let link = std::fs::read_link(format!("/sys/dev/block/{device}")).ok()?;
    link.file_name().map(ToOwned::to_owned)
}

/// Returns the device file of the block device `device`. devtmpfs names it after the kernel's
/// `uevent`; without sysfs, `/dev` itself is searched. Returns `None` if `/dev` has none.
pub fn node(device: DeviceId) -> Option<PathBuf> {
    let is_its = |path: &PathBuf| block_device(path) == Some(device);
    let Some(text) = attribute(device, "uevent") else {
        let entries = std::fs::read_dir("/dev").ok()?.flatten();
        return entries.map(|entry| entry.path()).find(is_its);
    };
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name)).filter(is_its)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "   7       0 loop0 5 0 0 0 1 0 0 0 0 0 0 2 0 0 0 0 0\n\
        \x20254       0 vda 9 1 2 3 40 5 6 7 0 8 9 0 0 0 0 1 2\nnonsense\n";

    #[test]
    fn a_disk_is_written_when_it_has_completed_a_write_or_a_discard() {
        let before = Writes(BEFORE.to_owned());
        let loop0 = DeviceId { major: 7, minor: 0 };
        assert_eq!(before.counts().len(), 2);
        assert_eq!(before.counts()[&loop0], 3);
        let reads = Writes(BEFORE.replace("loop0 5", "loop0 6"));
        assert_eq!(reads.counts(), before.counts());
        for (old, new) in [("loop0 5 0 0 0 1", "loop0 5 0 0 0 2"), ("0 2 0 0", "0 3 0 0")] {
            let after = Writes(BEFORE.replace(old, new));
            assert!(after.disks_written_since(&before).contains(&loop0), "{new}");
        }
        let counted = before.disks_written_since(&before);
        assert!(!counted.contains(&loop0), "{counted:?}");
        assert!(before.disks_written_since(&Writes::default()).contains(&loop0), "a new disk");
    }

    #[test]
    fn sysfs_has_the_disks_and_the_counts_of_proc() {
        let proc = Writes::now();
        let sysfs = Writes(diskstats_of_sysfs());
        assert_eq!(sysfs.counts().len(), sysfs.0.lines().count(), "{}", sysfs.0);
        for (device, count) in proc.counts() {
            // A loop device of another test may be gone.
            let later = sysfs.counts().get(&device).copied();
            assert!(later.is_none_or(|later| later >= count), "{device}: {count} {later:?}");
        }
        assert!(proc.counts().keys().any(|device| sysfs.counts().contains_key(device)));
    }

    #[test]
    fn disks_get_on_until_one_with_requests_completes_none() {
        let line =
            |disk, done, in_flight| format!("8 {disk} sd 0 0 0 0 {done} 0 0 0 {in_flight}\n");
        let none = |_| 0;
        let mut disks = Disks::default();
        let first = disks.look(&(line(0, 1, 1) + &line(16, 1, 1)), 100, none);
        let both = disks.look(&(line(0, 2, 1) + &line(16, 2, 1)), 100, none);
        assert_ne!(both, first, "both go on");
        let one = disks.look(&(line(0, 3, 1) + &line(16, 2, 1)), 100, none);
        assert_eq!(one, both, "one hangs");
        assert_eq!(disks.hanging_devices(), [DeviceId { major: 8, minor: 16 }]);
        let mut look = |text: String, dirty| disks.look(&text, dirty, none);
        assert_eq!(
            look(line(0, 3, 0) + &line(16, 2, 1), 200),
            both,
            "the other one has nothing to do"
        );
        let less = look(line(0, 4, 1) + &line(16, 2, 1), 99);
        assert_ne!(less, both, "fewer dirty bytes");
        assert_eq!(look(line(0, 5, 1) + &line(16, 2, 1), 99), less);
        assert_ne!(look(line(0, 6, 1) + &line(16, 3, 1), 99), less, "it goes on");
    }

    #[test]
    fn a_disk_gets_on_while_the_one_below_it_does() {
        let flushing = "7 0 loop0 0 0 0 0 5 0 0 0 1\n";
        let mut disks = Disks::default();
        let mut look = |below| disks.look(flushing, 100, |_| below);
        let first = look(7);
        assert_ne!(look(8), first);
        assert_eq!(look(8), look(8), "both hang");
    }

    #[test]
    fn dirty_and_writeback_are_added_up_in_bytes() {
        let text = "MemFree: 5 kB\nDirty:       12 kB\nWriteback:     3 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(dirty_in(text), 15 * 1024);
        assert_eq!(dirty_in(""), 0);
    }
}
