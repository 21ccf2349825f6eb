//! What a command prints: text, or JSON for `--json[=FILE]`.

use crate::commands::error::CommandError;
use crate::text::{OutputStream, printable_json, say};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use synconce_sys::origin::was_closed;
use synconce_sys::process::inherited;
use synconce_sys::reason;

/// The output of a command: where its JSON goes, if JSON is asked for.
pub struct Output(Option<Sink>);

/// Where JSON goes.
enum Sink {
    /// Standard output, or for `run` standard error.
    Standard(Stream),
    /// The file of `--json=FILE`.
    File(File, PathBuf),
}

/// The stream of text, and of `--json` without a file.
#[derive(Clone, Copy)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error: standard output belongs to the command of a run.
    Errors,
}

impl Stream {
    /// Returns the number of the descriptor, and its name.
    fn descriptor(self) -> (i32, &'static str) {
        match self {
            Self::Output => (1, "standard output"),
            Self::Errors => (2, "standard error"),
        }
    }

    /// Writes `text` as it is.
    ///
    /// # Errors
    /// The stream cannot be written to.
    pub fn print(self, text: impl AsRef<[u8]>) -> Result<(), CommandError> {
        Sink::Standard(self).print(text.as_ref())
    }
}

/// Writes `text` to standard output.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), CommandError> {
    Stream::Output.print(text)
}

impl Output {
    /// Opens the output of `--json[=FILE]`. Called before the work, so that a mistyped path loses
    /// no result.
    ///
    /// # Errors
    /// FILE cannot be opened.
    pub fn open(json: Option<&Path>, stream: Stream) -> Result<Self, CommandError> {
        let Some(path) = json else { return Ok(Self(None)) };
        let failed =
            |name: &str, error| Err(format!("cannot write to {name}: {}", reason(&error)).into());
        if path == Path::new("-") {
            let (number, name) = stream.descriptor();
            return if was_closed(number) {
                failed(name, closed())
            } else {
                Ok(Self(Some(Sink::Standard(stream))))
            };
        }
        let file = match descriptor(path) {
            // Opening the path would truncate a file, and fails for a socket.
            Some(number) => duplicate(number),
            None => create(path),
        };
        match file {
            Ok(file) => Ok(Self(Some(Sink::File(file, path.to_owned())))),
            Err(error) => failed(&path.display().to_string(), error),
        }
    }

    /// Whether JSON is asked for.
    pub fn is_json(&self) -> bool {
        self.0.is_some()
    }

    /// Whether JSON goes to standard output.
    pub fn is_standard_json(&self) -> bool {
        matches!(self.0, Some(Sink::Standard(_)))
    }

    /// Writes `value` on several lines if JSON is asked for, and calls `text` otherwise.
    ///
    /// # Errors
    /// Those of the write and of `text`. Also when `value` has no JSON.
    pub fn write_or(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let Some(sink) = self.0 else { return text() };
        let json = serde_json::to_string_pretty(value)
            .map_err(|error| format!("cannot write JSON: {error}"))?;
        sink.print((printable_json(&json) + "\n").as_bytes())
    }

    /// Writes `value` if JSON is asked for.
    ///
    /// # Errors
    /// As for [`Output::write_or`].
    pub fn write(self, value: &impl Serialize) -> Result<(), CommandError> {
        self.write_or(value, || Ok(()))
    }

    /// Writes `value` on one line if JSON is asked for, and calls `text` otherwise.
    ///
    /// # Errors
    /// As for [`Output::write_or`].
    pub fn write_line_or(
        self,
        value: &impl Serialize,
        text: impl FnOnce(),
    ) -> Result<(), CommandError> {
        let Some(sink) = self.0 else {
            text();
            return Ok(());
        };
        sink.print((serde_json::to_string(value).unwrap_or_default() + "\n").as_bytes())
    }
}

impl Sink {
    fn print(self, text: &[u8]) -> Result<(), CommandError> {
        let (written, name) = match self {
            Self::Standard(stream) => {
                let descriptor = match stream {
                    Stream::Output => standard_output(),
                    // A closed standard error is not a failure.
                    Stream::Errors => Ok(rustix::stdio::stderr()),
                };
                let write = |descriptor| OutputStream::new(descriptor).write_all(text);
                (descriptor.and_then(write), stream.descriptor().1.to_owned())
            }
            Self::File(file, path) => {
                (OutputStream::new(file.as_fd()).write_all(text), path.display().to_string())
            }
        };
        written.map_err(|error| {
            let message = format!("cannot write to {name}: {}", reason(&error));
            CommandError::unwritten(message, error.kind() == io::ErrorKind::BrokenPipe)
        })
    }
}

/// Returns N of `/dev/fd/N`, and of the other names of a descriptor.
fn descriptor(path: &Path) -> Option<i32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => path.strip_prefix("/dev/fd/").or(path.strip_prefix("/proc/self/fd/"))?.parse().ok(),
    }
}

/// Creates or truncates the file. The open of a FIFO waits for a reader: says so.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let at_once = options.clone().custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    match at_once {
        Ok(file) => {
            let flags = rustix::fs::fcntl_getfl(&file)?;
            rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
            Ok(file)
        }
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            say(&format!("{} is a FIFO: waiting for a process that reads it", path.display()));
            options.open(path)
        }
        Err(error) => Err(error),
    }
}

/// Returns standard output. Fails if the caller has closed it: the runtime has opened `/dev/null`
/// there, and output would be lost.
pub fn standard_output() -> io::Result<BorrowedFd<'static>> {
    if was_closed(1) { Err(closed()) } else { Ok(rustix::stdio::stdout()) }
}

fn closed() -> io::Error {
    Errno::BADF.into()
}

fn duplicate(number: i32) -> io::Result<File> {
    // The runtime has opened /dev/null on a standard descriptor that was closed.
    let of_caller = |fd: &i32| *fd == number && !was_closed(number);
    let found = inherited().into_iter().find(|fd| of_caller(&fd.as_raw_fd()));
    found.ok_or_else(closed)?.try_clone_to_owned().map(File::from)
}
