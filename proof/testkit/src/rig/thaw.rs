//! Thaws the rigs of killed tests. No signal ends a thread that waits for a frozen file system, and
//! until the thread ends, its mount namespace keeps the rig.

use super::system;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_probe::mounts::{self, Mount};
use synconce_sys::procfs;

/// Thaws each file system on a rig for which a killed thread waits, in mount namespaces without a
/// process that lives.
pub(super) fn thaw_abandoned() {
    for thread in procfs::pids().flat_map(procfs::threads).filter(|thread| waits(*thread)) {
        let Some(namespace) = namespace(thread) else { continue };
        if procfs::pids().any(|pid| link_of(pid) == link_of(thread) && !is_killed(pid)) {
            continue;
        }
        let mounts = mounts::read(&thread.to_string()).unwrap_or_default();
        for mount in mounts.iter().rev().filter(|mount| is_on_rig(mount, &mounts)) {
            // Fails if another file system is frozen, or none any more.
            let _ = Command::new("nsenter")
                .arg(format!("--mount={}", namespace.display()))
                .args(["fsfreeze", "--unfreeze"])
                .arg(&mount.point)
                .output();
        }
    }
}

/// Whether `thread` is killed and in an uninterruptible wait.
fn waits(thread: u32) -> bool {
    procfs::status_field(thread, "State:").is_some_and(|state| state.starts_with('D'))
        && is_killed(thread)
}

/// Whether SIGKILL is pending: bit 8 (proc_pid_status(5)).
fn is_killed(thread: u32) -> bool {
    let pending = procfs::status_field(thread, "SigPnd:");
    let pending = pending.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    pending.is_some_and(|mask| mask & 1 << 8 != 0)
}

/// Returns the path of the mount namespace of `thread`, unless this process is in it.
fn namespace(thread: u32) -> Option<PathBuf> {
    let is_ours = link_of(thread)? == link_of(std::process::id())?;
    (!is_ours).then(|| format!("/proc/{thread}/ns/mnt").into())
}

/// Returns the name of the mount namespace of `thread`; none once the thread has left it.
fn link_of(thread: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{thread}/ns/mnt")).ok()
}

/// Whether `mount` is of a loop device on the file of a rig, or on a file in such a file system.
fn is_on_rig(mount: &Mount, mounts: &[Mount]) -> bool {
    let below = |mount: &Mount| {
        let file = system::file_of_loop_device(Path::new(&mount.source))?;
        mounts::above(&file, mounts).cloned()
    };
    let chain = std::iter::successors(below(mount), below);
    chain.take(mounts.len()).any(|mount| mount.source == "synconce-rig")
}
