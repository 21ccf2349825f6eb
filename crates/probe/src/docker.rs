//! Questions to dockerd by its HTTP API.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where dockerd listens if nothing else is configured.
pub const SOCKET: &str = "/var/run/docker.sock";
/// dockerd answers in milliseconds; a dockerd that hangs must not hang its caller.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the body of the answer to `GET path` from the dockerd at `socket`, which is JSON.
///
/// # Errors
/// The socket cannot be used, or the answer is none of dockerd's or not a success.
pub fn get(socket: &Path, path: &str) -> io::Result<String> {
    get_from(UnixStream::connect(socket)?, path)
}

/// Does what [`get`] does, by a socket that is connected.
///
/// # Errors
/// See [`get`].
pub fn get_from(mut stream: UnixStream, path: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer ends with the connection, and is in one piece.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no answer within 10 s"),
        _ => error,
    })?;
    let odd = || io::Error::new(ErrorKind::InvalidData, "the answer is none of dockerd's");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(odd)?;
    let status = head.lines().next().and_then(|line| line.split(' ').nth(1)).ok_or_else(odd)?;
    match status {
        "200" => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("the answer to {path} is {status}"))),
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
}
