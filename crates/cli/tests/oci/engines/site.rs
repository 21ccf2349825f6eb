//! Where an engine works: nothing of it is the machine's.

use crate::bundles::{compiled, probe};
use crate::cgroups::Cgroups;
use crate::support::{Place, SYNCONCE, finish};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::{Path, PathBuf};
use std::process::Command;

/// In memory, of this test alone (see `isolation`), and short: paths of sockets are.
pub const SHORT: &str = "/run/engine";
/// Of a daemon.
pub const SOCKET: &str = "unix:///run/engine/socket";

/// The runtime that an engine is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Us, before runc.
    Us,
    /// runc alone.
    Runc,
}

/// Where one engine works.
pub struct Site<'a> {
    pub place: &'a Place,
    pub given: Given,
    /// Images and containers, on whatever disk it is.
    pub storage: PathBuf,
    pub cgroups: Cgroups,
    /// What we are called.
    name: &'static str,
}

/// A directory with the context of a build, and us as `synconce-oci`, `runc` and `crun`.
pub fn prepare(place: &Place) {
    let _ = unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH);
    // What engines keep for the whole machine, locks among it.
    for shared in ["/run", "/dev/shm"] {
        mount("test", shared, "tmpfs", MountFlags::empty(), None).unwrap();
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
        std::os::unix::fs::symlink(SYNCONCE, place.path("before").join(name)).unwrap();
    }
}

impl<'a> Site<'a> {
    /// With storage in `place`, which is prepared, and us as the runtime.
    pub fn new(place: &'a Place) -> Self {
        Self::with(place, Given::Us, &place.path("ours"))
    }

    /// With the runtime `given` and storage at `storage`.
    pub fn with(place: &'a Place, given: Given, storage: &Path) -> Self {
        let (storage, cgroups) = (storage.to_owned(), Cgroups::new());
        Self { place, given, storage, cgroups, name: "synconce-oci" }
    }

    /// The same with us by the name of the runtime that we are to execute.
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The runtime's path.
    pub fn runtime(&self) -> PathBuf {
        match self.given {
            Given::Us => self.place.path("before").join(self.name),
            Given::Runc => {
                let found = finish(self.place.command("which").arg("runc"));
                found.stdout.trim_end().into()
            }
        }
    }

    /// `program`, with a directory for temporary files, where builds begin, and rules
    /// of its own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.place.command(program);
        command
            .env("TMPDIR", self.place.path("tmp"))
            .env("HOME", self.place.path("tmp"))
            .env("SYNCONCE_OCI_FILE", self.place.path("oci.toml"));
        command
    }
}
