//! Mounts a root as volatile, or as before.
//!
//! The kernel leaves a mark in the work directory of a volatile overlay and refuses to mount an
//! overlay with that directory again (Documentation/filesystems/overlayfs.rst). So the volatile
//! overlay has a work directory of its own, inside the engine's. The kernel uses only the entries
//! `work` and `index` of a work directory, and the engine removes all of it with the layer.

use super::{Kept, StepRoot, VOLATILE, failed};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount, mount_bind, unmount};
use std::ffi::CString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::STEP_WORK;
use synconce_sys::{overlay, ustat};

/// The file in that directory with the path of the bundle. A later call finds the root by this
/// file if the configuration of the container cannot be read.
pub(super) const NOTE: &str = "bundle";
/// The kernel's mark of a volatile overlay, in a work directory.
pub(crate) const MARK: &str = "work/incompat/volatile";

/// Why a root is not volatile.
#[derive(Debug)]
pub(crate) enum NotVolatile {
    /// The root is mounted as the engine mounted it.
    Kept(Kept),
    /// The root is not mounted any more. The message is for the user.
    Lost(String),
}

/// A root that is volatile while the step runs.
#[derive(Debug)]
pub(crate) struct VolatileRoot {
    /// The overlay as the engine mounted it, or why it cannot be mounted so again.
    pub(super) root: Result<StepRoot, Kept>,
    pub(super) point: PathBuf,
    /// The device number of the volatile overlay.
    pub(super) device: u64,
    pub(super) upper_path: PathBuf,
    /// The engine's work directory.
    pub(super) work: PathBuf,
    /// The upper directory. syncfs(2) reports the write-back errors since this descriptor was
    /// opened (errseq, Linux 5.8); [`VolatileRoot::sync`] asks for earlier ones.
    pub(super) upper: Result<OwnedFd, Errno>,
}

impl StepRoot {
    /// Mounts the layers as volatile, at the same places. `bundle` is the container's if a later
    /// call ends the step.
    ///
    /// # Errors
    /// The root is as it was, or is lost.
    pub(crate) fn make_volatile(self, bundle: Option<&Path>) -> Result<VolatileRoot, NotVolatile> {
        let upper = self.look().map_err(NotVolatile::Kept)?;
        // An earlier step's overlay may live on, in a process of the host.
        let is_left = self.own_work().exists();
        self.unmount_all(UnmountFlags::empty())?;
        // The kernel gives the number of an ended file system to the next one.
        let is_free = ustat::is_in_use(self.device.major, self.device.minor) == Some(false);
        if (is_left || !is_free) && self.is_upper_in_use() {
            return Err(self.undo(Kept::InUse));
        }
        let noted = self.make_work().and_then(|()| self.write_note(bundle));
        match noted.and_then(|()| self.mount_all(&self.volatile_options())) {
            Ok(()) => Ok(VolatileRoot {
                point: self.point().to_owned(),
                // With the number 0 the sync at the end of the step fails.
                device: rustix::fs::stat(self.point()).map_or(0, |root| root.st_dev),
                upper_path: self.upper.clone(),
                work: self.work.clone(),
                upper: Ok(upper),
                root: Ok(self),
            }),
            Err(error) => Err(self.undo(Kept::Failed(error))),
        }
    }

    /// Unmounts the overlay everywhere, or nowhere; `how` may be lazily.
    pub(super) fn unmount_all(&self, how: UnmountFlags) -> Result<(), NotVolatile> {
        for (at, point) in self.points.iter().enumerate().rev() {
            let Err(errno) = unmount(point, how | UnmountFlags::NOFOLLOW) else { continue };
            self.bind(at + 1).map_err(NotVolatile::Lost)?;
            return Err(NotVolatile::Kept(match errno {
                Errno::BUSY => Kept::InUse,
                _ => Kept::Failed(failed("cannot unmount", point, errno)),
            }));
        }
        Ok(())
    }

    /// Mounts the overlay with `options` everywhere.
    pub(super) fn mount_all(&self, options: &str) -> Result<(), String> {
        self.mount(options)
            .map_err(|errno| failed("cannot mount the overlay on", self.point(), errno))?;
        self.bind(1)
    }

