//! Loop devices and mounts: queries, set-up and removal.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::FsKind;
use crate::error::{Context, run};
use crate::{Error, Result, patiently};

/// One line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) point: PathBuf,
    pub(super) source: PathBuf,
}

/// Returns the mounts of this process's namespace, oldest first.
pub(super) fn mounts() -> Result<Vec<Mount>> {
    let path = "/proc/self/mountinfo";
    Ok(fs::read(path)
        .context("read", path)?
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount)
        .collect())
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = unescape(fields.nth(4)?);
    let source = fields.skip_while(|field| *field != b"-").nth(2)?;
    Some(Mount { point, source: unescape(source) })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let byte =
            octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(bytes).into()
}

/// Returns the loop device on `file` from sysfs, which is never out of date.
pub(super) fn loop_device(file: &Path) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    let mut ours = devices.filter(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|path| Path::new(path.trim_end_matches('\n')) == file)
    });
    Some(Path::new("/dev").join(ours.next()?.file_name()))
}

/// Attaches a loop device to `file`. The kernel detaches the device when its last user is
/// gone: its mounts, and the returned descriptor.
///
/// If a process had to detach the device, the device would stay for ever when that process is
/// killed: after the end of the mount namespace that contains `file`, the path of `file` no
/// longer finds the device.
pub(super) fn attach(file: &Path, direct_io: bool) -> Result<(PathBuf, File)> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show"]);
    if direct_io {
        command.arg("--direct-io=on");
    }
    let device = run(command.arg(file)).map(PathBuf::from)?;
    let attached = File::open(&device).context("open", &device)?;
    // Of a device in use, this sets LO_FLAGS_AUTOCLEAR and nothing more (LOOP_CLR_FD in
    // loop(4)).
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
/// The unmount of a busy mount is retried for `limit`, on a slow machine for longer.
pub(super) fn unmount_all(
    ours: impl Fn(&Mount) -> bool,
    flags: UnmountFlags,
    limit: Duration,
) -> Result<()> {
    for mount in mounts()?.iter().rev().filter(|mount| ours(mount)) {
        match retry(patiently(limit), || unmount(&mount.point, flags)) {
            // Another process has unmounted it meanwhile.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno).context("unmount", &mount.point),
        }
    }
    Ok(())
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
        let mut lines = mounts.split(|byte| *byte == b'\n').filter_map(parse_mount);
        lines.any(|mount| mount.source == device)
    };
    processes(mounted)
}

/// Returns the processes that keep `point` in use, as "name (pid)", as far as /proc shows
/// them.
pub(super) fn users(point: &Path) -> Vec<String> {
    processes(|process| uses(process, point))
}

fn processes(are: impl Fn(&Path) -> bool) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered =
        processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    numbered
        .filter(|entry| are(&entry.path()))
        .map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim(), entry.file_name().to_string_lossy())
        })
        .collect()
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
    fn a_mount_line_is_read_past_its_optional_fields_and_escapes() {
        let line = br"36 35 98:0 /a /mnt/a\040b rw,noatime master:1 shared:2 - ext4 /dev/loop7 rw";
        let mount = Mount { point: "/mnt/a b".into(), source: "/dev/loop7".into() };
        assert_eq!(parse_mount(line), Some(mount));
        assert_eq!(parse_mount(b""), None);
    }

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
