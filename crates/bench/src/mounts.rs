//! Private mounts that cannot be left behind.
//!
//! A worker thread enters a new mount namespace and starts every command there. The kernel unmounts
//! everything in the namespace when the last process there exits, even if this program is killed.

use crate::command::show;
use crate::{Error, files, processes};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use synconce_probe::mounts;
use synconce_sys::namespace::{UnshareFlags, unshare};

/// The directory with sockets, locks and states of daemons. A benchmark mounts a file system in
/// memory over it, because its dockerd would use the host's containerd.
pub(crate) const RUN: &str = "/run";

/// The devices of a minimal root: name, major and minor (devices.txt of the kernel).
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Runs `work` in a thread with a private mount namespace. Mounts made outside propagate into
/// the namespace; mounts made inside do not propagate out.
pub(crate) fn in_private_namespace<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let enter = || {
        unshare(UnshareFlags::NEWNS).map_err(Error::io("enter", "a private mount namespace"))?;
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .map_err(Error::io("make private", "/"))
    };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| enter().and_then(|()| work()));
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A directory of the host that is covered by a file system in memory until the value is dropped.
/// If the directory was created for the mount, an empty directory stays: another benchmark may have
/// a mount there by then, which rmdir(2) would unmount (mount_namespaces(7), Linux 3.18).
pub(crate) struct TmpfsMount(PathBuf);

impl TmpfsMount {
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        files::create_dir(path)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", path, "tmpfs", flags, c"mode=755").map_err(Error::io("mount", path))?;
        Ok(Self(path.to_path_buf()))
    }
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        // The end of the namespace unmounts in any case.
        let _ = unmount(&self.0, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// Fails if one of `paths` is in the directory that a daemon has of its own.
pub(crate) fn refuse_in_run(paths: &[&Path]) -> Result<(), Error> {
    let real = |path: &&Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let Some(found) = paths.iter().map(real).find(|path| path.starts_with(RUN)) else {
        return Ok(());
    };
    let reason = "the daemon has a /run of its own".to_owned();
    Err(Error::Unsuitable { what: show(&found), reason })
}

/// A root with /proc and /dev mounted in it, until the value is dropped.
pub(crate) struct ChrootMounts {
    root: PathBuf,
    mounted: Vec<PathBuf>,
}

impl ChrootMounts {
    /// Mounts a new proc and a /dev with its own nodes, so that programs in the root cannot change
    /// the nodes of the host.
    pub(crate) fn new(root: &Path) -> Result<Self, Error> {
        let mut made = Self { root: root.to_path_buf(), mounted: Vec::new() };
        let plain = MountFlags::NOSUID | MountFlags::NOEXEC;
        made.mount("proc", "proc", plain | MountFlags::NODEV, c"")?;
        made.mount("tmpfs", "dev", plain, c"mode=755,size=4m")?;
        let dev = root.join("dev");
        for (name, major, minor) in DEVICES {
            node(&dev.join(name), rustix::fs::makedev(major, minor))?;
        }
        for (name, target) in LINKS {
            let path = dev.join(name);
            symlink(target, &path).map_err(Error::io("link", &path))?;
        }
        for name in ["pts", "shm"] {
            let path = dev.join(name);
            std::fs::create_dir(&path).map_err(Error::io("create", &path))?;
        }
        made.mount("devpts", "dev/pts", plain, c"newinstance,ptmxmode=0666,mode=620")?;
        Ok(made)
    }

    fn mount(
        &mut self,
        kind: &str,
        point: &str,
        flags: MountFlags,
        data: &std::ffi::CStr,
    ) -> Result<(), Error> {
        let target = self.root.join(point);
        files::create_dir(&target)?;
        mount(kind, &target, kind, flags, data).map_err(Error::io("mount", &target))?;
        self.mounted.push(target);
        Ok(())
    }

    /// Kills the processes that still run in the root, and unmounts.
    pub(crate) fn unmount(&mut self) -> Result<(), Error> {
        processes::kill_rooted(&self.root);
        while let Some(target) = self.mounted.pop() {
            // Lazily as a last resort: removing a tree is safe only without mounts in the tree.
            unmount(&target, UnmountFlags::NOFOLLOW)
                .or_else(|_| unmount(&target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW))
                .map_err(Error::io("unmount", &target))?;
        }
        Ok(())
    }
}

impl Drop for ChrootMounts {
    fn drop(&mut self) {
        // `unmount` reports errors; the end of the namespace unmounts in any case.
        let _ = self.unmount();
    }
}

fn node(path: &Path, number: u64) -> Result<(), Error> {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), number)
        .map_err(Error::io("make the device", path))?;
    // The umask applies to mknod.
    files::set_mode(path, 0o666)
}

