//! Mounts a root as volatile and, after the step, as before.
//!
//! The kernel leaves a mark in the work directory of a volatile overlay and refuses to mount an
//! overlay with that directory again (Documentation/filesystems/overlayfs.rst). So the volatile
//! overlay has a work directory of its own, inside the engine's. The kernel uses only the entries
//! `work` and `index` of a work directory, and the engine removes all of it with the layer.
//! The engine's work directory has a mark only during the sync of a `delete`, and after a failed
//! sync. An engine that ignores how a `delete` ended cannot mount such a layer.

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
use std::time::{Duration, Instant};
use synconce_durable::mutant;
use synconce_probe::mounts::Mount;
use synconce_sys::{overlay, ustat};

/// The work directory of the volatile overlay, inside the engine's.
pub(super) const OWN_WORK: &str = "/synconce-step";
/// The file in that directory with the path of the bundle. A later call finds the root by this
/// file if the configuration of the container cannot be read.
const NOTE: &str = "bundle";
/// The kernel's mark of a volatile overlay, in a work directory.
const MARK: &str = "work/incompat/volatile";
/// How long the end of a step waits for processes of the host that have a file of the root open.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Why a root is not volatile.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The root is mounted as the engine mounted it.
    Kept(Kept),
    /// The root is not mounted any more. The message is for the user.
    Lost(String),
}

impl StepRoot {
    /// Mounts the layers as volatile, at the same places. `bundle` is the container's if a later
    /// call ends the step.
    ///
    /// # Errors
    /// The root is as it was, or is lost.
    pub(crate) fn make_volatile(self, bundle: Option<&Path>) -> Result<VolatileRoot, Failure> {
        let upper = self.look().map_err(Failure::Kept)?;
        self.unmount_all()?;
        // The kernel gives the number of an ended file system to the next one.
        let is_free = ustat::is_in_use(self.device.major, self.device.minor) == Some(false);
        if !is_free && self.is_upper_in_use() {
            return Err(self.undo(Kept::InUse));
        }
        let noted = self.make_work().and_then(|()| self.write_note(bundle));
        match noted.and_then(|()| self.mount_all(&self.volatile_options())) {
            Ok(()) => Ok(VolatileRoot {
                point: self.point().to_owned(),
                // Without a number the sync fails.
                device: rustix::fs::stat(self.point()).map_or(0, |root| root.st_dev),
                upper_path: self.upper.clone(),
                work: self.work.clone(),
                upper: Ok(upper),
                root: Ok(self),
            }),
            Err(error) => Err(self.undo(Kept::Failed(error))),
        }
    }

    /// Unmounts the overlay everywhere, or nowhere.
    fn unmount_all(&self) -> Result<(), Failure> {
        for (at, point) in self.points.iter().enumerate().rev() {
            let Err(errno) = unmount(point, UnmountFlags::NOFOLLOW) else { continue };
            self.bind(at + 1).map_err(Failure::Lost)?;
            return Err(Failure::Kept(match errno {
                Errno::BUSY => Kept::InUse,
                _ => Kept::Failed(failed("cannot unmount", point, errno)),
            }));
        }
        Ok(())
    }

