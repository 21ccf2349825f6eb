//! Whether a hold was cut short, so that its files may be damaged.

use crate::error::Unclean;
use crate::live;
use crate::mounted::{has_failed, were_mounted};
use crate::record::Record;
use synconce_durable::record::boot_id;

/// Returns why the hold of `record` cannot go on: a crash may have damaged the files.
pub fn unclean(record: &Record) -> Option<Unclean> {
    let boot = boot_id().unwrap_or_default();
    match () {
        () if record.lost && record.boot.is_empty() => Some(Unclean::UnknownMarker),
        () if record.lost => Some(Unclean::Marker),
        () if record.boot.is_empty() || boot.is_empty() => Some(Unclean::UnknownBoot),
        () if record.boot != boot => Some(Unclean::Boot),
        () if record.has_noted_failure() || has_failed(record) => Some(Unclean::WriteBack),
        () => match were_mounted(record) {
            Some(true) => None,
            Some(false) => Some(Unclean::Unmounted),
            // In the mount namespace of this process the mounts may be others.
            None if live::exists(record) => None,
            None => Some(Unclean::Unseen),
        },
    }
}
