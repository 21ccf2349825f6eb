//! Block devices: their write caches, and the kernel's counts of flushes.

use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_probe::mounts::DeviceId;

/// Fields of Documentation/block/stat.rst, from 0 (Linux 5.5).
const FLUSHES: usize = 15;
const FLUSH_MILLISECONDS: usize = 16;

/// A block device that gets flushes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The kernel's name, such as `nvme0n1`.
    pub name: String,
    /// `write back`: the kernel flushes the device's cache. `write through`: the device says
    /// that written data are durable, and no flush is sent.
    pub write_cache: Option<String>,
    /// Whether the device says that it has rotating disks.
    pub rotational: Option<bool>,
    #[serde(skip)]
    directory: PathBuf,
}

impl Device {
    fn read(directory: &Path) -> Option<Self> {
        let name = directory.file_name()?.to_string_lossy().into_owned();
        let attribute = |name| {
            let text = fs::read_to_string(directory.join("queue").join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let rotational = attribute("rotational").map(|text| text == "1");
        let directory = directory.to_owned();
        Some(Self { name, write_cache: attribute("write_cache"), rotational, directory })
    }

    /// Returns the number of the flushes that the device has completed, and their time.
    fn flushes(&self) -> Option<FlushCount> {
        FlushCount::parse(&fs::read_to_string(self.directory.join("stat")).ok()?)
    }

    /// Returns a device that does not exist.
    #[cfg(test)]
    pub(crate) fn made(write_cache: &str) -> Self {
        let write_cache = Some(write_cache.to_owned());
        Self { name: "vdb".to_owned(), write_cache, rotational: None, directory: PathBuf::new() }
    }

    /// Whether the kernel flushes a cache of the device.
    pub(crate) fn is_write_back(&self) -> bool {
        self.write_cache.as_deref() == Some("write back")
    }
}

/// The flushes of devices since the boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushCount {
    pub flushes: u64,
    pub time: Duration,
}

impl FlushCount {
    fn parse(stat: &str) -> Option<Self> {
        let field = |at| stat.split_whitespace().nth(at)?.parse::<u64>().ok();
        let (flushes, time) = (field(FLUSHES)?, Duration::from_millis(field(FLUSH_MILLISECONDS)?));
        Some(Self { flushes, time })
    }

    /// Returns the sum for `devices`; `None` if the kernel does not count the flushes of one.
    pub(crate) fn now(devices: &[Device]) -> Option<Self> {
        let mut sum = Self::default();
        for device in devices {
            let one = device.flushes()?;
            sum.flushes += one.flushes;
            sum.time += one.time;
        }
        (!devices.is_empty()).then_some(sum)
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        let flushes = self.flushes.saturating_sub(earlier.flushes);
        Self { flushes, time: self.time.saturating_sub(earlier.time) }
    }
}

/// Returns the devices at the bottom below the block devices `numbers`: the kernel counts
/// flushes of whole disks, and not those of partitions, LVM or dm-crypt.
pub(crate) fn devices(numbers: &[DeviceId]) -> Vec<Device> {
    let mut found = Vec::new();
    for number in numbers {
        if let Ok(directory) = fs::canonicalize(format!("/sys/dev/block/{number}")) {
            descend(&directory, &mut found);
        }
    }
    found
}

fn descend(directory: &Path, found: &mut Vec<Device>) {
    if directory.join("partition").exists() {
        if let Some(disk) = directory.parent() {
            descend(disk, found);
        }
        return;
    }
    let below = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<_> = below.filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
    below.iter().for_each(|slave| descend(slave, found));
    if below.is_empty() {
        found.extend(Device::read(directory).filter(|device| !found.contains(device)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_the_last_two_fields_and_unknown_before_linux_5_5() {
        let stat = "87472 9505 5143962 83074 48186 168899 59633472 370957 0 45232 456225 9366 59 \
                    994080 2034 3755 159\n";
        let expected = FlushCount { flushes: 3755, time: Duration::from_millis(159) };
        assert_eq!(FlushCount::parse(stat), Some(expected));
        assert_eq!(FlushCount::parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n"), None);
        assert_eq!(FlushCount::now(&[]), None);
    }
}
