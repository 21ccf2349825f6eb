//! Whether a hold was cut short, so that its files may be damaged.

use crate::boot;
use crate::error::Unclean;
use crate::live;
use crate::mounted::{has_failed, were_mounted};
use crate::record::HoldRecord;

/// Returns why the hold of `record` needs a recovery: a crash may have damaged the files.
pub fn unclean(record: &HoldRecord) -> Option<Unclean> {
    if record.lost {
        return Some(if record.boot.is_empty() { Unclean::UnknownMarker } else { Unclean::Marker });
    }
    // In a container a user may be unable to read the kernel's boot id. A mounted overlay of the
    // hold proves that this is the boot of the record: no overlay outlives its boot.
    match boot::is_now(&record.boot).or_else(|| live::exists(record).then_some(true)) {
        None => return Some(Unclean::UnknownBoot),
        Some(false) => return Some(Unclean::Boot),
        Some(true) => {}
    }
    if record.has_noted_failure() || record.file_systems.iter().any(has_failed) {
        return Some(Unclean::WriteBack);
    }
    match were_mounted(record) {
        Some(true) => None,
        Some(false) => Some(Unclean::Unmounted),
        // This process may be in another mount namespace. An overlay that still exists keeps its
        // file system mounted.
        None if live::exists(record) => None,
        None => Some(Unclean::Unseen),
    }
}
