//! Syncs the root of a held build step at the end of the step, because no unmount may do so.
//!
//! An overlay syncs its upper file system at its last unmount, which the engine's is not if another
//! mount namespace has a copy of the mount. The roots of other snapshots (native, btrfs, vfs) and of
//! fuse-overlayfs sync nothing then: only the calls of the step would have synced them, and those
//! are held.

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

/// Where the files of a root are that is to be synced.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// The root is in memory, or on a volatile overlay of the engine.
    #[default]
    Nothing,
    /// On the file systems of these directories.
    In(Vec<PathBuf>),
    /// On a disk that cannot be found.
    Anywhere,
}

/// Returns where the root of the container in `bundle` has its files.
pub(crate) fn unsynced(bundle: &Path, facts: &Facts, mounts: &[Mount]) -> Unsynced {
    let Ok(root) = bundle.join(&facts.root.path).canonicalize() else { return Unsynced::Nothing };
    let Some(mount) = covering(&root, mounts) else { return Unsynced::In(vec![root]) };
    match mount.kind() {
        SyncKind::Stacked
            if ["volatile", "fsync=volatile"].iter().any(|it| mount.has_option(it)) =>
        {
            Unsynced::Nothing
        }
        SyncKind::Stacked => {
            // By the overlay, syncfs(2) does not report the errors of the upper file system.
            let upper = mount.option("upperdir").filter(|it| it.is_absolute() && it.is_dir());
            Unsynced::In(vec![upper.unwrap_or(root)])
        }
        _ if stores_nothing(&mount.type_name) => Unsynced::Nothing,
        SyncKind::Fuse { .. } => beside(mount, mounts),
        _ => Unsynced::In(vec![root]),
    }
}

/// Returns where the server of `mount` has its files. syncfs(2) does not reach them. fuse-overlayfs
/// has them beside the mount, unless containerd mounts it in the bundle, which is in memory.
fn beside(mount: &Mount, mounts: &[Mount]) -> Unsynced {
    let same = mounts.iter().filter(|other| other.device == mount.device);
    let parents = same.filter_map(|mount| mount.point.parent());
    let is_stored = |parent: &&Path| {
        covering(parent, mounts).is_none_or(|mount| !stores_nothing(&mount.type_name))
    };
    let found: Vec<_> = parents.filter(is_stored).map(Path::to_owned).collect();
    if found.is_empty() { Unsynced::Anywhere } else { Unsynced::In(found) }
}

/// Syncs the files of a root.
///
/// # Errors
/// The result of the step may be incomplete on the disk. The message is for the user.
pub(crate) fn sync(unsynced: &Unsynced) -> Result<(), String> {
    if mutant::is("step-root-unsynced") {
        return Ok(());
    }
    let directories = match unsynced {
        Unsynced::Nothing => return Ok(()),
        Unsynced::In(directories) => directories,
        Unsynced::Anywhere => {
            rustix::fs::sync();
            return Ok(());
        }
    };
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
    fn the_files_of_a_root_are_found() {
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
                 40 30 0:50 / /store/ab/merged rw - {kind}\n\
                 41 30 0:50 / {} rw - {kind}\n",
                root.display()
            );
            unsynced(&bundle, &facts, &mounts::parse(&lines))
        };
        let only = |path: &Path| Unsynced::In(vec![path.to_owned()]);
        let upper = format!("overlay a rw,lowerdir=/l,upperdir={},workdir=/w", bundle.display());
        assert_eq!(found(&upper), only(&bundle));
        assert_eq!(found("overlay a rw,lowerdir=/l,upperdir=u,workdir=w"), only(&root));
        assert_eq!(found("overlay a rw,lowerdir=/l,upperdir=/missing/u,workdir=w"), only(&root));
        assert_eq!(found(&format!("{upper},volatile")), Unsynced::Nothing);
        assert_eq!(found(&format!("{upper},fsync=volatile")), Unsynced::Nothing);
        assert_eq!(found("tmpfs a rw"), Unsynced::Nothing);
        assert_eq!(found("btrfs a rw"), only(&root));
        assert_eq!(
            found("fuse.fuse-overlayfs a rw"),
            Unsynced::In(vec!["/store/ab".into(), bundle.clone()])
        );
        // A shim of containerd mounts the root in its bundle.
        let lines = format!(
            "30 1 8:1 / / rw - ext4 a rw\n31 30 0:40 / {} rw - tmpfs a rw\n\
             41 31 0:50 / {} rw - fuse.fuse-overlayfs a rw\n",
            bundle.display(),
            root.display()
        );
        assert_eq!(unsynced(&bundle, &facts, &mounts::parse(&lines)), Unsynced::Anywhere);
        let disk = mounts::parse("30 1 8:1 / / rw - ext4 a rw");
        assert_eq!(unsynced(&bundle, &facts, &disk), only(&root));
    }
}
