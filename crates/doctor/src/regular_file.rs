//! Opens files that another process may replace meanwhile.

use rustix::fs::{OFlags, major, minor};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The most that [`read`] reads, so that no file fills the memory.
const LIMIT: u64 = 1 << 20;

/// Opens the regular file `path` to read. Follows no symbolic link, and does not wait, as an open
/// of a FIFO does.
///
/// # Errors
/// The file cannot be opened, or is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::NOFOLLOW)
}

/// The device of `/dev/null`, by whatever name a mount or a link gives it (null(4)).
const NULL: (u32, u32) = (1, 3);

/// Returns the content of the regular file to which `path` leads; nothing of `/dev/null`. Does not
/// wait, and does not read another device, which may have no end.
///
/// # Errors
/// The file cannot be read, is no regular file, or is larger than 1 MiB.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = path.metadata()?;
    if found.file_type().is_char_device() && (major(found.rdev()), minor(found.rdev())) == NULL {
        return Ok(Vec::new());
    }
    let mut content = Vec::new();
    open_with(path, OFlags::empty())?.take(LIMIT + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LIMIT {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
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
        symlink("/dev/null", at("null")).unwrap();
        for (name, bytes) in [("full", LIMIT), ("larger", LIMIT + 1)] {
            File::create(at(name)).unwrap().set_len(bytes).unwrap();
        }
        for name in ["file", "link", "null", "full"] {
            assert!(read(&at(name)).is_ok(), "{name}");
        }
        for name in ["fifo", "endless", "larger"] {
            assert!(read(&at(name)).is_err(), "{name}");
        }
    }
}
