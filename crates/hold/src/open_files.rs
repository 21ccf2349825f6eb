//! The files that processes have open, from /proc.

use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::text::quote;
use synconce_probe::filesystem::{SyncKind, stores_nothing};
use synconce_probe::mounts::{self, Mount};
use synconce_probe::namespaces::{self, Namespace};
use synconce_probe::systemd;
use synconce_sys::procfs;

/// O_DSYNC of Linux on x86_64 and aarch64 (include/uapi/asm-generic/fcntl.h), which O_SYNC
/// contains. rustix has the value of O_SYNC under this name.
const O_DSYNC: u32 = 0o10_000;

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FileUser {
    /// Its id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`).
    pub name: String,
}

/// Returns the command that stops `unit`; `None` without a unit, or if systemd does not run here.
pub(crate) fn stop_by_unit(unit: Option<&str>) -> Option<String> {
    let unit = unit.filter(|_| systemd::is_running())?;
    Some(format!("systemctl stop {}", quote(Path::new(unit))))
}

/// Returns what ends `users`, processes of the daemon that `unit` starts.
pub(crate) fn ended_by(unit: Option<&str>, users: &[FileUser]) -> String {
    if let Some(command) = stop_by_unit(unit) {
        return command;
    }
    let pids: Vec<_> = users.iter().map(|user| user.pid.to_string()).collect();
    match &pids[..] {
        [] => "stop the daemon".to_owned(),
        pids => format!("stop the daemon; or: kill {}", pids.join(" ")),
    }
}

impl FileUser {
    /// Returns the process `pid` with its name; `None` if the process has ended.
    pub fn from_pid(pid: u32) -> Option<Self> {
        Some(Self { pid, name: procfs::process_name(pid).ok()? })
    }

    /// Returns the process of `namespace`, with a name if the process has not ended.
    pub(crate) fn in_namespace(namespace: &Namespace) -> Self {
        let pid = namespace.pid;
        Self::from_pid(pid).unwrap_or_else(|| Self { pid, name: String::new() })
    }
}

impl fmt::Display for FileUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A process may give itself an empty name (prctl(2), PR_SET_NAME).
        let name = if self.name.is_empty() { "a process" } else { &self.name };
        write!(f, "{name} (pid {})", self.pid)
    }
}

/// A file that a process has open or mapped, or its working or root directory.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The process.
    pub pid: u32,
    /// The device of the file (`st_dev`). For a file of an overlay of a hold, the device of the
    /// overlay: all layers are on one file system.
    pub device: u64,
    /// The inode number of the file.
    pub inode: u64,
    /// The link in /proc that leads to the file.
    pub link: PathBuf,
}

impl OpenFile {
    /// Whether each write through this file is synced, because it was opened with `O_SYNC` or
    /// `O_DSYNC`. A file that was closed meanwhile is not.
    pub fn is_synced(&self) -> bool {
        let flags = fdinfo(&self.link, "flags:");
        let flags = flags.and_then(|flags| u32::from_str_radix(&flags, 8).ok()).unwrap_or(0);
        let writes = (OFlags::WRONLY | OFlags::RDWR).bits();
        flags & O_DSYNC != 0 && flags & writes != 0
    }

    /// Returns the file to which `link` leads for the process `pid`, unless a look at the file
    /// can block. `find_mount` returns the mount of the file, at a greater cost than the look.
    fn at<'a>(
        pid: u32,
        link: PathBuf,
        mounts: &NamespaceMounts,
        find_mount: impl Fn(&Path) -> Option<&'a Mount>,
    ) -> Option<Self> {
        if mounts.has_server && find_mount(&link).is_some_and(may_block) {
            return None;
        }
        let (device, inode) = match look(&link) {
            // The disk was shut down: the mount says which file system the file is on.
            Err(Errno::IO) => (mounts::device(find_mount(&link)?), 0),
            found => found.ok()?,
        };
        Some(Self { pid, device, inode, link })
    }
}

