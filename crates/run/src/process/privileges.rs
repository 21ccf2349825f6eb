//! Programs that gain privileges when they are executed, which no_new_privs prevents.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatVfsMountFlags, StatxFlags};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_sys::search;

/// The purpose for which a program gains privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gain {
    /// Maps the ids of a user namespace: newuidmap and newgidmap.
    Ids,
    /// Mounts for a user who stays that user: schroot and fusermount3.
    Mount,
    /// Any other purpose, such as sudo's.
    Other,
}

impl Gain {
    /// Returns the purpose of the program at `path`.
    pub fn read(path: &Path) -> Self {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("newuidmap" | "newgidmap") => Self::Ids,
            Some("schroot" | "fusermount3" | "fusermount") => Self::Mount,
            _ => Self::Other,
        }
    }
}

/// Programs that are asked for privileges. Programs that mount by FUSE, such as AppImages, start
/// fusermount3.
const PROGRAMS: [&str; 9] = [
    "sudo",
    "su",
    "doas",
    "pkexec",
    "newuidmap",
    "newgidmap",
    "schroot",
    "fusermount3",
    "fusermount",
];
/// Where they are, if PATH does not say it.
const DIRECTORIES: &str = "/usr/bin:/usr/local/bin:/bin";

/// Notes which programs that would gain privileges are opened, as execve(2) does. The calls
/// themselves are not stopped: a call that waits for a supervisor can be interrupted by a
/// signal, and execve(2) never returns EINTR. So the opens of processes outside the run are noted,
/// too.
#[derive(Debug)]
pub(crate) struct PrivilegeWatch {
    inotify: OwnedFd,
    /// The programs, by their watches.
    paths: HashMap<i32, PathBuf>,
}

impl PrivilegeWatch {
    /// Begins to watch. Returns `None` where no program would lose privileges, or without a
    /// free inotify instance.
    pub(crate) fn begin() -> Option<Self> {
        if !are_lost() {
            return None;
        }
        // Root starts `su` and `sudo`, too, and loses nothing.
        let is_root = rustix::process::geteuid().is_root();
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let mut paths = HashMap::new();
        let directories = std::env::var_os("PATH").unwrap_or_else(|| DIRECTORIES.into());
        let names = PROGRAMS.iter().map(Path::new);
        for name in names.filter(|name| !is_root || Gain::read(name) == Gain::Ids) {
            for path in search::candidates(name.as_os_str(), Some(&directories)) {
                if gains(&path)
                    && let Ok(watch) = inotify::add_watch(&inotify, &path, WatchFlags::OPEN)
                {
                    paths.entry(watch).or_insert(path);
                }
            }
        }
        Some(Self { inotify, paths })
    }

    /// Returns the first program of each [`Gain`] that was opened.
    pub(crate) fn opened(&self) -> Vec<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        let (mut kinds, mut opened) = (HashSet::new(), Vec::new());
        while let Ok(event) = events.next() {
            let path = self.paths.get(&event.wd());
            opened.extend(path.filter(|path| kinds.insert(Gain::read(path))).cloned());
        }
        opened
    }
}

/// Whether a filter of this process needs no_new_privs, which this process does not have yet:
/// without CAP_SYS_ADMIN in its user namespace (seccomp(2)).
fn are_lost() -> bool {
    let may = capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::SYS_ADMIN));
    !may && !no_new_privs().unwrap_or(false)
}

const SETUID: u16 = 0o4000;
/// setgid without the group's execute permission has another meaning (inode(7)).
const SETGID: u16 = 0o2010;

/// Whether the program at `path` gains privileges without no_new_privs (execve(2)): the file is
/// setuid, setgid, or has capabilities, and its mount is not nosuid.
pub fn gains(path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    let mask = StatxFlags::TYPE | StatxFlags::MODE;
    let Ok(stat) = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, mask) else { return false };
    let is_set = |bits| stat.stx_mode & bits == bits;
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile
        && (is_set(SETUID) || is_set(SETGID) || has_capabilities(&file))
        && !rustix::fs::fstatvfs(&file)
            .is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOSUID))
}

/// Whether `file`, which may be `O_PATH`, has file capabilities (capabilities(7)).
fn has_capabilities(file: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // The attribute has at most 24 bytes (struct vfs_ns_cap_data).
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 24]).is_ok()
}
