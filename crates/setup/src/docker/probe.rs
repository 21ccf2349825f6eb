//! Probe containers in the running dockerd: steps of its builders, and an ordinary container.
//!
//! The image is imported, and no registry is asked. The records of a build by BuildKit in the build
//! cache are found in the answer to `/system/df` and removed one by one.

use super::{DROP_IN, api, builds, daemon_json, dockerd, version};
use crate::host::Host;
use crate::probe::{PROGRAM, Probed, REAL, archive, program, unique};
use crate::running::process::DaemonProcess;
use crate::systemd::Service;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_probe::docker::{Request, ask};

const REPOSITORY: &str = "synconce-check";
const ARCHIVE: &str = "application/x-tar";
/// The time for one answer: a step on a slow disk takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first version whose client builds by BuildKit unless it is told otherwise.
const BUILDS_BY_BUILDKIT: u32 = 23;

/// Runs the probe containers in the dockerd `process`, and removes all that they leave. Returns `None` if
/// its images are in containerd's store: its BuildKit then takes no context with the request.
///
/// # Errors
/// Why not all of them ran, for the user.
pub(crate) fn probe(host: &Host, process: &DaemonProcess) -> Result<Option<Probed>, String> {
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
    let probe = DockerProbe { socket, name: unique() };
    if stores_in_containerd(&probe.ask("GET", "/info", NOTHING)?) {
        return Ok(None);
    }
    let probed = probe.import().and_then(|()| probe.run(is_classic));
    let left = probe.remove().err();
    match (probed, left) {
        (Ok(probed), left) => Ok(Some(Probed { left, ..probed })),
        (Err(why), None) => Err(why),
        (Err(why), Some(left)) => Err(format!("{why}; {left}")),
    }
}

/// Whether the dockerd that answers `info` has its images in containerd's store.
fn stores_in_containerd(info: &str) -> bool {
    let info: Value = serde_json::from_str(info).unwrap_or_default();
    let mut status = info["DriverStatus"].as_array().into_iter().flatten();
    status.any(|pair| *pair == json!(["driver-type", "io.containerd.snapshotter.v1"]))
}

struct DockerProbe {
    socket: PathBuf,
    /// The tag of the image, and a word of the step.
    name: String,
}

impl DockerProbe {
    fn image(&self) -> String {
        format!("{REPOSITORY}:{}", self.name)
    }

    /// Returns the body of the answer, which has to be a success.
    fn ask(&self, method: &str, path: &str, body: (&str, &[u8])) -> Result<String, String> {
        let (media_type, body) = body;
        let request = Request { method, path, media_type, body };
        let failed = |why: String| format!("cannot ask {}: {why}", self.socket.display());
        let (status, body) =
            ask(&self.socket, &request, PATIENCE).map_err(|error| failed(error.to_string()))?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let said: Value = serde_json::from_str(&body).unwrap_or_default();
        let why = said["message"].as_str().map_or_else(|| status.to_string(), str::to_owned);
        Err(failed(why))
    }

    fn import(&self) -> Result<(), String> {
        let name = &self.name;
        let path = format!("/images/create?fromSrc=-&repo={REPOSITORY}&tag={name}");
        let image = archive(PROGRAM, &program()).map_err(in_memory)?;
        let answer = self.ask("POST", &path, (ARCHIVE, &image))?;
        error_of(&answer).map_or(Ok(()), |error| Err(format!("cannot import an image: {error}")))
    }

    fn run(&self, is_classic: bool) -> Result<Probed, String> {
        let mut real_steps = Vec::new();
        if !self.is_step_of_buildkit_held()? {
            real_steps.push("BuildKit");
        }
        if is_classic && !self.is_step_of_classic_builder_held()? {
            real_steps.push("the classic builder");
        }
        let is_ordinary_held = self.is_ordinary_held()?;
        Ok(Probed { real_steps, is_ordinary_held, left: None })
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
        let step = format!("{}-step", self.image());
        let path = format!("/build?nocache=1&networkmode=none&t={step}&{builder}");
        let answer = self.ask("POST", &path, (ARCHIVE, context))?;
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
        let made =
            self.ask("POST", "/containers/create", ("application/json", container.as_bytes()))?;
        let made: Value = serde_json::from_str(&made).unwrap_or_default();
        let id = made["Id"].as_str().ok_or("cannot understand the answer of dockerd")?;
        let started = self.ask("POST", &format!("/containers/{id}/start"), NOTHING);
        let ended =
            started.and_then(|_| self.ask("POST", &format!("/containers/{id}/wait"), NOTHING));
        let removed = self.ask("DELETE", &format!("/containers/{id}?force=1&v=1"), NOTHING);
        let ended: Value = serde_json::from_str(&ended?).unwrap_or_default();
        removed?;
        match ended["StatusCode"].as_i64() {
            Some(0) => Ok(true),
            Some(REAL) => Ok(false),
            other => Err(format!("the exit code of a container is {other:?}")),
        }
    }

