//! The store: a directory on one file system, with records, layers, sessions, trash.

mod lock;
mod losses;
mod records;

pub(crate) use self::lock::{Lock, is_leased, try_lease, try_lock};
pub(crate) use self::records::{Opened, SESSION, encode, read, write_lightly};

use crate::boot_epoch;
use crate::record::{BootEpoch, FORMAT};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::pins;
use synconce_probe::mounts;
use synconce_sys::btrfs;
use synconce_sys::namespace::is_first_user_namespace;

/// The environment variable that names a store in place of the user's own.
pub const VARIABLE: &str = "SYNCONCE_TREES";
/// The file that marks a directory as a store.
pub(crate) const NOTE: &str = "store.json";
/// Records of trees.
pub(crate) const TREES: &str = "trees";
/// Notes of uncommitted changes.
pub(crate) const OPEN: &str = "open";
/// Frozen layers.
pub(crate) const LAYERS: &str = "layers";
/// Working copies in use.
pub(crate) const SESSIONS: &str = "sessions";
/// What is to be removed.
pub(crate) const TRASH: &str = "trash";
/// The directories of a store.
pub(crate) const DIRECTORIES: [&str; 5] = [TREES, OPEN, LAYERS, SESSIONS, TRASH];
/// The name of the content within the directory of a layer or of a whole copy.
pub(crate) const CONTENT: &str = "tree";

/// The content of a store's marking file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) format: u32,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    directory: OwnedFd,
    /// The kernel's boot id, if it can be read.
    kernel: Option<String>,
}

/// Returns the path of the caller's store: what [`VARIABLE`] names, else
/// `/var/lib/synconce/trees` for root, and `$XDG_DATA_HOME/synconce/trees` or
/// `~/.local/share/synconce/trees` for other users. Returns `None` for a user without any of
/// these variables.
pub fn default_path(is_root: bool) -> Option<PathBuf> {
    let absolute =
        |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/synconce/trees"));
    }
    absolute("XDG_DATA_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/share")))
        .map(|path| path.join("synconce/trees"))
}

/// Returns the directory of the store that `path` is in, if it is in one.
pub fn store_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|above| above.join(NOTE).is_file() && above.join(LAYERS).is_dir())
}

/// Fails if `directory`, which may not exist yet, is in a store.
///
/// # Errors
/// Names `act`, which the user has asked for, and `directory`.
pub fn refuse_in_store(act: &'static str, directory: &Path) -> Result<(), Error> {
    let absolute = path::absolute(directory).on(act, directory)?;
    let there = absolute.ancestors().find_map(|above| above.canonicalize().ok());
    if there.is_some_and(|canonical| store_of(&canonical).is_some()) {
        let why = io::Error::other("it would be in a store, which removes what no tree needs");
        return Err(Error::new(act, directory, why));
    }
    Ok(())
}

impl Store {
    /// Opens the store at `path`. In a container with a boot id of its own, the calling process
    /// must have one thread.
    ///
    /// # Errors
    /// `ENOENT` when there is no store.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let absolute = fs::canonicalize(path).on("cannot open the store", path)?;
        let note = absolute.join(NOTE);
        let text = fs::read(&note).on("cannot open the store", path)?;
        let owner = fs::metadata(&note).on("cannot look at", &note)?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            // Another user's overlays are written and read with other options. In another user
            // namespace the id may be the overflow id, which names no user.
            let why = if is_first_user_namespace() {
                format!("it is the store of user {owner}")
            } else {
                "it is another user's store".to_owned()
            };
            return Err(Error::new("cannot use the store", path, io::Error::other(why)));
        }
        let read: Note = serde_json::from_slice(&text).on("cannot read", &note)?;
        if read.format != FORMAT {
            let why = format!("format {}, and this version knows {FORMAT}", read.format);
            return Err(Error::new("cannot use the store", path, io::Error::other(why)));
        }
        let directory = open_directory(&absolute)?;
        let kernel = boot_epoch::kernel().on("cannot read the kernel's boot id for", path)?;
        Ok(Self { path: absolute, directory, kernel })
    }

    /// Returns the store's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns an open descriptor of the store, by which its file system is synced.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Returns the directory of layer `id`.
    pub(crate) fn layer(&self, id: &str) -> PathBuf {
        self.path.join(LAYERS).join(id)
    }

    /// Returns the directory with the content of layer `id`.
    pub(crate) fn content(&self, id: &str) -> PathBuf {
        self.layer(id).join(CONTENT)
    }

    /// Returns the directory of session `id`.
    pub(crate) fn session(&self, id: &str) -> PathBuf {
        self.path.join(SESSIONS).join(id)
    }

    /// Returns the store's current boot epoch.
    pub(crate) fn boot_epoch(&self) -> Result<BootEpoch, Error> {
        let mounts = mounts::ours().unwrap_or_default();
        let mount = pins::mount_of(&self.path, &mounts).ok();
        boot_epoch::now(self.kernel.clone(), mount, self.losses(mount)?)
    }

    /// Moves `path`, which is in the store, to the trash. Returns whether `path` existed.
    pub(crate) fn discard(&self, path: &Path) -> Result<bool, Error> {
        let to = self.path().join(TRASH).join(new_id()?);
        match fs::rename(path, &to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            other => other.on("cannot move to the trash", path).map(|()| true),
        }
    }

    /// Returns whether the store's file system has btrfs's subvolumes.
    pub(crate) fn is_btrfs(&self) -> bool {
        btrfs::is_btrfs(self.directory.as_fd()).unwrap_or(false)
    }
}

/// Returns a name that no other entry of any store has.
pub(crate) fn new_id() -> Result<String, Error> {
    let mut bytes = [0_u8; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes, flags).on("cannot read", Path::new("random numbers"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Returns whether [`new_id`] may have made `name`.
pub(crate) fn is_id(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Opens the directory `path` for reading.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::empty()).on("cannot open", path)
}

/// Opens the directory `path` below `directory`, without following links and into no mount.
pub(crate) fn open_below(directory: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(directory, path, flags, Mode::empty(), within)
}

/// Returns the names in `directory` that do not begin with a dot.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(directory).on("cannot read", directory)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string()));
    let names: Result<Vec<_>, _> = names.collect();
    let names = names.on("cannot read", directory)?;
    Ok(names.into_iter().flatten().filter(|name| !name.starts_with('.')).collect())
}
