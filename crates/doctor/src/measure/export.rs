//! How fast the engine exports an image, and what compression of the export takes on one CPU.

use crate::engine::Exportable;
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::{Observer, check};
use crate::place::{ExaminedPlace, Space};
use crate::program::stdout_for;
use serde::Serialize;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_probe::docker::{connect, send};
use synconce_sys::child::input;
use synconce_sys::reason;

/// The time for the export.
const TIME: Duration = Duration::from_secs(10);
/// The time between two looks for signals.
const POLL: Duration = Duration::from_millis(100);
/// Bytes of the export that are compressed.
const SAMPLE: usize = 32 << 20;
/// An archive that shrinks to no less than this part is compressed already.
const COMPRESSED: f64 = 0.9;
const WHAT: &str = "export of an image";

/// An export, in bytes a second of the exported archive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Export {
    /// The image.
    pub image: String,
    /// Bytes that the engine has sent.
    pub bytes: u64,
    /// The export, as by `docker save`.
    pub bytes_per_second: f64,
    /// Compression by gzip, which uses one CPU.
    pub gzip: Option<f64>,
    /// Decompression by gzip, in bytes of the archive.
    pub gunzip: Option<f64>,
    /// Compression by zstd with one thread.
    pub zstd: Option<f64>,
}

/// Lets the engine export the image of `source`, whose layers are at `place`. Returns `None` where
/// it does not, and adds why.
///
/// # Errors
/// A signal has arrived.
pub(crate) fn measure(
    source: &Exportable,
    place: &ExaminedPlace,
    observer: &mut dyn Observer,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Option<Export>, Error> {
    if let Some(temporary) = &source.temporary {
        if place.space_for(source.bytes) != Space::Enough {
            let why = "the file system has too little free space for its layers";
            not_measured.push(NotMeasured::new(WHAT, why));
            return Ok(None);
        }
        observer.will_write(source.bytes, temporary);
    }
    observer.begins(WHAT);
    let began = Instant::now();
    let started = connect(&source.socket).and_then(|mut stream| {
        send(&mut stream, &format!("/images/{}/get", source.id))?;
        stream.set_read_timeout(Some(POLL)).map(|()| stream)
    });
    let received = match started {
        Ok(stream) => receive(stream, began, observer)?,
        Err(error) => Err(error),
    };
    let exported = received.and_then(|(sample, count)| {
        let elapsed = began.elapsed();
        let head = head(&sample)?;
        let bytes = count - head as u64;
        if bytes == 0 {
            return Err(nothing_sent(elapsed));
        }
        Ok((bytes, bytes as f64 / elapsed.as_secs_f64(), sample[head..].to_vec()))
    });
    let (bytes, bytes_per_second, sample) = match exported {
        Ok(exported) => exported,
        Err(error) => {
            not_measured.push(NotMeasured::new(WHAT, reason(&error)));
            return Ok(None);
        }
    };
    let mut compressed = |program: &'static str| -> Result<Option<Compressed>, Error> {
        check(observer)?;
        let compressed = compress(program, &sample);
        Ok(compressed.map_err(|why| not_measured.push(NotMeasured::new(program, why))).ok())
    };
    let (gzip, zstd) = (compressed("gzip")?, compressed("zstd")?);
    check(observer)?;
    let gunzip = gzip.as_ref().and_then(|it| gunzip(&it.bytes, sample.len()));
    let [gzip, zstd] = [gzip, zstd].map(|it| it.map(|it| it.per_second));
    Ok(Some(Export { image: source.name.clone(), bytes, bytes_per_second, gzip, gunzip, zstd }))
}

/// Reads an answer to its end, or for [`TIME`]. Returns its beginning, and the number of its bytes.
fn receive(
    mut stream: UnixStream,
    began: Instant,
    observer: &dyn Observer,
) -> Result<io::Result<(Vec<u8>, u64)>, Error> {
    let (mut sample, mut count, mut part) = (Vec::new(), 0, vec![0; 1 << 20]);
    while began.elapsed() < TIME {
        check(observer)?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => {
                count += read as u64;
                let free = SAMPLE.saturating_sub(sample.len());
                sample.extend_from_slice(&part[..read.min(free)]);
            }
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok((sample, count)))
}

/// Returns the length of the head of `answer`, which has to be a success or empty.
fn head(answer: &[u8]) -> io::Result<usize> {
    if answer.is_empty() {
        return Ok(0);
    }
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.filter(|_| answer.get(8..13) == Some(b" 200 "));
    end.map(|end| end + 4).ok_or_else(|| io::Error::other("dockerd refuses the export"))
}

