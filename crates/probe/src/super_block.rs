//! The life of a super block: from the first mount of a file system to its last unmount, in any
//! mount namespace.
//!
//! The kernel makes a directory in sysfs at the first mount, and removes the directory at the
//! last unmount. kernfs never uses the inode number of a directory again (`kernfs_new_node` in
//! fs/kernfs/dir.c), and shows the same number in every mount of sysfs. So a directory with the
//! same number says that the file system has been mounted all the time.

use crate::device;
use crate::mounts::Mount;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The type of sysfs in statfs(2) (include/uapi/linux/magic.h).
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// Returns the directory of the super block of `mount`, and the number of the directory; `None`
/// if the file system has no directory, or sysfs is not mounted.
pub fn directory(mount: &Mount) -> Option<(PathBuf, u64)> {
    let source = Path::new(&mount.source);
    let directory = match mount.type_name.as_str() {
        "btrfs" => {
            // In a container the link of a mapped device can be missing.
            let device = source.canonicalize().unwrap_or_else(|_| source.to_owned());
            let entries = fs::read_dir("/sys/fs/btrfs").ok()?.flatten();
            let mut directories = entries.map(|entry| entry.path());
            let device = Path::new("devices").join(device.file_name()?);
            directories.find(|directory| directory.join(&device).exists())?
        }
        name => {
            let device = device::name(mount.device)?;
            // The driver of ext4 mounts ext2 and ext3, too.
            let drivers = [name, "ext4"].map(|driver| Path::new("/sys/fs").join(driver));
            let mut directories = drivers.iter().map(|driver| driver.join(&device));
            directories.find(|directory| directory.is_dir())?
        }
    };
    let number = fs::metadata(&directory).ok()?.ino();
    is_of_sysfs(&directory).then_some((directory, number))
}

/// Returns the number of errors that the ext4 with this `directory` has counted. Only e2fsck(8)
/// sets the number to 0.
pub fn errors(directory: &Path) -> Option<u64> {
    fs::read_to_string(directory.join("errors_count")).ok()?.trim().parse().ok()
}

/// Whether the super block with this `directory` and `number` (see [`directory`]) is still mounted;
/// `None` if sysfs does not say so.
pub fn is_alive(directory: &Path, number: u64) -> Option<bool> {
    let found = fs::metadata(directory).map(|found| found.ino() == number);
    let existing = directory.ancestors().find(|above| above.exists());
    match found {
        _ if !existing.is_some_and(is_of_sysfs) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => Some(false),
        found => found.ok(),
    }
}

/// Whether sysfs is mounted on `/sys`.
pub fn is_sysfs_shown() -> bool {
    is_of_sysfs(Path::new("/sys"))
}

fn is_of_sysfs(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|system| system.f_type as u64 == SYSFS_MAGIC)
}
