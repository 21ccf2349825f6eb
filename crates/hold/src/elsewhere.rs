//! Unmounts in other mount namespaces.
//!
//! A child process enters the namespaces, so that the calling process stays where it is. setns(2)
//! makes the root of the namespace the root of the child. So the child sees all mounts there,
//! also if each process of the namespace has another root.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::fchdir;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{self, Mount};
use synconce_probe::namespaces::Namespace;
use synconce_sys::process::{Side, WaitFor, Whose, exit_now, fork, wait};

/// The byte after the mounts of each namespace in the answer of the child: no path has this byte.
const END: u8 = 0;

/// Enters each of `namespaces`, and unmounts the mounts there that `chosen` returns, the last
/// mounted first. Returns the mounts of each namespace afterwards, as its root shows them; `None`
/// for a namespace that cannot be entered.
///
/// A mount stays if it is in use, covered, locked (mount_namespaces(7)), or below a file system
/// whose server may not answer. The calling process must have one thread.
///
/// # Errors
/// Those of pipe2(2), fork(2) and read(2).
pub fn unmount_in(
    namespaces: &[Namespace],
    chosen: impl Fn(&[Mount]) -> Vec<Mount>,
) -> io::Result<Vec<Option<Vec<Mount>>>> {
    if namespaces.is_empty() {
        return Ok(Vec::new());
    }
    let (answers, answer) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = match fork()? {
        Side::Child => exit_now(i32::from(visit_all(namespaces, chosen, answer).is_err())),
        Side::Parent(child) => child,
    };
    drop(answer);
    let mut text = Vec::new();
    let read = File::from(answers).read_to_end(&mut text);
    // The child's working directory keeps a mount in use until the child ends. If this process
    // ignores SIGCHLD, wait(2) blocks until the end, too, and returns ECHILD.
    let _ = wait(Whose::Id(child), WaitFor { ends: true, block: true, ..WaitFor::default() });
    read?;
    let mut answers: Vec<_> = text.split(|byte| *byte == END).collect();
    // Drops the part behind the last END: empty, or incomplete because the child was killed.
    answers.pop();
    Ok(answers.into_iter().map(|text| (!text.is_empty()).then(|| mounts::of_bytes(text))).collect())
}

/// Runs in the child: writes the mounts of each namespace to `answer`.
fn visit_all(
    namespaces: &[Namespace],
    chosen: impl Fn(&[Mount]) -> Vec<Mount>,
    answer: OwnedFd,
) -> io::Result<()> {
    // Another mount namespace may have no /proc, or the /proc of another PID namespace.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
    let mut answer = File::from(answer);
    for namespace in namespaces {
        let mut text = visit(proc.as_fd(), namespace, &chosen).unwrap_or_default();
        text.push(END);
        answer.write_all(&text)?;
    }
    Ok(())
}

/// Enters `namespace` and unmounts what `chosen` returns. Returns the mountinfo afterwards.
fn visit(
    proc: BorrowedFd<'_>,
    namespace: &Namespace,
    chosen: impl Fn(&[Mount]) -> Vec<Mount>,
) -> io::Result<Vec<u8>> {
    let path = format!("{}/ns/mnt", namespace.thread);
    let link = open_in(proc, &path)?;
    // The thread may have ended, and another thread may have its id.
    if rustix::fs::fstat(&link)?.st_ino != namespace.number {
        return Err(Errno::SRCH.into());
    }
    move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Mount))?;
    let text = mountinfo(proc)?;
    let mounts = mounts::of_bytes(&text);
    let chosen = chosen(&mounts);
    if chosen.is_empty() {
        return Ok(text);
    }
    for mount in chosen.iter().rev().filter(|mount| !may_block(mount, &mounts)) {
        // A mount that stays is in the answer.
        let _ = unmount_one(mount);
    }
    mountinfo(proc)
}

/// Returns the mountinfo of this process, whose namespace and root the kernel takes when the file
/// is opened (`mounts_open_common` in fs/proc_namespace.c).
fn mountinfo(proc: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::from(open_in(proc, "self/mountinfo")?).read_to_end(&mut text)?;
    Ok(text)
}

fn open_in(proc: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Whether a server may have to answer before the mount point of `mount` is found.
fn may_block(mount: &Mount, mounts: &[Mount]) -> bool {
    let has_server = |above: &Mount| {
        matches!(above.kind(), SyncKind::Network | SyncKind::Fuse { .. })
            || above.type_name == "autofs"
    };
    mounts.iter().any(|above| mount.point.starts_with(&above.point) && has_server(above))
}

/// Unmounts `mount` and no other mount. The namespace may be one of a container, whose processes
/// can rename directories meanwhile: no link is followed (openat2(2), Linux 5.6). A name that has
/// a mount cannot be renamed.
fn unmount_one(mount: &Mount) -> rustix::io::Result<()> {
    let (Some(above), Some(name)) = (mount.point.parent(), mount.point.file_name()) else {
        return Err(Errno::INVAL);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fchdir(rustix::fs::openat2(CWD, above, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let there = rustix::fs::statx(CWD, name, flags, StatxFlags::MNT_ID)?;
    if there.stx_mask & StatxFlags::MNT_ID.bits() == 0 || there.stx_mnt_id != mount.id {
        // Another mount covers it.
        return Err(Errno::BUSY);
    }
    unmount(name, UnmountFlags::NOFOLLOW)
}
