//! Mounts /proc, /sys, /dev and binds in a root.

use super::hosts::{self, HOSTS};
use super::places::{MountPointKind, MountPoints, find};
use super::terminal::Devpts;
use super::{Bind, EnterSpec};
use crate::overlay::lock_attached;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mknodat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_sys::mounting::{Reach, make_read_only};

pub(super) const RESOLVER: &str = "/etc/resolv.conf";

/// Device nodes: permissions, major and minor number (Documentation/admin-guide/devices.txt).
const NODES: [(&str, u32, u32, u32); 6] = [
    ("null", 0o666, 1, 3),
    ("zero", 0o666, 1, 5),
    ("full", 0o666, 1, 7),
    ("random", 0o666, 1, 8),
    ("urandom", 0o666, 1, 9),
    ("tty", 0o666, 5, 0),
];
/// Only for root, because an ordinary user may not write to the host's console. A run with a
/// terminal of its own has that terminal there.
const CONSOLE: (&str, u32, u32, u32) = ("console", 0o600, 5, 1);

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// The group of terminals on Debian and most other distributions (`tty`), which glibc expects.
const TTY_GROUP: &str = "5";

/// Returns whether the host has a resolver configuration.
pub(super) fn has_resolver() -> bool {
    Path::new(RESOLVER).is_file()
}

/// Bind-mounts the root of `spec` on itself, with all mounts that belong into it, in the
/// calling process's own mount namespace.
pub(super) fn furnish(spec: &EnterSpec, devpts: &Devpts) -> Result<OwnedFd, Error> {
    let path = Path::new(&spec.root);
    let root = clone_tree(path)?;
    let target = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    attach(&root, target.on("cannot enter", path)?.as_fd()).on("cannot mount on itself", path)?;
    let mut places = MountPoints::kept(root.try_clone().on("cannot enter", path)?);
    mount_proc(&mut places)?;
    mount_sys(&mut places)?;
    mount_hosts(&mut places)?;
    mount_dev(&mut places, devpts)?;
    if has_resolver() {
        mount_bind(&mut places, Path::new(RESOLVER), Path::new(RESOLVER), put_locked)?;
    }
    for Bind { source, target, read_only } in &spec.binds {
        let put = if *read_only { put_locked } else { put };
        mount_bind(&mut places, Path::new(source), Path::new(target), put)?;
    }
    Ok(root)
}

/// Makes `root` the root and the working directory, and unmounts the old root.
pub(super) fn change_root(root: BorrowedFd<'_>) -> Result<(), Error> {
    let act = "cannot change the root, from";
    fchdir(root).on(act, Path::new("/"))?;
    // pivot_root(2): both roots on one mount point, the old root on top.
    match pivot_root(".", ".") {
        Ok(()) => {
            unmount(".", UnmountFlags::DETACH).on("cannot leave the old root,", Path::new("/"))?;
        }
        // An initramfs's root cannot be moved.
        Err(Errno::INVAL) => chroot(".").on(act, Path::new("/"))?,
        Err(error) => return Err(Error::new(act, Path::new("/"), error)),
    }
    chdir("/").on("cannot work in", Path::new("/"))
}

fn mount_proc(places: &mut MountPoints) -> Result<(), Error> {
    let path = Path::new("/proc");
    let safe = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = match new_mount("proc", &[], safe) {
        // In a container that masks parts of its /proc, a new mount is refused
        // (mount_too_revealing() in fs/namespace.c). The bind mount shows the pids of the
        // outer namespace.
        Err(Errno::PERM) => clone_tree(path)?,
        other => other.on("cannot mount", path)?,
    };
    put(places, &mount, path, MountPointKind::Directory)
}

fn mount_sys(places: &mut MountPoints) -> Result<(), Error> {
    let path = Path::new("/sys");
    if !path.is_dir() {
        return Ok(());
    }
    put_locked(places, &clone_tree(path)?, path, MountPointKind::Directory)
}

/// Mounts a file in memory on `/etc/hosts`.
fn mount_hosts(places: &mut MountPoints) -> Result<(), Error> {
    let path = Path::new(HOSTS);
    let options = [("mode", "0755"), ("source", "hosts")];
    let safe = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let memory = new_mount("tmpfs", &options, safe).on("cannot mount", path)?;
    // Before Linux 6.15 a mount that was never attached cannot be cloned. The tree's `/dev` is
    // mounted later.
    put(places, &memory, Path::new("/dev"), MountPointKind::Directory)?;
    let file = file_in(&memory).on("cannot make, in memory,", path)?;
    put(places, &file, path, MountPointKind::File)
}

/// Writes the content of `/etc/hosts` to a file on `memory`, unmounts `memory`, and returns a
/// mount of the file alone.
fn file_in(memory: &OwnedFd) -> io::Result<OwnedFd> {
    let (name, mode) = ("hosts", Mode::from_raw_mode(0o644));
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(memory, name, flags, mode)?;
    // openat(2) applies the umask.
    rustix::fs::fchmod(&file, mode)?;
    let host = rustix::system::uname();
    File::from(file).write_all(&hosts::content(&host.nodename().to_string_lossy()))?;
    let mount = open_tree(memory, name, CLONE)?;
    unmount(format!("/proc/self/fd/{}", memory.as_raw_fd()), UnmountFlags::DETACH)?;
    Ok(mount)
}

