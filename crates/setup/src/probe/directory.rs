//! The directories of a probe.

use super::program::program;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use synconce_durable::error::Context;
use synconce_probe::mounts;

/// The directory of storage from which programs are executed. A temporary directory may be mounted
/// `noexec`.
pub(crate) const PARENT: &str = "/var/lib";

/// Writes the program of a probe to `path`.
pub(crate) fn write_program(path: &Path) -> io::Result<()> {
    fs::write(path, program())?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Removes `directory` of a probe, after all that is mounted there.
///
/// # Errors
/// Why it is left, with the command that removes it.
pub(crate) fn remove(directory: &Path) -> Result<(), String> {
    let remedy = || format!("remove it: rm -r --one-file-system {}", directory.display());
    remove_all(directory).map_err(|why| format!("{why}; {}", remedy()))
}

fn remove_all(directory: &Path) -> Result<(), String> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Ok(());
    };
    // The paths of mounts have no symbolic links.
    let parent = &parent.canonicalize().on("cannot find", parent).map_err(|it| it.to_string())?;
    let directory = parent.join(name);
    let mounts = mounts::read("self").on("cannot read the mounts of", Path::new("/proc/self"));
    let mounts = mounts.map_err(|error| error.to_string())?;
    for mount in mounts.iter().rev().filter(|mount| mount.point.starts_with(&directory)) {
        // Podman may have unmounted it meanwhile. What stays mounted is not removed.
        let _ = unmount(&mount.point, UnmountFlags::DETACH);
    }
    let parent = File::open(parent).on("cannot open", parent);
    let parent = parent.map_err(|error| error.to_string())?;
    let removed = synconce_fs::remove(parent.as_fd(), name, 1, &());
    let left = removed.map_err(|error| error.to_string())?.left;
    left.first().map_or(Ok(()), |error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, mount, mount_bind};
    use synconce_testkit::isolation::isolated;

    #[test]
    fn what_the_probe_has_mounted_is_unmounted_and_not_emptied() {
        isolated(
            || {
                let top = tempfile::tempdir().unwrap();
                let [probe, theirs] = ["probe", "theirs"].map(|name| top.path().join(name));
                let at = probe.join("root/shm");
                fs::create_dir_all(&at).unwrap();
                fs::create_dir(&theirs).unwrap();
                fs::write(theirs.join("file"), "").unwrap();
                mount("test", &at, "tmpfs", MountFlags::empty(), None).unwrap();
                fs::create_dir(at.join("below")).unwrap();
                mount_bind(&theirs, at.join("below")).unwrap();
                remove(&probe).unwrap();
                assert!(!probe.exists() && theirs.join("file").exists());
                // The parent is a symbolic link.
                let link = top.path().join("link");
                std::os::unix::fs::symlink(top.path(), &link).unwrap();
                fs::create_dir_all(&at).unwrap();
                mount("test", &at, "tmpfs", MountFlags::empty(), None).unwrap();
                remove(&link.join("probe")).unwrap();
                assert!(!probe.exists());
                // There is nothing left to remove.
                remove(&probe).unwrap();
            },
            |_, test| test(),
        );
    }
}
