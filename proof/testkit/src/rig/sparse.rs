//! Copies disk images without filling their holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::Result;
use crate::error::Context;

/// Copies the data of `from` into the new file `to` of the same length; holes stay holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from).context("open", from)?;
    let target = File::options().write(true).create_new(true).open(to).context("create", to)?;
    copy_data(&source, &target).context("copy an image to", to)
}

fn copy_data(source: &File, target: &File) -> io::Result<()> {
    target.set_len(source.metadata()?.len())?;
    let mut buffer = vec![0; 1 << 20];
    let mut end = 0;
    loop {
        let start = match seek(source, SeekFrom::Data(end)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()), // no data behind this
            Err(errno) => return Err(errno.into()),
        };
        end = seek(source, SeekFrom::Hole(start))?;
        let mut at = start;
        while at < end {
            let length =
                usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            source.read_exact_at(&mut buffer[..length], at)?;
            target.write_all_at(&buffer[..length], at)?;
            at += length as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn data_is_copied_and_holes_take_nothing() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[7; 5000], 3 << 20).unwrap();
        file.write_all_at(&[9; 10], (1 << 30) - 10).unwrap();
        copy(&from, &to).unwrap();
        let copied = File::open(&to).unwrap();
        let mut data = [0; 5000];
        copied.read_exact_at(&mut data, 3 << 20).unwrap();
        assert_eq!(data, [7; 5000]);
        copied.read_exact_at(&mut data[..10], (1 << 30) - 10).unwrap();
        assert_eq!(data[..10], [9; 10]);
        let size = copied.metadata().unwrap();
        assert_eq!(size.len(), 1 << 30);
        assert!(size.blocks() * 512 < 64 << 10, "{} blocks", size.blocks());
    }
}
