//! The file systems of a sealed run that only their servers can make durable.
//!
//! A sealed filter answers every descriptor. The commit reaches local file systems by its pins
//! and by one sync(2). A network file system has a `syncfs` that reaches its server. A FUSE
//! server on a block device is committed by that device. No commit reaches the data of any
//! other FUSE server.

use crate::options::RunOptions;
use crate::report::protocol::Notice;
use crate::report::run_error::RunError;
use rustix::fs::{Access, AtFlags, CWD, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use synconce_durable::pins::{PinTime, Pins};
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{self, DeviceId, Mount, mount_id};

/// The FUSE file systems that a sealed run can have written and that no commit reaches.
#[derive(Debug, Default)]
pub(super) struct SealedScope {
    /// One mount point of each file system.
    fuse: BTreeMap<DeviceId, PathBuf>,
}

impl SealedScope {
    /// Pins the file systems that only their servers can make durable.
    ///
    /// # Errors
    /// The working directory, `--root`, `--commit-only` or an inherited descriptor is on a
    /// FUSE file system that no commit reaches.
    pub(super) fn new(options: &RunOptions, pins: &mut Pins) -> Result<Self, RunError> {
        let mounts = mounts::ours().unwrap_or_default();
        let mut scope = Self::default();
        scope.add(&mounts, pins, PinTime::Early);
        let paths = options.commit_only.iter().chain(&options.root);
        let named = [("working directory", PathBuf::from("."))].into_iter();
        for (what, path) in named.chain(paths.map(|path| ("path", path.clone()))) {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, rustix::fs::Mode::empty());
            if let Some(fuse) = file.ok().and_then(|file| fuse_of(file.as_fd(), &mounts)) {
                let path = std::path::absolute(&path).unwrap_or(path);
                let what = format!("the {what} {}", path.display());
                return Err(RunError::FuseInSealed { what, fuse });
            }
        }
        match inherited_on_fuse(&mounts) {
            Some((number, fuse)) => {
                let what = format!("the open descriptor {number}");
                Err(RunError::FuseInSealed { what, fuse })
            }
            None => Ok(scope),
        }
    }

    /// Adds the file systems of `mounts`.
    pub(super) fn add(&mut self, mounts: &[Mount], pins: &mut Pins, time: PinTime) {
        pins.add_served(mounts, time);
        let ours = mounts
            .iter()
            .filter(|mount| is_fuse(mount) && mount.writable && is_open(mount))
            .filter(|mount| is_reachable(mount, mounts));
        for mount in ours {
            self.fuse.entry(mount.device).or_insert_with(|| mount.point.clone());
        }
    }

    /// Returns the notice about the FUSE file systems.
    pub(super) fn uncommitted_fuse(&self) -> Option<Notice> {
        let points: Vec<_> = self.fuse.values().cloned().collect();
        (!points.is_empty()).then_some(Notice::FuseNotCommitted(points))
    }
}

fn is_fuse(mount: &Mount) -> bool {
    mount.kind() == SyncKind::Fuse { on_device: false }
}

/// Whether this user may access the FUSE file system `mount`: without `allow_other` only its
/// owner may, not even root (mount.fuse3(8)).
fn is_open(mount: &Mount) -> bool {
    let user = format!("user_id={}", rustix::process::geteuid().as_raw());
    mount.has_option("allow_other") || mount.has_option(&user)
}

/// Whether this user may search every directory above the FUSE file system `mount`, so that the
/// run can have written there. Asks no other FUSE server, which may not answer: `true` then.
fn is_reachable(mount: &Mount, mounts: &[Mount]) -> bool {
    mount.point.ancestors().skip(1).all(|above| {
        let is_served =
            mounts.iter().any(|other| is_fuse(other) && above.starts_with(&other.point));
        let searched = rustix::fs::accessat(CWD, above, Access::EXEC_OK, AtFlags::EACCESS);
        is_served || searched != Err(Errno::ACCESS)
    })
}

/// Describes the writable FUSE file system that `file` is on. If its mount is not among
/// `mounts`, because it is in another namespace or was unmounted lazily, fstatfs(2) decides.
fn fuse_of(file: BorrowedFd<'_>, mounts: &[Mount]) -> Option<String> {
    /// `FUSE_SUPER_MAGIC` (fs/fuse/inode.c).
    const MAGIC: u64 = 0x6573_5546;
    let id = mount_id(file)?;
    if let Some(mount) = mounts.iter().find(|mount| mount.id == id) {
        let describe = || format!("{} at {}", mount.type_name, mount.point.display());
        return (is_fuse(mount) && mount.writable).then(describe);
    }
    let system = rustix::fs::fstatfs(file).ok()?;
    // A FUSE file system on a block device has the number of that device.
    let device = rustix::fs::fstat(file).ok()?.st_dev;
    let is_fuse = system.f_type as u64 == MAGIC && rustix::fs::major(device) == 0;
    is_fuse.then(|| "mounted out of our sight".to_owned())
}

/// Returns the first inherited descriptor through which a FUSE file system can be written.
fn inherited_on_fuse(mounts: &[Mount]) -> Option<(String, String)> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    entries.into_iter().find_map(|entry| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::open(entry.path(), flags, rustix::fs::Mode::empty()).ok()?;
        let fuse = fuse_of(file.as_fd(), mounts)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&file, "", flags, StatxFlags::TYPE).ok()?;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        let is_directory = file_type == FileType::Directory;
        // The mode of the link shows how the file was opened (proc(5)).
        let link = rustix::fs::lstat(entry.path()).ok()?;
        (is_directory || link.st_mode & 0o200 != 0)
            .then(|| (Path::new(&entry.file_name()).display().to_string(), fuse))
    })
}
