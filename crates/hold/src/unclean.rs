//! Whether a hold was cut short, so that its files may be damaged.

use crate::error::Unclean;
use crate::live;
use crate::mounted::{has_failed, were_mounted};
use crate::record::HoldRecord;
use synconce_durable::record::boot_id;

/// Returns why the hold of `record` cannot go on: a crash may have damaged the files.
pub fn unclean(record: &HoldRecord) -> Option<Unclean> {
    let boot = boot_id().unwrap_or_default();
    if record.lost && record.boot.is_empty() {
        Some(Unclean::UnknownMarker)
    } else if record.lost {
        Some(Unclean::Marker)
    } else if record.boot.is_empty() || boot.is_empty() {
        Some(Unclean::UnknownBoot)
    } else if record.boot != boot {
        Some(Unclean::Boot)
    } else if record.has_noted_failure() || has_failed(record) {
        Some(Unclean::WriteBack)
    } else {
        match were_mounted(record) {
            Some(true) => None,
            Some(false) => Some(Unclean::Unmounted),
            // In the mount namespace of this process the mounts may be others.
            None if live::exists(record) => None,
            None => Some(Unclean::Unseen),
        }
    }
}
