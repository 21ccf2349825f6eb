//! The beginning of a build context as an archive, which is written until a time or a signal.

use super::Amount;
use super::part::{BYTES, SendingCost, SentContext};
use crate::observer::Observer;
use crate::regular_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::time::{Duration, Instant};
use tar::{Builder, EntryType, Header};

/// The time between two looks for signals.
const POLL: Duration = Duration::from_millis(100);
/// The Dockerfile in the archive; no context has this name.
pub(super) const DOCKERFILE: &str = ".synconce-doctor.Dockerfile";
/// Its build fails when the context has arrived.
const FAILING: &[u8] = b"FROM scratch\nCOPY .synconce-doctor.none /\n";

/// An archive of the beginning of a context, which was written.
pub(super) struct Archive {
    sent: Amount,
    began: Instant,
    /// Why it ended before its end, and when.
    pub error: Option<(io::Error, Duration)>,
}

impl Archive {
    pub fn write(context: &SentContext<'_>, mut out: impl Write) -> Self {
        let mut archive = Self { sent: Amount::default(), began: Instant::now(), error: None };
        let mut builder = Builder::new(&mut out);
        let written =
            archive.add(context, &mut builder).and_then(|()| builder.into_inner()?.flush());
        archive.error = written.err().map(|error| (error, archive.began.elapsed()));
        archive
    }

    fn add<W: Write>(
        &mut self,
        context: &SentContext<'_>,
        builder: &mut Builder<W>,
    ) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(FAILING.len() as u64);
        builder.append_data(&mut header, DOCKERFILE, FAILING)?;
        for path in &context.beginning.paths {
            let left = BYTES.saturating_sub(self.sent.archived());
            self.add_entry(&context.root.join(path), path, left, builder)?;
            self.sent.entries += 1;
        }
        Ok(())
    }

    /// Adds an entry with at most `left` bytes. Skips what a client cannot send, such as a socket
    /// or a file that this user cannot read.
    fn add_entry<W: Write>(
        &mut self,
        from: &Path,
        path: &str,
        left: u64,
        builder: &mut Builder<W>,
    ) -> io::Result<()> {
        let Ok(meta) = fs::symlink_metadata(from) else { return Ok(()) };
        let mut header = Header::new_gnu();
        header.set_metadata(&meta);
        header.set_size(0);
        if meta.is_dir() {
            return builder.append_data(&mut header, path, io::empty());
        }
        if meta.is_symlink() {
            let Ok(target) = fs::read_link(from) else { return Ok(()) };
            header.set_entry_type(EntryType::Symlink);
            return builder.append_link(&mut header, path, target);
        }
        let opened = meta.is_file().then(|| regular_file::open(from));
        let Some(Ok(file)) = opened else { return Ok(()) };
        let length = meta.len().min(left);
        header.set_size(length);
        let content = Padded { file, left: length, read: &mut self.sent.bytes };
        builder.append_data(&mut header, path, content)
    }

    /// Returns what was sent until now, or until the end of the time.
    pub fn cost(&self, context: &SentContext<'_>) -> SendingCost {
        let time = self.error.as_ref().map_or_else(|| self.began.elapsed(), |error| error.1);
        SendingCost::extrapolated(self.sent, time.as_secs_f64(), context.whole)
    }

    /// Returns what was sent until the end of the time, unless the archive ended for another
    /// reason.
    pub fn ended_by_time(self, context: &SentContext<'_>) -> io::Result<SendingCost> {
        let cost = self.cost(context);
        match self.error {
            Some((error, _)) if error.kind() != ErrorKind::TimedOut => Err(error),
            _ => Ok(cost),
        }
    }
}

/// A writer until a time or a signal.
pub(super) struct Timed<'a, W> {
    pub until: Instant,
    pub observer: &'a dyn Observer,
    pub inner: W,
}

impl<W: Write> Write for Timed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.observer.interrupted().is_some() {
                return Err(io::Error::other("a signal has arrived"));
            }
            if Instant::now() >= self.until {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.inner.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The standard input of a program. A write that the program does not read returns `WouldBlock`
/// after [`POLL`].
pub(super) struct ProgramInput(ChildStdin);

impl ProgramInput {
    pub fn new(input: ChildStdin) -> io::Result<Self> {
        ioctl_fionbio(&input, true)?;
        Ok(Self(input))
    }
}

impl Write for ProgramInput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let time = Timespec::try_from(POLL).ok();
                match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], time.as_ref()) {
                    Ok(_) | Err(Errno::INTR) => Err(error),
                    Err(errno) => Err(errno.into()),
                }
            }
            done => done,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a chunk of a body of each write.
pub(super) struct Chunked<'a, W>(pub &'a mut W);

impl<W: Write> Write for Chunked<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            write!(self.0, "{:x}\r\n", bytes.len())?;
            self.0.write_all(bytes)?;
            self.0.write_all(b"\r\n")?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of a set length: cut, or filled up with zeros, if its length changes meanwhile.
struct Padded<'a> {
    file: File,
    left: u64,
    /// Counts what was read.
    read: &'a mut u64,
}

impl Read for Padded<'_> {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let wanted = part.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let part = &mut part[..wanted];
        let count = match self.file.read(part) {
            Ok(0) | Err(_) => {
                part.fill(0);
                wanted
            }
            Ok(count) => count,
        };
        self.left -= count as u64;
        *self.read += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::RunningChild;
    use std::cell::Cell;
    use std::process::{Command, Stdio};

    /// A signal arrives after so many looks.
    struct Signalled(Cell<u32>);

    impl Observer for Signalled {
        fn will_write(&mut self, _: u64, _: &Path) {}
        fn begins(&mut self, _: &str) {}
        fn interrupted(&self) -> Option<i32> {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            (left == 0).then_some(15)
        }
    }

    #[test]
    fn a_program_that_reads_nothing_delays_neither_a_signal_nor_the_end_of_the_time() {
        let long = Duration::from_secs(600);
        for (looks, time, wanted) in [
            (3, long, "a signal has arrived".to_owned()),
            (
                u32::MAX,
                Duration::from_millis(300),
                io::Error::from(ErrorKind::TimedOut).to_string(),
            ),
        ] {
            let mut sleep = Command::new("sleep");
            let child = sleep.arg("30").stdin(Stdio::piped()).spawn().unwrap();
            let mut running = RunningChild(child);
            let inner = ProgramInput::new(running.0.stdin.take().unwrap()).unwrap();
            let observer = Signalled(Cell::new(looks));
            let mut timed = Timed { until: Instant::now() + time, observer: &observer, inner };
            let failed = timed.write_all(&vec![0; 1 << 20]).unwrap_err();
            assert_eq!(failed.to_string(), wanted);
        }
    }
}
