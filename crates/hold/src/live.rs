//! Finds the overlays of a hold that still exist, in every mount namespace: their mounts, and the
//! processes that have files open there.

use crate::elsewhere;
use crate::open_files::{self, FileUser, OpenFile};
use crate::read_only::is_read_only;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_probe::mounts::{self, Mount, device};
use synconce_probe::namespaces::{self, Namespace};

/// The type of an overlay in statfs(2) (include/uapi/linux/magic.h).
const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

/// A mount that keeps an overlay of a hold beside, over or below the mount at the held path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The overlay is mounted at this point, too.
    Copy(PathBuf),
    /// The overlay is at this point now, and not at the held path.
    Moved(PathBuf),
    /// Another mount is over the overlay.
    Covered,
    /// Something is mounted at this point inside the held directory.
    Inside(PathBuf),
    /// The overlay is mounted at this point in the mount namespace of this process.
    Elsewhere {
        /// The mount point, as the process sees it.
        point: PathBuf,
        /// The process.
        user: FileUser,
        /// Whether the hold was started in this namespace.
        is_home: bool,
    },
}

/// All mounts at one moment, and the open files of all processes. The open files are read when a
/// caller first needs them: reading them takes much longer, and few callers need them.
#[derive(Debug)]
pub struct View {
    ours: Vec<Mount>,
    others: Vec<Namespace>,
    files: OnceCell<Vec<OpenFile>>,
}

impl View {
    /// Looks at all mount namespaces.
    ///
    /// # Errors
    /// Names the file with the mounts of this process.
    pub fn take() -> Result<Self, Error> {
        // Before the open files: a process that unmounts its last mount in between still has its
        // files open.
        let others = namespaces::others();
        Ok(Self { ours: ours()?, others, files: OnceCell::new() })
    }

    /// Returns the mounts of this process.
    pub(crate) fn ours(&self) -> &[Mount] {
        &self.ours
    }

    /// Returns the other mount namespaces.
    pub(crate) fn others(&self) -> &[Namespace] {
        &self.others
    }

    fn mounts(&self) -> impl Iterator<Item = &Mount> {
        self.ours.iter().chain(self.others.iter().flat_map(|namespace| &namespace.mounts))
    }

    /// Returns the overlays of `record`.
    ///
    /// # Errors
    /// As for [`HoldRecord::place`].
    pub fn overlays<'a>(&'a self, record: &'a HoldRecord) -> Result<Vec<Overlay<'a>>, Error> {
        let overlay = |(index, place): (usize, ResolvedPath)| {
            let mount = place.mount(&self.ours);
            let noted = record.spots.get(index).and_then(|spot| spot.device);
            let is_noted = |device: &u64| self.is_of(*device, record, &place);
            let device = mount.map(device).or_else(|| noted.filter(is_noted));
            Overlay { view: self, record, place, mount, device }
        };
        Ok(record.places()?.into_iter().enumerate().map(overlay).collect())
    }

    /// Unmounts idle copies of the overlays of `record` in other mount namespaces. A copy is
    /// unmounted only if it covers the held file: the path then leads to the file itself. Then the
    /// view shows these namespaces as they are now. A copy stays if it is in use, or if the kernel
    /// refuses.
    ///
    /// Changes nothing if the hold was started in one of the other namespaces: the mounts there
    /// are no copies. The calling process must have one thread.
    ///
    /// # Errors
    /// As for [`HoldRecord::place`].
    pub(crate) fn unmount_copies(&mut self, record: &HoldRecord) -> Result<(), Error> {
        let is_home = |namespace: &Namespace| namespace.number == record.namespace;
        // Markers of older versions do not have the number.
        if record.namespace == 0 || self.others.iter().any(is_home) {
            return Ok(());
        }
        let overlays = self.overlays(record)?;
        let chosen = |mounts: &[Mount]| {
            let is_of = |one: &Overlay<'_>, mount: &Mount| {
                one.is_copy(mount, mounts) && one.hides_held_file(mount, mounts)
            };
            let is_chosen = |mount: &&Mount| overlays.iter().any(|one| is_of(one, mount));
            mounts.iter().filter(is_chosen).cloned().collect()
        };
        // If no child process can be made, every copy stays, and the view shows the copies.
        let seen = elsewhere::unmount_in(&self.others, chosen).unwrap_or_default();
        for (namespace, seen) in self.others.iter_mut().zip(seen) {
            if let Some(mounts) = seen {
                namespace.mounts = mounts;
            }
        }
        Ok(())
    }

    /// Whether `noted` is still the device of the overlay of `place`. After the end of an overlay
    /// the kernel gives its number to the next file system, which may be an overlay of a hold in
    /// another state directory.
    fn is_of(&self, noted: u64, record: &HoldRecord, place: &ResolvedPath) -> bool {
        let is_other = |mount: &Mount| device(mount) == noted && !place.may_have(mount);
        let names = HoldRecord::names().unwrap_or_default();
        let names = names.iter().filter(|name| **name != record.name);
        let others = names.filter_map(|name| HoldRecord::read(name).ok().flatten());
        let has = |other: HoldRecord| {
            let places = other.places().unwrap_or_default();
            let mut mounts = places.iter().filter_map(|place| place.mount(&self.ours));
            mounts.any(|mount| device(mount) == noted)
        };
        !self.mounts().any(is_other) && !others.into_iter().any(has)
    }
}

