//! A container engine: what it says about its storage, and whether synconce is set up for it.

mod docker;
mod podman;

pub use docker::ask_docker;
pub use podman::ask_podman;

use crate::report::NotMeasured;
use crate::text::{bytes, whole};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A container engine.
#[derive(Clone, Debug, Serialize)]
pub struct Engine {
    /// The word for it on the command lines of synconce.
    pub name: &'static str,
    /// The engine's version.
    pub version: String,
    /// Whether it runs without the rights of root.
    pub is_rootless: bool,
    /// The runtime of containers that name none, if the engine says it.
    pub default_runtime: Option<String>,
    /// The directory of its images, layers and containers.
    pub data_root: PathBuf,
    /// How it makes the root of a container from layers.
    pub storage_driver: String,
    /// The program that mounts roots in the kernel's place, such as fuse-overlayfs.
    pub mount_program: Option<String>,
    /// The file system of the layers, as the engine names it.
    pub backing: Option<String>,
    /// Whether the engine reads changes from the upper directory of an overlay. Otherwise it
    /// compares whole trees.
    pub native_diff: Option<bool>,
    /// How many layers there are, those of containers and of the build cache among them.
    pub layers: Option<u64>,
    /// The build cache, if the engine can say its size without a walk.
    pub build_cache: Option<BuildCache>,
    /// Whether the roots of build steps are mounted volatile by the engine itself.
    pub builds_are_volatile: bool,
    /// What `synconce setup ENGINE --check` finds; none before it was asked, and of an engine that
    /// cannot be set up.
    pub set_up: Option<SetUp>,
    /// What the engine did not say.
    #[serde(skip)]
    pub(crate) unknown: Vec<NotMeasured>,
}

/// The cache of BuildKit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BuildCache {
    /// How many records it has.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a check of a set-up found.
#[derive(Clone, Debug, Serialize)]
pub struct SetUp {
    /// Whether build steps are held now.
    pub is_in_force: bool,
    /// Whether the engine's files are those of a set-up.
    pub is_made: bool,
    /// What the check said, the first line first.
    pub lines: Vec<String>,
}

impl Engine {
    /// Whether `synconce setup` can set it up: its files are the system's.
    pub fn can_be_set_up(&self) -> bool {
        self.name != "docker" || !self.is_rootless
    }

    /// Returns the remark about the engine for one line.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!("{} {}: {}", self.name, self.version, self.storage_driver);
        if let Some(backing) = &self.backing {
            text += &format!(" on {backing}");
        }
        if let Some(program) = &self.mount_program {
            text += &format!(" by {program}");
        }
        match self.native_diff {
            Some(true) => text += ", native diff",
            Some(false) => text += ", no native diff",
            None => {}
        }
        if let Some(layers) = self.layers {
            text += &format!(", {} layers", whole(layers as f64));
        }
        if let Some(BuildCache { entries, bytes: size }) = self.build_cache {
            let (entries, size) = (whole(entries as f64), bytes(size as f64));
            text += &format!(", build cache of {size} in {entries} records");
        }
        text
    }

    /// Whether the syncs of build steps wait for no disk.
    pub(crate) fn builds_are_held(&self) -> Option<&'static str> {
        if self.builds_are_volatile {
            return Some("the engine mounts the roots of build steps volatile");
        }
        let is_in_force = self.set_up.as_ref().is_some_and(|set_up| set_up.is_in_force);
        is_in_force.then_some("synconce holds the syncs of build steps already")
    }
}

/// Returns the number of layers of `driver` below `data_root`. Only the names in one directory
/// are read.
fn layers(data_root: &Path, driver: &str) -> Option<u64> {
    let directory = match driver {
        "vfs" => "vfs/dir",
        "btrfs" => "btrfs/subvolumes",
        other => other,
    };
    let entries = fs::read_dir(data_root.join(directory)).ok()?.flatten();
    let is_layer = |entry: &fs::DirEntry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // Short names of layers are links in `l`.
        is_directory && !matches!(entry.file_name().to_str(), Some("l" | "staging" | "tempdirs"))
    };
    Some(entries.filter(is_layer).count() as u64)
}
