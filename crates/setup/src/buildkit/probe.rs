//! A probe step in the running buildkitd, by buildctl.
//!
//! The build is a definition in buildctl's input, so that it needs no frontend, no image and no
//! local directory. It makes the program as a file, and executes it. Both records of the build
//! cache have the name of the file in their descriptions, by which they are found and removed.

use super::CONFIGURATION;
use crate::host::Host;
use crate::probe::client;
use crate::probe::program::program;
use crate::probe::requests::{Probed, Removed, Tried, after_grace, unique, until_gone};
use crate::running::process::DaemonProcess;
use crate::toml::TomlFile;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use synconce_sys::child::input;

const SOCKET: &str = "unix:///run/buildkit/buildkitd.sock";

/// Runs the step in the buildkitd `process`, and removes what it leaves.
///
/// # Errors
/// There is no buildctl, or no socket that it can ask.
pub(crate) fn probe(
    host: &Host,
    process: &DaemonProcess,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Tried, String> {
    let buildctl = client::find(host, process, "buildctl")?;
    let address = address(host, process)?;
    let name = format!("synconce-check-{}", unique());
    Ok(BuildkitProbe { buildctl, address, name, is_cancelled }.tried())
}

/// Returns the address of `process`: of its command line, or else of its configuration file.
fn address(host: &Host, process: &DaemonProcess) -> Result<String, String> {
    let mut said = process.values(&["--addr", "-addr"]);
    if said.is_empty() {
        let file = process.values(&["--config", "-config"]).into_iter().next();
        let file = TomlFile::read(host, Path::new(file.as_deref().unwrap_or(CONFIGURATION)));
        let address = file.and_then(|file| file.texts(&["grpc", "address"]));
        said = address.map_err(|error| error.to_string())?.unwrap_or_default();
    }
    choose(said)
}

/// Returns the unix socket among the addresses `said`, or the usual one.
fn choose(said: Vec<String>) -> Result<String, String> {
    // fd:// is a socket that systemd has made, at the usual path.
    let is_usual = |address: &String| address.starts_with("fd://");
    if said.is_empty() || said.iter().any(is_usual) {
        return Ok(SOCKET.to_owned());
    }
    let found = said.into_iter().find(|address| address.starts_with("unix://"));
    found.ok_or_else(|| "no probe container was run: buildkitd serves no unix socket".to_owned())
}

struct BuildkitProbe<'a> {
    buildctl: PathBuf,
    address: String,
    /// The name of the program's file.
    name: String,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl BuildkitProbe<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.buildctl);
        command.args(["--addr", &self.address]).args(words);
        command
    }

    fn tried(&self) -> Tried {
        let definition = definition(&format!("/{}", self.name), &program());
        let (is_held, fault) = match input(&definition) {
            Ok(input) => self.build(input),
            Err(error) => (Err(format!("cannot make a build: {error}")), None),
        };
        let probed = is_held.map(|is_held| {
            let real = if is_held { Vec::new() } else { vec!["buildkitd"] };
            Probed { real, is_ordinary_held: None }
        });
        let by_hand = format!(
            "{} --addr {} build --no-cache --frontend dockerfile.v0 --local context=. --local dockerfile=.",
            self.buildctl.display(),
            self.address
        );
        let removed = Removed { left: fault.into_iter().collect(), notes: Vec::new() };
        Tried { probed, last: "step", by_hand, removed }
    }

    /// Returns whether the step of the build was held, and what its removal lacks.
    fn build(&self, definition: File) -> (Result<bool, String>, Option<String>) {
        let mut build = self.command(&["build", "--progress=plain"]);
        let ended = client::run_with(build.stdin(definition), self.is_cancelled);
        let is_cut = ended.is_err();
        let is_held = ended.and_then(|ended| client::is_held(&ended, "buildctl build"));
        let filter = format!("--filter=description~={}", self.name);
        let why = match self.remove(&filter, is_cut) {
            Ok(left) if left.is_empty() => None,
            Ok(_) => Some("a record of the build cache is in use".to_owned()),
            // The build has failed for the same reason.
            Err(_) if is_held.is_err() && !is_cut => None,
            Err(why) => Some(why),
        };
        let (client, address) = (self.buildctl.display(), &self.address);
        let remedy = format!("remove it: {client} --addr {address} prune --all {filter}");
        (is_held, why.map(|why| format!("{why}; {remedy}")))
    }

    /// Removes the records of the build cache. Returns those that are left.
    fn remove(&self, filter: &str, is_cut: bool) -> Result<Vec<String>, String> {
        let is_cancelled = after_grace(self.is_cancelled);
        let run = |words: &[&str]| -> Result<Output, String> {
            client::run(&mut self.command(&[words, &[filter]].concat()), &is_cancelled)
        };
        until_gone(is_cut, || {
            client::succeed(run(&["prune", "--all"])?, "buildctl prune")?;
            let listed = client::succeed(run(&["du", "--verbose"])?, "buildctl du")?;
            Ok(listed.lines().filter(|line| line.starts_with("ID:")).map(str::to_owned).collect())
        })
    }
}

