//! A request to dockerd with a large body, bounded by a time and ended by signals.

use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_durable::text::printable;
use synconce_probe::docker::{connect, send_head};

/// The time between two looks for signals.
const POLL: Duration = Duration::from_millis(100);
/// The time for the answer after the body.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer that are kept.
const KEPT: usize = 64 << 10;

/// A request whose body is being sent.
pub(crate) struct Upload<F> {
    stream: UnixStream,
    until: Instant,
    is_interrupted: F,
}

/// The answer to a request.
pub(crate) struct UploadAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// The answer, with its head.
    pub text: String,
}

impl UploadAnswer {
    /// Returns the status, and the message of an error of dockerd's API.
    pub(crate) fn refusal(&self) -> String {
        // A body in chunks has the length of a chunk on either side of the object.
        let object = self.text.find('{').map_or("", |start| &self.text[start..]);
        let value = serde_json::Deserializer::from_str(object).into_iter::<Value>().next();
        match value.and_then(Result::ok).as_ref().and_then(|value| value["message"].as_str()) {
            Some(message) => format!("{}: {}", self.status, printable(message.trim())),
            None => self.status.to_string(),
        }
    }
}

impl<F: Fn() -> bool> Upload<F> {
    /// Sends the head of `request`. The body has to be sent within `time`, and before
    /// `is_interrupted`.
    pub(crate) fn start(
        socket: &Path,
        request: &str,
        headers: &str,
        time: Duration,
        is_interrupted: F,
    ) -> io::Result<Self> {
        let until = Instant::now() + time;
        let mut stream = connect(socket)?;
        send_head(&mut stream, request, headers)?;
        stream.set_write_timeout(Some(POLL))?;
        Ok(Self { stream, until, is_interrupted })
    }

    /// Returns the answer to a whole request. Signals do not end this: dockerd would leave files.
    pub(crate) fn answer(mut self) -> io::Result<UploadAnswer> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        let (end, mut bytes, mut part) = (Instant::now() + PATIENCE, Vec::new(), vec![0; KEPT]);
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&part[..count.min(KEPT - bytes.len())]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(too_late()),
                // dockerd has not read the whole body.
                Err(error) if error.kind() == ErrorKind::ConnectionReset && !bytes.is_empty() => {
                    break;
                }
                Err(error) => return Err(error),
            }
            if Instant::now() > end {
                return Err(too_late());
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, "the answer is none of dockerd's")
        })?;
        Ok(UploadAnswer { status, text })
    }

    /// Ends a request whose body `error` has interrupted, and waits until dockerd has removed what
    /// it has of the body. Returns why the body ended: the answer, if dockerd has closed the
    /// connection.
    pub(crate) fn cut(self, error: io::Error) -> io::Error {
        let is_closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind());
        let is_shut = self.stream.shutdown(Shutdown::Write).is_ok();
        let answer = (is_shut || is_closed).then(|| self.answer());
        match answer {
            Some(Ok(answer)) if is_closed => {
                io::Error::other(format!("dockerd answers {}", answer.refusal()))
            }
            _ => error,
        }
    }
}

impl<F: Fn() -> bool> Write for Upload<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if (self.is_interrupted)() {
                return Err(io::Error::other("a signal has arrived"));
            }
            if Instant::now() >= self.until {
                return Err(io::Error::new(ErrorKind::TimedOut, "dockerd reads too slowly"));
            }
            match self.stream.write(bytes) {
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "dockerd does not answer within 60 s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Serves one request by `serve`, and returns what `ask` makes of it.
    fn served<T>(
        serve: impl FnOnce(UnixStream) + Send + 'static,
        time: Duration,
        signal: Option<i32>,
        ask: impl FnOnce(Upload<Box<dyn Fn() -> bool>>) -> T,
    ) -> T {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = thread::spawn(move || serve(listener.accept().unwrap().0));
        let is_interrupted: Box<dyn Fn() -> bool> = Box::new(move || signal.is_some());
        let upload = Upload::start(&socket, "POST /a HTTP/1.0", "", time, is_interrupted).unwrap();
        let asked = ask(upload);
        daemon.join().unwrap();
        asked
    }

    #[test]
    fn a_daemon_that_reads_nothing_and_a_signal_end_the_body() {
        let long = Duration::from_secs(600);
        for (time, signal, wanted) in [
            (Duration::from_millis(300), None, "dockerd reads too slowly"),
            (long, Some(2), "a signal has arrived"),
        ] {
            // The daemon reads only what was sent, after the end of the body.
            let reads = |mut stream: UnixStream| {
                thread::sleep(Duration::from_millis(400));
                let _ = stream.read_to_end(&mut Vec::new());
            };
            let failed = served(reads, time, signal, |mut upload| {
                let failed = upload.write_all(&vec![0; 8 << 20]).unwrap_err();
                upload.cut(failed)
            });
            assert_eq!(failed.to_string(), wanted);
        }
    }

    #[test]
    fn an_answer_has_its_status() {
        let answers = |mut stream: UnixStream| {
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n{}").unwrap();
        };
        let answer = served(answers, Duration::from_secs(600), None, Upload::answer).unwrap();
        assert_eq!((answer.status, answer.text.ends_with("{}")), (404, true));
    }

    #[test]
    fn a_refusal_before_the_end_of_the_body_has_its_message() {
        let message = r#"{"message":"no space left on device"}"#;
        for (body, wanted) in [
            (message.to_owned(), "dockerd answers 500: no space left on device"),
            (
                format!("25\r\n{message}\n\r\n0\r\n\r\n"),
                "dockerd answers 500: no space left on device",
            ),
            ("no".to_owned(), "dockerd answers 500"),
        ] {
            // The rest of the body is not read: the connection is reset.
            let refuses = move |mut stream: UnixStream| {
                let _ = stream.read(&mut [0; 1024]);
                let head = "HTTP/1.1 500 Internal Server Error\r\n\r\n";
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            };
            let failed = served(refuses, Duration::from_secs(600), None, |mut upload| {
                let failed = upload.write_all(&vec![0; 8 << 20]).unwrap_err();
                upload.cut(failed)
            });
            assert_eq!(failed.to_string(), wanted);
        }
    }
}