/// The overlay of one held path.
#[derive(Debug)]
pub struct Overlay<'a> {
    view: &'a View,
    record: &'a HoldRecord,
    /// Where the overlay belongs.
    pub place: ResolvedPath,
    /// The mount there.
    pub mount: Option<&'a Mount>,
    device: Option<u64>,
}

impl Overlay<'_> {
    /// Returns the device of the overlay, if it is known.
    pub(crate) fn device(&self) -> Option<u64> {
        self.device
    }

    /// Returns the processes that have files of the overlay open. Leaves out processes of a mount
    /// namespace with a copy of the overlay: that copy can be made read-only and stay.
    pub fn users_of_hold(&self) -> Vec<FileUser> {
        let copies: HashSet<_> = match self.mount {
            Some(_) => self.copies().map(|(namespace, _)| namespace.number).collect(),
            None if self.is_left() => return Vec::new(),
            None => HashSet::new(),
        };
        let is_home = |number: &u64| *number == self.record.namespace;
        let has_copy = |pid: u32| {
            namespaces::of_mounts(&pid.to_string())
                .is_some_and(|number| copies.contains(&number) && !is_home(&number))
        };
        self.users_that(|file| !has_copy(file.pid))
    }

    /// Returns the processes that have files of the overlay open.
    pub fn users(&self) -> Vec<FileUser> {
        self.users_that(|_| true)
    }

    /// Returns the processes that have files of the overlay open, of which `is_meant` is true.
    pub fn users_that(&self, is_meant: impl Fn(&OpenFile) -> bool) -> Vec<FileUser> {
        let Some(wanted) = self.device else { return Vec::new() };
        let is_seen = self.view.mounts().any(|mount| device(mount) == wanted);
        let is_of_overlay =
            |file: &&OpenFile| file.device == wanted && (is_seen || is_overlay(&file.link));
        let files = self.view.files.get_or_init(open_files::all).iter().filter(is_of_overlay);
        open_files::users(files.filter(|file| is_meant(file)))
    }

    /// Returns the first mount that keeps the overlay after an unmount of the held path.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle_here().or_else(|| self.elsewhere())
    }

    /// Returns the first such mount in the mount namespace of this process.
    pub fn obstacle_here(&self) -> Option<Obstacle> {
        let path = self.place.path();
        let is_at = |mount: &&Mount| self.mount.is_some_and(|at| at.id == mount.id);
        let others = self.view.ours.iter().filter(|mount| self.is_mine(mount) && !is_at(mount));
        let beside = others.filter(|mount| !self.may_follow(mount, &self.view.ours));
        let here = beside.map(|mount| match self.mount {
            Some(_) => Obstacle::Copy(mount.point.clone()),
            None if mount.point == path => Obstacle::Covered,
            None => Obstacle::Moved(mount.point.clone()),
        });
        let is_inside = |mount: &&Mount| self.mount.is_some_and(|at| mount.parent == at.id);
        let inside = self.view.ours.iter().filter(|mount| is_inside(mount) && !is_at(mount));
        let inside = inside.map(|mount| Obstacle::Inside(mount.point.clone()));
        here.chain(inside).next()
    }

    /// Returns a mount of the overlay in another namespace: the one of the namespace in which
    /// the hold was started, or else the first.
    pub fn elsewhere(&self) -> Option<Obstacle> {
        let found = self.copies().map(|(namespace, mount)| Obstacle::Elsewhere {
            point: mount.point.clone(),
            user: FileUser::in_namespace(namespace),
            is_home: false,
        });
        self.home().or_else(|| found.into_iter().next())
    }

    /// Returns the mount at the held path in the namespace where the hold was started, if this
    /// process is in another namespace and an unmount here does not reach that mount. The mount
    /// here is then only a copy.
    pub fn home(&self) -> Option<Obstacle> {
        let mut others = self.view.others.iter();
        let home = others.find(|namespace| namespace.number == self.record.namespace)?;
        let is_it = |mount: &&Mount| mount.point == self.place.path() && self.is_mine(mount);
        let mount = home.mounts.iter().find(is_it)?;
        // A mount receives the unmounts of its peers. A master receives none of its slaves.
        let group = |mount, mounts| below(mount, mounts).and_then(|parent| parent.peer_group);
        let there = group(mount, &home.mounts);
        let here = self.mount.and_then(|at| group(at, &self.view.ours));
        (there.is_none() || there != here).then(|| Obstacle::Elsewhere {
            point: mount.point.clone(),
            user: FileUser::in_namespace(home),
            is_home: true,
        })
    }

    /// Whether a stop has left the overlay, read-only: it is not mounted at the held path, but
    /// elsewhere.
    pub(crate) fn is_left(&self) -> bool {
        let is_it = |mount: &Mount| self.device == Some(device(mount)) && self.is_mine(mount);
        let is_left = |mount: &Mount| is_it(mount) && is_read_only(mount);
        self.mount.is_none() && self.view.mounts().any(is_left)
    }

    /// Returns, for each other namespace, the first mount of the overlay that an unmount of the
    /// held path does not reach.
    pub fn copies(&self) -> impl Iterator<Item = (&Namespace, &Mount)> {
        self.view.others.iter().filter_map(|namespace| {
            let mounts = &namespace.mounts;
            let mount = mounts.iter().find(|mount| self.is_copy(mount, mounts))?;
            Some((namespace, mount))
        })
    }

    /// Whether `mount` shows this overlay and an unmount of the held path does not reach it.
    /// `mounts` are the mounts of its namespace.
    fn is_copy(&self, mount: &Mount, mounts: &[Mount]) -> bool {
        self.is_mine(mount) && !self.may_follow(mount, mounts)
    }

    /// Whether `copy` of `mounts` covers the held file. A volume of a container does not: after an
    /// unmount the container would write to another directory.
    fn hides_held_file(&self, copy: &Mount, mounts: &[Mount]) -> bool {
        let ours = match self.mount {
            Some(at) => spot(at, &self.view.ours),
            None => spot_of(&self.place.path(), &self.view.ours),
        };
        ours.is_some() && ours == spot(copy, mounts)
    }

    /// Whether `mount` shows this overlay. After a start that was cut short the marker has no
    /// device; then the mount point decides.
    fn is_mine(&self, mount: &Mount) -> bool {
        self.place.may_have(mount)
            && match self.device {
                Some(wanted) => device(mount) == wanted,
                None => mount.point == self.place.path(),
            }
    }

    /// Whether the unmount of the held path may unmount `copy` of `mounts`, too. The copy is at the
    /// same place, on a mount that receives the mounts and unmounts of its peers
    /// (mount_namespaces(7)).
    fn may_follow(&self, copy: &Mount, mounts: &[Mount]) -> bool {
        let Some(at) = self.mount else { return false };
        let (Some(ours), Some(theirs)) = (spot(at, &self.view.ours), spot(copy, mounts)) else {
            return false;
        };
        ours == theirs && below(copy, mounts).is_some_and(|parent| parent.propagates)
    }
}

