//! Memory cgroups, and the kernel's own OOM killer in one of them.
//!
//! The victim and an eater are the only processes of a small cgroup; the eater takes memory until the
//! kernel has to kill, and the victim is the first in its order (proc_pid_oom_score_adj(5)).

use crate::Result;
use crate::processes::is_alive;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

/// What a cgroup may have: what the victim had before it came is not counted.
const BYTES: usize = 8 << 20;
/// What the eater takes at once.
const BITE: usize = 256 << 10;
/// The OOM killer adds so many thousandths of the limit to what a process has mapped.
const FIRST: &str = "1000";
const SECOND: &str = "0";
/// Of a cgroup's name; its owner's number follows.
const PREFIX: &str = "synconce-soak-";
/// The kernel needs milliseconds.
const LIMIT: Duration = Duration::from_secs(30);
const SIGKILL: i32 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where memory cgroups can be made.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    root: PathBuf,
    version: Version,
    /// A mount that has no place in any namespace, and goes with this.
    _mount: Option<OwnedFd>,
}

impl Hierarchy {
    /// Whichever this machine has mounted; otherwise one of version 1, mounted for us alone.
    ///
    /// # Errors
    /// There is none: the reason for which the OOM killer is left out.
    pub(crate) fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let known = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (root, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let version = match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
                "cgroup2" if lists(&Path::new(root).join("cgroup.controllers")) => Version::Two,
                _ => return None,
            };
            Some(Self { root: root.into(), version, _mount: None })
        });
        let found = known.map_or_else(Self::mounted, Ok)?;
        remove_orphans(&found.root);
        Ok(found)
    }

    fn mounted() -> Result<Self> {
        let mount = || {
            let system = fsopen("cgroup", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_set_flag(&system, "memory")?;
            fsconfig_create(&system)?;
            fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        let mount = mount().map_err(|errno| format!("no memory cgroups here: {errno}"))?;
        // The eater, another process, finds it by this name as well.
        let root = format!("/proc/{}/fd/{}", std::process::id(), mount.as_raw_fd());
        Ok(Self { root: root.into(), version: Version::One, _mount: Some(mount) })
    }
}

/// Whether the memory controller is among those that the file lists.
fn lists(controllers: &Path) -> bool {
    let text = fs::read_to_string(controllers).unwrap_or_default();
    text.split_whitespace().any(|name| name == "memory")
}

/// Removes what a soak that was killed has left; others go on.
fn remove_orphans(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        if owner.is_some_and(|owner| !is_alive(owner)) {
            // It is not empty as long as a process of its run goes on.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// A cgroup with little memory. Dropping it removes it; who is still in it goes to the root.
#[derive(Debug)]
pub(crate) struct Cage {
    root: PathBuf,
    path: PathBuf,
}

impl Cage {
    /// A new one.
    pub(crate) fn new(hierarchy: &Hierarchy) -> Result<Self> {
        let root = hierarchy.root.clone();
        let two = hierarchy.version == Version::Two;
        let shared = root.join("cgroup.subtree_control");
        if two && !lists(&shared) {
            // It stays so: somebody else may count on it by the time we are done.
            fs::write(&shared, "+memory").map_err(|error| act("enable memory in", &root, error))?;
        }
        let path = root.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| act("create", &path, error))?;
        let cage = Self { root, path };
        let (memory, swap, none) = match two {
            true => ("memory.max", "memory.swap.max", "0".to_owned()),
            // Of memory and swap together.
            false => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", BYTES.to_string()),
        };
        cage.set(memory, &BYTES.to_string())?;
        match cage.set(swap, &none) {
            // A kernel that does not count swap.
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(cage),
        }
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.path.join(name);
        // Not to be created: a file that is not there is a kernel without it.
        let mut file = fs::File::options().write(true).open(&path)?;
        file.write_all(value.as_bytes()).map_err(|error| act("set", &path, error))
    }

    /// Lets the OOM killer kill `victim`; `false` when that had ended before it came.
    pub(crate) fn kill(&self, victim: u64) -> Result<bool> {
        let first = fs::write(format!("/proc/{victim}/oom_score_adj"), FIRST);
        let caged = first.and_then(|()| self.set("cgroup.procs", &victim.to_string()));
        if let Err(error) = caged {
            return if is_alive(victim) { Err(error.into()) } else { Ok(false) };
        }
        let mut command = Command::new(std::env::current_exe()?);
        let eater = Group::spawn(command.arg("eat").arg(&self.path))?;
        let status = eater.wait(patiently(LIMIT))?.ok_or("the eater goes on eating")?;
        let eaten = status.signal() == Some(SIGKILL);
        if !eaten && !status.success() {
            return Err(format!("the eater: {status}, {}", eater.stderr()?).into());
        }
        // The eater, which is the second, may have been killed as well.
        if kills(&self.path)? <= u64::from(eaten) {
            return Ok(false);
        }
        let end = Instant::now() + patiently(LIMIT);
        while is_alive(victim) {
            if Instant::now() > end {
                return Err(format!("{victim} lives on after {} kills", kills(&self.path)?).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let inside = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                // It may have ended.
                let _ = fs::write(self.root.join("cgroup.procs"), pid);
            }
            match fs::remove_dir(&self.path) {
                Err(error) if Instant::now() > end => {
                    return eprintln!("soak: {}", act("remove", &self.path, error));
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

/// How many processes of the cgroup the OOM killer has killed (Linux 4.13).
fn kills(cgroup: &Path) -> Result<u64> {
    let texts = ["memory.events", "memory.oom_control"];
    let text = texts.iter().find_map(|name| fs::read_to_string(cgroup.join(name)).ok());
    let text = text.ok_or_else(|| format!("{} counts nothing", cgroup.display()))?;
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Ok(count.ok_or("this kernel does not count the OOM killer's kills")?.parse()?)
}

/// Enters the cgroup and takes memory until somebody in it was killed. A file in memory is nobody's
/// mapping: the eater is not the one who has most.
pub(crate) fn eat(cgroup: &Path) -> Result<()> {
    fs::write("/proc/self/oom_score_adj", SECOND)?;
    // 0 is who writes.
    fs::write(cgroup.join("cgroup.procs"), "0")?;
    let mut eaten = fs::File::from(memfd_create("eaten", MemfdFlags::CLOEXEC)?);
    for _ in 0..4 * BYTES / BITE {
        let bite = eaten.write_all(&[1; BITE]);
        if kills(cgroup)? > 0 {
            return Ok(());
        }
        bite?;
    }
    Err("the cgroup's limit does not hold".into())
}

fn act(what: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}
