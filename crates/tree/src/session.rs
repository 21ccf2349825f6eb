//! Sessions: working copies in use, each with a lease on the layers that it needs.
//!
//! The lease is a lock on the session's directory; the lock ends with its process, however the
//! process ends. A session without a lease is *interrupted*, and the next command removes it.
//! A mounted session has no lease and lasts as long as its mount.

mod attach;
mod content;
mod finish;
mod reap;
mod source;

pub use self::reap::{Interrupted, Lost, MountOf, Recovered};
pub use self::source::{Base, Source};

pub(crate) use self::attach::top_first;
pub(crate) use self::source::refuse;

use crate::overlay::{self, Features};
use crate::pin::Pin;
use crate::record::{self, FORMAT, Name, Purpose};
use crate::store::{self, SESSIONS, Store, encode, open_directory, read, try_lease, write_lightly};
use crate::strategy::Strategy;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use synconce_durable::error::{Context, Error};

/// The most layers that a stack may have. Before Linux 6.5 all layers are named in one page;
/// since then the limit is 500.
const MOST_LAYERS: usize = 200;
/// The file that caches what overlay can do in the store.
const ABILITIES: &str = "abilities.json";
/// The file that describes a session.
const NOTE: &str = "session.json";

/// The result of a trial mount, cached so that there is one trial per kernel, not one per run.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    /// `uname -r`.
    kernel: String,
    /// Whether the trial was made by root, not in a user namespace.
    by_root: bool,
    features: Features,
}

/// A working copy whose lease this process has.
#[derive(Debug)]
pub struct Session<'a> {
    store: &'a Store,
    id: String,
    note: record::Session,
    pin: Pin,
    _lease: OwnedFd,
}

impl Store {
    /// Begins a session whose result stays in the tree `name`.
    ///
    /// # Errors
    /// Another session works on the tree. The error names the act and the path.
    pub fn open_session(
        &self,
        name: &Name,
        wanted: Option<Strategy>,
    ) -> Result<Session<'_>, Error> {
        let _lock = self.lock()?;
        let source = self.current(name)?;
        let strategy = self.strategy_of(&source, wanted)?;
        self.begin(&source, strategy, Purpose::Run)
    }

    /// Begins a session on a clone of `base` that has no name.
    ///
    /// # Errors
    /// `base` has uncommitted changes. The error names the act and the path.
    pub fn open_anonymous(
        &self,
        base: &Name,
        wanted: Option<Strategy>,
    ) -> Result<(Session<'_>, Base), Error> {
        let _lock = self.lock()?;
        let source = self.committed(base)?;
        let strategy = self.strategy_of(&source, wanted)?;
        let session = self.begin(&source, strategy, Purpose::Run)?;
        let Source { base, .. } = source;
        Ok((session, base.ok_or_else(|| nothing(self.path()))?))
    }

    /// Begins a session that will be mounted at `point`, and whose result stays in `name`.
    ///
    /// # Errors
    /// As for [`Store::open_session`].
    pub fn open_mounted(&self, name: &Name, point: &Path) -> Result<Session<'_>, Error> {
        let _lock = self.lock()?;
        let source = self.current(name)?;
        let strategy = self.strategy_of(&source, None)?;
        self.begin(&source, strategy, Purpose::Mount(point.to_owned()))
    }

    /// Begins a session by which `name` is mounted read-only at `point`.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn open_read_only(&self, name: &Name, point: &Path) -> Result<Session<'_>, Error> {
        let _lock = self.lock()?;
        let mut source = self.stack(name)?;
        source.tree = None;
        self.begin(&source, source.strategy, Purpose::View(point.to_owned()))
    }

    /// Begins a session on `source`, under the lock. [`Session::prepare`] makes the copy that
    /// the session writes in.
    pub(crate) fn begin(
        &self,
        source: &Source,
        strategy: Strategy,
        purpose: Purpose,
    ) -> Result<Session<'_>, Error> {
        let writes = !matches!(purpose, Purpose::View(_));
        if writes && strategy == Strategy::Overlay && source.layers.len() >= MOST_LAYERS {
            let why = format!(
                "it is a stack of {} layers already; `synconce tree squash` makes one of them",
                source.layers.len()
            );
            return Err(Error::new(
                "cannot work on",
                Path::new(&source.from),
                io::Error::other(why),
            ));
        }
        let pin = Pin::new(self.path())?;
        let note = record::Session {
            format: FORMAT,
            tree: source.tree.clone(),
            from: source.from.clone(),
            generation: source.base.as_ref().map(|base| base.generation),
            layers: source.layers.clone(),
            strategy,
            features: self.features(strategy)?,
            purpose,
            pid: std::process::id(),
            began: now(),
            boot_epoch: self.boot_epoch()?,
        };
        let id = store::new_id()?;
        let directory = self.session(&id);
        // The session gets its name only once it is locked, so that no command takes it for
        // interrupted.
        let unnamed = self.path().join(SESSIONS).join(format!(".{id}"));
        fs::DirBuilder::new().mode(0o700).create(&unnamed).on("cannot create", &unnamed)?;
        let lease = try_lease(open_directory(&unnamed)?, &unnamed)?;
        let in_use = || Error::new("cannot lock", &unnamed, Errno::WOULDBLOCK);
        let lease = lease.ok_or_else(in_use)?;
        let path = unnamed.join(NOTE);
        write_lightly(&path, &encode(&note, &path)?)?;
        if matches!(note.purpose, Purpose::Mount(_) | Purpose::View(_)) {
            // A mounted session has no lease; its metadata must survive a crash.
            let written = fs::File::open(&path).and_then(|file| file.sync_all());
            written.on("cannot sync", &path)?;
        }
        fs::rename(&unnamed, &directory).on("cannot name", &directory)?;
        Ok(Session { store: self, id, note, pin, _lease: lease })
    }

    /// Returns the overlay options that work here, if the session writes by overlay.
    fn features(&self, strategy: Strategy) -> Result<Features, Error> {
        if strategy != Strategy::Overlay {
            return Ok(Features::default());
        }
        let path = self.path().join(ABILITIES);
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let by_root = synconce_sys::namespace::is_first_user_namespace();
        if let Ok(Some(known)) = read::<Known>(&path)
            && (&known.kernel, known.by_root) == (&kernel, by_root)
        {
            return Ok(known.features);
        }
        let sessions = self.path().join(SESSIONS);
        let trial = overlay::trial(open_directory(&sessions)?.as_fd());
        let trial = trial.map_err(io::Error::other).on("cannot mount an overlay in", &sessions)?;
        let known = Known { kernel, by_root, features: trial.features() };
        write_lightly(&path, &encode(&known, &path)?)?;
        Ok(known.features)
    }
}

impl Session<'_> {
    /// Returns how the session writes.
    pub fn strategy(&self) -> Strategy {
        self.note.strategy
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.store.session(&self.id)
    }
}

fn nothing(path: &Path) -> Error {
    Error::new("there is no layer for", path, Errno::NOENT)
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