/// Returns the error of an export without bytes, which ended after `elapsed`.
fn nothing_sent(elapsed: Duration) -> io::Error {
    if elapsed < TIME {
        return io::Error::new(ErrorKind::UnexpectedEof, "dockerd sent no image");
    }
    io::Error::new(ErrorKind::TimedOut, "dockerd sends nothing within 10 s")
}

/// A compressed sample.
struct Compressed {
    bytes: Vec<u8>,
    /// Bytes of the sample.
    per_second: f64,
}

/// Compresses `sample` by `program`, or returns why not.
fn compress(program: &str, sample: &[u8]) -> Result<Compressed, String> {
    let mut command = Command::new(program);
    command.arg("--stdout");
    if program == "zstd" {
        // zstd 1.5.7 uses several threads by default.
        command.arg("-T1");
    }
    let began = Instant::now();
    let written = input(sample).and_then(|input| stdout_for(&mut command, input.into()));
    match written {
        Ok(written) if written.len() as f64 > COMPRESSED * sample.len() as f64 => {
            Err("the export is compressed already".to_owned())
        }
        Ok(bytes) => {
            let per_second = sample.len() as f64 / began.elapsed().as_secs_f64();
            Ok(Compressed { bytes, per_second })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err("it is not installed".to_owned()),
        Err(error) => Err(reason(&error)),
    }
}

/// Decompresses `bytes`, of which gzip makes `length`. Returns these a second.
fn gunzip(bytes: &[u8], length: usize) -> Option<f64> {
    let began = Instant::now();
    let input = input(bytes).ok()?;
    stdout_for(Command::new("gzip").args(["-d", "--stdout"]), input.into()).ok()?;
    Some(length as f64 / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    /// Counts the notices of temporary files.
    #[derive(Default)]
    struct Notices(u32);

    impl Observer for Notices {
        fn will_write(&mut self, _: u64, _: &Path) {
            self.0 += 1;
        }
        fn begins(&mut self, _: &str) {}
        fn interrupted(&self) -> Option<i32> {
            None
        }
    }

    /// Whether dockerd writes the layers to its disk before it sends them.
    #[derive(PartialEq)]
    enum LayersOfExport {
        Written,
        Streamed,
    }
    use LayersOfExport::{Streamed, Written};

    /// Returns why no export was measured if dockerd answers `answer` and the place has so many
    /// bytes `available`. Also returns the number of notices.
    fn not_exported(
        answer: &'static [u8],
        available: u64,
        layers: LayersOfExport,
    ) -> (String, u32) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer);
        });
        let (id, name) = ("sha256:0".to_owned(), "debian".to_owned());
        let temporary = (layers == Written).then(|| directory.path().to_owned());
        let source = Exportable { socket, id, name, bytes: 100 << 20, temporary };
        let place = crate::place::look(directory.path()).unwrap();
        let place = ExaminedPlace { size: 1 << 40, available, available_files: None, ..place };
        let (mut notices, mut why) = (Notices::default(), Vec::new());
        let export = measure(&source, &place, &mut notices, &mut why).unwrap();
        assert_eq!((export, why.len()), (None, 1));
        (why.remove(0).why, notices.0)
    }

    #[test]
    fn a_disk_that_the_export_could_fill_is_left_alone() {
        let (why, notices) = not_exported(b"", 150 << 20, Written);
        assert_eq!(notices, 0);
        assert!(why.contains("too little free space"), "{why}");
        assert_eq!(not_exported(b"", 1 << 30, Written).1, 1);
    }

    #[test]
    fn an_export_without_temporary_files_takes_no_space() {
        let (why, notices) = not_exported(b"", 0, Streamed);
        assert_eq!((&*why, notices), ("dockerd sent no image", 0));
    }

    #[test]
    fn an_export_without_bytes_has_no_rate() {
        let (why, _) = not_exported(b"HTTP/1.0 200 OK\r\n\r\n", 1 << 30, Written);
        assert_eq!(why, "dockerd sent no image");
        let (why, _) = not_exported(b"HTTP/1.0 404 Not Found\r\n\r\n", 1 << 30, Written);
        assert_eq!(why, "dockerd refuses the export");
        assert_eq!(nothing_sent(TIME).to_string(), "dockerd sends nothing within 10 s");
    }
}
