//! The registry of state directories, by which root's `status` finds the runs of every user.
//!
//! Each state directory other than the system's own has a *pointer* in the registry: a small
//! file that contains the path of the directory and belongs to the directory's user. As in `/tmp`,
//! every user may add files, so nothing that is read here can be trusted.

use crate::directories::{self, Directories};
use crate::error::{Context, Error};
use crate::record::FileSystem;
use crate::standard_paths;
use crate::state_file::{self, StatePart, Unnamed};
use crate::text;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, DirEntry, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use synconce_probe::mounts::{self, Mount};

/// The version of the format of [`Pointer`].
const VERSION: u32 = 1;
/// The largest size of a pointer in bytes. A pointer has three paths of at most 4 KiB each. JSON
/// writes most bytes as one byte, and those of a path that is not UTF-8 as four.
const LONGEST: u64 = 64 << 10;
/// The most pointers that are read per user; only a user that floods the registry has more.
const MOST: usize = 1024;
/// The mode of a durable pointer: the last step of registration removes the write permission.
const DURABLE: u32 = 0o444;

/// The content of a pointer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    version: u32,
    /// The state directory, without symbolic links.
    #[serde(with = "text::exact_path")]
    pub directory: PathBuf,
    /// The file system of the directory.
    pub file_system: FileSystem,
}

/// A pointer and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The path of the pointer.
    pub path: PathBuf,
    /// The content of the pointer.
    pub pointer: Pointer,
    /// The user and the group that own the pointer's file.
    pub owner: (u32, u32),
}

impl Registered {
    /// Whether the directory's file system is mounted where it was. If so, a missing directory has
    /// been removed, and is not only unmounted.
    ///
    /// # Errors
    /// Those of reading `/proc/self/mountinfo`.
    pub fn is_mounted(&self) -> Result<bool, Error> {
        let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
        let system = file_system_of(&self.pointer.directory, &mounts);
        Ok(system.as_ref() == Some(&self.pointer.file_system))
    }
}

/// Returns the file system of `directory`, which need not exist. Looks only at `mounts`, because a
/// call on the file system may hang.
fn file_system_of(directory: &Path, mounts: &[Mount]) -> Option<FileSystem> {
    let above = |mount: &&Mount| directory.starts_with(&mount.point);
    // Of several mounts at one point, the last covers the others.
    let mount = mounts.iter().filter(above).max_by_key(|mount| mount.point.as_os_str().len())?;
    Some(FileSystem {
        // As in a pointer, so that the two are equal.
        mount_point: mount.point.to_string_lossy().into_owned().into(),
        type_name: mount.type_name.clone(),
        source: mount.source.clone(),
    })
}

/// Registers the state directory `state` in `registry` durably, unless it is the system's own
/// or is registered already.
///
/// Errors are ignored, because a run does not need the pointer: root's `status` also looks into the
/// default state directory in every user's home, and the user's own `status` needs no pointer.
pub(crate) fn register(state: &Path, registry: &Path) {
    if rustix::process::geteuid().is_root() && !is_open_to_all(registry) {
        let _ = make(registry);
    }
    if state != standard_paths::systems() {
        let _ = state.canonicalize().map(|state| point_to(&state, registry));
    }
}

/// The mode of the registry: every user may add files, and may remove only their own (the sticky
/// bit, as in `/tmp`).
const OPEN_TO_ALL: u32 = 0o1777;

fn is_open_to_all(registry: &Path) -> bool {
    registry.symlink_metadata().is_ok_and(|there| there.mode() & 0o7777 == OPEN_TO_ALL)
}

fn make(registry: &Path) -> Result<(), Error> {
    Directories::default().make(registry)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(registry, flags, Mode::empty()).on("cannot open", registry)?;
    directories::set_mode(made, Mode::from_raw_mode(OPEN_TO_ALL));
    Ok(())
}

