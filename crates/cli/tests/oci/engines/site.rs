//! The directories of an engine, apart from those of the machine.

use crate::bundles::{compiled, probe};
use rustix::mount::{UnmountFlags, unmount};
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_sys::search;
use synconce_testkit::harness::Cgroups;
use synconce_testkit::harness::{Place, binary};
use synconce_testkit::isolation::empty;

/// A directory in memory, of this test alone (see `isolation`). The path is short, because the
/// length of a socket's path is limited.
pub const SHORT: &str = "/run/engine";
/// A directory of run files with a short path.
pub const RUN_FILES: &str = "/run/engine/synconce";
/// The socket of a daemon.
pub const SOCKET: &str = "unix:///run/engine/socket";

/// The runtime of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// synconce, wrapping runc.
    Us,
    /// runc alone.
    Runc,
}

/// The directories and the runtime of one engine.
pub struct Site<'a> {
    pub place: &'a Place,
    pub given: Given,
    /// Images and containers, on any disk.
    pub storage: PathBuf,
    pub cgroups: Cgroups,
    /// The storage driver of Podman and Buildah.
    pub driver: &'static str,
    /// The name by which synconce is called.
    name: &'static str,
    /// The directory of run files, if it is not that of the test.
    run_files: Option<&'static str>,
}

/// Makes a directory with the context of a build, and links to synconce as `synconce-oci`,
/// `runc` and `crun`.
pub fn prepare(place: &Place) {
    let _ = unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH);
    // Directories in which engines keep machine-wide files, such as locks and the key of dockerd.
    for shared in ["/run", "/dev/shm", "/etc/docker"] {
        empty(Path::new(shared));
    }
    std::fs::create_dir_all(SHORT).unwrap();
    for directory in ["context", "before", "tmp"] {
        std::fs::create_dir_all(place.path(directory)).unwrap();
    }
    std::fs::copy(probe(place), place.path("context/probe")).unwrap();
    let step = compiled(place, "step", include_str!("../step.c"));
    std::fs::copy(step, place.path("context/step")).unwrap();
    place.write("context/Dockerfile", super::STEPS);
    for name in ["synconce-oci", "runc", "crun"] {
        std::os::unix::fs::symlink(binary(), place.path("before").join(name)).unwrap();
    }
}

impl<'a> Site<'a> {
    /// Makes a site with storage in `place`, which is prepared, and synconce as the runtime.
    pub fn new(place: &'a Place) -> Self {
        Self::with(place, Given::Us, &place.path("ours"))
    }

    /// Makes a site with the runtime `given` and storage at `storage`.
    pub fn with(place: &'a Place, given: Given, storage: &Path) -> Self {
        let (storage, cgroups) = (storage.to_owned(), Cgroups::unique());
        Self {
            place,
            given,
            storage,
            cgroups,
            driver: "vfs",
            name: "synconce-oci",
            run_files: None,
        }
    }

    /// Returns the site with synconce called by the name of the runtime that it is to execute.
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Returns the site with run files in [`SHORT`], for the path of a socket.
    pub fn with_short_run_files(self) -> Self {
        Self { run_files: Some(RUN_FILES), ..self }
    }

    /// Returns the path of the runtime.
    pub fn runtime(&self) -> PathBuf {
        match self.given {
            Given::Us => self.place.path("before").join(self.name),
            Given::Runc => search::find("runc").expect("a need of the test"),
        }
    }

    /// Returns the command `program`, with its own directory for temporary files, which builds
    /// use, and its own rules.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.place.command(program);
        command
            .env("TMPDIR", self.place.path("tmp"))
            .env("HOME", self.place.path("tmp"))
            .env("SYNCONCE_OCI_FILE", self.place.path("oci.toml"));
        if let Some(directory) = self.run_files {
            command.env("SYNCONCE_RUNTIME_DIR", directory);
        }
        command
    }
}