/// Returns the mount to which `mount` is attached.
pub(crate) fn below<'a>(mount: &Mount, mounts: &'a [Mount]) -> Option<&'a Mount> {
    mounts.iter().find(|parent| parent.id == mount.parent && parent.id != mount.id)
}

/// Returns the file system to which `mount` is attached, and the path in it.
pub(crate) fn spot(mount: &Mount, mounts: &[Mount]) -> Option<(u64, PathBuf)> {
    in_mount(&mount.point, below(mount, mounts)?)
}

/// Returns the file system of `path`, on which nothing is mounted, and the path in it.
pub(crate) fn spot_of(path: &Path, mounts: &[Mount]) -> Option<(u64, PathBuf)> {
    in_mount(path, mounts::above(path, mounts)?)
}

fn in_mount(path: &Path, mount: &Mount) -> Option<(u64, PathBuf)> {
    let path = path.strip_prefix(&mount.point).ok()?;
    Some((device(mount), mount.root.join(path)))
}

/// Whether an overlay of `record` still exists in any mount namespace. If so, the file system below
/// has been mounted all the time, because an overlay keeps it mounted.
pub fn exists(record: &HoldRecord) -> bool {
    let Ok(view) = View::take() else { return true };
    let overlays = view.overlays(record).unwrap_or_default();
    let exists = |overlay: &Overlay<'_>| {
        // The list of open files decides only if the kernel gives no answer. The kernel may have
        // given the device number of this overlay to a later one, whose open files would count
        // here.
        let asked = || overlay.place.is_in_use().unwrap_or_default();
        overlay.mount.is_some()
            || overlay.obstacle().is_some()
            || asked().unwrap_or_else(|| !overlay.users().is_empty())
    };
    overlays.iter().any(exists)
}

fn ours() -> Result<Vec<Mount>, Error> {
    mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))
}

fn is_overlay(link: &Path) -> bool {
    rustix::fs::statfs(link).is_ok_and(|system| system.f_type as u64 == OVERLAYFS_SUPER_MAGIC)
}