fn mount_dev(places: &mut MountPoints, devpts: &Devpts) -> Result<(), Error> {
    let path = Path::new("/dev");
    let options = [("mode", "0755"), ("source", "dev")];
    let mount = new_mount("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID);
    put(places, &mount.on("cannot mount", path)?, path, MountPointKind::Directory)?;
    let dev = find(places.root(), path).on("cannot open", path)?;
    let is_first = synconce_sys::namespace::is_first_user_namespace();
    let console = (is_first && !devpts.has_terminal()).then_some(&CONSOLE);
    for node in NODES.iter().chain(console) {
        make_node(places, &dev, *node)?;
    }
    for (name, target) in LINKS {
        symlinkat(target, &dev, name).on("cannot make", &path.join(name))?;
    }
    put(places, &devpts.mount, &path.join("pts"), MountPointKind::Directory)?;
    if devpts.has_terminal() {
        let console = path.join("console");
        let terminal = open_tree(&devpts.mount, "0", CLONE).on("cannot bind", &console)?;
        put(places, &terminal, &console, MountPointKind::File)?;
    }
    let safe = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let place = path.join("shm");
    let mount = new_mount("tmpfs", &[("mode", "1777"), ("source", "shm")], safe);
    put(places, &mount.on("cannot mount", &place)?, &place, MountPointKind::Directory)
}

/// Makes an instance of devpts that is not attached yet.
pub(super) fn new_devpts() -> Result<OwnedFd, Error> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = [("mode", "0620"), ("ptmxmode", "0666"), ("gid", TTY_GROUP)];
    let mount = match new_mount("devpts", &terminals, quiet) {
        // The group is not mapped in the user namespace.
        Err(Errno::INVAL) => new_mount("devpts", &terminals[..2], quiet),
        other => other,
    };
    mount.on("cannot mount", Path::new("/dev/pts"))
}

/// Makes a device node, or bind-mounts the host's where mknod(2) is not permitted.
fn make_node(
    places: &mut MountPoints,
    dev: &OwnedFd,
    (name, mode, major, minor): (&str, u32, u32, u32),
) -> Result<(), Error> {
    let path = Path::new("/dev").join(name);
    let device = rustix::fs::makedev(major, minor);
    let permissions = Mode::from_raw_mode(mode);
    match mknodat(dev, name, FileType::CharacterDevice, permissions, device) {
        // mknod(2) applies the umask.
        Ok(()) => rustix::fs::chmodat(dev, name, permissions, rustix::fs::AtFlags::empty())
            .on("cannot change the mode of", &path),
        Err(Errno::PERM) => mount_bind(places, &path, &path, put),
        Err(error) => Err(Error::new("cannot make", &path, error)),
    }
}

fn mount_bind(
    places: &mut MountPoints,
    source: &Path,
    target: &Path,
    put: fn(&mut MountPoints, &OwnedFd, &Path, MountPointKind) -> Result<(), Error>,
) -> Result<(), Error> {
    put(places, &clone_tree(source)?, target, MountPointKind::from_path(source)?)
}

/// Like [`put`], read-only with all mounts below; before Linux 5.12 without the mounts below.
fn put_locked(
    places: &mut MountPoints,
    mount: &OwnedFd,
    path: &Path,
    kind: MountPointKind,
) -> Result<(), Error> {
    let act = "cannot make read-only, in the tree,";
    match make_read_only(mount.as_fd(), Reach::Below) {
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
            put(places, mount, path, kind)?;
            lock_attached(mount.as_fd()).on(act, path)
        }
        other => other.on(act, path).and_then(|()| put(places, mount, path, kind)),
    }
}

/// Attaches `mount` to `path` in the root, and makes `path` if it is missing.
fn put(
    places: &mut MountPoints,
    mount: &OwnedFd,
    path: &Path,
    kind: MountPointKind,
) -> Result<(), Error> {
    let place = places.make(path, kind)?;
    let attached = attach(mount, place.as_fd()).map_err(|error| match error {
        Errno::INVAL => mismatch(place.as_fd(), kind).unwrap_or(error),
        _ => error,
    });
    attached.on("cannot mount, in the tree, on", path)
}

/// Returns how `place` differs from `kind`: move_mount(2) has `EINVAL` for a directory on a file,
/// too.
fn mismatch(place: BorrowedFd<'_>, kind: MountPointKind) -> Option<Errno> {
    let there = FileType::from_raw_mode(fstat(place).ok()?.st_mode);
    match (kind, there == FileType::Directory) {
        (MountPointKind::Directory, false) => Some(Errno::NOTDIR),
        (MountPointKind::File, true) => Some(Errno::ISDIR),
        _ => None,
    }
}

fn attach(mount: &OwnedFd, place: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", place, "", flags)
}

/// Returns a detached copy of the mount at `path` and of the mounts below.
fn clone_tree(path: &Path) -> Result<OwnedFd, Error> {
    open_tree(CWD, path, CLONE | OpenTreeFlags::AT_RECURSIVE).on("cannot bind", path)
}

fn new_mount(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
