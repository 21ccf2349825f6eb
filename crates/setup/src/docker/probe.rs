//! Probe containers in the running dockerd: steps of its builders, and an ordinary container.
//!
//! The image is imported, and no registry is asked. The records of a build by BuildKit in the build
//! cache are found in the answer to `/system/df` and removed one by one.

mod records;
mod removal;

use super::{DROP_IN, api, builds, daemon_json, dockerd, version};
use crate::host::Host;
use crate::probe::program::{PROGRAM, REAL, archive, program};
use crate::probe::requests::{PATIENCE, Probed, Removed, Requests, Tried, unique};
use crate::running::process::DaemonProcess;
use crate::systemd::Service;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use synconce_probe::docker::{Request, ask};
use synconce_probe::version::numbers;

const REPOSITORY: &str = "synconce-check";
const ARCHIVE: &str = "application/x-tar";
const IN_CONTAINERD: &str = "no probe container was run: before Docker 28, BuildKit reads no uploaded Dockerfile with containerd's image store";
/// The first version whose BuildKit reads an uploaded Dockerfile with containerd's image store
/// (moby 49178). Earlier versions ask the network for the upload's invented host name.
const READS_UPLOADS: u32 = 28;
/// The first version whose client builds by BuildKit unless `DOCKER_BUILDKIT` is 0.
const BUILDS_BY_BUILDKIT: u32 = 23;

/// Runs the probe containers in the dockerd `process`, and removes all that they leave.
///
/// # Errors
/// Its images are in containerd's store, and it is older than [`READS_UPLOADS`].
pub(crate) fn probe(
    host: &Host,
    process: &DaemonProcess,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Tried, String> {
    let step = ("step", "docker build --no-cache .");
    let (probed, (last, by_hand), removed) = match prepare(host, process, is_cancelled) {
        Ok(None) => return Err(IN_CONTAINERD.to_owned()),
        Ok(Some((probe, is_classic))) => {
            let (probed, last) = match probe.import().and_then(|()| probe.run_steps(is_classic)) {
                Err(why) => (Err(why), step),
                Ok(real) => {
                    let is_held = probe.is_ordinary_held();
                    let probed = is_held.map(|it| Probed { real, is_ordinary_held: Some(it) });
                    (probed, ("container", "docker run --rm IMAGE COMMAND"))
                }
            };
            (probed, last, probe.remove())
        }
        Err(why) => (Err(why), step, Removed::default()),
    };
    Ok(Tried { probed, last, by_hand: by_hand.to_owned(), removed })
}

/// Returns the probe, and whether it tries the classic builder; see [`probe`].
fn prepare<'a>(
    host: &Host,
    process: &DaemonProcess,
    is_cancelled: &'a dyn Fn() -> bool,
) -> Result<Option<(DockerProbe<'a>, bool)>, String> {
    let read = || {
        let service = Service::read(host, "docker", Path::new(DROP_IN))?;
        let (_, text) = host.text(&daemon_json(host, &service)?)?;
        Ok((service, daemon_json::hosts(&text.unwrap_or_default())))
    };
    let (service, hosts) = read().map_err(|error: crate::error::Error| error.to_string())?;
    let words = process.words("cmdline").unwrap_or_default();
    let socket = api::socket(&words, &hosts).ok_or("dockerd serves no unix socket")?;
    let version = version(host, dockerd(host, &service));
    let is_classic = version.is_some_and(|version| version < BUILDS_BY_BUILDKIT);
    let is_classic = is_classic && !builds::is_made(host);
    let requests = Requests::new(is_cancelled);
    let store = ImageStore::OfDockerd;
    let mut probe = DockerProbe { socket, name: unique(), begin: now(), requests, store };
    if stores_in_containerd(&probe.ask("GET", "/info", NOTHING)?) {
        // The file may be newer than the running daemon.
        let version: Value =
            serde_json::from_str(&probe.ask("GET", "/version", NOTHING)?).unwrap_or_default();
        let numbers = numbers(version["Version"].as_str().unwrap_or_default());
        if numbers < Some((READS_UPLOADS, 0)) {
            return Ok(None);
        }
        probe.store = ImageStore::OfContainerd;
    }
    Ok(Some((probe, is_classic)))
}

/// Where a dockerd has its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageStore {
    OfDockerd,
    OfContainerd,
}

/// Whether the dockerd that answers `info` has its images in containerd's store.
fn stores_in_containerd(info: &str) -> bool {
    let info: Value = serde_json::from_str(info).unwrap_or_default();
    let mut status = info["DriverStatus"].as_array().into_iter().flatten();
    status.any(|pair| *pair == json!(["driver-type", "io.containerd.snapshotter.v1"]))
}

struct DockerProbe<'a> {
    socket: PathBuf,
    /// The tag of the image, a word of the step, and a part of the container's name.
    name: String,
    /// In seconds since 1970.
    begin: i64,
    requests: Requests<'a>,
    store: ImageStore,
}