    /// Mounts the overlay with `options` everywhere.
    fn mount_all(&self, options: &str) -> Result<(), String> {
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
    fn undo(&self, why: Kept) -> Failure {
        self.remove_work();
        match self.mount_all(&self.options) {
            Ok(()) => Failure::Kept(why),
            Err(error) => Failure::Lost(format!("{error}, after the root was left because {why}")),
        }
    }

    /// Whether another overlay has the upper directory. With an index the kernel refuses such a
    /// directory (`ovl_report_in_use`, 6.18), and any other by the mark.
    fn is_upper_in_use(&self) -> bool {
        let mark = self.own_work().join(MARK);
        let marked = self.make_work().is_ok() && std::fs::create_dir_all(mark).is_ok();
        let probe = marked.then(|| self.mount(&format!("{},index=on", self.options_of_own_work())));
        if probe == Some(Ok(())) {
            let _ = unmount(self.point(), UnmountFlags::NOFOLLOW);
        }
        probe != Some(Err(Errno::INVAL))
    }

    fn options_of_own_work(&self) -> String {
        let changed = |option: &str| match option.starts_with("workdir=") {
            true => format!("{option}{OWN_WORK}"),
            false => option.to_owned(),
        };
        self.options.split(',').map(changed).collect::<Vec<_>>().join(",")
    }

    fn volatile_options(&self) -> String {
        self.options_of_own_work() + VOLATILE
    }

    fn own_work(&self) -> PathBuf {
        self.work.join(OWN_WORK.trim_start_matches('/'))
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
    fn remove_work(&self) {
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

    fn point(&self) -> &Path {
        &self.points[0]
    }
}

fn open(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty())
}

/// A root that is volatile while the step runs.
#[derive(Debug)]
pub(crate) struct VolatileRoot {
    /// The overlay as the engine mounted it, or why it cannot be mounted so again.
    root: Result<StepRoot, Kept>,
    point: PathBuf,
    /// The device number of the volatile overlay.
    device: u64,
    upper_path: PathBuf,
    /// The engine's work directory.
    work: PathBuf,
    /// The upper directory. syncfs(2) reports the write-back errors since this descriptor was
    /// opened (errseq, Linux 5.8); [`VolatileRoot::sync`] asks for earlier ones.
    upper: Result<OwnedFd, Errno>,
}

impl VolatileRoot {
    /// Finds the root that an earlier call of synconce has made volatile among `mounts`: at `root`,
    /// or of the container of `bundle`.
    ///
    /// # Errors
    /// Without `root`, it is not known which container an overlay belongs to. The message is for
    /// the user.
    pub(crate) fn find(
        root: Option<&Path>,
        bundle: &Path,
        mounts: &[Mount],
    ) -> Result<Option<Self>, String> {
        let is_ours = |mount: &&Mount| mount.type_name == "overlay" && as_mounted(mount).is_some();
        let ours = || mounts.iter().filter(is_ours);
        if let Some(found) = ours().find(|mount| Some(mount.point.as_path()) == root) {
            return Ok(Self::of(found, mounts));
        }
        let mut unread = None;
        for mount in ours() {
            let note = mount.option("workdir").unwrap_or_default().join(NOTE);
            match std::fs::read(&note) {
                Ok(noted) if noted == bundle.as_os_str().as_bytes() => {
                    return Ok(Self::of(mount, mounts));
                }
                // A call of `run` writes no note.
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    unread = Some(failed("cannot read", &note, error));
                }
                _ => {}
            }
        }
        unread.filter(|_| root.is_none()).map_or(Ok(None), Err)
    }

    fn of(found: &Mount, mounts: &[Mount]) -> Option<Self> {
        let options = as_mounted(found)?;
        let mut mounts = mounts.to_vec();
        let same = mounts.iter_mut().filter(|mount| mount.device == found.device);
        same.for_each(|mount| mount.options.clone_from(&options));
        let before = Mount { options, ..found.clone() };
        let upper_path = before.option("upperdir")?;
        Some(Self {
            root: StepRoot::find(&found.point, &mounts),
            point: found.point.clone(),
            device: rustix::fs::makedev(found.device.major, found.device.minor),
            upper: open(&upper_path),
            upper_path,
            work: before.option("workdir")?,
        })
    }

    /// Syncs the file system of the layer, and mounts the root as the engine did. No process of
    /// the step may run any more.
    ///
    /// After a failed sync the root stays unmounted, with the kernel's mark in the engine's work
    /// directory: the kernel refuses to mount the layer. An engine that ignores errors of the
    /// runtime fails then.
    ///
    /// # Errors
    /// The layer may be incomplete on the disk, or the root is still volatile. The message is for
    /// the user.
    pub(crate) fn end(self) -> Result<(), String> {
        let synced = self.sync();
        if mutant::is("step-root-unsynced") || mutant::is("step-root-volatile") {
            return synced;
        }
        if let Err(error) = synced {
            self.abandon();
            return Err(error);
        }
        let root = self.root.as_ref().map_err(|why| cannot_mount_back(&self.point, why))?;
        unmount_patiently(root)?;
        root.mount_all(&root.options)
    }

    /// Leaves a layer that is not synced: unmounted, and marked.
    pub(crate) fn abandon(&self) {
        // A read-only upper directory is refused without the mark, too.
        let _ = self.mark();
        if let Ok(root) = &self.root {
            let _ = unmount_patiently(root);
        }
    }

    /// Syncs the file system of the layer. During the sync, and after a failed sync, the engine's
    /// work directory has the kernel's mark: an engine may kill the call and use the layer.
    ///
    /// # Errors
    /// The layer may be incomplete on the disk. The message is for the user.
    pub(crate) fn sync_marked(&self) -> Result<(), String> {
        // Without a mark the sync is still of use, and the error remains.
        let marked = self.mark();
        self.sync()?;
        marked?;
        let mark = self.work.join(MARK);
        let parent = mark.parent().unwrap_or(&self.work);
        std::fs::remove_dir(&mark)
            .and_then(|()| std::fs::remove_dir(parent))
            .map_err(|error| failed("cannot remove", &mark, error))
    }

    /// Puts the kernel's mark into the engine's work directory.
    ///
    /// # Errors
    /// The kernel would mount the layer. The message is for the user.
    pub(crate) fn mark(&self) -> Result<(), String> {
        let mark = self.work.join(MARK);
        std::fs::create_dir_all(&mark).map_err(|error| failed("cannot create", &mark, error))
    }

    fn sync(&self) -> Result<(), String> {
        if mutant::is("step-root-unsynced") {
            return Ok(());
        }
        let synced = self.upper.as_ref().map_err(|errno| *errno).and_then(rustix::fs::syncfs);
        let path = &self.upper_path;
        let cannot = |errno| failed("cannot sync the file system of", path, errno);
        let root = open(&self.point).map_err(cannot);
        synced.map_err(cannot)?;
        let root = root?;
        if rustix::fs::fstat(&root).map_err(cannot)?.st_dev != self.device {
            let point = self.point.display();
            return Err(format!("cannot find lost writes of {point}: {}", Kept::Covered));
        }
        // A volatile overlay reports, at each fsync(2), errors since it was mounted
        // (`ovl_sync_status`, Linux 5.12).
        rustix::fs::fsync(root).map_err(cannot)
    }
}

fn unmount_patiently(root: &StepRoot) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        match root.unmount_all() {
            Ok(()) => {
                root.remove_work();
                return Ok(());
            }
            Err(Failure::Kept(Kept::InUse)) if Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            Err(Failure::Lost(error)) => return Err(error),
            Err(Failure::Kept(why)) => return Err(cannot_mount_back(root.point(), &why)),
        }
    }
}

