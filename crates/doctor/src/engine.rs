//! A container engine: what it says about its storage, and whether synconce is set up for it.

mod bolt;
mod build_cache;
mod daemon;
mod docker;
mod images;
mod podman;
mod programs;

pub use bolt::BoltDatabase;
pub use build_cache::BuildCache;
pub use daemon::{ask_buildkit, ask_containerd};
pub use docker::ask_docker;
pub use images::EmulatedImages;
pub use podman::ask_podman;
pub use programs::{InstalledProgram, installed_programs};

use crate::not_measured::NotMeasured;
use crate::units::{bytes, whole};
use serde::Serialize;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::text;

/// A container engine.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerEngine {
    /// The word for it on the command lines of synconce.
    pub name: &'static str,
    /// The engine's version.
    pub version: String,
    /// Whether it runs without the rights of root.
    pub is_rootless: bool,
    /// The runtime of containers that name none, if the engine says it.
    pub default_runtime: Option<String>,
    /// The directory of its images, layers and containers.
    #[serde(serialize_with = "text::path")]
    pub data_root: PathBuf,
    /// How it makes the root of a container from layers.
    pub storage_driver: String,
    /// The program that mounts roots in the kernel's place, such as fuse-overlayfs.
    pub mount_program: Option<String>,
    /// Whether such a program has mounted roots before, as Podman notes it in its store.
    pub had_mount_program: bool,
    /// The file system of the layers, as the engine names it.
    pub backing: Option<String>,
    /// Whether the engine reads changes from the upper directory of an overlay. Otherwise it
    /// compares whole trees.
    pub native_diff: Option<bool>,
    /// How many layers there are, those of containers and of the build cache among them.
    pub layers: Option<u64>,
    /// The build cache, if the engine can say its size without a walk.
    pub build_cache: Option<BuildCache>,
    /// Images whose programs this machine runs in an emulator, if there are some.
    pub emulated_images: Option<EmulatedImages>,
    /// Whether the roots of build steps are mounted volatile by the engine itself.
    pub builds_are_volatile: bool,
    /// Whether synconce mounts the roots of build steps volatile, which is its default.
    pub step_roots_are_volatile: bool,
    /// What `synconce setup ENGINE --check` finds; none before it was asked, and of an engine that
    /// cannot be set up.
    pub set_up: Option<SetUp>,
    /// What `synconce setup ENGINE --hold --check` finds; none of an engine without databases.
    pub databases: Option<SetUp>,
    /// The files of these databases.
    pub bolt: Vec<BoltDatabase>,
    /// The plugins of containerd whose option `no_sync` is on: their databases are not synced.
    pub no_sync: Vec<String>,
    /// How dockerd is reached; none of another engine.
    #[serde(skip)]
    pub(crate) api: Option<DockerApi>,
    /// An image to measure an export with, if the engine has one of a fitting size.
    #[serde(skip)]
    pub(crate) exportable: Option<Exportable>,
    /// What the engine did not say.
    #[serde(skip)]
    pub(crate) unknown: Vec<NotMeasured>,
}

/// How dockerd is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DockerApi {
    pub socket: PathBuf,
    /// Its own directory, with its temporary files.
    pub root: PathBuf,
}

/// An image that dockerd can export within seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exportable {
    pub socket: PathBuf,
    pub id: String,
    pub name: String,
    pub bytes: u64,
    /// Where dockerd writes the layers before it sends them. With the image store of containerd
    /// it writes none.
    pub temporary: Option<PathBuf>,
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

impl ContainerEngine {
    /// Returns an engine of root of which only these facts are known.
    pub(crate) fn new(
        name: &'static str,
        version: String,
        data_root: PathBuf,
        storage_driver: String,
    ) -> Self {
        Self {
            name,
            version,
            is_rootless: false,
            default_runtime: None,
            data_root,
            storage_driver,
            mount_program: None,
            had_mount_program: false,
            backing: None,
            native_diff: None,
            layers: None,
            build_cache: None,
            emulated_images: None,
            builds_are_volatile: false,
            step_roots_are_volatile: true,
            set_up: None,
            databases: None,
            bolt: Vec::new(),
            no_sync: Vec::new(),
            api: None,
            exportable: None,
            unknown: Vec::new(),
        }
    }

    /// Whether `synconce setup` can set it up: its files are the system's.
    pub fn can_be_set_up(&self) -> bool {
        self.name != "docker" || !self.is_rootless
    }

    /// Adds to the report that `what` could not be examined, with the reason.
    pub fn add_not_measured(&mut self, what: &'static str, why: String) {
        self.unknown.push(NotMeasured::new(what, why));
    }

    /// Returns the engine with the layers in the containerd of its image store.
    fn on(self, store: Self) -> Self {
        let Self { data_root, layers, no_sync, bolt, .. } = store;
        let unknown = [self.unknown, store.unknown].concat();
        Self { data_root, layers, no_sync, bolt, unknown, ..self }
    }

    /// Whether the kernel mounts the roots of containers, as overlays.
    pub(crate) fn mounts_overlays(&self) -> bool {
        let is_overlay = ["overlay", "overlay2", "overlayfs"].contains(&&*self.storage_driver);
        is_overlay && self.mount_program.is_none()
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
            let noun = if layers == 1 { "layer" } else { "layers" };
            text += &format!(", {} {noun}", whole(layers as f64));
        }
        if let Some(BuildCache { entries: count, bytes: size, unused }) = self.build_cache {
            let (entries, size) = (whole(count as f64), bytes(size as f64));
            let noun = if count == 1 { "record" } else { "records" };
            text += &format!(", build cache of {size} in {entries} {noun}");
            if unused > 0 {
                text += &format!(" ({} unused for a week)", bytes(unused as f64));
            }
        }
        if !self.no_sync.is_empty() {
            text += &format!(", no_sync of {}", self.no_sync.join(", "));
        }
        text
    }

    /// Whether the syncs of build steps, or of containerd's databases, wait for no disk.
    pub(crate) fn builds_are_held(&self) -> Option<&'static str> {
        if self.name == "containerd" {
            if self.no_sync.iter().any(|plugin| plugin == "io.containerd.metadata.v1.bolt") {
                return Some("no_sync of containerd leaves its syncs out");
            }
            let is_held = self.databases.as_ref().is_some_and(|databases| databases.is_in_force);
            return is_held.then_some("synconce holds the databases of containerd already");
        }
        if self.builds_are_volatile {
            return Some("the engine mounts the roots of build steps volatile");
        }
        let is_in_force = self.set_up.as_ref().is_some_and(|set_up| set_up.is_in_force);
        is_in_force.then_some("synconce holds the syncs of build steps already")
    }
}

/// Whether `path` is another directory for `process` than it is here: the process is in another
/// container.
///
/// # Errors
/// One of both directories cannot be examined, for instance without the rights of root.
fn is_elsewhere(process: u32, path: &Path) -> io::Result<bool> {
    let root = PathBuf::from(format!("/proc/{process}/root"));
    fs::metadata(&root)?;
    let identity = |path: &Path| match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let theirs = identity(&root.join(path.strip_prefix("/").unwrap_or(path)))?;
    Ok(theirs.is_none() || theirs != identity(path)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_root_cannot_be_read_is_not_taken_for_one_of_this_host() {
        let own = std::process::id();
        assert!(!is_elsewhere(own, Path::new("/")).unwrap());
        assert!(is_elsewhere(own, Path::new("/none")).unwrap());
        assert!(is_elsewhere(u32::MAX, Path::new("/")).is_err());
    }
}
