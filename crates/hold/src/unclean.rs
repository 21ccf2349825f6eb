//! Whether a hold was cut short, so that its files may be damaged.

use crate::error::Unclean;
use crate::live;
use crate::mounted::{file_systems_still_mounted, has_failed};
use crate::record::Record;
use synconce_durable::record::boot_id;

/// Returns why the hold of `record` cannot go on: a crash may have damaged the files.
pub fn unclean(record: &Record) -> Option<Unclean> {
    let boot = boot_id().unwrap_or_default();
    match () {
        () if record.boot.is_empty() || boot.is_empty() => Some(Unclean::UnknownBoot),
        () if record.boot != boot => Some(Unclean::Boot),
        () if record.failed || has_failed(record) => Some(Unclean::WriteBack),
        // In the mount namespace of this process the mounts may be others.
        () if !file_systems_still_mounted(record) && !live::exists(record) => {
            Some(Unclean::Unmounted)
        }
        () => None,
    }
}
