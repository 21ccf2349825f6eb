//! Whether the power can have been lost since something was written.

use crate::record::Era;
use std::fs;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_probe::mounts::Mount;

impl Era {
    /// Whether the power may have been lost between this era and `now`. A number that
    /// somebody cannot see, as in a chroot without /sys, says nothing.
    pub(crate) fn is_over(&self, now: &Self) -> bool {
        let other_disk = self.disk.zip(now.disk).is_some_and(|(then, now)| then != now);
        self.boot != now.boot || other_disk
    }
}

/// The era that a store on `mount` is in.
///
/// # Errors
/// The kernel's `boot_id` cannot be read.
pub(crate) fn now(mount: Option<&Mount>) -> Result<Era, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let boot = fs::read_to_string(path).on("cannot read", path)?.trim().to_owned();
    Ok(Era { boot, disk: mount.and_then(disk_sequence) })
}

/// `/sys/dev/block/MAJOR:MINOR/diskseq`: a disk that is attached again, a loop device
/// too, has another number. btrfs has no device of its own; its source has.
fn disk_sequence(mount: &Mount) -> Option<u64> {
    let by_number = format!("/sys/dev/block/{}/diskseq", mount.device);
    let name = Path::new(&mount.source).file_name()?.to_str()?;
    let by_name = format!("/sys/class/block/{name}/diskseq");
    // A partition has none; its disk is the directory above.
    let partition = [&by_number, &by_name].map(|path| path.replace("/diskseq", "/../diskseq"));
    let paths = [by_number, by_name].into_iter().chain(partition);
    paths.into_iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
}
