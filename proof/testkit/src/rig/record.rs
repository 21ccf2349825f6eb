//! The record of each rig, by which any process can take the rig down.
//!
//! Each rig has its own directory under the work directory. `rig.json` is written completely
//! before anything is set up. Everything else (daemon, loop device, mounts) is found by its
//! path, so that a kill at any moment leaves nothing that the record does not lead to.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::identity::ProcessId;
use super::recording::Recording;
use super::{Disk, FsKind};
use crate::error::Context;
use crate::{Error, Result};

/// The directory of the records unless `SYNCONCE_RIG_DIR` names another one.
const WORK_DIR: &str = "/run/synconce-rig";
/// A directory without a record belongs to a rig that is being made, unless it is older than
/// this.
const MAKING: Duration = Duration::from_secs(60);

/// Locked by the owner until it ends. A pid means another process in another pid namespace; a lock
/// is the same in all.
const OWNER_LOCK: &str = "owner.lock";
/// Locked by the daemon until it ends.
const DAEMON_LOCK: &str = "daemon.lock";

/// The record of one rig. Its directory contains everything that the rig needs, except the
/// backing file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RigRecord {
    #[serde(skip)]
    pub(super) dir: PathBuf,
    /// The lock of [`OWNER_LOCK`], in the owner's process.
    #[serde(skip)]
    pub(super) owner_lock: Option<Arc<File>>,
    /// The process with which the rig ends; `None` if the rig stays until it is taken down.
    pub(super) owner: Option<ProcessId>,
    pub(super) fs: FsKind,
    pub(super) size: u64,
    pub(super) mount_point: PathBuf,
    pub(super) mount_options: Option<String>,
    pub(super) backing: PathBuf,
    /// Required, forbidden or, for `None`, used where the kernel supports passthrough.
    pub(super) passthrough: Option<bool>,
    /// The files of this disk's recording, which belong to the rig.
    pub(super) recording: Option<Recording>,
    /// The recording that this disk replays, which belongs to another rig or tape.
    pub(super) replays: Option<Recording>,
}

/// Locked while a rig is taken down.
pub(super) struct TakedownLock(File);

impl Drop for TakedownLock {
    fn drop(&mut self) {
        // A close alone does not suffice: a child that another thread forks at this moment has
        // the file open until its exec, and keeps the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl RigRecord {
    /// Makes a directory for a new rig; its path is short enough for a socket in it.
    pub(super) fn new_dir() -> Result<PathBuf> {
        let work = work_dir();
        fs::create_dir_all(&work).context("create", &work)?;
        let prefix = format!("{}-", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(&work)
            .context("create a directory in", &work)?;
        Ok(dir.keep())
    }

    pub(super) fn write(&self) -> Result<()> {
        let new = self.dir.join("rig.json.new");
        let text = serde_json::to_vec(self).map_err(io::Error::from).context("write", &new)?;
        fs::write(&new, text).context("write", &new)?;
        fs::rename(&new, self.dir.join("rig.json")).context("rename", &new)
    }

    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("rig.json");
        let text = fs::read(&path).context("read", &path)?;
        let record: Self =
            serde_json::from_slice(&text).map_err(io::Error::from).context("understand", &path)?;
        Ok(Self { dir: dir.to_owned(), ..record })
    }

    /// Returns every recorded rig of any owner.
    pub(super) fn all() -> Result<Vec<Self>> {
        Ok(directories()?.iter().filter_map(|dir| Self::read(dir).ok()).collect())
    }

    /// Returns directories of rigs that were killed before their record was written.
    pub(super) fn stillborn() -> Result<Vec<PathBuf>> {
        let old = |dir: &PathBuf| {
            let changed = fs::metadata(dir).and_then(|data| data.modified()).ok();
            changed.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > MAKING)
        };
        Ok(directories()?
            .into_iter()
            .filter(|dir| !dir.join("rig.json").exists() && old(dir))
            .collect())
    }

    /// Whether the process is dead that should take the rig down: the owner or, without an
    /// owner, the daemon.
    pub(super) fn is_stale(&self) -> bool {
        if self.owner.is_none() {
            return self.is_unkept();
        }
        // The owner may have left the rig to the daemon after this record was read.
        self.is_unkept()
            && Self::read(&self.dir).is_ok_and(|now| now.owner.is_some() || now.is_unkept())
    }

    fn is_unkept(&self) -> bool {
        let name = if self.owner.is_some() { OWNER_LOCK } else { DAEMON_LOCK };
        match File::open(self.dir.join(name)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            // A kill in a teardown has left the record alone, or another version made the rig.
            Err(_) => {
                let keeper = self.owner.clone().or_else(|| self.daemon());
                keeper.is_none_or(|process| !process.is_alive())
            }
        }
    }

    /// Takes the lock of the owner, which this process is.
    pub(super) fn lock_as_owner(&mut self) -> Result<()> {
        self.owner_lock = Some(Arc::new(self.lock_until_end(OWNER_LOCK)?));
        Ok(())
    }

    fn lock_until_end(&self, name: &str) -> Result<File> {
        let path = self.dir.join(name);
        let file = File::create(&path).context("create", &path)?;
        // Waits for processes that look whether the rig is stale.
        flock(&file, FlockOperation::LockExclusive).context("lock", &path)?;
        Ok(file)
    }

    /// Returns the daemon, once it has written its identity.
    pub(super) fn daemon(&self) -> Option<ProcessId> {
        serde_json::from_slice(&fs::read(self.dir.join("daemon.json")).ok()?).ok()
    }

    /// Records this process as the daemon, and returns its lock. A torn write would read as "no
    /// daemon", hence the rename.
    pub(super) fn write_daemon(&self) -> Result<File> {
        let (new, path) = (self.dir.join("daemon.json.new"), self.dir.join("daemon.json"));
        let identity = ProcessId::current().context("look up the process of", &self.dir)?;
        let text = serde_json::to_vec(&identity).map_err(io::Error::from).context("write", &new)?;
        fs::write(&new, text).context("write", &new)?;
        fs::rename(&new, &path).context("rename", &new)?;
        self.lock_until_end(DAEMON_LOCK)
    }

    /// Locks the rig against a second teardown. Returns `None` if another process holds the
    /// lock.
    pub(super) fn lock(&self) -> Result<Option<TakedownLock>> {
        let path = self.dir.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .context("open", &path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(TakedownLock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno).context("lock", &path),
        }
    }

    pub(super) fn recording(&self) -> Result<&Recording> {
        let missing = || Error::Refused("the rig was set up without recording".to_owned());
        self.recording.as_ref().ok_or_else(missing)
    }

    /// Returns where the FUSE file system is mounted.
    pub(super) fn fuse_dir(&self) -> PathBuf {
        self.dir.join("fuse")
    }

    /// Returns the path of its one file, on which the loop device is.
    pub(super) fn disk_file(&self) -> PathBuf {
        self.fuse_dir().join("disk")
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.dir.join("daemon.log")
    }

    pub(super) fn disk(&self) -> Disk {
        Disk::at(self.dir.join("socket"))
    }
}

fn work_dir() -> PathBuf {
    std::env::var_os("SYNCONCE_RIG_DIR").map_or_else(|| WORK_DIR.into(), PathBuf::from)
}

fn directories() -> Result<Vec<PathBuf>> {
    let work = work_dir();
    match fs::read_dir(&work) {
        Ok(entries) => {
            Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("read", &work),
    }
}
