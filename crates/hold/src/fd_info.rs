//! What a caller's descriptor or path leads to: on a disk, or not.
//!
//! Only disks are held. Everything else goes to the kernel, which knows the
//! right error, and when in doubt so does the call: a sync too many is safe.

use crate::paths::{self, Start};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use synconce_probe::mounts::{self, DeviceId};

/// `STATX_MNT_ID_UNIQUE`, Linux 6.8: an id that is never used again.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Descriptor directories of callers that are kept open.
const KEPT: usize = 16;

/// What a descriptor or path leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// A file, a directory, a device.
    pub file_type: FileType,
    /// The file system that it is on.
    pub device: DeviceId,
    /// Whether that is a disk file system, whose syncs are held.
    pub on_disk: bool,
    /// Whether the descriptor can be read from.
    pub readable: bool,
    /// The mount that it was reached through.
    pub mount: u64,
    /// Whether it is that mount's root.
    pub is_mount_root: bool,
}

impl Target {
    /// Whether a sync of it is held: a file or a directory of a disk.
    pub(crate) fn is_held(&self) -> bool {
        self.on_disk && matches!(self.file_type, FileType::RegularFile | FileType::Directory)
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    device: DeviceId,
    on_disk: bool,
}

/// Looks targets up, remembering mounts.
#[derive(Debug, Default)]
pub(crate) struct FdInfo {
    places: Arc<Mutex<HashMap<u64, Place>>>,
    /// Whether a file system may be asked itself, which its server may delay.
    may_block: bool,
    /// Whether one had to be asked that may not.
    missed: bool,
    directories: VecDeque<(u32, OwnedFd)>,
}

impl FdInfo {
    /// What descriptor `fd` of `thread` leads to; `None` when it is closed,
    /// `O_PATH`, or cannot be looked at.
    pub(crate) fn descriptor(&mut self, thread: u32, fd: i32) -> Option<Target> {
        let name = decimal(fd)?;
        let link = self.at_descriptor(thread, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        // The link's mode shows how the file was opened (proc(5)); O_PATH shows neither.
        let (readable, writable) = (link.stx_mode & 0o400 != 0, link.stx_mode & 0o200 != 0);
        if !readable && !writable {
            return None;
        }
        let stat = self.at_descriptor(thread, name.as_str(), AtFlags::empty())?;
        let path = PathBuf::from(format!("/proc/{thread}/fd/{fd}"));
        let place = self.place(thread, &stat, &path)?;
        Some(target(&stat, place, readable))
    }

    /// What `path`, begun at `start`, leads to; for a path that does not exist
    /// yet, its directory.
    pub(crate) fn path(&mut self, start: Start, path: &Path) -> Option<Target> {
        let file = paths::find(start, path).ok()?;
        self.opened(start.thread, &file)
    }

    /// What the file `file`, opened by us on behalf of `thread`, is.
    fn opened(&mut self, thread: u32, file: &OwnedFd) -> Option<Target> {
        let flags = StatxFlags::BASIC_STATS | MNT_ID_UNIQUE;
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, flags).ok()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let place = self.place(thread, &stat, &path)?;
        Some(target(&stat, place, true))
    }

    /// The devices of disk file systems that `thread` or we can see.
    pub(crate) fn disks(thread: u32) -> Vec<DeviceId> {
        let theirs = mounts::read(&thread.to_string()).unwrap_or_default();
        let ours = mounts::ours().unwrap_or_default();
        let disks = theirs.iter().chain(&ours).filter(|mount| mount.kind().is_held());
        disks.map(|mount| mount.device).collect()
    }

    /// Another look-up that shares the known mounts and may wait for a file
    /// system to say what it is.
    pub(crate) fn may_block(&self) -> Self {
        Self { places: Arc::clone(&self.places), may_block: true, ..Self::default() }
    }

    /// Whether the last look-up met a file system that only a may_block one may ask.
    pub(crate) fn take_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks only for what the kernel knows already (`AT_STATX_DONT_SYNC`): a FUSE
    /// daemon or a server is never waited for.
    fn at_descriptor(&mut self, thread: u32, name: &str, flags: AtFlags) -> Option<Statx> {
        let flags = flags | AtFlags::STATX_DONT_SYNC;
        let mask = StatxFlags::TYPE | StatxFlags::MODE | MNT_ID_UNIQUE;
        if let Some((_, directory)) = self.directories.iter().find(|(owner, _)| *owner == thread) {
            match rustix::fs::statx(directory, name, flags, mask) {
                // Closed, or the thread is gone and its number has a new owner.
                Err(Errno::SRCH | Errno::NOENT) => {
                    self.directories.retain(|(owner, _)| *owner != thread);
                }
                other => return other.ok(),
            }
        }
        let path = format!("/proc/{thread}/fd");
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, open, Mode::empty()).ok()?;
        let stat = rustix::fs::statx(&directory, name, flags, mask).ok();
        self.directories.truncate(KEPT - 1);
        self.directories.push_front((thread, directory));
        stat
    }

    /// The place that `stat`, of the file at `path`, is in.
    fn place(&mut self, thread: u32, stat: &Statx, path: &Path) -> Option<Place> {
        let unique = (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id);
        if let Some(place) = unique.and_then(|id| self.known().get(&id).copied()) {
            return Some(place);
        }
        let (id, device) = mount_of(path)?;
        let place = match listed(thread, id) {
            Some(place) => place,
            None if self.may_block => Place { id, device, on_disk: mounts::at(path).is_some() },
            None => {
                self.missed = true;
                return None;
            }
        };
        // Without unique ids an id may be used again unseen, so nothing is remembered.
        if let Some(unique) = unique {
            self.known().insert(unique, place);
        }
        Some(place)
    }
}

/// The id of the mount that the file at `path` was reached through, which may be
/// used again later, and its device.
fn mount_of(path: &Path) -> Option<(u64, DeviceId)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID).ok()?;
    let id = (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)?;
    Some((id, DeviceId { major: stat.stx_dev_major, minor: stat.stx_dev_minor }))
}

/// The mount `id` by the caller's list of mounts or by ours. A chroot in another
/// namespace hides it from both; then only the file system itself can tell.
fn listed(thread: u32, id: u64) -> Option<Place> {
    [thread.to_string().as_str(), "self"].into_iter().find_map(|process| {
        let mounts = mounts::read(process).unwrap_or_default();
        let mount = mounts.iter().find(|mount| mount.id == id)?;
        Some(Place { id, device: mount.device, on_disk: mount.kind().is_held() })
    })
}

fn target(stat: &Statx, place: Place, readable: bool) -> Target {
    Target {
        file_type: FileType::from_raw_mode(stat.stx_mode.into()),
        device: place.device,
        on_disk: place.on_disk,
        readable,
        mount: place.id,
        is_mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    }
}

/// A descriptor number as text; `None` for a negative one.
fn decimal(fd: i32) -> Option<String> {
    (fd >= 0).then(|| fd.to_string())
}
