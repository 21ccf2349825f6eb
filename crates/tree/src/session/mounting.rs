//! Mounts and unmounts a session's copy.

use super::{DEVICE, ROOT, Session, UPPER, WORK};
use crate::busy::{Busy, TreeUser};
use crate::overlay::{self, DetachedMount};
use crate::record::Purpose;
use crate::store::{CONTENT, LAYERS, SESSIONS, Store, is_id, open_directory, write_lightly};
use crate::strategy::Strategy;
use crate::unneeded::shows_part_of;
use crate::view::{self, top_first};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::chdir;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use synconce_durable::error::{Context, Error};
use synconce_durable::pins;
use synconce_probe::mounts::{self, Mount as Seen};
use synconce_probe::namespaces;

/// How long an unmount may take after a command has ended: the kernel unmounts the namespace of a
/// killed command in a work queue, some time after the last process has exited.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a copy of a mount in another mount namespace may take to end: a process that makes a
/// namespace for a moment also copies each mount.
const MOMENT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);
/// The pause between two looks at the mounts of all processes.
const LOOK: Duration = Duration::from_millis(20);

impl Store {
    /// Unmounts the copies of mounted trees, of any store, in the private mount namespace of this
    /// process. Otherwise a run, and the process that empties the trash afterwards, would keep
    /// these trees and layers in use: an unmount elsewhere does not reach this namespace.
    /// Copies that lead to this store or to `needed` stay. A working directory in such a copy
    /// becomes `/`. Best effort: the mount namespace of an ordinary user cannot unmount one of the
    /// mounts that it has inherited (mount_namespaces(7)).
    pub fn unmount_copies(&self, needed: &[PathBuf]) {
        let mounts = mounts::read("self").unwrap_or_default();
        let points = self.mount_points();
        let needed = || needed.iter().map(PathBuf::as_path).chain([self.path()]);
        let is_needed =
            |point: &Path| needed().any(|path| path.starts_with(point) || point.starts_with(path));
        let is_copy = |mount: &&Seen| shows_a_tree(mount) || points.contains(&mount.point);
        for mount in mounts.iter().rev().filter(is_copy) {
            let at = &mount.point;
            let is_seen = pins::mount_of(at, &mounts).is_ok_and(|seen| seen.id == mount.id);
            if is_seen && !is_needed(at) {
                let _ = unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
            }
        }
        // A detached mount lives on while it is a working directory (umount(2)).
        if env::current_dir().is_err() {
            let _ = chdir("/");
        }
    }

    /// Returns where trees of the store are mounted.
    fn mount_points(&self) -> Vec<PathBuf> {
        let sessions = self.sessions().unwrap_or_default().into_iter();
        let point = |purpose| match purpose {
            Purpose::Mount(point) | Purpose::View(point) => Some(point),
            Purpose::Run | Purpose::Import => None,
        };
        sessions.filter_map(|(_, note)| point(note?.purpose)).collect()
    }
}

