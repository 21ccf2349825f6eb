//! The mount namespaces of all processes (mount_namespaces(7)).

use crate::open_files::FileUser;
use rustix::fs::makedev;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use synconce_probe::mounts::{self, Mount};
use synconce_sys::procfs;

/// A mount namespace that is not the one of this process.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Its number (the inode of `/proc/PID/ns/mnt`).
    pub number: u64,
    /// A process of which a thread is in it.
    pub pid: u32,
    /// That thread.
    pub thread: u32,
    /// Its mounts, as the thread sees them: below the root of the thread.
    pub mounts: Vec<Mount>,
}

impl Namespace {
    /// Returns its process, with a name if the process has not ended.
    pub fn user(&self) -> FileUser {
        FileUser::of(self.pid).unwrap_or_else(|| FileUser { pid: self.pid, name: String::new() })
    }
}

/// Returns the number of the mount namespace of `process` ("self", or an id); `None` if the
/// process has ended, or /proc does not show its namespace to this user.
pub fn of(process: &str) -> Option<u64> {
    number(&Path::new("/proc").join(process))
}

/// Returns the number of the mount namespace of this process; 0 without /proc.
pub fn ours() -> u64 {
    of("self").unwrap_or_default()
}

/// Returns the other mount namespaces in which processes or threads are, each once.
pub fn others() -> Vec<Namespace> {
    let mut seen = HashSet::from([ours()]);
    let mut found = Vec::new();
    for pid in procfs::pids() {
        let directory = Path::new("/proc").join(pid.to_string());
        // A thread can have a namespace of its own, and the process list shows the first only.
        let threads = fs::read_dir(directory.join("task")).into_iter().flatten().flatten();
        for thread in threads {
            let Some(number) = number(&thread.path()).filter(|number| seen.insert(*number)) else {
                continue;
            };
            let name = thread.file_name().to_string_lossy().into_owned();
            match (name.parse(), mounts::read(&name)) {
                (Ok(thread), Ok(mounts)) => {
                    found.push(Namespace { number, pid, thread, mounts });
                }
                // The thread has ended: another one may be in this namespace.
                _ => drop(seen.remove(&number)),
            }
        }
    }
    found
}

/// Returns the device of the file system of `mount`, as in `st_dev`.
pub fn device(mount: &Mount) -> u64 {
    makedev(mount.device.major, mount.device.minor)
}

fn number(process: &Path) -> Option<u64> {
    fs::metadata(process.join("ns/mnt")).ok().map(|link| link.ino())
}
