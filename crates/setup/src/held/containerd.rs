//! containerd: its metadata, its snapshotters and its mount manager.

use super::description::Description;
use crate::containerd::PLACES;
use crate::engine::{Engine, HeldDaemon};
use crate::error::Error;
use crate::held::configuration::Configuration;
use crate::held::snapshotters::{self, Snapshotter};
use crate::host::Host;
use crate::plan::Plan;
use std::path::{Path, PathBuf};

/// The plugin of the metadata, and its directory.
pub(super) const METADATA: &str = "io.containerd.metadata.v1.bolt";
/// The plugin of the mount manager, and its directory, since containerd 2.2.
const MOUNTS: &str = "io.containerd.mount-manager.v1.bolt";
/// What a wipe costs.
const COST: &str = "containerd starts empty: images are pulled again, containers are made again";
/// What the metadata names by digest or by id, besides snapshots: blobs, pods and containers of
/// the CRI plugin, sandboxes. See docs/databases.md for why each is set aside.
const NAMED: [&str; 3] = [
    "io.containerd.content.v1.content",
    "io.containerd.grpc.v1.cri",
    "io.containerd.sandbox.controller.v1.shim",
];
/// A namespace whose containers are build steps.
const BUILDS: &str = "buildkit";

/// Describes the hold of containerd.
pub(super) fn describe(host: &Host, plan: &mut Plan) -> Result<Description, Error> {
    let containerd = Configuration::read(host)?;
    let snapshotters = snapshotters::all(host, &containerd)?;
    let mut held = vec![containerd.root.join(METADATA).join("meta.db")];
    let in_use = snapshotters.iter().filter(|one| one.in_use);
    held.extend(in_use.map(|one| one.directory.join("metadata.db")));
    let mut set_aside = set_aside(&containerd, &snapshotters);
    let mut directories = directories(&containerd, &snapshotters);
    // Elsewhere than in /run, which is in memory, the mount manager syncs a disk.
    let mounts = containerd.state.join(MOUNTS);
    let is_on_disk = !containerd.state.starts_with("/run");
    if is_on_disk && (host.is_directory(&mounts) || has_mount_manager(host)) {
        held.push(mounts.join("mounts.db"));
        set_aside.push(mounts);
        directories.push(containerd.state.clone());
    }
    notes(host, plan, &containerd)?;
    Ok(Description {
        daemon: HeldDaemon::Containerd,
        engine: Engine::Held(HeldDaemon::Containerd),
        directories,
        held,
        set_aside,
        cost: COST,
        docker_root: None,
    })
}

/// Returns what has to agree with the metadata.
fn set_aside(containerd: &Configuration, snapshotters: &[Snapshotter]) -> Vec<PathBuf> {
    let named = [METADATA].into_iter().chain(NAMED);
    let named = named.map(|name| containerd.root.join(name));
    named.chain(snapshotters.iter().map(|one| one.directory.clone())).collect()
}

/// Returns the directories that have to be mounted.
fn directories(containerd: &Configuration, snapshotters: &[Snapshotter]) -> Vec<PathBuf> {
    let elsewhere = snapshotters.iter().map(|one| &one.directory);
    let elsewhere = elsewhere.filter(|path| !path.starts_with(&containerd.root));
    [&containerd.root].into_iter().chain(elsewhere).cloned().collect()
}

fn has_mount_manager(host: &Host) -> bool {
    version(host).is_some_and(|version| version >= (2, 2))
}

/// Returns the major and the minor version of the installed containerd.
pub(super) fn version(host: &Host) -> Option<(u32, u32)> {
    host.version(host.first_executable(&PLACES))
}

/// Notes what a wipe would cost on this host.
fn notes(host: &Host, plan: &mut Plan, containerd: &Configuration) -> Result<(), Error> {
    if super::units::is_usable(host, "kubelet") || host.exists(Path::new("/var/lib/kubelet")) {
        plan.notes.push(
            "a kubelet uses this containerd: after a crash of the machine it makes its pods \
             again from pulled images; what containers wrote outside of volumes is lost, and so \
             are images that were only imported"
                .to_owned(),
        );
    }
    if super::docker::has_dockerd(host) {
        let text = if super::docker::is_image_store(host) {
            "dockerd keeps its images in this containerd: after a crash of the machine, \
                 images and containers of docker are lost, and volumes are not"
        } else {
            "dockerd keeps its images itself, and they outlive a wipe of containerd; with \
                 the containerd image store (the default of new installations of Docker 29) \
                 they would not"
        };
        plan.notes.push(text.to_owned());
    }
    let namespaces = namespaces_with_containers(host, containerd)?;
    if !namespaces.is_empty() {
        plan.notes.push(format!(
            "there are containers in namespaces other than {BUILDS}: {}; a wipe takes them away",
            namespaces.join(", ")
        ));
    }
    Ok(())
}

/// Returns the namespaces that have containers with a task, except the builder's.
fn namespaces_with_containers(
    host: &Host,
    containerd: &Configuration,
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for above in [&containerd.state, &containerd.root] {
        for namespace in host.list(&above.join("io.containerd.runtime.v2.task"), "")? {
            let name = namespace.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name != BUILDS && !host.list(&namespace, "")?.is_empty() {
                found.push(name);
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}
