//! Syncs the root of a held build step at the end of the step, because no unmount may do so, and
//! the volumes of a working container of Buildah, which are no part of the root.
//!
//! An overlay syncs its upper file system at its last unmount. The engine's unmount is not the last
//! if another mount namespace has a copy of the mount. The unmounts of other snapshots (native,
//! btrfs, vfs) and of fuse-overlayfs sync nothing: only the calls of the step would have synced
//! these roots, and those calls are held.

use crate::bundle::{Bundle, Facts};
use crate::invocation::Invocation;
use crate::outliving::{self, covering};
use crate::profile;
use crate::runtime::RuntimeEnd;
use crate::step_root::MARK;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_durable::{file_system, mutant};
use synconce_probe::filesystem::{SyncKind, stores_nothing};
use synconce_probe::mounts::{self, Mount};
use synconce_sys::reason;

/// Where the files of a step are that are to be synced.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsynced {
    /// On the file systems of these directories.
    directories: Vec<PathBuf>,
    /// Also on a disk that cannot be found.
    anywhere: bool,
    /// The work directory of the root, if that is an overlay that is not volatile.
    work: Option<PathBuf>,
}

/// An [`Unsynced`] whose directories are open.
pub(crate) struct Opened<'a> {
    /// One directory of each file system.
    handles: Vec<(&'a Path, Result<OwnedFd, Errno>)>,
    anywhere: bool,
}

/// Which program has mounted the root of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountedBy {
    /// The engine that calls the runtime.
    Engine,
    /// A shim of containerd, in the bundle.
    Shim,
}

/// Returns where the container in `bundle` has the files that its end has to sync.
pub(crate) fn unsynced(
    bundle: &Path,
    facts: &Facts,
    mounts: &[Mount],
    mounted_by: MountedBy,
) -> Unsynced {
    let mut unsynced = of_root(bundle, facts, mounts, mounted_by);
    unsynced.directories.extend(outliving::volumes(bundle, facts, mounts));
    unsynced
}

/// Returns where the root of the container in `bundle` has its files; nowhere if it is in memory,
/// or on a volatile overlay of the engine.
fn of_root(bundle: &Path, facts: &Facts, mounts: &[Mount], mounted_by: MountedBy) -> Unsynced {
    let root = match bundle.join(&facts.root.path).canonicalize() {
        Ok(root) => root,
        // The engine has removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Unsynced::default(),
        Err(_) => return Unsynced { anywhere: true, ..Unsynced::default() },
    };
    let only = |root| Unsynced { directories: vec![root], ..Unsynced::default() };
    let Some(mount) = covering(&root, mounts) else { return only(root) };
    match mount.kind() {
        SyncKind::Stacked if mount.is_volatile() => Unsynced::default(),
        SyncKind::Stacked => {
            // By the overlay, syncfs(2) does not report the errors of the upper file system. By the
            // name of the upper directory, it may reach another disk that was mounted over it.
            let upper = mount.option("upperdir").filter(|it| it.is_absolute() && it.is_dir());
            let work = mount.option("workdir").filter(|it| it.is_absolute());
            Unsynced {
                directories: upper.into_iter().chain([root]).collect(),
                anywhere: false,
                work,
            }
        }
        _ if stores_nothing(&mount.type_name) => Unsynced::default(),
        SyncKind::Fuse { .. } => beside(mount, mounts, mounted_by),
        _ => only(root),
    }
}

/// Returns where the server of `mount` has its files. syncfs(2) does not reach them. fuse-overlayfs
/// has them beside the mount, unless a shim mounts it in the bundle.
fn beside(mount: &Mount, mounts: &[Mount], mounted_by: MountedBy) -> Unsynced {
    let same = mounts.iter().filter(|other| other.device == mount.device);
    let parents = same.filter_map(|mount| mount.point.parent());
    let is_stored = |parent: &&Path| {
        covering(parent, mounts).is_none_or(|mount| !stores_nothing(&mount.type_name))
    };
    let directories: Vec<_> = parents.filter(is_stored).map(Path::to_owned).collect();
    let anywhere = mounted_by == MountedBy::Shim || directories.is_empty();
    Unsynced { directories, anywhere, work: None }
}

impl Unsynced {
    pub(crate) fn is_nothing(&self) -> bool {
        self.directories.is_empty() && !self.anywhere
    }

