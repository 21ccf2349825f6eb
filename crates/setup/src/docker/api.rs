//! Questions to a running dockerd.

use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_durable::error::Context;
use synconce_probe::docker::{SOCKET, get};

/// Returns the socket of the dockerd with the command line `words` and the `hosts` of its
/// daemon.json; `None` if it serves no socket of this machine. dockerd does not start if both name
/// hosts.
pub(super) fn socket(words: &[String], hosts: &[String]) -> Option<PathBuf> {
    let said: Vec<&str> = on_command_line(words).chain(hosts.iter().map(String::as_str)).collect();
    if said.is_empty() {
        return Some(SOCKET.into());
    }
    said.iter().find_map(|host| match host.split_once("://") {
        // systemd's docker.socket.
        Some(("fd", _)) | Some(("unix", "")) => Some(SOCKET.into()),
        Some(("unix", path)) => Some(PathBuf::from(path)),
        _ => None,
    })
}

/// Returns the values of `--host`.
fn on_command_line(words: &[String]) -> impl Iterator<Item = &str> {
    let names = ["-H", "--host"];
    let joined = ["--host=", "-H=", "-H"];
    words.iter().enumerate().filter_map(move |(at, word)| {
        if names.contains(&word.as_str()) {
            words.get(at + 1).map(String::as_str)
        } else {
            joined.iter().find_map(|name| word.strip_prefix(name))
        }
    })
}

/// Returns the default runtime of the dockerd at `socket`.
///
/// # Errors
/// Why it is not known.
pub(super) fn default_runtime(socket: &Path) -> Result<String, String> {
    // What is no answer of dockerd's has no runtime, as an answer without one.
    let body = match get(socket, "/info") {
        Err(error) if error.kind() == ErrorKind::InvalidData => String::new(),
        answered => answered.on("cannot ask", socket).map_err(|error| error.to_string())?,
    };
    let info: Value = serde_json::from_str(&body).unwrap_or_default();
    let name = info["DefaultRuntime"].as_str().map(str::to_owned);
    name.ok_or_else(|| format!("cannot understand the answer of {}", socket.display()))
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
    fn the_socket_is_that_of_the_command_line_or_of_the_file_or_the_usual_one() {
        for (line, hosts, wanted) in [
            ("dockerd", "", Some(SOCKET)),
            ("dockerd -H fd://", "", Some(SOCKET)),
            ("dockerd -H unix://", "", Some(SOCKET)),
            ("dockerd --host unix:///run/d.sock", "", Some("/run/d.sock")),
            ("dockerd -Hunix:///run/d.sock", "", Some("/run/d.sock")),
            ("dockerd --host=tcp://0.0.0.0 --host=unix:///run/d.sock", "", Some("/run/d.sock")),
            ("dockerd", "tcp://0.0.0.0 unix:///run/d.sock", Some("/run/d.sock")),
            ("dockerd", "fd://", Some(SOCKET)),
            ("dockerd", "tcp://0.0.0.0", None),
            ("dockerd -H tcp://0.0.0.0:2376", "", None),
        ] {
            let hosts: Vec<_> = hosts.split_whitespace().map(str::to_owned).collect();
            let found = socket(&words(line), &hosts);
            assert_eq!(found.as_deref(), wanted.map(Path::new), "{line} {hosts:?}");
        }
    }

    #[test]
    fn a_daemon_that_does_not_answer_as_dockerd_does_has_no_known_runtime() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert!(
            default_runtime(&path).is_err_and(|why| why.ends_with(": No such file or directory"))
        );
        let listener = UnixListener::bind(&path).unwrap();
        let answers = ["nonsense", "HTTP/1.0 200 OK\r\n\r\n{\"DefaultRuntime\": \"runc\"}"];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 100]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(default_runtime(&path).is_err());
        assert_eq!(default_runtime(&path).as_deref(), Ok("runc"));
        server.join().unwrap();
    }
}