    /// Mounts the overlay with `options` at the first point.
    fn mount(&self, options: &str) -> Result<(), Errno> {
        let data = CString::new(options).unwrap_or_default();
        mount(&self.source, self.point(), "overlay", self.flags, data.as_c_str())
    }

    /// Binds the overlay at the first point to all points from the one with number `from` on.
    fn bind(&self, from: usize) -> Result<(), String> {
        self.points.iter().skip(from).try_for_each(|point| {
            mount_bind(self.point(), point)
                .map_err(|errno| failed("cannot mount the overlay on", point, errno))
        })
    }

    /// Mounts the overlay as the engine did, after everything is unmounted.
    fn undo(&self, why: Kept) -> NotVolatile {
        // An overlay that is in use may have it.
        if why != Kept::InUse {
            self.remove_work();
        }
        match self.mount_all(&self.options) {
            Ok(()) => NotVolatile::Kept(why),
            Err(error) => {
                NotVolatile::Lost(format!("{error}, after the root was left because {why}"))
            }
        }
    }

    /// Whether another overlay has the upper directory. With an index the kernel refuses such a
    /// directory (`ovl_report_in_use`, 6.18), and any other by the mark.
    fn is_upper_in_use(&self) -> bool {
        let mark = self.own_work().join(MARK);
        let marked = std::fs::create_dir_all(mark).is_ok();
        let probe = marked.then(|| self.mount(&format!("{},index=on", self.options_of_own_work())));
        if probe == Some(Ok(())) {
            let _ = unmount(self.point(), UnmountFlags::NOFOLLOW);
        }
        probe != Some(Err(Errno::INVAL))
    }

    fn options_of_own_work(&self) -> String {
        let changed = |option: &str| {
            if option.starts_with("workdir=") {
                format!("{option}{STEP_WORK}")
            } else {
                option.to_owned()
            }
        };
        self.options.split(',').map(changed).collect::<Vec<_>>().join(",")
    }

    pub(super) fn volatile_options(&self) -> String {
        self.options_of_own_work() + VOLATILE
    }

    fn own_work(&self) -> PathBuf {
        self.work.join(STEP_WORK.trim_start_matches('/'))
    }

    /// Makes the own work directory, empty.
    fn make_work(&self) -> Result<(), String> {
        let work = self.own_work();
        match std::fs::remove_dir_all(&work) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("cannot remove", &work, error));
            }
            _ => {}
        }
        std::fs::create_dir(&work).map_err(|error| failed("cannot create", &work, error))
    }

    fn write_note(&self, bundle: Option<&Path>) -> Result<(), String> {
        let Some(bundle) = bundle else { return Ok(()) };
        let note = self.own_work().join(NOTE);
        std::fs::write(&note, bundle.as_os_str().as_bytes())
            .map_err(|error| failed("cannot write", &note, error))
    }

    /// Removes the own work directory. The engine removes one that is left with the layer.
    pub(super) fn remove_work(&self) {
        let _ = std::fs::remove_dir_all(self.own_work());
    }

    /// Opens the upper directory, after a look at everything that can be seen before a change.
    fn look(&self) -> Result<OwnedFd, Kept> {
        if !overlay::kernel_is_at_least(5, 10) {
            return Err(Kept::Kernel);
        }
        let upper = open(&self.upper).map_err(|_| Kept::Elsewhere)?;
        // The root of an overlay has the times of its upper directory.
        let identity = |path: &Path| {
            let found = path.metadata().ok()?;
            let changed = (found.ctime(), found.ctime_nsec(), found.mtime(), found.mtime_nsec());
            Some((changed, found.mode(), found.uid(), found.gid()))
        };
        let below = identity(&self.upper).ok_or(Kept::Elsewhere)?;
        if identity(self.point()) != Some(below) || !self.work.join("work").is_dir() {
            return Err(Kept::Elsewhere);
        }
        Ok(upper)
    }

    pub(super) fn point(&self) -> &Path {
        &self.points[0]
    }
}

pub(super) fn open(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty())
}