/// The mounts of a mount namespace, as a process there sees them.
#[derive(Default)]
struct NamespaceMounts {
    mounts: Vec<Mount>,
    /// Whether a look at a file of one of them can block.
    has_server: bool,
}

impl NamespaceMounts {
    fn read(pid: u32) -> Self {
        let mounts = mounts::read(&pid.to_string()).unwrap_or_default();
        let has_server = mounts.iter().any(may_block);
        Self { mounts, has_server }
    }

    /// Returns the mount through which the descriptor `link` was opened.
    fn of_descriptor(&self, link: &Path) -> Option<&Mount> {
        let id: u64 = fdinfo(link, "mnt_id:")?.parse().ok()?;
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// Returns the mount of the file to which `link` points.
    fn of_target(&self, link: &Path) -> Option<&Mount> {
        mounts::above(&fs::read_link(link).ok()?, &self.mounts)
    }
}

/// Returns the value of `field` in `/proc/PID/fdinfo/FD` for the link `/proc/PID/fd/FD`; `None` for
/// another link.
fn fdinfo(link: &Path, field: &str) -> Option<String> {
    let directory = link.parent().filter(|directory| directory.ends_with("fd"))?;
    let info = directory.with_file_name("fdinfo").join(link.file_name()?);
    let info = fs::read_to_string(info).ok()?;
    let value = info.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().to_owned())
}

/// Returns the device and the inode number of the file at `path`, which also files of bind
/// mounts and other mount namespaces have. `None` if the file does not exist.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    look(path).ok()
}