/// Makes sure that a durable pointer to `state` exists. Its name has a hash of the path. If another
/// user has taken that name, the suffix is random, so that no user can guess it.
fn point_to(state: &Path, registry: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let begin = format!("{user}-{:016x}-", hash(state.as_os_str().as_bytes()));
    let usual = registry.join(format!("{begin}0.json"));
    if usual.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        match create(state, &usual, registry) {
            // Another run has just created the pointer, and may not have synced it yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    let ours = |path: PathBuf| {
        let there = path.symlink_metadata().ok()?;
        is_ours(&path, &there, user, state).then_some((path, there))
    };
    let others = || {
        let entries = fs::read_dir(registry).into_iter().flatten().flatten();
        let alike = |entry: &DirEntry| entry.file_name().as_bytes().starts_with(begin.as_bytes());
        entries.filter(alike).find_map(|entry| ours(entry.path()))
    };
    match ours(usual).or_else(others) {
        Some((_, there)) if is_durable(&there) => Ok(()),
        Some((path, _)) => make_durable(&path, registry),
        None => {
            let mut chance = [0; 8];
            rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty())?;
            let name = format!("{begin}{:016x}.json", u64::from_le_bytes(chance));
            create(state, &registry.join(name), registry)
        }
    }
}

/// Whether the file at `path` is a pointer to `state` that belongs to `user`. Another user may have
/// moved or linked a different file of `user` to that name.
fn is_ours(path: &Path, there: &Metadata, user: u32, state: &Path) -> bool {
    let is_pointer = || read(path).is_some_and(|it| it.pointer.directory == state);
    there.is_file() && there.uid() == user && is_pointer()
}

/// Whether a pointer needs no sync: it was synced, or it is so old that the kernel has written it
/// back.
fn is_durable(there: &Metadata) -> bool {
    there.mode() & 0o777 == DURABLE || there.modified().is_ok_and(directories::is_old)
}

fn create(state: &Path, path: &Path, registry: &Path) -> io::Result<()> {
    let file_system = file_system_of(state, &mounts::ours()?).ok_or(io::ErrorKind::NotFound)?;
    let directory = state.to_owned();
    let text = serde_json::to_vec(&Pointer { version: VERSION, directory, file_system })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = rustix::fs::open(registry, flags, Mode::empty())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let part = StatePart { name, text, mode };
    let file = Unnamed::new(&handle, &part)?;
    rustix::fs::fsync(&file)?;
    file.give_name(&handle, &handle, &part.name)?;
    make_durable(path, registry)
}

fn make_durable(path: &Path, registry: &Path) -> io::Result<()> {
    let file = state_file::open(path)?;
    file.sync_all()?;
    fs::File::open(registry)?.sync_all()?;
    file.set_permissions(Permissions::from_mode(DURABLE))
}

/// Returns the FNV-1a hash. Every version of synconce must use the same hash, to find the pointer
/// of an earlier version.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Returns the pointers in `registry`, and the number of other files: those that are no pointers,
/// and those over the limit of their owner. Hidden files do not count. A missing registry has no
/// pointers.
///
/// # Errors
/// Names the registry if it cannot be read.
pub fn pointers(registry: &Path) -> Result<(Vec<Registered>, usize), Error> {
    let entries = match fs::read_dir(registry) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        other => other.on("cannot read", registry)?,
    };
    let is_hidden =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
    let (mut found, mut others) = (Vec::new(), 0);
    let mut of_owner: HashMap<u32, usize> = HashMap::new();
    // An unfinished file has a hidden name.
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| !is_hidden(path));
    for path in paths {
        // The limit is per user: a flood hides only pointers of the user that made it.
        let owner = path.symlink_metadata().map_or(u32::MAX, |there| there.uid());
        let count = of_owner.entry(owner).or_default();
        *count += 1;
        match Some(&path).filter(|_| *count <= MOST).and_then(|path| read(path)) {
            Some(registered) => found.push(registered),
            None => others += 1,
        }
    }
    Ok((found, others))
}

fn read(path: &Path) -> Option<Registered> {
    let file = state_file::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    // Another user may have made a second link here, to a file of the owner.
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.len() > LONGEST {
        return None;
    }
    let pointer: Pointer = state_file::read(&file).ok()?;
    let owner = (metadata.uid(), metadata.gid());
    let registered = Registered { path: path.to_owned(), pointer, owner };
    registered.pointer.directory.is_absolute().then_some(registered)
}
