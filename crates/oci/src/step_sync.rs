//! Syncs the root of a held build step at the end of the step, if no unmount does.
//!
//! An overlay syncs its upper file system when the engine unmounts it. The roots of other snapshots
//! (native, btrfs, vfs) and of fuse-overlayfs do not: only the calls of the step would have synced
//! them, and those are held.

use crate::bundle::{Bundle, Facts};
use crate::invocation::Invocation;
use crate::outliving::covering;
use crate::profile;
use crate::step;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use synconce_durable::{file_system, mutant};
use synconce_probe::filesystem::{SyncKind, stores_nothing};
use synconce_probe::mounts::{self, Mount};
use synconce_sys::reason;

/// Returns the directories whose file systems have the root of the container in `bundle`, or none
/// if the root is an overlay or is in memory.
pub(crate) fn unsynced(bundle: &Path, facts: &Facts, mounts: &[Mount]) -> Vec<PathBuf> {
    let Ok(root) = bundle.join(&facts.root.path).canonicalize() else { return Vec::new() };
    let Some(mount) = covering(&root, mounts) else { return vec![root] };
    match mount.kind() {
        SyncKind::Stacked => Vec::new(),
        _ if stores_nothing(&mount.type_name) => Vec::new(),
        // syncfs(2) does not reach the files of a server. fuse-overlayfs has them beside the mount.
        SyncKind::Fuse { .. } => {
            let same = mounts.iter().filter(|other| other.device == mount.device);
            same.filter_map(|mount| mount.point.parent().map(Path::to_owned)).collect()
        }
        _ => vec![root],
    }
}

/// Syncs the file systems of `directories`.
///
/// # Errors
/// The result of the step may be incomplete on the disk. The message is for the user.
pub(crate) fn sync(directories: &[PathBuf]) -> Result<(), String> {
    if mutant::is("step-root-unsynced") {
        return Ok(());
    }
    directories.iter().try_for_each(|directory| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(directory, flags, Mode::empty())
            .and_then(|handle| file_system::sync(handle.as_fd()))
            .map_err(|errno| {
                let path = directory.display();
                format!("cannot sync the file system of {path}: {}", reason(&errno.into()))
            })
    })
}

/// Syncs the root of a held step that a `call` of `delete` ends. dockerd needs no sync: it makes the
/// layer of an image by a copy of the container's, after that call.
///
/// # Errors
/// As for [`sync`].
pub(crate) fn before_delete(call: &Invocation) -> Result<(), String> {
    let namespace = call.root.as_deref().and_then(Path::file_name);
    if namespace == Some(OsStr::new("moby")) {
        return Ok(());
    }
    // Buildah calls the runtime in the bundle.
    let of_shim = step::bundle_of_shim(call).map(Path::to_owned);
    let Some(bundle) = of_shim.or_else(|| std::env::current_dir().ok()) else { return Ok(()) };
    // Engines remove a bundle after this call.
    let Ok(config) = Bundle::read(&bundle.join("config.json")) else { return Ok(()) };
    let is_held = matches!(config.seccomp(), Ok(Some(seccomp)) if profile::is_of_step(&seccomp));
    let (true, Ok(facts)) = (is_held, config.facts()) else { return Ok(()) };
    let mounts = mounts::read("self")
        .map_err(|error| format!("cannot read /proc/self/mountinfo: {}", reason(&error)))?;
    sync(&unsynced(&bundle, &facts, &mounts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::ContainerRoot;

    #[test]
    fn a_root_that_no_unmount_syncs_is_found() {
        let place = tempfile::tempdir().unwrap();
        let bundle = place.path().canonicalize().unwrap();
        let root = bundle.join("rootfs");
        std::fs::create_dir(&root).unwrap();
        let facts = Facts {
            root: ContainerRoot { path: "rootfs".into(), readonly: false },
            ..Facts::default()
        };
        let found = |kind: &str| {
            let lines = format!(
                "30 1 8:1 / / rw - ext4 /dev/sda rw\n\
                 40 30 0:50 / /store/ab/merged rw - {kind} a rw\n\
                 41 30 0:50 / {} rw - {kind} a rw\n",
                root.display()
            );
            unsynced(&bundle, &facts, &mounts::parse(&lines))
        };
        assert_eq!(found("overlay"), Vec::<PathBuf>::new());
        assert_eq!(found("tmpfs"), Vec::<PathBuf>::new());
        assert_eq!(found("btrfs"), std::slice::from_ref(&root));
        assert_eq!(found("fuse.fuse-overlayfs"), [PathBuf::from("/store/ab"), bundle.clone()]);
        assert_eq!(
            unsynced(&bundle, &facts, &mounts::parse("30 1 8:1 / / rw - ext4 a rw")),
            [root]
        );
    }
}