fn cannot_mount_back(point: &Path, why: &Kept) -> String {
    format!("cannot mount {} as before the step: {why}", point.display())
}

/// Returns the options that the engine gave, if synconce has made the overlay volatile.
fn as_mounted(mount: &Mount) -> Option<String> {
    let is_volatile = |option: &&str| matches!(*option, "volatile" | "fsync=volatile");
    let options = mount.options.split(',');
    let ours = |option: &&str| option.starts_with("workdir=") && option.ends_with(OWN_WORK);
    let is_ours = options.clone().any(|option| is_volatile(&option));
    let is_ours = is_ours && options.clone().any(|option| ours(&option));
    let kept = options.filter(|option| !is_volatile(option));
    let before = kept.map(|option| match ours(&option) {
        true => option.strip_suffix(OWN_WORK).unwrap_or(option),
        false => option,
    });
    is_ours.then(|| before.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use synconce_probe::mounts::parse;

    #[test]
    fn the_options_of_the_engine_are_found_in_a_root_of_synconce_alone() {
        let line = "40 30 0:50 / /m rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,index=off\n";
        let root = StepRoot::find(Path::new("/m"), &parse(line)).unwrap();
        let volatile = |options: &str| {
            let line = line.replace(&root.options, options);
            as_mounted(&parse(&line)[0])
        };
        let options = root.volatile_options();
        assert!(options.contains("workdir=/w/synconce-step,") && options.ends_with(",volatile"));
        assert_eq!(volatile(&options), Some(root.options.clone()));
        let renamed = options.replace(",volatile", ",fsync=volatile");
        assert_eq!(volatile(&renamed), Some(root.options.clone()));
        assert_eq!(volatile(&format!("{}{VOLATILE}", root.options)), None);
        assert_eq!(volatile(&root.options), None);
    }
}
