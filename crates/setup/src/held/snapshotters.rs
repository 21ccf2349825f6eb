//! containerd's snapshotters: which are held, and which make a set-up refuse a hold.

use crate::error::{Error, NotEdited};
use crate::held::configuration::{Configuration, last};
use crate::host::Host;
use std::path::PathBuf;

/// The prefix of the plugins of snapshotters, and of their directories.
const PREFIX: &str = "io.containerd.snapshotter.v1.";
/// The snapshotter that is held although its directory may not exist yet.
const USUAL: &str = "overlayfs";
/// Snapshotters that keep all of their snapshots as files below their directory.
const HELD: [&str; 5] = [USUAL, "erofs", "native", "btrfs", "blockfile"];
/// Snapshotters whose snapshots are elsewhere: in a thin pool, and in ZFS datasets.
const APART: [&str; 2] = ["devmapper", "zfs"];

/// A snapshotter that keeps all of its snapshots as files.
pub(super) struct Snapshotter {
    /// The directory of its snapshots and of its database.
    pub directory: PathBuf,
    /// Whether the snapshotter is in use. If containerd uses it later, it is not held until the next
    /// set-up, but has to be set aside, too.
    pub in_use: bool,
}

/// Returns the snapshotters that containerd has.
///
/// # Errors
/// A snapshotter whose snapshots a wipe does not reach is refused. After a wipe containerd numbers
/// snapshots from 1 again, so their names would be those of old snapshots (`createKey` in
/// containerd's core/metadata/snapshot.go).
pub(super) fn all(host: &Host, containerd: &Configuration) -> Result<Vec<Snapshotter>, Error> {
    refuse_apart(host, containerd)?;
    refuse_proxies(containerd)?;
    let mut found = Vec::new();
    for name in HELD {
        let directory = directory(host, containerd, name)?;
        let in_use = name == USUAL || host.is_directory(&directory);
        found.push(Snapshotter { directory, in_use });
    }
    Ok(found)
}

/// Returns the directory of the snapshotter `name`.
fn directory(host: &Host, containerd: &Configuration, name: &str) -> Result<PathBuf, Error> {
    let plugin = format!("{PREFIX}{name}");
    let configured = last(&containerd.parts, &["plugins", &plugin, "root_path"])?;
    let usual = containerd.root.join(&plugin);
    let usual = usual.to_str().unwrap_or_default();
    // No command-line flag of containerd sets `root_path`.
    super::place::place(host, &Default::default(), &[], configured, usual)
}

/// Refuses a snapshotter of [`APART`] that has snapshots or is configured.
fn refuse_apart(host: &Host, containerd: &Configuration) -> Result<(), Error> {
    for name in APART {
        let plugin = format!("{PREFIX}{name}");
        let pool = last(&containerd.parts, &["plugins", &plugin, "pool_name"])?;
        if let Some(pool) = pool {
            let fault = apart(name).on_line(pool.line);
            return Err(fault.in_file(&pool.file).into());
        }
        let database = containerd.root.join(&plugin).join("metadata.db");
        if host.exists(&database) {
            return Err(apart(name).in_file(&host.real(&database)).into());
        }
    }
    Ok(())
}

/// Refuses a proxy plugin that is a snapshotter: its own daemon has the snapshots.
fn refuse_proxies(containerd: &Configuration) -> Result<(), Error> {
    for part in &containerd.parts {
        for (keys, value) in part.toml.values(&["proxy_plugins"]) {
            let [name, kind] = keys.as_slice() else { continue };
            if kind == "type" && value.as_str() == Some("snapshot") {
                let line = part.toml.get(&["proxy_plugins", name, kind]);
                return Err(part.refuse(apart(name).on_line(line.and_then(|(_, line)| line))));
            }
        }
    }
    Ok(())
}

fn apart(name: &str) -> NotEdited {
    let reason = format!(
        "shows that the snapshotter {name} is in use: it keeps snapshots that a wipe after a \
         crash does not reach, and that must agree with the metadata"
    );
    let remedy =
        format!("keep containerd's own syncs here, or move its images from {name} to overlayfs");
    NotEdited::new(reason, remedy)
}