fn look(path: &Path) -> rustix::io::Result<(u64, u64)> {
    // A server of a file system that does not answer must not block the call.
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::INO)?;
    Ok((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
}

/// Returns the open and mapped files, the working and the root directories of all other
/// processes, and the working directory of this one. Processes that end meanwhile are left out.
pub fn all() -> Vec<OpenFile> {
    let ours = std::process::id();
    let mut namespaces = HashMap::new();
    // This process has no held file open, but may have been started in a held directory.
    let cwd = PathBuf::from("/proc/self/cwd");
    let mut files = Vec::from_iter(OpenFile::at(ours, cwd, &NamespaceMounts::default(), |_| None));
    for pid in procfs::pids().filter(|pid| *pid != ours) {
        let Some(namespace) = namespaces::of_mounts(&pid.to_string()) else { continue };
        let mounts = namespaces.entry(namespace).or_insert_with(|| NamespaceMounts::read(pid));
        add_open_files(pid, mounts, &mut files);
    }
    files
}

fn add_open_files(pid: u32, mounts: &NamespaceMounts, files: &mut Vec<OpenFile>) {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.extend(descriptors.filter_map(|entry| {
        OpenFile::at(pid, entry.path(), mounts, |link| mounts.of_descriptor(link))
    }));
    // A process that works in a held directory reaches files without the overlay.
    files.extend(["cwd", "root"].into_iter().filter_map(|name| {
        OpenFile::at(pid, process.join(name), mounts, |link| mounts.of_target(link))
    }));
    files.extend(mapped(pid, &process, mounts));
}

/// Returns the files that the process `pid` has mapped, some of them several times.
fn mapped(pid: u32, process: &Path, mounts: &NamespaceMounts) -> Vec<OpenFile> {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut last = None;
    let mut files = Vec::new();
    for line in maps.lines() {
        let mut fields = line.splitn(6, ' ');
        let (Some(range), Some(device), Some(inode), Some(_)) =
            (fields.next(), fields.nth(2), fields.next(), fields.next())
        else {
            continue;
        };
        // The parts of a file are usually mapped beside each other.
        if inode == "0" || last.replace((device, inode)) == Some((device, inode)) {
            continue;
        }
        files.extend(mapping(pid, process, range, mounts).or_else(|| {
            // Not every user may follow the link: the device of a file of an overlay is the
            // one below before Linux 6.8.
            let (major, minor) = device.split_once(':')?;
            let number = |text| u32::from_str_radix(text, 16).ok();
            let device = rustix::fs::makedev(number(major)?, number(minor)?);
            let (inode, link) = (inode.parse().ok()?, process.join("maps"));
            Some(OpenFile { pid, device, inode, link })
        }));
    }
    files
}

/// Returns the file that is mapped at `range` (proc(5), map_files).
fn mapping(pid: u32, process: &Path, range: &str, mounts: &NamespaceMounts) -> Option<OpenFile> {
    let (from, to) = range.split_once('-')?;
    // The names of these links have no leading zeros.
    let number = |text| u64::from_str_radix(text, 16).ok();
    let name = format!("{:x}-{:x}", number(from)?, number(to)?);
    let link = process.join("map_files").join(name);
    OpenFile::at(pid, link, mounts, |link| mounts.of_target(link))
}

/// Whether a look at a file of `mount` by a link in /proc can block for ever: a server may be asked
/// whether the file is still the same (`d_weak_revalidate`, as nfs and 9p have it), also by a file
/// system that is not listed. No held file is there.
///
/// The process that serves a file system of FUSE is not asked (`fuse_update_get_attr` in
/// fs/fuse/dir.c, for AT_STATX_DONT_SYNC).
fn may_block(mount: &Mount) -> bool {
    // Most machines have one of these, and each descriptor takes longer while one may block.
    const LOCAL: [&str; 8] =
        ["autofs", "binfmt_misc", "bpf", "efivarfs", "fusectl", "nsfs", "pstore", "selinuxfs"];
    // On a disk of several machines: statx(2) waits for a lock of the cluster (`gfs2_getattr`,
    // `ocfs2_getattr`).
    const SHARED: [&str; 2] = ["gfs2", "ocfs2"];
    let name = mount.type_name.as_str();
    match mount.kind() {
        SyncKind::Network => true,
        SyncKind::Other => {
            let is_local = stores_nothing(name) || LOCAL.contains(&name);
            SHARED.contains(&name) || (mount.device.major == 0 && !is_local)
        }
        SyncKind::Disk { .. } | SyncKind::Stacked | SyncKind::Fuse { .. } => false,
    }
}

/// Returns the processes of `files` that have not ended, each once.
pub fn users<'a>(files: impl Iterator<Item = &'a OpenFile>) -> Vec<FileUser> {
    let pids: HashSet<_> = files.map(|file| file.pid).collect();
    let mut users: Vec<_> = pids.into_iter().filter_map(FileUser::from_pid).collect();
    users.sort();
    users
}

/// Returns names for a message: "containerd (pid 3), ctr (pid 4)".
pub fn named(users: &[FileUser]) -> String {
    let words: Vec<_> = users.iter().map(ToString::to_string).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::fs::File;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_process_has_open_executes_and_works_in_is_found_and_whether_it_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::create_dir(path("work")).unwrap();
        // By a process of its own: a descriptor for writing that a child of another test inherits
        // would make the execution fail with ETXTBSY.
        let copied = Command::new("cp").arg("/bin/sleep").arg(path("program")).status().unwrap();
        assert!(copied.success());
        let create = |name, more| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | more;
            File::from(rustix::fs::open(path(name), flags, Mode::RWXU).unwrap())
        };
        let mut command = Command::new(path("program"));
        command.arg("600").current_dir(path("work")).stdin(Stdio::null());
        command.stdout(create("synced", OFlags::DSYNC)).stderr(create("plain", OFlags::empty()));
        let mut process = command.spawn().unwrap();
        let found: Vec<_> = all().into_iter().filter(|file| file.pid == process.id()).collect();
        for (name, is_synced) in
            [("work", false), ("program", false), ("synced", true), ("plain", false)]
        {
            let (device, inode) = identity(&path(name)).unwrap();
            let file = found.iter().find(|file| file.device == device && file.inode == inode);
            assert_eq!(file.map(OpenFile::is_synced), Some(is_synced), "{name}");
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
