//! Probe containers by Podman: a step of `podman build`, and an ordinary container. They have
//! storage of their own.

use super::PLACES;
use crate::host::Host;
use crate::probe::program::PROGRAM;
use crate::probe::requests::{Probed, Removed, Tried, unique};
use crate::probe::{client, directory};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_durable::error::Context;

const IMAGE: &str = "synconce-check";
/// For files of the runtime: Podman takes no path of more than 50 characters.
const RUN: &str = "/run";

/// Runs the probe containers, and removes them. Returns `None` without Podman.
pub(crate) fn probe(host: &Host, is_cancelled: &dyn Fn() -> bool) -> Option<Tried> {
    let podman = host.first_executable(&PLACES[..2])?;
    let name = format!("{IMAGE}-{}", unique());
    let [storage, run] = [directory::PARENT, RUN].map(|parent| Path::new(parent).join(&name));
    let probe = PodmanProbe { podman: podman.into(), storage, run, is_cancelled };
    Some(probe.tried())
}

struct PodmanProbe<'a> {
    podman: PathBuf,
    storage: PathBuf,
    run: PathBuf,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl PodmanProbe<'_> {
    fn tried(&self) -> Tried {
        let prepared = self.prepare().map_err(|error| error.to_string());
        let (probed, last, by_hand) = match prepared.and_then(|()| self.run_step()) {
            Err(why) => (Err(why), "step", "podman build --no-cache ."),
            Ok(real) => (self.run_container(real), "container", "podman run --rm IMAGE COMMAND"),
        };
        let left = [&self.storage, &self.run].into_iter();
        let left = left.filter_map(|path| directory::remove(path).err()).collect();
        let removed = Removed { left, notes: Vec::new() };
        Tried { probed, last, by_hand: by_hand.to_owned(), removed }
    }

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
            directory::write_program(&path)
        };
        write().on("cannot make", &self.storage)
    }

    /// Returns the builder if its step was not held.
    fn run_step(&self) -> Result<Vec<&'static str>, String> {
        let context = self.storage.join("context").display().to_string();
        let tag = format!("--tag={IMAGE}");
        let build = ["build", "--layers=false", "--no-cache", "--network=none", &tag, &context];
        let mut real = Vec::new();
        if !self.is_held("build", &build)? {
            real.push("podman build");
            // The image of a failed step was not made.
            let file = self.storage.join("context/Dockerfile");
            let text = format!("FROM scratch\nCOPY {PROGRAM} /\n");
            fs::write(&file, text).on("cannot write", &file).map_err(|error| error.to_string())?;
            self.is_held("build", &build)?;
        }
        Ok(real)
    }

    fn run_container(&self, real: Vec<&'static str>) -> Result<Probed, String> {
        let image = format!("/{PROGRAM}");
        let run = ["run", "--rm", "--network=none", "--log-driver=none", IMAGE, &image];
        let is_ordinary_held = Some(self.is_held("run", &run)?);
        Ok(Probed { real, is_ordinary_held })
    }

    /// Runs Podman with `words`, which run the program. Returns whether its sync was held.
    fn is_held(&self, verb: &str, words: &[&str]) -> Result<bool, String> {
        let mut command = Command::new(&self.podman);
        command.arg("--root").arg(self.storage.join("root")).arg("--runroot").arg(&self.run);
        command.arg("--tmpdir").arg(self.run.join("tmp")).arg("--storage-driver=vfs");
        // With either of them Podman asks a service, whose storage is not the probe's.
        command.env_remove("CONTAINER_HOST").env_remove("CONTAINER_CONNECTION");
        let ended = client::run(command.args(words), self.is_cancelled)?;
        client::is_held(&ended, &format!("podman {verb}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::client::tests::fake;

    #[test]
    fn what_failed_is_named_a_step_or_a_container() {
        let tried = |fails: &str| {
            let directory = tempfile::tempdir().unwrap();
            let script = format!("case $* in *' {fails} '*) echo no >&2; exit 126;; esac");
            let podman = fake(directory.path(), &script);
            let [storage, run] = ["storage", "run"].map(|name| directory.path().join(name));
            PodmanProbe { podman, storage, run, is_cancelled: &|| false }.tried()
        };
        for (fails, last) in [("build", "step"), ("run", "container")] {
            let tried = tried(fails);
            assert_eq!(tried.probed.unwrap_err(), format!("podman {fails} fails: no"));
            assert_eq!(tried.last, last);
            assert!(tried.by_hand.starts_with(&format!("podman {fails} ")), "{}", tried.by_hand);
            assert_eq!(tried.removed, Removed::default());
        }
    }
}
