//! Opens files that another process may replace meanwhile.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the regular file `path` to read. Follows no symbolic link, and does not wait, as an open of a FIFO
/// does.
///
/// # Errors
/// The file cannot be opened, or is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::NOFOLLOW)
}

/// Returns the content of the regular file to which `path` leads. Does not wait, and does not read a
/// device, which may have no end.
///
/// # Errors
/// The file cannot be read, or is no regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open_with(path, OFlags::empty())?.read_to_end(&mut content)?;
    Ok(content)
}

fn open_with(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC | more).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mkfifoat};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_regular_file_is_opened_and_a_fifo_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("file", at("link")).unwrap();
        mkfifoat(CWD, at("fifo"), 0o600.into()).unwrap();
        for (name, is_opened) in [("file", true), ("link", false), ("fifo", false), (".", false)] {
            assert_eq!(open(&at(name)).is_ok(), is_opened, "{name}");
        }
        symlink("/dev/zero", at("endless")).unwrap();
        for (name, is_read) in [("file", true), ("link", true), ("fifo", false), ("endless", false)]
        {
            assert_eq!(read(&at(name)).is_ok(), is_read, "{name}");
        }
    }
}