/// Returns the definition of a build that makes `program` as the file `path` and executes it
/// without a network (`pb.Definition` of BuildKit, in the encoding of protobuf).
fn definition(path: &str, program: &[u8]) -> Vec<u8> {
    const NO_NETWORK: i64 = 2;
    // The file has no input, and its time is the time of the build.
    const NONE: i64 = -1;
    let make = [bytes(1, path.as_bytes()), number(2, 0o755), bytes(3, program), number(5, NONE)];
    let action = [number(1, NONE), number(2, NONE), bytes(5, &make.concat())];
    let file = bytes(4, &bytes(2, &action.concat()));
    let execute = [
        bytes(1, &[bytes(1, path.as_bytes()), bytes(3, b"/")].concat()),
        bytes(2, &bytes(3, b"/")),
        number(3, NO_NETWORK),
    ];
    let step = [input_of(&file), bytes(2, &execute.concat())].concat();
    let result = input_of(&step);
    [file, step, result].iter().flat_map(|operation| bytes(1, operation)).collect()
}

/// Returns the field of an operation that names the result of `operation` as its input.
fn input_of(operation: &[u8]) -> Vec<u8> {
    let digest: String =
        Sha256::digest(operation).iter().map(|byte| format!("{byte:02x}")).collect();
    bytes(1, &bytes(1, format!("sha256:{digest}").as_bytes()))
}

fn number(field: u8, value: i64) -> Vec<u8> {
    [vec![field << 3], varint(value as u64)].concat()
}

fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    while value >= 0x80 {
        encoded.push(value as u8 | 0x80);
        value >>= 7;
    }
    encoded.push(value as u8);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::client::tests::fake;
    use crate::probe::requests::SETTLE;
    use std::time::Instant;

    #[test]
    fn a_build_that_was_not_made_leaves_no_record() {
        let tried = |script: &str, is_cancelled: &dyn Fn() -> bool| {
            let directory = tempfile::tempdir().unwrap();
            let buildctl = fake(directory.path(), script);
            let (address, name) = ("address".into(), "synconce-check-00c0ffee".into());
            BuildkitProbe { buildctl, address, name, is_cancelled }.tried()
        };
        let begin = Instant::now();
        let script = "echo 'connection refused' >&2; exit 1";
        let Tried { probed, by_hand, removed, .. } = tried(script, &|| false);
        assert_eq!(probed.unwrap_err(), "buildctl build fails: connection refused");
        assert!(by_hand.contains("/client --addr address build "), "{by_hand}");
        assert_eq!(removed, Removed::default());
        assert!(begin.elapsed() < SETTLE);
        // A build that was cut may go on.
        let Tried { removed, .. } = tried("exec sleep 60", &|| true);
        assert!(removed.left[0].ends_with("description~=synconce-check-00c0ffee"), "{removed:?}");
        let step = "case $* in *' build '*) echo 'no space' >&2; exit 1;; *du*) echo ID: ab;; esac";
        let Tried { removed, .. } = tried(step, &|| false);
        assert!(removed.left[0].starts_with("a record of the build cache is in use; "));
    }

    #[test]
    fn a_unix_socket_is_asked() {
        for (said, address) in [
            ("", Some(SOCKET)),
            ("fd://", Some(SOCKET)),
            ("tcp://0.0.0.0:1234 unix:///run/b.sock", Some("unix:///run/b.sock")),
            ("tcp://0.0.0.0:1234", None),
        ] {
            let chosen = choose(said.split_whitespace().map(str::to_owned).collect());
            assert_eq!(chosen.ok().as_deref(), address, "{said}");
        }
    }

    #[test]
    fn numbers_and_bytes_are_encoded_as_protobuf_does() {
        assert_eq!(number(2, 0o755), [0x10, 0xed, 0x03]);
        assert_eq!(number(1, -1), [&[0x08][..], &[0xff; 9], &[0x01]].concat());
        assert_eq!(bytes(3, b"ab"), *b"\x1a\x02ab");
        assert_eq!(bytes(1, &[7; 300])[..3], [0x0a, 0xac, 0x02]);
    }
}
