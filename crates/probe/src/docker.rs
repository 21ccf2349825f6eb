//! Requests to dockerd by its HTTP API. [`ask`] also makes and removes objects of dockerd. A few
//! requests on a socket need no HTTP client, and no asynchronous runtime as bollard does.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where dockerd listens if nothing else is configured.
pub const SOCKET: &str = "/var/run/docker.sock";
/// The time for a whole answer. dockerd answers in milliseconds; a dockerd that hangs, or that
/// sends a byte now and then, must not hang its caller.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two looks at a cancellation.
const POLL: Duration = Duration::from_millis(100);
/// The API that can list the build cache alone (Docker 23), and the last that we know: later ones
/// may leave `BuildCache` out.
const WITH_TYPE: u32 = 42;
const LAST: u32 = 51;
/// The most bytes of an answer. 100,000 records of a build cache take some 50 MB.
const LIMIT: usize = 128 << 20;

/// Returns the path that lists the build cache and no more, if the API `version` has one.
pub fn disk_usage_path(version: &str) -> Option<String> {
    let minor: u32 = version.strip_prefix("1.")?.parse().ok()?;
    (minor >= WITH_TYPE).then(|| format!("/v1.{}/system/df?type=build-cache", minor.min(LAST)))
}

/// Returns the body of the answer to `GET path` from the dockerd at `socket`, which is JSON.
///
/// # Errors
/// The socket cannot be used, or the answer is none of dockerd's or not a success.
pub fn get(socket: &Path, path: &str) -> io::Result<String> {
    get_from(connect(socket)?, path)
}

/// Connects to `socket`.
///
/// # Errors
/// The socket cannot be used, or its queue of callers stays full.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    connect_within(socket, PATIENCE)
}

/// A daemon that hangs accepts no caller. When its queue is full, connect(2) waits for the timeout
/// of sends, which is endless by default.
fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))
        .map_err(|error| in_words(error.into()))?;
    Ok(socket.into())
}

/// Does what [`get`] does, by a socket that is connected.
///
/// # Errors
/// See [`get`].
pub fn get_from(mut stream: UnixStream, path: &str) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    send(&mut stream, path)?;
    match answer(&read_until(&mut stream, end, LIMIT, &|| false)?)? {
        (200, body) => Ok(body),
        (status, _) => Err(io::Error::other(format!("the answer to {path} is {status}"))),
    }
}

/// A request that has dockerd work.
pub struct Request<'a> {
    /// POST or DELETE.
    pub method: &'a str,
    /// With the parameters, escaped.
    pub path: &'a str,
    /// The media type of `body`.
    pub media_type: &'a str,
    /// What the request brings; may be empty.
    pub body: &'a [u8],
}

/// Returns the status and the body of the answer to `request` from the dockerd at `socket`, which
/// has the time `patience` for its work.
///
/// # Errors
/// The socket cannot be used, the answer is none of dockerd's, or `is_cancelled` (`Interrupted`).
pub fn ask(
    socket: &Path,
    request: &Request<'_>,
    patience: Duration,
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<(u16, String)> {
    let end = Instant::now() + patience;
    let mut stream = connect(socket)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Request { method, path, media_type, body } = request;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Type: {media_type}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).map_err(in_words)?;
    let read =
        read_until(&mut stream, end, LIMIT, is_cancelled).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => {
                let seconds = patience.as_secs();
                io::Error::new(ErrorKind::TimedOut, format!("no answer within {seconds} s"))
            }
            _ => error,
        })?;
    answer(&read)
}

/// Returns the status and the body of an answer.
fn answer(text: &[u8]) -> io::Result<(u16, String)> {
    let odd = || io::Error::new(ErrorKind::InvalidData, "the answer is none of dockerd's");
    let text = str::from_utf8(text).map_err(|_| odd())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(odd)?;
    let status = head.lines().next().and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(odd)?;
    Ok((status, body.to_owned()))
}

/// Sends `GET path` by `stream`.
///
/// # Errors
/// The socket cannot be written.
pub fn send(stream: &mut UnixStream, path: &str) -> io::Result<()> {
    // HTTP/1.0: the answer ends with the connection, and is in one piece.
    send_head(stream, &format!("GET {path} HTTP/1.0"), "")
}

/// Sends the first line of a request, then `headers`, which end with CR LF, by `stream`. A body can
/// follow.
///
/// # Errors
/// The socket cannot be written.
pub fn send_head(stream: &mut UnixStream, request: &str, headers: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!("{request}\r\nHost: docker\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).map_err(in_words)
}

/// Reads `stream` to its end, which has to come before `end` and `is_cancelled`, and within `limit`
/// bytes.
fn read_until(
    stream: &mut UnixStream,
    end: Instant,
    limit: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut part = vec![0; 64 << 10];
    while answer.len() <= limit {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(too_late());
        }
        if is_cancelled() {
            return Err(io::Error::new(ErrorKind::Interrupted, "interrupted by a signal"));
        }
        stream.set_read_timeout(Some(left.min(POLL)))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidData, "the answer is too long"))
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer within 10 s")
}

