//! Opens an archive: a file or standard input, compressed or not.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::pipe::fcntl_setpipe_size;
use synconce_durable::error::{Context, Error};

use crate::progress::{Progress, wait_until_ready};

/// A decompressor, selected by the first bytes of the compressed file.
struct Decompressor {
    magic: &'static [u8],
    program: &'static str,
    /// The Debian package with the program.
    package: &'static str,
}

const DECOMPRESSORS: [Decompressor; 5] = [
    Decompressor { magic: b"\x1f\x8b", program: "gzip", package: "gzip" },
    Decompressor { magic: b"\xfd7zXZ\0", program: "xz", package: "xz-utils" },
    Decompressor { magic: b"\x28\xb5\x2f\xfd", program: "zstd", package: "zstd" },
    Decompressor { magic: b"BZh", program: "bzip2", package: "bzip2" },
    Decompressor { magic: b"\x04\x22\x4d\x18", program: "lz4", package: "lz4" },
];
const LONGEST_MAGIC: usize = 6;
/// The largest pipe that an ordinary user may request by default (pipe(7)).
const PIPE: usize = 1 << 20;

/// An archive that is being read, through a decompressor if it is compressed.
///
/// The drop kills the decompressor. If this process is killed instead, SIGPIPE ends the
/// decompressor at its next write.
#[derive(Debug)]
pub struct ArchiveSource {
    path: PathBuf,
    input: Input,
    /// Whether a read has returned the end of the archive.
    pub(super) ended: bool,
}

#[derive(Debug)]
enum Input {
    Plain(io::Chain<io::Cursor<Vec<u8>>, File>),
    Compressed(RunningDecompressor),
}

#[derive(Debug)]
struct RunningDecompressor {
    program: &'static str,
    child: Child,
    output: ChildStdout,
    /// What the decompressor writes to standard error.
    complaints: File,
    /// The error of reading the archive, if a thread of this process feeds the decompressor.
    feeding: Arc<Mutex<Option<io::Error>>>,
}

/// Opens an archive; `-` is standard input. The first bytes, not the name, determine the
/// compression.
///
/// # Errors
/// The archive cannot be read, the decompressor is missing, or the work was cancelled
/// (`ECANCELED`).
pub fn open(path: &Path, progress: &dyn Progress) -> Result<ArchiveSource, Error> {
    let (file, path) = if path == Path::new("-") {
        let own = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
        (
            own.map(File::from).on("cannot read", Path::new("standard input"))?,
            "standard input".as_ref(),
        )
    } else {
        (open_file(path, progress).on("cannot open", path)?, path)
    };
    let mut first = Vec::new();
    let mut start_of = UntilCancelled { input: &file, progress }.take(LONGEST_MAGIC as u64);
    start_of.read_to_end(&mut first).on("cannot read", path)?;
    let known = DECOMPRESSORS.iter().find(|known| first.starts_with(known.magic));
    let input = match known {
        None => Input::Plain(io::Cursor::new(first).chain(file)),
        Some(known) => Input::Compressed(start(known, first, file, path)?),
    };
    Ok(ArchiveSource { path: path.to_owned(), input, ended: false })
}

/// Opens the file at `path`. Waits for the first bytes of a FIFO, or until its writer closes it.
fn open_file(path: &Path, progress: &dyn Progress) -> io::Result<File> {
    if !fs::metadata(path)?.file_type().is_fifo() {
        return File::open(path);
    }
    // `File::open` would block until there is a writer, and a cancellation could not end it: the
    // standard library retries after a signal.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let fifo = File::options().read(true).custom_flags(nonblocking).open(path)?;
    wait_until_ready(fifo.as_fd(), PollFlags::IN, progress)?;
    fcntl_setfl(&fifo, OFlags::empty())?;
    Ok(fifo)
}

