//! Which file system a caller's descriptor or path leads to.
//!
//! Only calls on disk file systems are held. Every other call goes to the kernel, which
//! returns the right error. A call in doubt goes to the kernel as well: an extra sync is safe.

mod mount_facts;

pub(crate) use self::mount_facts::listed;
use self::mount_facts::{MountFacts, unique};
use crate::call::mapping::{MappedFile, Mapping};
use crate::call::paths::{self, FoundPath, Start};
use crate::call::rules::{Blocking, Candidate, MayBlock, RuleVerdict, Rules};
use crate::process::process_tree::proc_is_ours;
use crate::report::accounts::PassReason;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use synconce_probe::mounts::{self, DeviceId, MNT_ID_UNIQUE};

/// The length of most paths; a longer path needs more memory.
const LINK: usize = 256;
/// How many descriptor directories of callers are kept open.
const KEPT: usize = 16;

/// What a descriptor or path leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// A file, a directory, a device.
    pub file_type: FileType,
    /// The file system of the file.
    pub device: DeviceId,
    /// Why syncs of the file system are not held; `None` if it is on a disk.
    pub not_held: Option<PassReason>,
    /// Whether the descriptor can be read from.
    pub readable: bool,
    /// What `--only` and `--except` say.
    pub verdict: RuleVerdict,
}

impl Target {
    /// Whether a sync of the target is held: it is a file or a directory on a disk.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held_file() || self.is_at_choice() && self.file_type == FileType::Directory
    }

    /// Whether a sync of the target is held, and the target is a regular file.
    pub(crate) fn is_held_file(&self) -> bool {
        self.is_at_choice() && self.file_type == FileType::RegularFile
    }

    /// Whether a sync of the target's whole file system is held.
    pub(crate) fn is_held_whole(&self) -> bool {
        self.not_held.is_none() && self.verdict.system
    }

    /// Returns why a sync of the target passes. To be asked only if the sync is not held.
    pub(crate) fn why_passed(&self) -> PassReason {
        if !matches!(self.file_type, FileType::RegularFile | FileType::Directory) {
            return PassReason::NoFile;
        }
        let by_rule = !self.verdict.file || !self.verdict.system;
        // A sync flag has no meaning for a directory.
        let otherwise = if by_rule { PassReason::Rule } else { PassReason::Arguments };
        self.not_held.unwrap_or(otherwise)
    }

    fn is_at_choice(&self) -> bool {
        self.not_held.is_none() && self.verdict.file
    }
}

/// Why a look-up returns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupError {
    /// The descriptor is closed or `O_PATH`, or the path leads nowhere.
    NoFile,
    /// This process may not examine the caller (ptrace(2), "Ptrace access mode checking"), or
    /// the caller has exited.
    Unseen,
    /// The look-up may wait for another process ([`MayBlock`]).
    MayBlock,
}

impl From<MayBlock> for LookupError {
    fn from(MayBlock: MayBlock) -> Self {
        Self::MayBlock
    }
}

impl From<Errno> for LookupError {
    /// Returns the error of a look into the caller's directory in /proc.
    fn from(errno: Errno) -> Self {
        if matches!(errno, Errno::ACCESS | Errno::PERM) { Self::Unseen } else { Self::NoFile }
    }
}

/// Looks up targets, and caches mounts.
#[derive(Debug, Default)]
pub(crate) struct FdInfo {
    places: Arc<Mutex<HashMap<u64, MountFacts>>>,
    /// Whether the lookup may query a file system, whose server may delay the reply.
    blocking: Blocking,
    /// Whether /proc shows another pid namespace: then no caller can be examined.
    is_blind: bool,
    directories: VecDeque<(u32, OwnedFd)>,
    /// `--only` and `--except`.
    rules: Option<Arc<Rules>>,
}

impl FdInfo {
    /// Returns a lookup that follows `rules`.
    pub(crate) fn following(rules: Option<Arc<Rules>>) -> Self {
        Self { rules, is_blind: !proc_is_ours(), ..Self::default() }
    }

