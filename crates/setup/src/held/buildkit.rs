//! buildkitd: every database below its root is a cache.

use super::description::Description;
use crate::buildkit::{CONFIGURATION, service};
use crate::engine::{Engine, HeldDaemon};
use crate::error::Error;
use crate::held::configuration::last;
use crate::held::place::place;
use crate::host::Host;
use crate::plan::Plan;
use crate::toml::TomlFile;
use std::path::{Path, PathBuf};

const COST: &str = "builds have no cache: base images are pulled and every step is run again";
/// Databases of buildkitd itself.
const OWN: [&str; 2] = ["cache.db", "history.db"];
/// The prefixes of the directories of OCI workers and of containerd workers.
const OCI: &str = "runc-";
const CONTAINERD: &str = "containerd-";
/// The databases of an OCI worker.
const OF_OCI: [&str; 2] = ["containerdmeta.db", "metadata_v2.db"];
/// The database of its snapshotter, and the snapshotters that have it there.
const SNAPSHOTS: &str = "snapshots/metadata.db";
const WITH_SNAPSHOTS: [&str; 3] = ["overlayfs", "native", "fuse-overlayfs"];
/// What `auto` means nearly everywhere.
const USUAL: &str = "overlayfs";

/// Describes the hold of buildkitd.
pub(super) fn describe(host: &Host, plan: &mut Plan) -> Result<Description, Error> {
    let (root, configured) = read(host)?;
    let mut held: Vec<PathBuf> = OWN.map(|name| root.join(name)).into();
    let directories = host.list(&root, "")?;
    let named = |prefix: &str| -> Vec<String> {
        let names = directories.iter().filter(|path| host.is_directory(path));
        let names = names.filter_map(|path| path.file_name()?.to_str()?.strip_prefix(prefix));
        names.map(str::to_owned).collect()
    };
    let mut workers = named(OCI);
    if workers.is_empty() {
        workers.push(configured);
    }
    for snapshotter in &workers {
        let worker = root.join(format!("{OCI}{snapshotter}"));
        held.extend(OF_OCI.map(|name| worker.join(name)));
        let snapshots = worker.join(SNAPSHOTS);
        if WITH_SNAPSHOTS.contains(&snapshotter.as_str()) || host.exists(&snapshots) {
            held.push(snapshots);
        }
    }
    let of_containerd = named(CONTAINERD);
    for name in &of_containerd {
        held.push(root.join(format!("{CONTAINERD}{name}")).join("metadata_v2.db"));
    }
    if !of_containerd.is_empty() {
        plan.notes.push(
            "buildkitd has a containerd worker: after a wipe, containerd keeps the layers of \
             the old build cache"
                .to_owned(),
        );
    }
    let cache = ["*.db", "runc-*", "containerd-*"];
    Ok(Description {
        daemon: HeldDaemon::Buildkit,
        engine: Engine::Held(HeldDaemon::Buildkit),
        directories: vec![root.clone()],
        held,
        set_aside: cache.map(|name| root.join(name)).into(),
        cost: COST,
        docker_root: None,
    })
}

/// Returns buildkitd's root, and the snapshotter of its OCI worker.
fn read(host: &Host) -> Result<(PathBuf, String), Error> {
    let service = service(host)?;
    service.check_program(host, "buildkitd")?;
    let file = service.file(host, &["--config", "-config"], CONFIGURATION)?;
    let file = TomlFile::read(host, &file)?;
    let root = last(std::slice::from_ref(&file), &["root"])?;
    let root = place(host, &service, &["--root"], root, "/var/lib/buildkit")?;
    let flag = service.flag("--oci-worker-snapshotter").and_then(|(_, value)| value);
    let snapshotter = file.text(&["worker", "oci", "snapshotter"])?;
    let snapshotter = flag.or_else(|| snapshotter.map(|(text, _)| text.to_owned()));
    let is_named = |name: &String| {
        !matches!(name.as_str(), "" | "auto") && Path::new(name).components().count() == 1
    };
    Ok((root, snapshotter.filter(is_named).unwrap_or_else(|| USUAL.to_owned())))
}
