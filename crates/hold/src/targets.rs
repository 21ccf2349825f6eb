//! What a caller's descriptor or path leads to: on a disk, or not.
//!
//! Only disks are held. Everything else goes to the kernel, which knows the
//! right error, and when in doubt so does the call: a sync too many is safe.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
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
    /// The permission bits.
    pub mode: u16,
    /// The file system that it is on.
    pub device: DeviceId,
    /// Whether that is a disk file system, whose syncs are held.
    pub on_disk: bool,
    /// Whether the descriptor can be read from.
    pub readable: bool,
    /// The mount that it was reached through.
    pub mount: u64,
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
pub(crate) struct Targets {
    places: HashMap<u64, Place>,
    directories: VecDeque<(u32, OwnedFd)>,
}

impl Targets {
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
        let place = self.place(thread, &stat, |flags| {
            let path = format!("/proc/{thread}/fd/{fd}");
            rustix::fs::statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, flags).ok()
        })?;
        Some(target(&stat, place, readable))
    }

    /// What `path`, seen by `thread` from its directory descriptor `directory`,
    /// leads to; for a path that does not exist yet, its directory.
    pub(crate) fn path(&mut self, thread: u32, directory: i32, path: &Path) -> Option<Target> {
        let file = match resolve(thread, directory, path) {
            Err(Errno::NOENT) => resolve(thread, directory, parent(path)?),
            other => other,
        }
        .ok()?;
        self.opened(thread, &file)
    }

    /// What the file `file`, opened by us on behalf of `thread`, is.
    fn opened(&mut self, thread: u32, file: &OwnedFd) -> Option<Target> {
        let look = |flags| rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, flags).ok();
        let stat = look(StatxFlags::BASIC_STATS | MNT_ID_UNIQUE)?;
        let place = self.place(thread, &stat, look)?;
        Some(target(&stat, place, true))
    }

    /// The devices of disk file systems in the mount namespace of `thread`.
    pub(crate) fn disks(thread: u32) -> Vec<DeviceId> {
        let mounts = mounts::read(&thread.to_string()).unwrap_or_default();
        let disks = mounts.iter().filter(|mount| mount.kind().is_held());
        disks.map(|mount| mount.device).collect()
    }

    /// A copy that knows the same mounts, for another thread.
    pub(crate) fn fork(&self) -> Self {
        Self { places: self.places.clone(), directories: VecDeque::new() }
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

    /// The place that `stat` is in. `look` asks again for other fields.
    fn place(
        &mut self,
        thread: u32,
        stat: &Statx,
        look: impl Fn(StatxFlags) -> Option<Statx>,
    ) -> Option<Place> {
        let unique = (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id);
        if let Some(place) = unique.and_then(|id| self.places.get(&id)) {
            return Some(*place);
        }
        // Without unique ids an id may be used again unseen, so nothing is remembered.
        let stat = look(StatxFlags::MNT_ID)?;
        let id = (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)?;
        let place = place_of(thread, id)?;
        if let Some(unique) = unique {
            self.places.insert(unique, place);
        }
        Some(place)
    }
}

fn place_of(thread: u32, id: u64) -> Option<Place> {
    let mounts = mounts::read(&thread.to_string()).ok()?;
    let mount = mounts.iter().find(|mount| mount.id == id)?;
    Some(Place { id, device: mount.device, on_disk: mount.kind().is_held() })
}

fn target(stat: &Statx, place: Place, readable: bool) -> Target {
    Target {
        file_type: FileType::from_raw_mode(stat.stx_mode.into()),
        mode: stat.stx_mode & 0o7777,
        device: place.device,
        on_disk: place.on_disk,
        readable,
        mount: place.id,
    }
}

/// Opens `path` as `thread` sees it, without side effects (`O_PATH`). An
/// absolute path stays below the caller's root; magic links are not followed.
pub(crate) fn resolve(thread: u32, directory: i32, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if path.is_absolute() {
        let root = rustix::fs::open(format!("/proc/{thread}/root"), flags, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT;
        return rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    }
    let base = if directory == rustix::fs::CWD.as_raw_fd() {
        format!("/proc/{thread}/cwd")
    } else {
        format!("/proc/{thread}/fd/{directory}")
    };
    let base = rustix::fs::open(base, flags, Mode::empty())?;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    if path.as_os_str().is_empty() {
        return Ok(base);
    }
    rustix::fs::openat2(base.as_fd(), path, flags, Mode::empty(), resolve)
}

fn parent(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// A descriptor number as text; `None` for a negative one.
fn decimal(fd: i32) -> Option<String> {
    (fd >= 0).then(|| fd.to_string())
}