/// Returns `error`, in words if it is the end of a timeout of the socket.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => too_late(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what `get_from` returns for the answer `text`.
    fn answered(text: &str) -> io::Result<String> {
        let (ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(text.as_bytes())?;
        theirs.shutdown(std::net::Shutdown::Write)?;
        get_from(ours, "/info")
    }

    #[test]
    fn only_the_body_of_a_success_is_returned() {
        let body = answered("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"a\": 1}").unwrap();
        assert_eq!(body, "{\"a\": 1}");
        let refused = answered("HTTP/1.0 500 Internal Server Error\r\n\r\n{}").unwrap_err();
        assert_eq!(refused.to_string(), "the answer to /info is 500");
        for odd in ["", "nonsense", "HTTP/1.0\r\n\r\n"] {
            assert_eq!(answered(odd).unwrap_err().kind(), ErrorKind::InvalidData, "{odd}");
        }
    }

    #[test]
    fn an_answer_has_to_end_in_time_and_within_the_limit() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let failed = read_until(&mut ours, Instant::now(), 1, &|| false).unwrap_err();
        assert_eq!(failed.to_string(), "no answer within 10 s");
        // A byte now and then does not move the end.
        let sender = std::thread::spawn(move || while (&theirs).write_all(b"a").is_ok() {});
        let soon = Instant::now() + Duration::from_millis(20);
        let failed = read_until(&mut ours, soon, usize::MAX, &|| false).unwrap_err();
        assert_eq!(failed.to_string(), "no answer within 10 s");
        let later = Instant::now() + PATIENCE;
        let failed = read_until(&mut ours, later, 1 << 10, &|| false).unwrap_err();
        assert_eq!(failed.to_string(), "the answer is too long");
        drop(ours);
        sender.join().unwrap();
    }

    #[test]
    fn a_daemon_that_accepts_no_caller_hangs_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let kind = SocketType::STREAM;
        let full = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&full, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        // The queue has room for one.
        let _first = connect(&path).unwrap();
        let failed = connect_within(&path, Duration::from_millis(20)).unwrap_err();
        assert_eq!(failed.to_string(), "no answer within 10 s");
    }

    #[test]
    fn the_build_cache_is_asked_for_only_where_that_walks_no_volumes() {
        let path = |minor: u32| Some(format!("/v1.{minor}/system/df?type=build-cache"));
        assert_eq!(disk_usage_path("1.41"), None);
        assert_eq!(disk_usage_path("1.42"), path(42));
        assert_eq!(disk_usage_path("1.47"), path(47));
        assert_eq!(disk_usage_path("1.60"), path(51));
        assert_eq!(disk_usage_path("2.0"), None);
    }

    #[test]
    fn a_request_has_its_body_and_its_own_patience() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let mut read = [0; 200];
            let (mut stream, _) = listener.accept().unwrap();
            let length = stream.read(&mut read).unwrap();
            stream.write_all(b"HTTP/1.0 201 Created\r\n\r\n{}").unwrap();
            drop(stream);
            let silent = [(); 2].map(|()| listener.accept().unwrap());
            (String::from_utf8_lossy(&read[..length]).into_owned(), silent)
        });
        let request =
            Request { method: "POST", path: "/x?y=1", media_type: "text/plain", body: b"abc" };
        let ask = |seconds: u64, is_cancelled: &dyn Fn() -> bool| {
            ask(&path, &request, Duration::from_secs(seconds), is_cancelled)
        };
        assert_eq!(ask(60, &|| false).unwrap(), (201, "{}".to_owned()));
        assert_eq!(ask(1, &|| false).unwrap_err().to_string(), "no answer within 1 s");
        // A signal arrives during the wait.
        let begin = Instant::now();
        let cancelled = ask(60, &|| begin.elapsed() > POLL).unwrap_err();
        assert_eq!(cancelled.to_string(), "interrupted by a signal");
        assert!(begin.elapsed() < Duration::from_secs(30));
        let (said, _silent) = server.join().unwrap();
        assert!(said.starts_with("POST /x?y=1 HTTP/1.0\r\n"), "{said}");
        assert!(said.ends_with("Content-Length: 3\r\n\r\nabc"), "{said}");
    }

    #[test]
    fn an_answer_that_is_no_text_is_none_of_dockerds() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"HTTP/1.0 200 OK\r\n\r\n\xff").unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(get_from(ours, "/info").unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
