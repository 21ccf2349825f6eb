//! Reading and patching a caller's memory.

use crate::process::process_tree::process_of;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use synconce_sys::procfs::process_name;

const PATH_MAX: usize = 4096;

/// The longest vector of requests that is examined.
const REQUESTS: u64 = 1024;

/// The memory of a thread that waits in a call (`/proc/PID/mem`, proc(5)).
#[derive(Debug)]
pub(crate) struct Memory(File);

fn path_of(thread: u32) -> String {
    format!("/proc/{thread}/mem")
}

impl Memory {
    /// Opens the memory of `thread`.
    pub(crate) fn open(thread: u32) -> io::Result<Self> {
        File::open(path_of(thread)).map(Self)
    }

    /// Opens the memory of `thread` for patching as well.
    pub(crate) fn open_writable(thread: u32) -> io::Result<Self> {
        File::options().read(true).write(true).open(path_of(thread)).map(Self)
    }

    /// Reads exactly `N` bytes at `address`.
    pub(crate) fn bytes<const N: usize>(&self, address: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    /// Reads the path at `address`: up to its NUL, at most `PATH_MAX` bytes.
    pub(crate) fn path(&self, address: u64) -> io::Result<PathBuf> {
        let mut path = Vec::new();
        while path.len() < PATH_MAX {
            // In pieces that end at page boundaries, so that a path at the end of a mapping
            // can be read.
            let at = address + path.len() as u64;
            let mut piece = vec![0; (PATH_MAX - at as usize % PATH_MAX).min(256)];
            let read = self.0.read_at(&mut piece, at)?;
            if let Some(end) = piece[..read].iter().position(|byte| *byte == 0) {
                path.extend_from_slice(&piece[..end]);
                return Ok(std::ffi::OsString::from_vec(path).into());
            }
            if read == 0 {
                break;
            }
            path.extend_from_slice(&piece[..read]);
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Reads `count` pointers of `width` bytes (4 or 8) at `address`.
    pub(crate) fn pointers(&self, address: u64, count: u64, width: u64) -> io::Result<Vec<u64>> {
        let count = count.min(REQUESTS);
        let mut bytes = vec![0; (count * width) as usize];
        self.0.read_exact_at(&mut bytes, address)?;
        let chunks = bytes.chunks_exact(width as usize);
        Ok(chunks.map(|chunk| chunk.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))).collect())
    }

    /// Whether `bytes` are at `address`.
    pub(crate) fn holds(&self, address: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.0.read_exact_at(&mut found, address).is_ok() && found == bytes
    }

    /// Writes `bytes` at `address`, even where the caller has no write permission.
    pub(crate) fn patch(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

#[cfg(test)]
impl From<File> for Memory {
    /// Returns a memory whose addresses are the offsets in `file`.
    fn from(file: File) -> Self {
        Self(file)
    }
}

/// Returns the name of the program that `thread` executes: that of its process, because
/// threads may have names of their own.
pub(crate) fn program(thread: u32) -> Option<String> {
    let process = process_of(thread)?;
    process_name(process).ok()
}
