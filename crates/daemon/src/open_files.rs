//! The files that processes have open, from /proc.

use rustix::fs::OFlags;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// O_DSYNC of Linux on x86_64 and aarch64 (include/uapi/asm-generic/fcntl.h), which O_SYNC
/// contains. rustix has the value of O_SYNC under this name.
const O_DSYNC: u32 = 0o10_000;

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct User {
    /// Its id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`).
    pub name: String,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// An open file of a process.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The process.
    pub pid: u32,
    /// The path, as the kernel shows it to this process.
    pub path: PathBuf,
    /// The flags of open(2).
    pub flags: u32,
    /// The id of the mount through which the file was opened; 0 for a working directory.
    pub mount: u64,
}

impl OpenFile {
    /// Whether each write through this file is synced, because it was opened with `O_SYNC` or
    /// `O_DSYNC`.
    pub fn is_synced(&self) -> bool {
        let writes = (OFlags::WRONLY | OFlags::RDWR).bits();
        self.flags & O_DSYNC != 0 && self.flags & writes != 0
    }

    /// Returns the process with its name.
    pub fn user(&self) -> User {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        User { pid: self.pid, name: name.trim_end().to_owned() }
    }
}

/// Returns the open files and working directories of all other processes. Processes that end meanwhile are left out.
pub fn all() -> Vec<OpenFile> {
    let ours = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != ours).flat_map(of).collect()
}

fn of(pid: u32) -> Vec<OpenFile> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let look = |entry: fs::DirEntry| {
        let path = fs::read_link(entry.path()).ok()?;
        let info = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(entry.file_name());
        let info = fs::read_to_string(info).ok()?;
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
        Some(OpenFile { pid, path, flags, mount: field("mnt_id:")?.parse().ok()? })
    };
    // A process that works in a held directory reaches files without the overlay.
    let directory = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    let directory = directory.map(|path| OpenFile { pid, path, flags: 0, mount: 0 });
    descriptors.filter_map(look).chain(directory).collect()
}

/// Returns the processes of `files`, each once.
pub fn users<'a>(files: impl Iterator<Item = &'a OpenFile>) -> Vec<User> {
    let mut users: Vec<_> = files.map(OpenFile::user).collect();
    users.sort();
    users.dedup();
    users
}

/// Returns names for a message: "containerd (pid 3), ctr (pid 4)".
pub fn named(users: &[User]) -> String {
    let words: Vec<_> = users.iter().map(ToString::to_string).collect();
    words.join(", ")
}
