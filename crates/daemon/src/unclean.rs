//! Whether a hold was cut short, so that its files may be damaged.

use crate::error::Unclean;
use crate::mounted::file_systems_still_mounted;
use crate::record::Record;
use synconce_durable::record::boot_id;

/// Returns why the hold of `record` cannot go on: a crash may have damaged the files.
pub fn unclean(record: &Record) -> Option<Unclean> {
    match () {
        // Without /proc the boot is unknown.
        () if record.boot.is_empty() || record.boot != boot_id() => Some(Unclean::Boot),
        () if record.failed => Some(Unclean::WriteBack),
        () if !file_systems_still_mounted(record) => Some(Unclean::Unmounted),
        () => None,
    }
}
