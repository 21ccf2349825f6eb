//! The boot of the kernel, also where a container has a boot id of its own.
//!
//! systemd-nspawn and LXC mount a file on the kernel's `boot_id` (`setup_boot_id` in nspawn.c): a
//! container that is made anew gets another id there, and the kernel has not stopped.
//! `ProcSubset=pid` of systemd hides the file. In both cases a detached mount of procfs shows the
//! kernel's id.

use crate::error::{Context, Error};
use crate::{mutant, record};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{CapabilitySet, capabilities};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const PATH: &str = "/proc/sys/kernel/random/boot_id";
/// The path in a procfs.
const IN_PROCFS: &str = "sys/kernel/random/boot_id";
/// The type of procfs in statfs(2) (include/uapi/linux/magic.h).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// Returns the boot id of the running kernel (random(4)).
///
/// # Errors
/// Names the file, which a sandbox can hide or cover. The mount of procfs needs CAP_SYS_ADMIN. In
/// another user namespace than the initial one, it also needs a /proc without locked mounts below
/// it (mount_namespaces(7); `mount_too_revealing` in fs/namespace.c).
pub fn kernel_boot_id() -> Result<String, Error> {
    match record::boot_id() {
        Ok(id) if mutant::is("hold-boot-of-container") || is_of_kernel() => Ok(id),
        Err(error) => in_own_procfs().map_err(|_| error),
        Ok(_) => in_own_procfs().on("cannot mount a procfs to read", Path::new(PATH)),
    }
}

/// Whether the file at `PATH` is the kernel's, and no other one is mounted on it. Otherwise
/// [`kernel_boot_id`] calls fsopen(2), which a filter of system calls may answer by a kill.
pub fn is_of_kernel() -> bool {
    let stat = rustix::fs::statx(CWD, PATH, AtFlags::empty(), StatxFlags::empty());
    let is_covered = |attributes: StatxAttributes| attributes.contains(StatxAttributes::MOUNT_ROOT);
    stat.is_ok_and(|stat| !is_covered(stat.stx_attributes))
        && rustix::fs::statfs(PATH).is_ok_and(|system| system.f_type as u64 == PROC_SUPER_MAGIC)
}

/// Reads the boot id in a procfs that this function mounts.
fn in_own_procfs() -> io::Result<String> {
    // A filter of seccomp can kill the caller of fsopen(2), which would fail in any case.
    if !capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN) {
        return Err(Errno::PERM.into());
    }
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let procfs = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = String::new();
    File::from(rustix::fs::openat(&procfs, IN_PROCFS, flags, Mode::empty())?)
        .read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}
