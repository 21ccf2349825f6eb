//! Whether the end of a hold was clean.

use super::file_systems_still_mounted;
use crate::record::{self, Record};
use std::io::ErrorKind;
use synconce_durable::error::Error;
use synconce_durable::record::boot_id;
use synconce_sys::reason;

/// The state of a hold, by its marker.
#[derive(Debug)]
pub(super) enum State {
    /// There is no marker.
    Clean,
    /// The kernel has every write since the start.
    Untouched,
    /// Writes may be lost.
    Unclean {
        /// Why, in words.
        reason: String,
        /// The marker, unless it is damaged.
        record: Option<Box<Record>>,
        /// Whether reads may come from a cache that the disk does not agree with.
        is_in_cache: bool,
    },
}

impl State {
    /// Reads the state of the hold `name`.
    ///
    /// # Errors
    /// Names the marker, which may be in order but cannot be read now.
    pub(super) fn read(name: &str) -> Result<Self, Error> {
        match Record::read(name) {
            Ok(None) => Ok(Self::Clean),
            Ok(Some(record)) => Ok(Self::of(record)),
            // Only what a reader of JSON says about the content.
            Err(error)
                if matches!(
                    error.io().kind(),
                    ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                ) =>
            {
                let path = record::path(name);
                let reason =
                    format!("the marker {} is damaged: {}", path.display(), reason(error.io()));
                Ok(Self::Unclean { reason, record: None, is_in_cache: false })
            }
            Err(error) => Err(error),
        }
    }

    fn of(record: Record) -> Self {
        let boot = boot_id();
        let is_same_boot = !boot.is_empty() && record.boot == boot;
        let is_mounted = is_same_boot && file_systems_still_mounted(&record);
        let started = &record.started;
        let reason = if !is_same_boot {
            format!("the machine stopped while the files were held (since {started})")
        } else if record.failed {
            format!("a write to the disk failed while the files were held (since {started})")
        } else if !is_mounted {
            format!("the file system was unmounted while the files were held (since {started})")
        } else {
            return Self::Untouched;
        };
        let is_in_cache = is_same_boot && record.failed;
        Self::Unclean { reason, record: Some(Box::new(record)), is_in_cache }
    }
}
