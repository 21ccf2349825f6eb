//! Opens what a daemon's user may have replaced.

use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;
use synconce_sys::overlay::link_to;

/// Opens the regular file `path` for reading.
///
/// The daemon's user may have put something else there. An open of a FIFO waits for a writer, and
/// an open of a device may act on the device (watchdog, tape).
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
        FileType::RegularFile => File::open(link_to(found.as_fd())),
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}