    /// Opens the directories: syncfs(2) reports the write-back errors since then, and earlier ones
    /// that no call has returned (errseq, Linux 5.8).
    pub(crate) fn open(&self) -> Opened<'_> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path| rustix::fs::open(path, flags, Mode::empty());
        let mut seen = HashSet::new();
        let mut is_new = |handle: &OwnedFd| match rustix::fs::fstat(handle) {
            Ok(found) => seen.insert(found.st_dev),
            Err(_) => true,
        };
        let handles = self.directories.iter().map(|path| (path.as_path(), open(path)));
        let handles = handles.filter(|(_, handle)| handle.as_ref().map_or(true, &mut is_new));
        Opened { handles: handles.collect(), anywhere: self.anywhere }
    }

    /// Makes the kernel refuse to mount the layer again, if it is an overlay's: an engine may
    /// ignore how a `delete` ended.
    fn mark(&self) {
        // Where the mount table says, there can be another disk by now.
        if let Some(work) = self.work.as_ref().filter(|work| work.join("work").is_dir()) {
            // The error of the sync is the one to report.
            let _ = std::fs::create_dir_all(work.join(MARK));
        }
    }
}

impl Opened<'_> {
    /// Syncs the files of the step.
    ///
    /// # Errors
    /// The result of the step may be incomplete on the disk. The message is for the user.
    pub(crate) fn sync(&self) -> Result<(), String> {
        if mutant::is("step-root-unsynced") {
            return Ok(());
        }
        for (directory, handle) in &self.handles {
            let handle = handle.as_ref().map_err(|errno| *errno);
            handle.and_then(|handle| file_system::sync(handle.as_fd())).map_err(|errno| {
                let path = directory.display();
                format!("cannot sync the file system of {path}: {}", reason(&errno.into()))
            })?;
        }
        if self.anywhere {
            rustix::fs::sync();
        }
        Ok(())
    }
}

/// Finds the root of a held step that a `call` of `delete` ends. dockerd needs no sync: it makes
/// the layer of an image by a copy of the container's, after that call.
///
/// # Errors
/// It is not known where the root has its files. The message is for the user.
pub(crate) fn of_delete(call: &Invocation) -> Result<Unsynced, String> {
    let namespace = call.root.as_deref().and_then(Path::file_name);
    let nothing = Ok(Unsynced::default());
    if namespace == Some(OsStr::new("moby")) {
        return nothing;
    }
    // Buildah calls the runtime in the bundle.
    let of_shim = call.bundle_of_shim().map(Path::to_owned);
    let mounted_by = if of_shim.is_some() { MountedBy::Shim } else { MountedBy::Engine };
    let Some(bundle) = of_shim.or_else(|| std::env::current_dir().ok()) else { return nothing };
    let config = bundle.join("config.json");
    let facts = match facts_of_step(&config) {
        Ok(Some(facts)) => facts,
        Ok(None) => return nothing,
        Err(_) => {
            // Engines remove a bundle after this call. A file that is there, and cannot be read,
            // may be a step's; an ordinary container has to end all the same.
            if config.try_exists().ok() != Some(false) {
                rustix::fs::sync();
            }
            return nothing;
        }
    };
    let mounts = read_mounts().inspect_err(|_| {
        // Any file system can be the layer's, and an engine may ignore the error.
        rustix::fs::sync();
    })?;
    Ok(unsynced(&bundle, &facts, &mounts, mounted_by))
}

/// Returns the facts of the held step with the configuration at `config`; `None` if it is another
/// container's.
fn facts_of_step(config: &Path) -> Result<Option<Facts>, String> {
    let config = Bundle::read(config)?;
    let is_held = config.seccomp()?.is_some_and(|seccomp| profile::is_of_step(&seccomp));
    if is_held { config.facts().map(Some) } else { Ok(None) }
}

/// Reads the mounts in the namespace of this process.
pub(crate) fn read_mounts() -> Result<Vec<Mount>, String> {
    mounts::read("self")
        .map_err(|error| format!("cannot read /proc/self/mountinfo: {}", reason(&error)))
}

