//! A buffered part of the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes that are read ahead.
const AHEAD: u64 = 64 << 10;

/// The last part of the file that was read.
pub(super) struct Window<'a> {
    file: &'a File,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        Self { file, start: 0, bytes: Vec::new() }
    }

    /// Returns the `length` bytes from `at` on. Reads ahead, but not beyond `end`, which is at
    /// least `at + length`.
    pub(super) fn get(&mut self, at: u64, length: usize, end: u64) -> io::Result<&[u8]> {
        let have = self.bytes.len() as u64;
        let is_inside = self.start <= at && at + length as u64 <= self.start + have;
        if !is_inside {
            let ahead = AHEAD.max(length as u64).min(end.saturating_sub(at)).max(length as u64);
            self.bytes.resize(ahead as usize, 0);
            self.start = at;
            if let Err(error) = self.file.read_exact_at(&mut self.bytes, at) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from..from + length])
    }
}

/// Returns the number at `at` in `bytes`, in the byte order of this machine.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}