impl Session<'_> {
    /// Returns whether the session's changes can be kept in a tree.
    pub fn can_be_kept(&self) -> bool {
        self.note.tree.is_some() && !matches!(self.note.purpose, Purpose::View(_))
    }

    /// Returns a detached mount of the copy.
    pub(crate) fn mount(&self) -> Result<DetachedMount, Error> {
        let layers = view::open_layers(self.store, &self.note.layers)?;
        if matches!(self.note.purpose, Purpose::View(_)) {
            return overlay::read_only(
                &top_first(&layers),
                view::xattr_namespace(&self.note.layers),
            );
        }
        let directory = self.directory();
        if self.note.strategy != Strategy::Overlay {
            return overlay::bind_writable(open_directory(&self.whole())?.as_fd());
        }
        let upper = open_directory(&directory.join(UPPER))?;
        let work = open_directory(&directory.join(WORK))?;
        let features = self.note.features;
        let lowers = top_first(&layers);
        patiently(|| overlay::writable(&lowers, upper.as_fd(), work.as_fd(), features))
    }

    /// Mounts the copy in the session's own directory, where commands run. The caller should
    /// be in a private mount namespace, or the whole host sees the mount.
    pub fn attach(&self) -> Result<PathBuf, Error> {
        let root = self.directory().join(ROOT);
        self.attach_at(&root)?;
        Ok(root)
    }

    /// Mounts the copy at `point`.
    pub fn attach_at(&self, point: &Path) -> Result<(), Error> {
        let mount = self.mount()?;
        let device = rustix::fs::fstat(mount.as_fd()).on("cannot look at", point)?.st_dev;
        let note = self.directory().join(DEVICE);
        write_lightly(&note, device.to_string().as_bytes())?;
        mount.attach(open_directory(point)?.as_fd())
    }

    /// Unmounts the mount of [`Session::attach`].
    ///
    /// # Errors
    /// `EBUSY` while a process uses the mount.
    pub fn detach(&self) -> Result<(), Error> {
        self.unmount_patiently(&self.directory().join(ROOT))
    }

    /// Unmounts the copy from `point`, unless the user has done so already.
    ///
    /// # Errors
    /// `EBUSY` while a process uses the mount; the mount is covered by another mount or was moved;
    /// another mount namespace has a mount by which the copy can be changed.
    pub fn detach_from(&self, point: &Path) -> Result<(), Error> {
        self.unmount_patiently(point)?;
        if matches!(self.note.purpose, Purpose::View(_)) {
            // The layers stay until the last mount ends: `unneeded`.
            return Ok(());
        }
        let began = Instant::now();
        loop {
            let Some(user) = self.copy_elsewhere(point) else { return Ok(()) };
            if began.elapsed() > MOMENT {
                return Err(self.busy("cannot unmount", point, user));
            }
            sleep(LOOK);
        }
    }

    /// Returns a mount namespace with a copy of the mount at `point`. A copy that umount(8) cannot
    /// end there comes first: it has to be waited for in any case.
    fn copy_elsewhere(&self, point: &Path) -> Option<TreeUser> {
        let has_copy = |mount: &&Seen| self.is_ours(mount) || shows_part_of(mount, &self.id);
        let mut inherited = None;
        for other in namespaces::others() {
            let Some(copy) = other.mounts.iter().rfind(has_copy) else { continue };
            let pid = other.pid;
            // A copy at another path was mounted there on purpose, as a container's volume is.
            if copy.point != point || !other.is_a_copy_of_ours() {
                return Some(TreeUser::Namespace { pid, at: None });
            }
            inherited.get_or_insert(TreeUser::Namespace { pid, at: Some(point.to_owned()) });
        }
        inherited
    }

    fn unmount_patiently(&self, point: &Path) -> Result<(), Error> {
        patiently(|| self.unmount_from(point)).map_err(|error| {
            if is_busy(&error) {
                self.busy("cannot unmount", point, TreeUser::Workers(point.to_owned()))
            } else {
                error
            }
        })
    }

    pub(crate) fn busy(&self, act: &'static str, path: &Path, by: TreeUser) -> Error {
        Error::new(act, path, Busy::error(self.store.path(), &self.note.from, by))
    }

    /// Unmounts the copy if it is the topmost mount at `point`, and fails if the copy is still
    /// mounted elsewhere in this mount namespace.
    fn unmount_from(&self, point: &Path) -> Result<(), Error> {
        let mounts = mounts::read("self").on("cannot read the mounts for", point)?;
        if self.is_seen_at(point, &mounts) {
            unmount(point, UnmountFlags::NOFOLLOW).on("cannot unmount", point)?;
        }
        let mounts = mounts::read("self").on("cannot read the mounts for", point)?;
        match mounts.iter().find(|mount| self.is_ours(mount)) {
            None => Ok(()),
            Some(left) => {
                Err(self.busy("cannot unmount", point, TreeUser::Covered(left.point.clone())))
            }
        }
    }

    /// Returns whether the session's copy is the topmost mount at `point`.
    pub(crate) fn is_seen_at(&self, point: &Path, mounts: &[Seen]) -> bool {
        pins::mount_of(point, mounts).is_ok_and(|mount| self.is_ours(mount))
    }

    /// Returns whether `mount` was made by [`Session::attach_at`]. An overlay is recognised by
    /// its device number; a copy or a snapshot by the mounted subdirectory of its file system.
    fn is_ours(&self, mount: &Seen) -> bool {
        if mount.type_name == "overlay" {
            let device = fs::read_to_string(self.directory().join(DEVICE)).ok();
            let device = device.and_then(|text| text.parse::<u64>().ok());
            return device == Some(mounts::device(mount)) && self.can_be_overlay(mount);
        }
        let own = Path::new(SESSIONS).join(&self.id).join(CONTENT);
        let is_view = matches!(self.note.purpose, Purpose::View(ref at) if *at == mount.point);
        let viewed =
            self.note.layers.last().map(|layer| Path::new(LAYERS).join(&layer.id).join(CONTENT));
        mount.root.ends_with(own)
            || is_view && viewed.is_some_and(|viewed| mount.root.ends_with(viewed))
    }

    /// Returns whether the options of an overlay are compatible with this session. The device
    /// number alone is not enough: after an unmount, the kernel gives the number to the next
    /// overlay. A directory that is shown as a link in /proc, because its path could not be an
    /// option, is ignored.
    fn can_be_overlay(&self, mount: &Seen) -> bool {
        let values = |key: &'static str| {
            let options = mount.options.split(',').filter_map(|option| option.split_once('='));
            options.filter(move |(name, _)| name.trim_end_matches('+') == key).map(|(_, dir)| dir)
        };
        let is_view = matches!(self.note.purpose, Purpose::View(_));
        if values("upperdir").next().is_none() != is_view {
            return false;
        }
        let (key, id) = match self.note.layers.last() {
            Some(top) if is_view => ("lowerdir", &top.id),
            _ => ("upperdir", &self.id),
        };
        let is_told = |dir: &str| !dir.starts_with("/proc/");
        !values(key).any(is_told) || values(key).any(|dir| dir.contains(&format!("/{id}/")))
    }
}

/// Returns whether `mount` shows a layer or a session of any store, as far as the mount table says:
/// not an overlay whose directories are links in /proc.
fn shows_a_tree(mount: &Seen) -> bool {
    let options = mount.options.split([',', ':', '=']).map(Path::new);
    options.chain([mount.root.as_path()]).any(is_in_a_store)
}

/// Returns whether `path` is the content of a layer or a session, or in it.
fn is_in_a_store(path: &Path) -> bool {
    let names: Vec<_> = path.iter().filter_map(OsStr::to_str).collect();
    names.windows(3).any(|names| {
        [LAYERS, SESSIONS].contains(&names[0])
            && is_id(names[1])
            && [CONTENT, UPPER].contains(&names[2])
    })
}

pub(crate) fn is_busy(error: &Error) -> bool {
    error.io().raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// Retries `attempt` while the file system is busy, for at most `PATIENCE`.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && began.elapsed() < PATIENCE => sleep(PAUSE),
            other => return other,
        }
    }
}
