//! The mount namespaces of all processes (mount_namespaces(7)).

use crate::mounts::{self, Mount};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    /// Whether `nsenter -t PID -m umount` can unmount, in this namespace, the mounts that it has in
    /// common with the namespace of the calling process, because one inherited them from the other.
    /// Both must have the same root and the same owner, and process PID must not be in a chroot.
    /// The mounts that a namespace of another owner has inherited cannot be unmounted one by one
    /// (mount_namespaces(7)).
    pub fn is_a_copy_of_ours(&self) -> bool {
        let root = |mounts: &[Mount]| {
            let root = mounts.iter().rfind(|mount| mount.point == Path::new("/"))?;
            Some((root.device, root.root.clone()))
        };
        let link = |process: &str, name| fs::read_link(format!("/proc/{process}/{name}")).ok();
        let pid = self.pid.to_string();
        let there = root(&self.mounts);
        let ours = mounts::read("self").unwrap_or_default();
        self.thread == self.pid
            && (there.is_some() && there == root(&ours))
            && link(&pid, "root").is_some_and(|root| root == Path::new("/"))
            && link(&pid, "ns/user") == link("self", "ns/user")
    }
}

/// Returns the number of the mount namespace of `process` ("self", or an id); `None` if the
/// process has ended, or /proc does not show its namespace to this user.
pub fn of_mounts(process: &str) -> Option<u64> {
    number(&Path::new("/proc").join(process))
}

/// Returns the number of the mount namespace of this process; 0 without /proc.
pub fn ours() -> u64 {
    of_mounts("self").unwrap_or_default()
}

/// Returns the other mount namespaces in which processes or threads are, each once.
pub fn others() -> Vec<Namespace> {
    let mut seen = HashSet::from([ours()]);
    let mut found = Vec::new();
    for pid in ids_in(Path::new("/proc")) {
        let tasks = Path::new("/proc").join(pid.to_string()).join("task");
        // A thread can have a namespace of its own, and the process list shows the first only.
        for thread in threads(pid, &tasks) {
            let number = number(&tasks.join(thread.to_string()));
            let Some(number) = number.filter(|number| seen.insert(*number)) else { continue };
            match mounts::read(&thread.to_string()) {
                Ok(mounts) => found.push(Namespace { number, pid, thread, mounts }),
                // The thread has ended: another one may be in this namespace.
                Err(_) => drop(seen.remove(&number)),
            }
        }
    }
    found
}

/// Returns the threads of the process `pid`. Most processes have one, which the number of links of
/// the directory `tasks` shows at less cost than its list (`proc_task_getattr` in fs/proc/base.c).
fn threads(pid: u32, tasks: &Path) -> Vec<u32> {
    match fs::metadata(tasks) {
        Ok(found) if found.nlink() == 3 => vec![pid],
        _ => ids_in(tasks).collect(),
    }
}

fn ids_in(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn number(process: &Path) -> Option<u64> {
    fs::metadata(process.join("ns/mnt")).ok().map(|link| link.ino())
}
