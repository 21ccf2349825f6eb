//! The lock of another command, until which a verb waits.

use crate::open_files::FileUser;
use rustix::fs::fstat;
use std::fmt;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A lock that another command has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedLock {
    /// What the lock is for.
    pub of: LockOf,
    /// The process that has the lock, if the process is in sight.
    pub owner: Option<FileUser>,
}

/// What a lock is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockOf {
    /// The hold of this name.
    Hold(String),
    /// The disk of this held path.
    Disk(PathBuf),
}

/// Called once before each wait.
pub type OnWait<'a> = &'a dyn Fn(&AwaitedLock);

impl fmt::Display for AwaitedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.as_ref().map_or("another process".to_owned(), FileUser::to_string);
        match &self.of {
            LockOf::Hold(name) => {
                write!(f, "waiting for the lock of the hold {name}, which {owner} has")
            }
            LockOf::Disk(path) => {
                let path = path.display();
                write!(f, "waiting for the lock of the disk of {path}, which {owner} has")
            }
        }
    }
}

/// Returns the process that has the lock of flock(2) on `file`; `None` if the process is not in
/// sight or has unlocked the file (proc_locks(5)).
pub(crate) fn owner(file: &OwnedFd) -> Option<FileUser> {
    let inode = fstat(file).ok()?.st_ino.to_string();
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut owners = locks.lines().filter_map(|line| owner_in(line, &inode));
    // Inode numbers are unique on one file system only, and btrfs shows another device in
    // /proc/locks than by stat(2).
    FileUser::from_pid(owners.find(|pid| has_open(*pid, &path))?)
}

/// Returns the process of a line of /proc/locks, if it has a lock of flock(2) on a file with the
/// number `inode`. The line of a process that waits has `->` in front.
fn owner_in(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    let (_, locked) = words.next()?.rsplit_once(':')?;
    (locked == inode).then_some(pid)
}

fn has_open(pid: u32, path: &Path) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|open| open == path))
}