    /// Returns what descriptor `fd` of `thread` leads to.
    ///
    /// # Errors
    /// The descriptor is closed, is `O_PATH`, or cannot be examined.
    pub(crate) fn descriptor(&mut self, thread: u32, fd: i32) -> Result<Target, LookupError> {
        if fd < 0 {
            return Err(LookupError::NoFile);
        }
        if self.is_blind {
            return Err(LookupError::Unseen);
        }
        let name = fd.to_string();
        let link = self.at_descriptor(thread, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        // The link's mode shows how the file was opened (proc(5)); for O_PATH neither bit is
        // set.
        let (readable, writable) = (link.stx_mode & 0o400 != 0, link.stx_mode & 0o200 != 0);
        if !readable && !writable {
            return Err(LookupError::NoFile);
        }
        let stat = self.at_descriptor(thread, name.as_str(), AtFlags::empty())?;
        let path = PathBuf::from(format!("/proc/{thread}/fd/{fd}"));
        let place = self.place(thread, &stat, &path)?;
        let shown = self.shown(thread, &name);
        let verdict = self.verdict(thread, &stat, place, shown, None)?;
        Ok(Target { readable, ..readable_target(&stat, place, verdict) })
    }

    /// Returns what `path`, resolved from `start`, leads to. For a path that does not exist
    /// yet, returns its directory.
    ///
    /// # Errors
    /// The path leads nowhere, or cannot be examined.
    pub(crate) fn path(&self, start: Start, path: &Path) -> Result<Target, LookupError> {
        if self.is_blind {
            return Err(LookupError::Unseen);
        }
        let FoundPath { file, new_name } =
            paths::find(start, path).map_err(|_| LookupError::NoFile)?;
        self.opened(start.thread, &file, new_name.as_deref())
    }

    /// Whether the rules hold the syncs of a mapped file. A file that cannot be found has real
    /// syncs: only a privileged process can open an unlinked file by its mapping (proc(5)).
    fn mapped(&self, thread: u32, file: &MappedFile) -> bool {
        if self.rules.is_none() {
            return true;
        }
        let link = format!("/proc/{thread}/map_files/{:x}-{:x}", file.area.start, file.area.end);
        let below = file.path.strip_prefix("/").unwrap_or(&file.path);
        let theirs = Path::new("/proc").join(thread.to_string()).join("root").join(below);
        [(PathBuf::from(link), true), (file.path.clone(), false), (theirs, false)].iter().any(
            |(path, is_certain)| {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let Ok(opened) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
                let is_same = rustix::fs::fstat(&opened).is_ok_and(|it| it.st_ino == file.inode);
                let target = self.opened(thread, &opened, None);
                target.is_ok_and(|target| {
                    let is_it = *is_certain || is_same && target.device == file.device;
                    is_it && target.is_held_file()
                })
            },
        )
    }

    /// Returns the target of `file`, which was opened on behalf of `thread`, or of the new file
    /// `new_name` in it.
    fn opened(
        &self,
        thread: u32,
        file: &OwnedFd,
        new_name: Option<&OsStr>,
    ) -> Result<Target, LookupError> {
        let flags = StatxFlags::BASIC_STATS | MNT_ID_UNIQUE;
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, flags);
        let stat = stat.map_err(|_| LookupError::NoFile)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let place = self.place(thread, &stat, &path)?;
        let shown = self.rules.is_some().then(|| rustix::fs::readlink(&path, Vec::new()).ok());
        let verdict = self.verdict(thread, &stat, place, shown.flatten(), new_name)?;
        Ok(readable_target(&stat, place, verdict))
    }

    /// Returns another lookup, which shares the cached mounts and may wait for a file system's
    /// reply.
    pub(crate) fn may_block(&self) -> Self {
        let (places, rules) = (Arc::clone(&self.places), self.rules.clone());
        let blocking = Blocking::Allowed;
        Self { places, rules, is_blind: self.is_blind, blocking, ..Self::default() }
    }

