//! A session's copy as a mount.

use super::Session;
use super::content::{DEVICE, ROOT, UPPER, WORK};
use crate::busy::{Busy, User};
use crate::overlay::{self, Mount};
use crate::record::Purpose;
use crate::store::{CONTENT, LAYERS, SESSIONS, open_directory, write_lightly};
use crate::strategy::Strategy;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use synconce_durable::error::{Context, Error};
use synconce_durable::pins;
use synconce_probe::mounts::{self, Mount as Seen};

/// How long the last of a command's mounts may take to go: the kernel unmounts those of
/// a namespace whose processes were killed from a work queue of its own.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

impl Session<'_> {
    /// Whether there is something to keep.
    pub fn can_be_kept(&self) -> bool {
        self.note.tree.is_some() && !matches!(self.note.purpose, Purpose::View(_))
    }

    /// A mount of the copy that nobody has put anywhere yet.
    fn mount(&self) -> Result<Mount, Error> {
        let layers = self.store.open_layers(&self.note.layers)?;
        if matches!(self.note.purpose, Purpose::View(_)) {
            return overlay::read_only(
                &top_first(&layers),
                self.store.user_xattr(&self.note.layers),
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

    /// Mounts the copy in the session's own directory, which is where a command finds
    /// it. In a mount namespace of our own, or the whole host sees it.
    ///
    /// # Errors
    /// Names the act and path.
    pub fn attach(&self) -> Result<PathBuf, Error> {
        let root = self.directory().join(ROOT);
        self.attach_at(&root)?;
        Ok(root)
    }

    /// Mounts the copy at `point`.
    ///
    /// # Errors
    /// Names the act and path.
    pub fn attach_at(&self, point: &Path) -> Result<(), Error> {
        let mount = self.mount()?;
        let device = rustix::fs::fstat(mount.as_fd()).on("cannot look at", point)?.st_dev;
        let note = self.directory().join(DEVICE);
        write_lightly(&note, device.to_string().as_bytes())?;
        mount.attach(open_directory(point)?.as_fd())
    }

    /// Unmounts what [`Session::attach`] mounted.
    ///
    /// # Errors
    /// Names the act and path; `EBUSY` when somebody still works in it.
    pub fn detach(&self) -> Result<(), Error> {
        self.detach_from(&self.directory().join(ROOT))
    }

    /// Unmounts it from `point`, if its user has not done so already.
    ///
    /// # Errors
    /// Names the act and path; `EBUSY` when somebody still works in it, or it is below
    /// another mount or was moved.
    pub fn detach_from(&self, point: &Path) -> Result<(), Error> {
        patiently(|| self.unmount_from(point)).map_err(|error| match is_busy(&error) {
            true => self.busy("cannot unmount", point, User::Workers(point.to_owned())),
            false => error,
        })
    }

    fn busy(&self, act: &'static str, path: &Path, by: User) -> Error {
        Error::new(act, path, Busy::error(self.store.path(), &self.note.from, by))
    }

    /// Unmounts it, if it is what is seen at `point`, and makes sure that it is nowhere
    /// else in our mount namespace.
    fn unmount_from(&self, point: &Path) -> Result<(), Error> {
        let mounts = mounts::read("self").on("cannot read the mounts for", point)?;
        if self.is_seen_at(point, &mounts) {
            unmount(point, UnmountFlags::NOFOLLOW).on("cannot unmount", point)?;
        }
        let mounts = mounts::read("self").on("cannot read the mounts for", point)?;
        match mounts.iter().find(|mount| self.is_ours(mount)) {
            None => Ok(()),
            Some(left) => {
                Err(self.busy("cannot unmount", point, User::Covered(left.point.clone())))
            }
        }
    }

    /// Whether it is what is seen at `point`, of all that may be mounted there.
    pub(super) fn is_seen_at(&self, point: &Path, mounts: &[Seen]) -> bool {
        pins::mount_of(point, mounts).is_ok_and(|mount| self.is_ours(mount))
    }

    /// Whether `mount` is the one that [`Session::attach_at`] has made. An overlay has a
    /// device number of its own; a copy or a snapshot is known by what of its file system
    /// is mounted.
    fn is_ours(&self, mount: &Seen) -> bool {
        if mount.type_name == "overlay" {
            let device = fs::read_to_string(self.directory().join(DEVICE)).ok();
            let device = device.and_then(|text| text.parse::<u64>().ok());
            let number = rustix::fs::makedev(mount.device.major, mount.device.minor);
            return device == Some(number) && self.can_be_overlay(mount);
        }
        let own = Path::new(SESSIONS).join(&self.id).join(CONTENT);
        let is_view = matches!(self.note.purpose, Purpose::View(ref at) if *at == mount.point);
        let viewed =
            self.note.layers.last().map(|layer| Path::new(LAYERS).join(&layer.id).join(CONTENT));
        mount.root.ends_with(own)
            || is_view && viewed.is_some_and(|viewed| mount.root.ends_with(viewed))
    }

    /// Whether the options of an overlay do not name another one's directories: when an overlay
    /// is unmounted, the next one anywhere gets its device number. Directories that could not be
    /// named by their path are shown as links in /proc, and tell nothing.
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

    /// Puts into the upper directory what the kernel knows beside it, by mounting the
    /// overlay once more, where nobody can reach it. The kernel refuses that while the
    /// upper is in use elsewhere (`EBUSY`, with an index).
    pub(super) fn settle(&self) -> Result<(), Error> {
        let directory = self.directory();
        if !directory.join(WORK).exists() {
            // An earlier attempt was cut short behind this.
            return Ok(());
        }
        let upper_path = directory.join(UPPER);
        let upper = open_directory(&upper_path)?;
        let work = open_directory(&directory.join(WORK))?;
        overlay::clear_guard(work.as_fd())?;
        let mount = self.mount().map_err(|error| match is_busy(&error) {
            true => self.busy("cannot freeze", &directory, User::Elsewhere(upper_path.clone())),
            false => error,
        })?;
        if overlay::has_index(work.as_fd())? {
            overlay::freeze(mount.as_fd(), upper.as_fd(), work.as_fd())?;
        }
        Ok(())
    }
}

/// The layers as overlay wants them.
pub(crate) fn top_first(layers: &[std::os::fd::OwnedFd]) -> Vec<BorrowedFd<'_>> {
    layers.iter().rev().map(AsFd::as_fd).collect()
}

fn is_busy(error: &Error) -> bool {
    error.io().raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// Tries again while somebody is still about to let go.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && began.elapsed() < PATIENCE => sleep(PAUSE),
            other => return other,
        }
    }
}
