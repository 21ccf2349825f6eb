//! Questions to a running dockerd.

use serde_json::Value;
use std::path::{Path, PathBuf};
use synconce_probe::docker::{SOCKET, get};

/// Returns the socket of the dockerd with the command line `words`.
pub(super) fn socket(words: &[String]) -> PathBuf {
    let unix = words.iter().filter_map(|word| word.split_once("unix://"));
    let mut unix = unix.map(|(_, path)| path).filter(|path| path.starts_with('/'));
    PathBuf::from(unix.next().unwrap_or(SOCKET))
}

/// Returns the default runtime of the dockerd at `socket`; `None` if it does not answer.
pub(super) fn default_runtime(socket: &Path) -> Option<String> {
    let info: Value = serde_json::from_str(&get(socket, "/info").ok()?).ok()?;
    info["DefaultRuntime"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_socket_is_that_of_the_command_line_or_the_usual_one() {
        for (line, wanted) in [
            ("dockerd -H fd://", SOCKET),
            ("dockerd --host unix:///run/d.sock", "/run/d.sock"),
            ("dockerd --host=tcp://0.0.0.0 --host=unix:///run/d.sock", "/run/d.sock"),
        ] {
            assert_eq!(socket(&words(line)), Path::new(wanted), "{line}");
        }
    }

    #[test]
    fn a_daemon_that_does_not_answer_as_dockerd_does_has_no_known_runtime() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(default_runtime(&path), None);
        let listener = UnixListener::bind(&path).unwrap();
        let answers = ["nonsense", "HTTP/1.0 200 OK\r\n\r\n{\"DefaultRuntime\": \"runc\"}"];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 100]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(default_runtime(&path), None);
        assert_eq!(default_runtime(&path).as_deref(), Some("runc"));
        server.join().unwrap();
    }
}
