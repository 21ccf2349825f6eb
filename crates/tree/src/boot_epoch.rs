//! Detects whether power may have been lost since something was written.

use crate::record::BootEpoch;
use std::fs;
use std::path::Path;
use synconce_durable::error::Error;
use synconce_durable::record::boot_id;
use synconce_probe::mounts::Mount;
use synconce_probe::super_block;

impl BootEpoch {
    /// Returns whether power may have been lost between this epoch and `now`. A number that is
    /// missing from one of the two, as in a chroot without /sys, is ignored.
    pub(crate) fn is_over(&self, now: &Self) -> bool {
        let other_disk = self.disk.zip(now.disk).is_some_and(|(then, now)| then != now);
        // Disks can be added to and removed from a mounted btrfs.
        self.boot != now.boot || other_disk && self.is_same_mount(now) != Some(true)
    }

    /// Whether the file system has been mounted all the time between this epoch and `now`, if that
    /// is known. An unmount writes everything out, and reports no error.
    pub(crate) fn is_same_mount(&self, now: &Self) -> Option<bool> {
        Some(self.mount? == now.mount?)
    }
}

/// Returns the current boot epoch of a store on `mount` with `losses` failed syncs.
///
/// # Errors
/// The kernel's `boot_id` cannot be read.
pub(crate) fn now(mount: Option<&Mount>, losses: u64) -> Result<BootEpoch, Error> {
    Ok(BootEpoch {
        boot: boot_id()?,
        disk: mount.and_then(disk_sequence),
        mount: mount.and_then(super_block::of).map(|(_, number)| number),
        losses: Some(losses),
    })
}

/// Reads `/sys/dev/block/MAJOR:MINOR/diskseq`. A disk or loop device that is attached again
/// gets another number. The device number of a btrfs has no entry there; its source device has
/// one.
fn disk_sequence(mount: &Mount) -> Option<u64> {
    let by_number = format!("/sys/dev/block/{}/diskseq", mount.device);
    let name = Path::new(&mount.source).file_name()?.to_str()?;
    let by_name = format!("/sys/class/block/{name}/diskseq");
    // A partition has no number; the directory above the partition is its disk.
    let partition = [&by_number, &by_name].map(|path| path.replace("/diskseq", "/../diskseq"));
    let paths = [by_number, by_name].into_iter().chain(partition);
    paths.into_iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot_epoch(boot: &str, disk: Option<u64>, mount: Option<u64>) -> BootEpoch {
        BootEpoch { boot: boot.to_owned(), disk, mount, losses: None }
    }

    #[test]
    fn another_boot_or_disk_ends_an_era_and_a_disk_that_was_replaced_does_not() {
        let began = boot_epoch("a", Some(1), Some(7));
        assert!(!began.is_over(&began));
        assert!(began.is_over(&boot_epoch("b", Some(1), Some(7))));
        assert!(began.is_over(&boot_epoch("a", Some(2), Some(8))));
        assert!(!began.is_over(&boot_epoch("a", Some(2), Some(7))), "btrfs replace");
        assert!(!began.is_over(&boot_epoch("a", Some(1), Some(8))), "unmounted and mounted again");
        assert!(!began.is_over(&boot_epoch("a", None, None)), "nothing can be seen");
        assert_eq!(began.is_same_mount(&boot_epoch("a", Some(1), Some(8))), Some(false));
        assert_eq!(began.is_same_mount(&boot_epoch("a", Some(1), None)), None);
        assert!(boot_epoch("a", Some(1), None).is_over(&boot_epoch("a", Some(2), None)));
    }
}
