//! Probe containers by Podman: a step of `podman build`, and an ordinary container. They have storage
//! of their own.

use super::PLACES;
use crate::host::Host;
use crate::probe::{PROGRAM, Probed, REAL, Tried, program, unique};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use synconce_durable::error::Context;
use synconce_probe::mounts;
use synconce_sys::child::{interrupted, output_within};

const IMAGE: &str = "synconce-check";
/// For the storage. A temporary directory may be mounted `noexec`.
const STORAGE: &str = "/var/lib";
/// For files of the runtime: Podman takes no path of more than 50 characters.
const RUN: &str = "/run";

/// The time for one call of Podman: a step on a slow disk takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the probe containers, and removes them. Returns `None` without Podman.
pub(crate) fn probe(host: &Host, is_cancelled: &dyn Fn() -> bool) -> Option<Tried> {
    let podman = host.first_executable(&PLACES[..2])?;
    let name = format!("{IMAGE}-{}", unique());
    let [storage, run] = [STORAGE, RUN].map(|parent| Path::new(parent).join(&name));
    let probe = PodmanProbe { podman: podman.into(), storage, run, is_cancelled };
    let probed = probe.prepare().map_err(|error| error.to_string()).and_then(|()| probe.run());
    let left = [&probe.storage, &probe.run].into_iter().filter_map(|directory| {
        let error = remove(directory).err()?;
        Some(format!("{error}; remove it: rm -r --one-file-system {}", directory.display()))
    });
    Some(Tried { probed, left: left.collect() })
}

/// Removes `directory` of a probe, after all that is mounted there.
fn remove(directory: &Path) -> Result<(), String> {
    let mounts = mounts::read("self").on("cannot read the mounts of", Path::new("/proc/self"));
    let mounts = mounts.map_err(|error| error.to_string())?;
    for mount in mounts.iter().rev().filter(|mount| mount.point.starts_with(directory)) {
        // Podman may have unmounted it meanwhile. What stays mounted is not removed.
        let _ = unmount(&mount.point, UnmountFlags::DETACH);
    }
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Ok(());
    };
    let parent = File::open(parent).on("cannot open", parent);
    let parent = parent.map_err(|error| error.to_string())?;
    let removed = synconce_fs::remove(parent.as_fd(), name, 1, &());
    let left = removed.map_err(|error| error.to_string())?.left;
    left.first().map_or(Ok(()), |error| Err(error.to_string()))
}

struct PodmanProbe<'a> {
    podman: PathBuf,
    storage: PathBuf,
    run: PathBuf,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl PodmanProbe<'_> {
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
        Ok(Probed { real_steps, is_ordinary_held })
    }

    /// Runs Podman with `words`, which run the program. Returns whether its sync was held.
    fn is_held(&self, verb: &str, words: &[&str]) -> Result<bool, String> {
        let mut command = Command::new(&self.podman);
        command.arg("--root").arg(self.storage.join("root")).arg("--runroot").arg(&self.run);
        command.arg("--tmpdir").arg(self.run.join("tmp")).arg("--storage-driver=vfs");
        command.args(words).stdin(Stdio::null());
        // With either of them Podman asks a service, whose storage is not the probe's.
        command.env_remove("CONTAINER_HOST").env_remove("CONTAINER_CONNECTION");
        let ended = output_within(&mut command, PATIENCE, self.is_cancelled);
        // A signal from the terminal also ends Podman, at times before the wait looks at `is_cancelled`.
        let ended = ended
            .and_then(|ended| if (self.is_cancelled)() { Err(interrupted()) } else { Ok(ended) });
        let ended = ended.on("cannot execute", &self.podman).map_err(|error| error.to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, mount, mount_bind};
    use synconce_testkit::isolation::isolated;

    #[test]
    fn what_the_probe_has_mounted_is_unmounted_and_not_emptied() {
        isolated(
            || {
                let top = tempfile::tempdir().unwrap();
                let [probe, theirs] = ["probe", "theirs"].map(|name| top.path().join(name));
                let at = probe.join("root/shm");
                fs::create_dir_all(&at).unwrap();
                fs::create_dir(&theirs).unwrap();
                fs::write(theirs.join("file"), "").unwrap();
                mount("test", &at, "tmpfs", MountFlags::empty(), None).unwrap();
                fs::create_dir(at.join("below")).unwrap();
                mount_bind(&theirs, at.join("below")).unwrap();
                remove(&probe).unwrap();
                assert!(!probe.exists() && theirs.join("file").exists());
                // There is nothing left to remove.
                remove(&probe).unwrap();
            },
            |_, test| test(),
        );
    }

    #[test]
    fn a_signal_ends_the_wait_for_podman() {
        let children = || fs::read_to_string("/proc/thread-self/children").unwrap();
        // The signal comes while Podman runs, or ends Podman as well.
        let cases: [&dyn Fn() -> bool; 2] = [&|| true, &|| children().is_empty()];
        for is_cancelled in cases {
            let [podman, storage, run] = ["/bin/false", "", ""].map(PathBuf::from);
            let probe = PodmanProbe { podman, storage, run, is_cancelled };
            let ended = probe.is_held("build", &[]).unwrap_err();
            assert!(ended.ends_with("interrupted by a signal"), "{ended}");
        }
    }
}
