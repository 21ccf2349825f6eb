//! Sessions: working copies in use, each with a lease on the layers that it needs.
//!
//! The lease is a lock on the session's directory; the lock ends with its process, however the
//! process ends. A session without a lease is *interrupted*, and the next command removes it.
//! A mounted session has no lease and lasts as long as its mount.

mod copy;
mod mounting;
mod reserve;
mod snapshot;

pub(crate) use self::copy::settled;
pub(crate) use self::mounting::is_busy;

use crate::overlay::{self, Features};
use crate::pin::Pin;
use crate::record::{self, FORMAT, Layer, Purpose, now};
use crate::source::LayerStack;
use crate::store::{
    self, SESSION, SESSIONS, Store, encode, open_directory, read, try_lease, write_lightly,
};
use crate::strategy::Strategy;
use crate::unneeded;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};

/// The most layers that a stack may have. Before Linux 6.5 all layers are named in one page;
/// since then the limit is 500.
const MOST_LAYERS: usize = 200;
/// The file that caches what overlay can do in the store.
const ABILITIES: &str = "abilities.json";
/// The upper and work directories of an overlay.
pub(crate) const UPPER: &str = "upper";
pub(crate) const WORK: &str = "work";
/// The file with the device number of the session's mount.
pub(crate) const DEVICE: &str = "device";
/// The mount point of the copy while a command runs in it.
const ROOT: &str = "root";

/// The result of a trial mount, cached so that there is one trial per kernel, not one per run.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    /// `uname -r`.
    kernel: String,
    /// Whether the trial was made by root, not in a user namespace.
    by_root: bool,
    features: Features,
}

/// A session whose lease this process has. The type says how far the session is, so that steps
/// in a wrong order do not compile: a session that has [begun](Begun) gets its copy by
/// `prepare`, commands [work](Working) in the copy, and [`freeze`](Session::freeze) ends the
/// work. Only a [frozen](crate::Frozen) session can be committed or kept. A session in any state
/// can be discarded, and each of these ends consumes the session.
///
/// ```no_run
/// # use synconce_tree::{Session, Begun, Error, record::TreeName};
/// fn in_order(session: Session<'_, Begun>, name: &TreeName) -> Result<(), Error> {
///     let session = session.prepare(&())?;
///     let root = session.attach()?;
///     session.detach()?;
///     session.freeze(&())?.commit_as(name, None, None, &()).map(drop)
/// }
/// ```
///
/// A commit before the freeze:
///
/// ```compile_fail,E0599
/// # use synconce_tree::{Session, Error, record::TreeName};
/// fn too_early(session: Session<'_>, name: &TreeName) -> Result<(), Error> {
///     session.commit_as(name, None, None, &()).map(drop)
/// }
/// ```
///
/// Work after the freeze:
///
/// ```compile_fail,E0382
/// # use synconce_tree::{Session, Error};
/// fn too_late(session: Session<'_>) -> Result<(), Error> {
///     let frozen = session.freeze(&())?;
///     session.attach()?;
///     frozen.keep(&())
/// }
/// ```
///
/// Two ends:
///
/// ```compile_fail,E0382
/// # use synconce_tree::{Session, Error, record::TreeName};
/// fn twice(session: Session<'_>, name: &TreeName) -> Result<(), Error> {
///     let frozen = session.freeze(&())?;
///     frozen.commit_as(name, None, None, &())?;
///     frozen.discard()
/// }
/// ```
#[derive(Debug)]
pub struct Session<'a, State = Working> {
    pub(crate) store: &'a Store,
    pub(crate) id: String,
    pub(crate) note: record::Session,
    pub(crate) pin: Pin,
    /// Held until the session has ended.
    pub(crate) lease: OwnedFd,
    pub(crate) state: State,
}

/// A session that has no copy yet.
#[derive(Debug)]
pub struct Begun;

/// A session with a copy that is written in.
#[derive(Debug)]
pub struct Working;

/// Begins a session on `source`, under the lock. [`Session::prepare`] makes the copy that
/// the session writes in.
pub(crate) fn begin<'a>(
    store: &'a Store,
    source: &LayerStack,
    strategy: Strategy,
    purpose: Purpose,
) -> Result<Session<'a, Begun>, Error> {
    let writes = !matches!(purpose, Purpose::View(_));
    if writes && strategy == Strategy::Overlay && source.layers.len() >= MOST_LAYERS {
        let why = format!(
            "it is a stack of {} layers already; `synconce tree squash` makes one of them",
            source.layers.len()
        );
        return Err(Error::new("cannot work on", Path::new(&source.from), io::Error::other(why)));
    }
    let pin = Pin::new(store.path())?;
    let note = record::Session {
        format: FORMAT,
        tree: source.tree.clone(),
        from: source.from.clone(),
        generation: source.base.as_ref().map(|base| base.generation),
        layers: source.layers.clone(),
        strategy,
        features: features(store, strategy)?,
        purpose,
        pid: std::process::id(),
        began: now(),
        boot_epoch: store.boot_epoch()?,
    };
    let id = store::new_id()?;
    let directory = store.session(&id);
    // The session gets its name once it is locked: to other commands, a session without a lock is
    // interrupted.
    let unnamed = store.path().join(SESSIONS).join(format!(".{id}"));
    fs::DirBuilder::new().mode(0o700).create(&unnamed).on("cannot create", &unnamed)?;
    let lease = try_lease(open_directory(&unnamed)?, &unnamed)?;
    let in_use = || Error::new("cannot lock", &unnamed, Errno::WOULDBLOCK);
    let lease = lease.ok_or_else(in_use)?;
    let path = unnamed.join(SESSION);
    write_lightly(&path, &encode(&note, &path)?)?;
    if note.tree.is_some() && note.purpose == Purpose::Run {
        reserve::reserve(lease.as_fd());
    }
    if matches!(note.purpose, Purpose::Mount(_) | Purpose::View(_)) {
        // A mounted session has no lease; its metadata must survive a crash.
        let written = fs::File::open(&path).and_then(|file| file.sync_all());
        written.on("cannot sync", &path)?;
    }
    fs::rename(&unnamed, &directory).on("cannot name", &directory)?;
    Ok(Session { store, id, note, pin, lease, state: Begun })
}