/// Ends a step whose root is `unsynced`, by a `call` of `delete`, which `delete` executes. Returns
/// `None` if the runtime is still to be executed.
pub(crate) fn end_by_delete(
    unsynced: &Unsynced,
    call: &Invocation,
    delete: impl FnOnce() -> RuntimeEnd,
) -> Option<RuntimeEnd> {
    // A repeated call needs the bundle and the runtime's state.
    let opened = unsynced.open();
    let synced = opened.sync();
    if synced.is_ok() && (unsynced.is_nothing() || !call.forces) {
        return None;
    }
    let not_synced = |_: &String| unsynced.mark();
    let synced = synced.inspect_err(not_synced);
    let ended = delete();
    // `delete --force` has ended processes only now.
    let synced = synced.and_then(|()| opened.sync().inspect_err(not_synced));
    Some(synced.map_or_else(RuntimeEnd::Failed, |()| ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::ContainerRoot;
    use synconce_probe::mounts::parse;

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
            unsynced(&bundle, &facts, &parse(&lines), MountedBy::Engine)
        };
        let in_all = |paths: &[&Path]| Unsynced {
            directories: paths.iter().map(|path| path.to_path_buf()).collect(),
            ..Unsynced::default()
        };
        let only = |path: &Path| in_all(&[path]);
        let upper = format!("overlay a rw,lowerdir=/l,upperdir={},workdir=/w", bundle.display());
        let work = Some("/w".into());
        assert_eq!(found(&upper), Unsynced { work: work.clone(), ..in_all(&[&bundle, &root]) });
        assert_eq!(found("overlay a rw,lowerdir=/l,upperdir=u,workdir=w"), only(&root));
        let missing = found("overlay a rw,lowerdir=/l,upperdir=/missing/u,workdir=/w");
        assert_eq!(missing, Unsynced { work, ..only(&root) });
        assert_eq!(found(&format!("{upper},volatile")), Unsynced::default());
        assert_eq!(found(&format!("{upper},fsync=volatile")), Unsynced::default());
        assert_eq!(found("tmpfs a rw"), Unsynced::default());
        assert_eq!(found("btrfs a rw"), only(&root));
        let stored = in_all(&[Path::new("/store/ab"), &bundle]);
        assert_eq!(found("fuse.fuse-overlayfs a rw"), stored);
        // A shim of containerd mounts the root in its bundle.
        let lines = format!(
            "30 1 8:1 / / rw - ext4 a rw\n31 30 0:40 / {} rw - tmpfs a rw\n\
             41 31 0:50 / {} rw - fuse.fuse-overlayfs a rw\n",
            bundle.display(),
            root.display()
        );
        let at = |lines: &str, by| unsynced(&bundle, &facts, &parse(lines), by);
        assert_eq!(
            at(&lines, MountedBy::Engine),
            Unsynced { anywhere: true, ..Unsynced::default() }
        );
        // The shim's bundles can be on a disk, too, which need not be the snapshots'.
        let lines = lines.replace(" tmpfs ", " xfs ");
        assert_eq!(at(&lines, MountedBy::Engine), only(&bundle));
        assert_eq!(at(&lines, MountedBy::Shim), Unsynced { anywhere: true, ..only(&bundle) });
        let on_disk = "30 1 8:1 / / rw - ext4 a rw";
        assert_eq!(at(on_disk, MountedBy::Engine), only(&root));
        std::fs::remove_dir(&root).unwrap();
        assert_eq!(at(on_disk, MountedBy::Engine), Unsynced::default());
        std::os::unix::fs::symlink("rootfs", &root).unwrap();
        let anywhere = Unsynced { anywhere: true, ..Unsynced::default() };
        assert_eq!(at(on_disk, MountedBy::Engine), anywhere, "the link leads to itself");
    }

    #[test]
    fn each_file_system_is_synced_once() {
        let place = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| place.path().join(name));
        std::fs::create_dir(&paths[0]).unwrap();
        let missing = place.path().join("missing");
        std::fs::create_dir(&paths[1]).unwrap();
        let directories = vec![paths[0].clone(), paths[1].clone(), "/proc".into(), missing.clone()];
        let unsynced = Unsynced { directories, ..Unsynced::default() };
        let opened = unsynced.open();
        let found: Vec<_> = opened.handles.iter().map(|(path, _)| *path).collect();
        assert_eq!(found, [paths[0].as_path(), Path::new("/proc"), &missing]);
        assert!(opened.sync().unwrap_err().contains("missing: No such file or directory"));
    }
}
