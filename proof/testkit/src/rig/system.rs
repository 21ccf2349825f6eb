//! Loop devices and mounts: queries, set-up and removal.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use synconce_probe::mounts::{self, Mount};
use synconce_sys::procfs;

use super::FsKind;
use crate::error::{Context, run};
use crate::{Error, Result, patiently};

/// Returns the mounts of this process's namespace, oldest first.
pub(super) fn mounts() -> Result<Vec<Mount>> {
    mounts::read("self").context("read", "/proc/self/mountinfo")
}

/// Whether `device` is mounted in this process's namespace.
pub(super) fn is_mounted(device: &Path) -> Result<bool> {
    Ok(mounts()?.iter().any(|mount| Path::new(&mount.source) == device))
}

/// Returns the loop device on `file` from sysfs, which is never out of date.
pub(super) fn loop_device(file: &Path) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    let mut paths = devices.map(|device| Path::new("/dev").join(device.file_name()));
    paths.find(|device| file_of_loop_device(device).is_some_and(|path| path == file))
}

/// Returns the path of the file of the loop device `device`, as sysfs shows it.
pub(super) fn file_of_loop_device(device: &Path) -> Option<PathBuf> {
    let directory = Path::new("/sys/block").join(device.file_name()?);
    let path = fs::read_to_string(directory.join("loop/backing_file")).ok()?;
    Some(path.trim_end_matches('\n').into())
}

/// Attaches a loop device to `file`. The kernel detaches the device when its last user is
/// gone: its mounts, and the returned descriptor.
///
/// If a process had to detach the device and were killed, the device would stay for ever: after the
/// end of the mount namespace that has `file`, the path of `file` no longer leads to the device.
pub(super) fn attach(file: &Path, direct_io: bool) -> Result<(PathBuf, File)> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show"]);
    if direct_io {
        command.arg("--direct-io=on");
    }
    let device = run(command.arg(file)).map(PathBuf::from)?;
    let attached = File::open(&device).context("open", &device)?;
    // On a device in use, this only sets LO_FLAGS_AUTOCLEAR (LOOP_CLR_FD in loop(4)).
    run(Command::new("losetup").arg("--detach").arg(&device))?;
    Ok((device, attached))
}

/// Waits until the loop device on `file`, if there is one, is detached by the end of its last
/// user.
pub(super) fn detach(file: &Path, limit: Duration) -> Result<()> {
    let Some(device) = loop_device(file) else {
        return Ok(());
    };
    let name = device.file_name().unwrap_or_default();
    let autoclear = Path::new("/sys/block").join(name).join("loop/autoclear");
    // A device that is open cannot be detached and become that of another rig in between.
    let open = File::open(&device);
    let is_ours = open.is_ok() && loop_device(file).as_ref() == Some(&device);
    // The process that attached the device was killed before it set autoclear.
    if is_ours && fs::read_to_string(autoclear).is_ok_and(|flag| flag.trim() == "0") {
        run(Command::new("losetup").arg("--detach").arg(&device))?;
    }
    drop(open);
    retry(limit, || if loop_device(file).is_none() { Ok(()) } else { Err(Errno::BUSY) })
        .context("detach", &device)
}

pub(super) fn make_fs(kind: FsKind, file: &Path) -> Result<()> {
    let mut command = Command::new(kind.mkfs());
    match kind {
        // Nothing is left to be initialised later, so that every flush was requested.
        FsKind::Ext4 => command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
        FsKind::Xfs | FsKind::Btrfs => command.args(["-q", "-f"]),
    };
    command.arg(file);
    while_mounts_change(|| run(&mut command)).map(drop)
}

/// Retries for two seconds a program that failed because the machine's mounts changed.
///
/// `mkfs.btrfs` reads every mount and every loop device, and fails when one of them, such as
/// another rig, disappears meanwhile.
fn while_mounts_change<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    const TRIES: usize = 20;
    for _ in 1..TRIES {
        match attempt() {
            Err(Error::Program { outcome, .. }) if outcome.contains("mount status") => {
                sleep(Duration::from_millis(100));
            }
            done => return done,
        }
    }
    attempt()
}