    /// Whether no caller can be examined.
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// Returns why a sync of the files of `mapping` passes, or `None` if it is held. A real call
    /// syncs all of its range, so one file with real syncs decides.
    pub(crate) fn why_passed(&self, thread: u32, mapping: &Mapping) -> Option<PassReason> {
        let by_rules = || mapping.files.iter().all(|file| self.mapped(thread, file));
        mount_facts::why_passed(thread, &mapping.devices)
            .or_else(|| (!by_rules()).then_some(PassReason::Rule))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, MountFacts>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns only what the kernel has cached (`AT_STATX_DONT_SYNC`): no FUSE daemon or
    /// server is waited for.
    fn at_descriptor(
        &mut self,
        thread: u32,
        name: &str,
        flags: AtFlags,
    ) -> Result<Statx, LookupError> {
        let flags = flags | AtFlags::STATX_DONT_SYNC;
        let mask = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::NLINK | MNT_ID_UNIQUE;
        if let Some((_, directory)) = self.directories.iter().find(|(owner, _)| *owner == thread) {
            match rustix::fs::statx(directory, name, flags, mask) {
                // The descriptor is closed, or the thread has exited and its id was reused.
                Err(Errno::SRCH | Errno::NOENT) => {
                    self.directories.retain(|(owner, _)| *owner != thread);
                }
                other => return Ok(other?),
            }
        }
        let path = format!("/proc/{thread}/fd");
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // /proc may hide the processes of other users (hidepid, proc(5)).
        let directory =
            rustix::fs::open(path, open, Mode::empty()).map_err(|_| LookupError::Unseen)?;
        let stat = rustix::fs::statx(&directory, name, flags, mask).map_err(LookupError::from);
        self.directories.truncate(KEPT - 1);
        self.directories.push_front((thread, directory));
        stat
    }

    /// Returns the kernel's path of descriptor `name` of `thread`, if there are rules. The kernel
    /// has the path in memory.
    fn shown(&self, thread: u32, name: &str) -> Option<CString> {
        self.rules.as_ref()?;
        let (_, directory) = self.directories.iter().find(|(owner, _)| *owner == thread)?;
        rustix::fs::readlinkat(directory, name, Vec::with_capacity(LINK)).ok()
    }

    /// Returns what the rules say about the file that the kernel shows at the path `shown`, or
    /// about the new file `new_name` in it.
    fn verdict(
        &self,
        thread: u32,
        stat: &Statx,
        place: MountFacts,
        shown: Option<CString>,
        new_name: Option<&OsStr>,
    ) -> Result<RuleVerdict, LookupError> {
        let Some(rules) = self.rules.as_ref().filter(|_| place.not_held.is_none()) else {
            return Ok(RuleVerdict::HOLD);
        };
        let shown = shown.ok_or(LookupError::NoFile)?;
        let candidate = Candidate {
            thread,
            mount: place.id,
            unique: unique(stat),
            path: Path::new(OsStr::from_bytes(shown.to_bytes())),
            new_name,
            file_type: FileType::from_raw_mode(stat.stx_mode.into()),
            links: stat.stx_nlink,
        };
        Ok(rules.verdict(&candidate, self.blocking)?)
    }

    /// Returns the mount of the file at `path`, which has `stat`.
    fn place(&self, thread: u32, stat: &Statx, path: &Path) -> Result<MountFacts, LookupError> {
        let unique = unique(stat);
        if let Some(place) = unique.and_then(|id| self.known().get(&id).copied()) {
            return Ok(place);
        }
        let (id, device) = mounts::look(path).ok_or(LookupError::NoFile)?;
        let place = match listed(thread, id) {
            Some(mount) => MountFacts::from_mount(&mount),
            None if self.blocking == Blocking::Allowed => MountFacts::queried(id, device, path),
            None => return Err(LookupError::MayBlock),
        };
        // Without unique ids a mount id may be reused, so nothing is cached.
        if let Some(unique) = unique {
            self.known().insert(unique, place);
        }
        Ok(place)
    }
}

fn readable_target(stat: &Statx, place: MountFacts, verdict: RuleVerdict) -> Target {
    Target {
        file_type: FileType::from_raw_mode(stat.stx_mode.into()),
        device: place.device,
        not_held: place.not_held,
        readable: true,
        verdict,
    }
}
