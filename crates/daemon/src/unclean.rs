//! Whether a hold was cut short, so that its files may be damaged.

use crate::mounted::file_systems_still_mounted;
use crate::record::Record;
use std::fmt;
use synconce_durable::record::boot_id;

/// Why the state of held files is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclean {
    /// The machine has stopped since the hold began.
    Boot,
    /// A write-back error was found.
    WriteBack,
    /// A file system was unmounted since the hold began, in this boot.
    Unmounted,
}

impl fmt::Display for Unclean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boot => "the machine stopped while the files were held",
            Self::WriteBack => "the disk lost writes while the files were held",
            Self::Unmounted => "a file system was unmounted while its files were held",
        })
    }
}

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