/// Removes a tree or a file; fails if anything is mounted in it.
pub(crate) fn remove_tree(tree: &Path) -> Result<(), Error> {
    if let Some(point) = below(tree)?.first() {
        return Err(Error::Unsuitable {
            what: tree.display().to_string(),
            reason: format!("{} is still mounted, so it is not removed", point.display()),
        });
    }
    let removed = std::fs::remove_dir_all(tree);
    match removed.or_else(|error| match error.kind() {
        std::io::ErrorKind::NotADirectory => std::fs::remove_file(tree),
        _ => Err(error),
    }) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", tree)(error))
        }
        _ => Ok(()),
    }
}

/// Mounts a directory on itself, as a shared mount. Creates the directory if necessary.
pub(crate) fn share(path: &Path) -> Result<(), Error> {
    files::create_dir(path)?;
    mount_bind(path, path).map_err(Error::io("mount", path))?;
    mount_change(path, MountPropagationFlags::SHARED).map_err(Error::io("share", path))
}

/// Unmounts every mount strictly below a tree, in the mount namespace of the calling thread.
pub(crate) fn unmount_below(tree: &Path) -> Result<(), Error> {
    // The table lists a parent before the mounts in it.
    for point in below(tree)?.into_iter().rev() {
        unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(Error::io("unmount", &point))?;
    }
    Ok(())
}

/// Returns the mount points strictly below a tree, in the mount namespace of the calling thread.
fn below(tree: &Path) -> Result<Vec<PathBuf>, Error> {
    let table = "/proc/thread-self/mountinfo";
    let mounts = mounts::read("thread-self").map_err(Error::io("read", table))?;
    let points = mounts.into_iter().map(|mount| mount.point);
    Ok(points.filter(|point| point != tree && point.starts_with(tree)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_tree_that_is_not_there_is_no_error() {
        remove_tree(Path::new("/nonexistent/tree")).expect("nothing is to be done");
    }

    #[test]
    fn mounts_that_a_cut_short_program_left_are_gone_with_those_inside_them() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory can be made");
        in_private_namespace(|| {
            let mounts = ChrootMounts::new(dir.path())?;
            std::mem::forget(mounts);
            assert!(below(dir.path())?.len() >= 3);
            unmount_below(dir.path())?;
            assert_eq!(below(dir.path())?, Vec::<PathBuf>::new());
            remove_tree(dir.path())
        })
        .expect("the namespace works");
    }

    #[test]
    fn chroot_mounts_are_seen_inside_only_and_gone_afterwards() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory can be made");
        let root = dir.path().join("a root");
        let null = root.join("dev/null");
        in_private_namespace(|| {
            let mut mounts = ChrootMounts::new(&root)?;
            assert!(null.exists());
            assert_eq!(below(&dir.path().join("a r"))?, Vec::<PathBuf>::new());
            let refused = remove_tree(dir.path()).expect_err("it must not be removed");
            assert!(refused.to_string().contains("a root/proc is still mounted"), "{refused}");
            mounts.unmount()?;
            assert!(!null.exists());
            Ok(())
        })
        .expect("the namespace works");
        assert_eq!(below(dir.path()).expect("proc is there"), Vec::<PathBuf>::new());
    }
}