fn start(
    known: &Decompressor,
    first: Vec<u8>,
    mut file: File,
    path: &Path,
) -> Result<RunningDecompressor, Error> {
    // Only a regular file can be rewound and read by the decompressor itself.
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    let rewound = is_file && file.seek(SeekFrom::Current(-(first.len() as i64))).is_ok();
    let complaints = memfd_create("complaints", MemfdFlags::CLOEXEC).map(File::from);
    let complaints = complaints.on("cannot collect messages of", Path::new(known.program))?;
    let stderr =
        complaints.try_clone().on("cannot collect messages of", Path::new(known.program))?;
    let mut command = Command::new(known.program);
    command.arg("-dc").stdout(Stdio::piped()).stderr(stderr);
    let feed = if rewound {
        command.stdin(file);
        None
    } else {
        command.stdin(Stdio::piped());
        Some(io::Cursor::new(first).chain(file))
    };
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let (program, package) = (known.program, known.package);
            let why = format!("{program} is not installed; it is in the package {package}");
            Error::new("cannot decompress", path, io::Error::new(error.kind(), why))
        }
        _ => Error::new("cannot start", Path::new(known.program), error),
    })?;
    let Some(output) = child.stdout.take() else {
        unreachable!("the child's output was asked for as a pipe");
    };
    // A larger pipe saves context switches; the default size works as well.
    let _ = fcntl_setpipe_size(&output, PIPE);
    let feeding = Arc::new(Mutex::new(None));
    if let (Some(feed), Some(stdin)) = (feed, child.stdin.take()) {
        let result = Arc::clone(&feeding);
        let feeder = move || self::feed(feed, stdin, &result);
        let thread = std::thread::Builder::new().name("feed".to_owned());
        // The thread is not joined: it may block on a terminal after the decompressor has
        // ended.
        if let Err(error) = thread.spawn(feeder) {
            end(&mut child);
            return Err(Error::new("cannot decompress", path, error));
        }
    }
    Ok(RunningDecompressor { program: known.program, child, output, complaints, feeding })
}

fn feed(mut from: impl Read, mut to: impl Write, result: &Mutex<Option<io::Error>>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // Before `to` is closed: then the decompressor ends, and `finish` looks for the
                // error.
                if let Ok(mut result) = result.lock() {
                    *result = Some(error);
                }
                return;
            }
        };
        // The decompressor has ended, and its exit status shows why.
        if to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

impl Read for ArchiveSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = match &mut self.input {
            Input::Plain(input) => input.read(buffer),
            Input::Compressed(running) => running.output.read(buffer),
        }?;
        self.ended |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

impl AsFd for ArchiveSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.input {
            Input::Plain(input) => input.get_ref().1.as_fd(),
            Input::Compressed(running) => running.output.as_fd(),
        }
    }
}

/// An input whose reads fail with `ECANCELED` once the work is cancelled, also a read that waits.
pub(super) struct UntilCancelled<'a, R> {
    pub(super) input: R,
    pub(super) progress: &'a dyn Progress,
}

impl<R: Read + AsFd> Read for UntilCancelled<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait_until_ready(self.input.as_fd(), PollFlags::IN, self.progress)?;
        self.input.read(buffer)
    }
}

impl ArchiveSource {
    /// Checks that the decompressor, if there is one, has written the whole archive. Reads and
    /// discards the rest of its output for this.
    ///
    /// # Errors
    /// The decompressor failed, the archive could not be read, or the work was cancelled
    /// (`ECANCELED`).
    pub fn finish(mut self, progress: &dyn Progress) -> Result<(), Error> {
        let path = std::mem::take(&mut self.path);
        let Input::Compressed(running) = &mut self.input else { return Ok(()) };
        let mut rest = UntilCancelled { input: &mut running.output, progress };
        io::copy(&mut rest, &mut io::sink()).on("cannot read", &path)?;
        let status = running.child.wait().on("cannot wait for", Path::new(running.program))?;
        if let Some(error) = running.feeding.lock().ok().and_then(|mut error| error.take()) {
            return Err(Error::new("cannot read", &path, error));
        }
        if status.success() {
            return Ok(());
        }
        let why = format!("{} {}", running.program, describe(status, &running.complaints));
        Err(Error::new("cannot decompress", &path, io::Error::other(why)))
    }
}

fn describe(status: ExitStatus, complaints: &File) -> String {
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    };
    let mut text = Vec::new();
    let mut complaints = complaints;
    let read = complaints.rewind().and_then(|()| complaints.take(4096).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        "" => ended,
        _ if read.is_err() => ended,
        text => format!("{ended}: {}", text.replace('\n', "; ")),
    }
}

fn end(child: &mut Child) {
    // Both fail only if the child was reaped before.
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for RunningDecompressor {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