    /// Removes the image and the records of the build cache.
    ///
    /// # Errors
    /// What is left, with the command that removes it.
    fn remove(&self) -> Result<(), String> {
        let image = self.image();
        let removed = self.ask("DELETE", &format!("/images/{image}"), NOTHING);
        removed.map_err(|why| format!("{why}; remove it: docker image rm {image}"))?;
        self.remove_records().map_err(|why| format!("{why}; remove it: docker builder prune"))
    }

    fn remove_records(&self) -> Result<(), String> {
        // Before Docker 23 dockerd lists all that it stores.
        let usage = self.ask("GET", "/system/df?type=build-cache", NOTHING)?;
        let usage: DiskUsage = serde_json::from_str(&usage)
            .map_err(|_| "cannot understand the build cache".to_owned())?;
        let records = usage.build_cache.unwrap_or_default();
        for id in self.own(&records) {
            // {"id":["ID"]}
            let filter = format!("%7B%22id%22%3A%5B%22{id}%22%5D%7D");
            self.ask("POST", &format!("/build/prune?all=1&filters={filter}"), NOTHING)?;
        }
        Ok(())
    }

    /// Returns the IDs of the records of this probe, each before the record that it is based on.
    fn own<'r>(&self, records: &'r [CacheRecord]) -> Vec<&'r str> {
        let size = self.dockerfile().len() as i64;
        let is_step = |record: &&CacheRecord| record.description.ends_with(&self.name);
        // The Dockerfile: each upload has a URL of its own, so no other build uses the record.
        let is_context = |record: &&CacheRecord| {
            record.description.starts_with("http url http://build-context-") && record.size == size
        };
        let context = records.iter().filter(is_context).max_by_key(|it| &it.created_at);
        // The layer of the image: no record of another image is younger and unshared.
        let is_base = |record: &&CacheRecord| {
            record.description.starts_with("from local")
                && !record.shared
                && context.is_some_and(|context| record.created_at > context.created_at)
        };
        let steps = records.iter().filter(is_step);
        let bases = records.iter().filter(is_base);
        steps.chain(bases).chain(context).map(|record| record.id.as_str()).collect()
    }
}

const NOTHING: (&str, &[u8]) = ("text/plain", b"");

/// The answer to `/system/df`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DiskUsage {
    build_cache: Option<Vec<CacheRecord>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CacheRecord {
    #[serde(rename = "ID")]
    id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    shared: bool,
    #[serde(default)]
    size: i64,
    /// RFC 3339, in UTC.
    #[serde(default)]
    created_at: String,
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
mod tests {
    use super::*;

    #[test]
    fn a_build_that_failed_by_its_sync_was_not_held() {
        let status = "{\"id\":\"moby.buildkit.trace\",\"aux\":\"CkR\"}\n";
        let failed = |error: &str| format!("{status}{{\"error\":\"{error}\"}}\n");
        assert_eq!(is_held(status), Ok(true));
        assert_eq!(is_held(&failed("executor failed running [/probe 7]: exit code: 9")), Ok(false));
        assert_eq!(is_held(&failed("'/probe' returned a non-zero code: 9")), Ok(false));
        let other = is_held(&failed("no space left on device")).unwrap_err();
        assert_eq!(other, "cannot build an image: no space left on device");
    }

    #[test]
    fn the_store_of_containerd_is_known() {
        let pair = r#"["driver-type","io.containerd.snapshotter.v1"]"#;
        assert!(stores_in_containerd(&format!(r#"{{"DriverStatus":[{pair}]}}"#)));
        assert!(!stores_in_containerd(r#"{"DriverStatus":[["Backing Filesystem","extfs"]]}"#));
        assert!(!stores_in_containerd(r#"{"Driver":"vfs","DriverStatus":null}"#));
    }

    #[test]
    fn only_records_of_this_probe_are_removed() {
        let probe = DockerProbe { socket: PathBuf::new(), name: "00c0ffee00c0ffee".to_owned() };
        let size = probe.dockerfile().len();
        let context = "http url http://build-context-ab";
        let step = format!("mount / from exec /probe {}", probe.name);
        let record = |id: &str, description: &str, size: usize, time: u32, shared: bool| {
            json!({
                "ID": id, "Description": description, "Size": size, "Shared": shared,
                "CreatedAt": format!("2026-11-30T00:00:{time:02}.1Z"), "InUse": false,
            })
        };
        let listed = json!([
            record("other", "mount / from exec /bin/sh -c make", 9, 21, false),
            record("old", "from local ", 0, 10, false),
            record("in-use", "from local ", 0, 22, true),
            record("theirs", context, 10_240, 21, false),
            record("context", context, size, 20, false),
            record("base", "from local ", 0, 21, false),
            record("step", &step, 0, 22, false),
        ]);
        let mut records: Vec<CacheRecord> = serde_json::from_value(listed).unwrap();
        assert_eq!(probe.own(&records), ["step", "base", "context"]);
        // The step failed.
        records.pop();
        assert_eq!(probe.own(&records), ["base", "context"]);
        records.remove(4);
        assert_eq!(probe.own(&records), [""; 0]);
    }
}