/// Returns the overlay options that work here, if the session writes by overlay.
fn features(store: &Store, strategy: Strategy) -> Result<Features, Error> {
    if strategy != Strategy::Overlay {
        return Ok(Features::default());
    }
    let path = store.path().join(ABILITIES);
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let by_root = synconce_sys::namespace::is_first_user_namespace();
    if let Ok(Some(known)) = read::<Known>(&path)
        && (&known.kernel, known.by_root) == (&kernel, by_root)
    {
        return Ok(known.features);
    }
    let sessions = store.path().join(SESSIONS);
    let features = overlay::trial(open_directory(&sessions)?.as_fd());
    let features = features.on("cannot mount an overlay in", &sessions)?;
    let known = Known { kernel, by_root, features };
    write_lightly(&path, &encode(&known, &path)?)?;
    Ok(known.features)
}

impl<'a, State> Session<'a, State> {
    /// Returns the store of the session.
    pub fn store(&self) -> &Store {
        self.store
    }

    /// Returns the session in another state.
    pub(crate) fn into_state<Next>(self, state: Next) -> Session<'a, Next> {
        let Self { store, id, note, pin, lease, .. } = self;
        Session { store, id, note, pin, lease, state }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.store.session(&self.id)
    }

    /// Ends the session and moves its changes to the trash, with layers that only the session
    /// needed: their tree or generation was removed meanwhile.
    pub fn discard(self) -> Result<(), Error> {
        self.roll_back()?;
        self.store.discard(&self.directory())?;
        // If the store cannot be locked, `gc` finds the layers.
        if let Ok(_lock) = self.store.lock() {
            unneeded::try_drop_unreferenced(self.store, &self.note.layer_ids(&self.id));
        }
        Ok(())
    }

    /// Ends the session because of `error`. A mounted session stays: `tree umount` can be
    /// repeated.
    pub(crate) fn fail<T>(self, error: Error) -> Result<T, Error> {
        match self.note.purpose {
            Purpose::Mount(_) => Err(error),
            _ => self.discard_after(error),
        }
    }

    /// Discards the session because of `error`, which is returned. If the discard fails too, later
    /// commands find the session as interrupted.
    pub(crate) fn discard_after<T>(self, error: Error) -> Result<T, Error> {
        let _ = self.discard();
        Err(error)
    }

    /// Rolls back the note of an interrupted [`Session::keep`].
    fn roll_back(&self) -> Result<(), Error> {
        let Some(tree) = &self.note.tree else { return Ok(()) };
        let is_noted = || -> Result<bool, Error> {
            let noted = self.store.noted(tree)?.unwrap_or_default();
            Ok(noted.iter().any(|layer| layer.id == self.id))
        };
        if !is_noted()? {
            return Ok(());
        }
        let _lock = self.store.lock()?;
        match self.store.record(tree)? {
            Some(record) if is_noted()? => {
                if record.layers == self.note.layers {
                    self.store.close(tree)
                } else {
                    self.store.note_open(&record, self.note.layers.clone(), &self.note.boot_epoch)
                }
            }
            _ => Ok(()),
        }
    }
}

/// Best effort: moves the directory of session `id` and the unreferenced layers among `layers`
/// to the trash. The next gc removes leftovers.
pub(crate) fn leave(store: &Store, id: &str, layers: &[Layer]) {
    let directory = store.session(id);
    // Usually nothing else is in the directory, and rmdir(2) suffices.
    let _ = fs::remove_file(directory.join(SESSION));
    let _ = fs::remove_file(directory.join(DEVICE));
    let _ = fs::remove_dir(directory.join(ROOT));
    if fs::remove_dir(&directory).is_err() {
        let _ = store.discard(&directory);
    }
    let layers: Vec<String> = layers.iter().map(|layer| layer.id.clone()).collect();
    unneeded::try_drop_unreferenced(store, &layers);
}

/// Makes the error of a session without a layer below it.
pub(crate) fn nothing(path: &Path) -> Error {
    Error::new("there is no layer for", path, Errno::NOENT)
}