pub(super) fn mount(
    kind: FsKind,
    device: &Path,
    point: &Path,
    options: Option<&str>,
) -> Result<()> {
    let mut command = Command::new("mount");
    command.args(["-t", kind.name()]);
    if let Some(options) = options {
        command.args(["-o", options]);
    }
    run(command.arg(device).arg(point)).map(drop)
}

/// Undoes every mount of this namespace for which `ours` returns true, newest first.
///
/// Mounts of others that lie over one of these mounts are undone, too: umount2(2) undoes the
/// uppermost mount at a path. The unmount of a busy mount is retried for `limit`, on a slow machine
/// for longer.
pub(super) fn unmount_all(
    ours: impl Fn(&Mount) -> bool,
    flags: UnmountFlags,
    limit: Duration,
) -> Result<()> {
    let mounts = mounts()?;
    for mount in mounts.iter().rev().filter(|mount| is_or_covers(mount, &ours, &mounts)) {
        match retry(patiently(limit), || unmount(&mount.point, flags)) {
            // Another process has unmounted it meanwhile.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno).context("unmount", &mount.point),
        }
    }
    Ok(())
}

/// Whether `ours` returns true for `mount`, or for a mount in `mounts` at the same path over which
/// `mount` lies.
fn is_or_covers(mount: &Mount, ours: &impl Fn(&Mount) -> bool, mounts: &[Mount]) -> bool {
    let is_below = |other: &&Mount| other.id == mount.parent && other.id != mount.id;
    let below = mounts.iter().find(is_below).filter(|below| below.point == mount.point);
    ours(mount) || below.is_some_and(|below| is_or_covers(below, ours, mounts))
}

/// Retries for `limit` while the result is EBUSY.
pub(super) fn retry<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let end = Instant::now() + limit;
    loop {
        match attempt() {
            Err(Errno::BUSY) if Instant::now() < end => sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

/// Returns the processes in whose mount namespace `device` is mounted, as "name (pid)".
pub(super) fn mounted_by(device: &Path) -> Vec<String> {
    let mounted = |process: &Path| {
        let mounts = fs::read(process.join("mountinfo")).unwrap_or_default();
        mounts::of_bytes(&mounts).iter().any(|mount| Path::new(&mount.source) == device)
    };
    processes(mounted)
}

/// Returns the processes that keep `point` in use, as "name (pid)", as far as /proc shows
/// them.
pub(super) fn users(point: &Path) -> Vec<String> {
    processes(|process| uses(process, point))
}

fn processes(are: impl Fn(&Path) -> bool) -> Vec<String> {
    let found = procfs::pids().filter(|pid| are(&Path::new("/proc").join(pid.to_string())));
    found.map(|pid| format!("{} ({pid})", procfs::process_name(pid).unwrap_or_default())).collect()
}

fn uses(process: &Path, point: &Path) -> bool {
    let descriptors =
        fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut links = descriptors.chain(["cwd", "root", "exe"].map(|name| process.join(name)));
    links.any(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(point)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_not_look_at_the_mounts_is_tried_again() {
        let failing = |outcome: &str, times: usize| {
            let mut tries = 0;
            let result = while_mounts_change(|| {
                tries += 1;
                let (command, outcome) = ("mkfs".to_owned(), outcome.to_owned());
                if tries > times { Ok(()) } else { Err(Error::Program { command, outcome }) }
            });
            (result.is_ok(), tries)
        };
        let passing = "ERROR: cannot check mount status of /tmp/image: No such device";
        assert_eq!(failing(passing, 2), (true, 3));
        assert_eq!(failing(passing, 100), (false, 20));
        assert_eq!(failing("ERROR: /tmp/image is too small", 1), (false, 1));
    }
}
