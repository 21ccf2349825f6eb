//! Probe containers by Podman: a step of `podman build`, and an ordinary container. They have storage
//! of their own.

use super::PLACES;
use crate::host::Host;
use crate::probe::{PROGRAM, Probed, REAL, program, unique};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use synconce_durable::error::Context;

const IMAGE: &str = "synconce-check";
/// For the storage. A temporary directory may be mounted `noexec`.
const STORAGE: &str = "/var/lib";
/// For files of the runtime: Podman takes no path of more than 50 characters.
const RUN: &str = "/run";

/// Runs the probe containers, and removes them. Returns `None` without Podman.
pub(crate) fn probe(host: &Host) -> Option<Result<Probed, String>> {
    let podman = host.first_executable(&PLACES[..2])?;
    let name = format!("{IMAGE}-{}", unique());
    let [storage, run] = [STORAGE, RUN].map(|parent| Path::new(parent).join(&name));
    let probe = PodmanProbe { podman: podman.into(), storage, run };
    let probed = probe.prepare().map_err(|error| error.to_string()).and_then(|()| probe.run());
    let left = [&probe.storage, &probe.run].into_iter().find_map(|directory| {
        let removed = fs::remove_dir_all(directory).on("cannot remove", directory);
        let error = removed.err().filter(|error| error.io().kind() != ErrorKind::NotFound)?;
        Some(format!("{error}; remove it: rm -r {}", directory.display()))
    });
    Some(match (probed, left) {
        (Ok(probed), left) => Ok(Probed { left, ..probed }),
        (Err(why), None) => Err(why),
        (Err(why), Some(left)) => Err(format!("{why}; {left}")),
    })
}

struct PodmanProbe {
    podman: PathBuf,
    storage: PathBuf,
    run: PathBuf,
}

impl PodmanProbe {
    /// Makes the context of the build.
    fn prepare(&self) -> Result<(), synconce_durable::error::Error> {
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        let context = self.storage.join("context");
        let (file, path) = (context.join("Dockerfile"), context.join(PROGRAM));
        let text = format!("FROM scratch\nCOPY {PROGRAM} /\nRUN [\"/{PROGRAM}\"]\n");
        let write = || -> io::Result<()> {
            make(&self.run)?;
            make(&self.storage)?;
            make(&context)?;
            fs::write(file, text)?;
            fs::write(&path, program())?;
            fs::set_permissions(&path, Permissions::from_mode(0o755))
        };
        write().on("cannot make", &self.storage)
    }

    fn run(&self) -> Result<Probed, String> {
        let context = self.storage.join("context").display().to_string();
        let tag = format!("--tag={IMAGE}");
        let build = ["build", "--layers=false", "--no-cache", "--network=none", &tag, &context];
        let mut real_steps = Vec::new();
        if !self.is_held("build", &build)? {
            real_steps.push("podman build");
            // The image of a failed step was not made.
            let file = self.storage.join("context/Dockerfile");
            let text = format!("FROM scratch\nCOPY {PROGRAM} /\n");
            fs::write(&file, text).on("cannot write", &file).map_err(|error| error.to_string())?;
            self.is_held("build", &build)?;
        }
        let image = format!("/{PROGRAM}");
        let run = ["run", "--rm", "--network=none", "--log-driver=none", IMAGE, &image];
        let is_ordinary_held = self.is_held("run", &run)?;
        Ok(Probed { real_steps, is_ordinary_held, left: None })
    }

    /// Runs Podman with `words`, which run the program. Returns whether its sync was held.
    fn is_held(&self, verb: &str, words: &[&str]) -> Result<bool, String> {
        let mut command = Command::new(&self.podman);
        command.arg("--root").arg(self.storage.join("root")).arg("--runroot").arg(&self.run);
        command.arg("--tmpdir").arg(self.run.join("tmp")).arg("--storage-driver=vfs");
        command.args(words).stdin(Stdio::null());
        let ended = command.output().on("cannot execute", &self.podman);
        let ended = ended.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().last().unwrap_or_default();
        match ended.status.code().map(i64::from) {
            Some(0) => Ok(true),
            Some(REAL) => Ok(false),
            _ if last.ends_with(&format!("exit status {REAL}")) => Ok(false),
            _ => Err(format!("podman {verb} fails: {last}")),
        }
    }
}
