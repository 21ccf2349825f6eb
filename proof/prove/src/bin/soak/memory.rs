//! Memory cgroups, and the kernel's own OOM killer in one of them.
//!
//! The target and an allocator are the only processes of a small cgroup. The allocator takes
//! memory until the kernel has to kill a process; the target is first in the kernel's order
//! (proc_pid_oom_score_adj(5)).

use crate::Result;
use crate::processes::is_alive;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};
use rustix::process::Signal;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

/// The memory limit of a cgroup. Memory that the target had before it entered is not counted.
const BYTES: usize = 8 << 20;
/// Memory that the allocator takes in one step.
const STEP: usize = 256 << 10;
/// The value of oom_score_adj: the OOM killer adds this many thousandths of the limit to the
/// memory that a process has mapped.
const FIRST: &str = "1000";
const SECOND: &str = "0";
/// Start of a cgroup's name; the pid of its owner follows.
const PREFIX: &str = "synconce-soak-";
/// Far more than the milliseconds that the kernel needs.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

/// A place where memory cgroups can be created.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    root: PathBuf,
    version: CgroupVersion,
    /// A detached mount: in no mount namespace, unmounted when the descriptor is closed.
    _mount: Option<OwnedFd>,
}

impl Hierarchy {
    /// Returns the mounted hierarchy of this machine; otherwise mounts one of version 1 for
    /// this process alone.
    ///
    /// # Errors
    /// No hierarchy is available. The error is the reason why the OOM killer is left out.
    pub(crate) fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let known = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (root, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let version = match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => {
                    CgroupVersion::One
                }
                "cgroup2" if lists(&Path::new(root).join("cgroup.controllers")) => {
                    CgroupVersion::Two
                }
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
        // The allocator, another process, opens the hierarchy by the same name.
        let root = format!("/proc/{}/fd/{}", std::process::id(), mount.as_raw_fd());
        Ok(Self { root: root.into(), version: CgroupVersion::One, _mount: Some(mount) })
    }
}

/// Whether the file `controllers` lists the memory controller.
fn lists(controllers: &Path) -> bool {
    let text = fs::read_to_string(controllers).unwrap_or_default();
    text.split_whitespace().any(|name| name == "memory")
}

/// Removes the cgroups of soaks that were killed; those of running soaks stay.
fn remove_orphans(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        if owner.is_some_and(|owner| !is_alive(owner)) {
            // The cgroup is not empty while a process of its run exists.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// A cgroup with little memory. Dropping the value moves the remaining processes to the root
/// cgroup and removes the cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    root: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    pub(crate) fn new(hierarchy: &Hierarchy) -> Result<Self> {
        let root = hierarchy.root.clone();
        let two = hierarchy.version == CgroupVersion::Two;
        let shared = root.join("cgroup.subtree_control");
        if two && !lists(&shared) {
            // The controller stays enabled: another process may rely on it by the time the
            // soak ends.
            fs::write(&shared, "+memory").map_err(|error| act("enable memory in", &root, error))?;
        }
        let path = root.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| act("create", &path, error))?;
        let cgroup = Self { root, path };
        let (memory, swap, none) = if two {
            ("memory.max", "memory.swap.max", "0".to_owned())
        } else {
            // The limit of memory and swap together.
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", BYTES.to_string())
        };
        cgroup.set(memory, &BYTES.to_string())?;
        match cgroup.set(swap, &none) {
            // A kernel that does not account swap lacks the file.
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(cgroup),
        }
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.path.join(name);
        // Never create the file: a missing file means a kernel without this limit.
        let mut file = fs::File::options().write(true).open(&path)?;
        file.write_all(value.as_bytes()).map_err(|error| act("set", &path, error))
    }

    /// Makes the OOM killer kill `target`; returns `false` if `target` had exited before.
    pub(crate) fn kill(&self, target: u64) -> Result<bool> {
        let first = fs::write(format!("/proc/{target}/oom_score_adj"), FIRST);
        let entered = first.and_then(|()| self.set("cgroup.procs", &target.to_string()));
        if let Err(error) = entered {
            return if is_alive(target) { Err(error.into()) } else { Ok(false) };
        }
        let mut command = Command::new(std::env::current_exe()?);
        let allocator = Group::spawn(command.arg("allocate").arg(&self.path))?;
        let status = allocator.wait(patiently(LIMIT))?.ok_or("the allocator does not end")?;
        let was_killed = status.signal() == Some(Signal::KILL.as_raw());
        if !was_killed && !status.success() {
            return Err(format!("the allocator: {status}, {}", allocator.stderr()?).into());
        }
        // The allocator, which is second in order, may have been killed as well.
        if kills(&self.path)? <= u64::from(was_killed) {
            return Ok(false);
        }
        let end = Instant::now() + patiently(LIMIT);
        while is_alive(target) {
            if Instant::now() > end {
                return Err(
                    format!("{target} still runs after {} kills", kills(&self.path)?).into()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let inside = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                // The process may have exited.
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

/// Returns how many processes of the cgroup the OOM killer has killed (Linux 4.13).
fn kills(cgroup: &Path) -> Result<u64> {
    let texts = ["memory.events", "memory.oom_control"];
    let text = texts.iter().find_map(|name| fs::read_to_string(cgroup.join(name)).ok());
    let text = text.ok_or_else(|| format!("{} counts nothing", cgroup.display()))?;
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Ok(count.ok_or("this kernel does not count the OOM killer's kills")?.parse()?)
}

/// Enters the cgroup and takes memory until a process in the cgroup was killed. The memory is
/// a memfd that is never mapped, so that the allocator is not the largest process.
pub(crate) fn allocate(cgroup: &Path) -> Result<()> {
    fs::write("/proc/self/oom_score_adj", SECOND)?;
    // "0" stands for the writing process (cgroups(7)).
    fs::write(cgroup.join("cgroup.procs"), "0")?;
    let mut taken = fs::File::from(memfd_create("taken", MemfdFlags::CLOEXEC)?);
    for _ in 0..4 * BYTES / STEP {
        let step = taken.write_all(&[1; STEP]);
        if kills(cgroup)? > 0 {
            return Ok(());
        }
        step?;
    }
    Err("the cgroup's limit does not hold".into())
}

fn act(what: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}