impl DockerProbe<'_> {
    fn image(&self) -> String {
        format!("{REPOSITORY}:{}", self.name)
    }

    /// Returns the name of the image that steps build.
    fn step(&self) -> String {
        format!("{}-step", self.image())
    }

    fn container(&self) -> String {
        format!("{REPOSITORY}-{}", self.name)
    }

    /// Returns the body of the answer, which has to be a success.
    fn ask(&self, method: &str, path: &str, body: (&str, &[u8])) -> Result<String, String> {
        let answered = self.requests.send(None, |it| self.send(method, path, body, it));
        answered.and_then(|(status, body)| self.success(status, body))
    }

    /// Asks dockerd to make `name`; see [`DockerProbe::ask`].
    fn make(&self, name: &str, path: &str, body: (&str, &[u8])) -> Result<String, String> {
        let answered = self.requests.send(Some(name), |it| self.send("POST", path, body, it));
        answered.and_then(|(status, body)| self.success(status, body))
    }

    /// Returns the status and the body of the answer.
    fn send(
        &self,
        method: &str,
        path: &str,
        (media_type, body): (&str, &[u8]),
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(u16, String), String> {
        let request = Request { method, path, media_type, body };
        let answered = ask(&self.socket, &request, PATIENCE, is_cancelled);
        answered.map_err(|error| self.failed(&error.to_string()))
    }

    fn success(&self, status: u16, body: String) -> Result<String, String> {
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let said: Value = serde_json::from_str(&body).unwrap_or_default();
        Err(self.failed(said["message"].as_str().unwrap_or(&status.to_string())))
    }

    fn failed(&self, why: &str) -> String {
        format!("cannot ask {}: {why}", self.socket.display())
    }

    fn import(&self) -> Result<(), String> {
        let name = &self.name;
        // Steps, containers and images without a name have the label of their image, too.
        let label = format!("changes=LABEL%20{REPOSITORY}%3D{name}");
        let path = format!("/images/create?fromSrc=-&repo={REPOSITORY}&tag={name}&{label}");
        let image = archive(PROGRAM, &program()).map_err(in_memory)?;
        let answer = self.make(&self.image(), &path, (ARCHIVE, &image))?;
        error_of(&answer).map_or(Ok(()), |error| Err(format!("cannot import an image: {error}")))
    }

    /// Returns the builders whose step was not held.
    fn run_steps(&self, is_classic: bool) -> Result<Vec<&'static str>, String> {
        let mut real = Vec::new();
        if !self.is_step_of_buildkit_held()? {
            real.push("BuildKit");
        }
        if is_classic && !self.is_step_of_classic_builder_held()? {
            real.push("the classic builder");
        }
        Ok(real)
    }

    fn dockerfile(&self) -> String {
        format!("FROM {}\nRUN [\"/{PROGRAM}\", \"{}\"]\n", self.image(), self.name)
    }

    fn is_step_of_buildkit_held(&self) -> Result<bool, String> {
        // A context that is no archive is the Dockerfile.
        self.is_step_held("version=2", self.dockerfile().as_bytes())
    }

    fn is_step_of_classic_builder_held(&self) -> Result<bool, String> {
        let context = archive("Dockerfile", self.dockerfile().as_bytes()).map_err(in_memory)?;
        self.is_step_held("rm=1&forcerm=1", &context)
    }

    /// Builds an image with the parameters `builder`, and removes the image.
    fn is_step_held(&self, builder: &str, context: &[u8]) -> Result<bool, String> {
        // Not every dockerd can build without an image (`cacheonly`).
        let step = self.step();
        let path = format!("/build?nocache=1&networkmode=none&t={step}&{builder}");
        let answer = self.make(&step, &path, (ARCHIVE, context))?;
        let is_held = is_held(&answer);
        if is_held == Ok(true) {
            self.ask("DELETE", &format!("/images/{step}"), NOTHING)?;
        }
        is_held
    }

    fn is_ordinary_held(&self) -> Result<bool, String> {
        let container = json!({
            "Image": self.image(),
            "Cmd": [format!("/{PROGRAM}")],
            "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "none"}},
        });
        let container = container.to_string();
        let (name, json) = (self.container(), "application/json");
        let path = format!("/containers/create?name={name}");
        self.make(&name, &path, (json, container.as_bytes()))?;
        self.ask("POST", &format!("/containers/{name}/start"), NOTHING)?;
        let ended = self.ask("POST", &format!("/containers/{name}/wait"), NOTHING)?;
        let ended: Value = serde_json::from_str(&ended).unwrap_or_default();
        match ended["StatusCode"].as_i64() {
            Some(0) => Ok(true),
            Some(REAL) => Ok(false),
            other => Err(format!("the exit code of a container is {other:?}")),
        }
    }
}

const NOTHING: (&str, &[u8]) = ("text/plain", b"");

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() as i64
}

/// Returns whether the only step of a build was held.
fn is_held(answer: &str) -> Result<bool, String> {
    match error_of(answer) {
        None => Ok(true),
        // BuildKit says "exit code: 9", the classic builder "a non-zero code: 9".
        Some(error) if error.ends_with(&format!("code: {REAL}")) => Ok(false),
        Some(error) => Err(format!("cannot build an image: {error}")),
    }
}

/// Returns the error in the lines of an answer.
fn error_of(answer: &str) -> Option<String> {
    answer.lines().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["error"].as_str().map(str::to_owned)
    })
}

fn in_memory(error: io::Error) -> String {
    format!("cannot make an archive: {error}")
}

#[cfg(test)]
mod tests;
