//! Asynchronous writes (io_submit(2)), as libaio makes them.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The alignment that writes with O_DIRECT need everywhere.
const ALIGNMENT: usize = 4_096;
/// `IOCB_CMD_PWRITE` (include/uapi/linux/aio_abi.h).
const WRITE: u16 = 1;

/// `struct iocb` (include/uapi/linux/aio_abi.h), little-endian.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    second_result: i64,
}

/// Writes of one block to places of a file, many at a time.
pub struct AsyncWrites {
    context: libc::c_ulong,
    file: File,
    /// What every write writes.
    buffer: Vec<u8>,
    block: usize,
    events: Vec<Event>,
    pending: usize,
}

impl AsyncWrites {
    /// Prepares at most `depth` writes of `block` bytes each at the same time to `file`, which may
    /// be open with O_DIRECT.
    ///
    /// # Errors
    /// Those of io_setup(2): the kernel has no asynchronous writes (ENOSYS), a filter refuses them
    /// (EPERM), or too many are prepared on the machine (EAGAIN).
    pub fn new(file: File, depth: usize, block: usize) -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number to `context`.
        check(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) })?;
        let buffer = vec![0x5a; block + ALIGNMENT];
        let events = vec![Event::default(); depth];
        Ok(Self { context, file, buffer, block, events, pending: 0 })
    }

    /// Whether another write can be begun.
    pub fn has_room(&self) -> bool {
        self.pending < self.events.len()
    }

    /// Begins a write at `offset`.
    ///
    /// # Errors
    /// Those of io_submit(2).
    pub fn begin(&mut self, offset: u64) -> io::Result<()> {
        let start = self.buffer.as_ptr();
        let mut request = Request {
            opcode: WRITE,
            descriptor: self.file.as_raw_fd().cast_unsigned(),
            buffer: start.wrapping_add(start.align_offset(ALIGNMENT)) as u64,
            length: self.block as u64,
            offset: offset.cast_signed(),
            ..Request::default()
        };
        let mut requests = [&raw mut request];
        // SAFETY: the kernel copies the request, and reads `block` bytes of `buffer`, which has
        // them after its alignment and lives unchanged until `drop` has waited for every write.
        check(unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, 1_usize, requests.as_mut_ptr())
        })?;
        self.pending += 1;
        Ok(())
    }

    /// Waits until a write has ended, but at most for `patience` or until a signal; returns how
    /// many have ended.
    ///
    /// # Errors
    /// Those of io_getevents(2), and the first error of a write.
    pub fn wait(&mut self, patience: Duration) -> io::Result<usize> {
        let mut patience = libc::timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        // SAFETY: the kernel writes at most as many events as `events` has.
        let ended = check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                1_usize,
                self.events.len(),
                self.events.as_mut_ptr(),
                &raw mut patience,
            )
        });
        let ended = match ended {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        self.pending -= ended;
        self.events[..ended].iter().try_for_each(|event| match event.result {
            error @ ..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            written if written as usize == self.block => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        })?;
        Ok(ended)
    }
}

impl Drop for AsyncWrites {
    fn drop(&mut self) {
        // SAFETY: takes no pointers. It waits for the writes that have begun.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn each_write_is_at_its_place_and_an_error_is_returned() {
        let file = tempfile::tempfile().unwrap();
        let mut writes = AsyncWrites::new(file.try_clone().unwrap(), 4, 512).unwrap();
        for offset in [0, 2_048, 1_024] {
            assert!(writes.has_room());
            writes.begin(offset).unwrap();
        }
        let mut ended = 0;
        while ended < 3 {
            ended += writes.wait(Duration::from_secs(60)).unwrap();
        }
        let mut bytes = [0; 2_560];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let written = |at: usize| bytes[at..at + 512].iter().all(|byte| *byte == 0x5a);
        assert_eq!([0, 512, 1_024, 1_536, 2_048].map(written), [true, false, true, false, true]);
        assert_eq!(writes.wait(Duration::ZERO).unwrap(), 0);

        let failed = writes.begin(u64::MAX).and_then(|()| writes.wait(Duration::from_secs(60)));
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let mut unwritable = AsyncWrites::new(File::open("/dev/null").unwrap(), 1, 512).unwrap();
        assert_eq!(unwritable.begin(0).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
