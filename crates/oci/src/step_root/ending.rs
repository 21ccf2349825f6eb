//! A root that is volatile: found again, synced, and mounted as before the step.
//!
//! The engine's work directory has the kernel's mark only during the sync of a `delete`, and after
//! a failed sync. An engine that ignores how a `delete` ended cannot mount such a layer.

use super::volatile::{MARK, NOTE, NotVolatile, VolatileRoot, open};
use super::{Kept, StepRoot, failed};
use rustix::mount::UnmountFlags;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_durable::{file_system, mutant};
use synconce_probe::mounts::Mount;
use synconce_probe::mounts::STEP_WORK;
use synconce_sys::ustat;

/// How long the end of a step waits for processes of the host that have a file of the root open.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

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
            return Ok(Self::from_mount(found, mounts));
        }
        let mut unread = None;
        for mount in ours() {
            let note = mount.option("workdir").unwrap_or_default().join(NOTE);
            match std::fs::read(&note) {
                Ok(noted) if noted == bundle.as_os_str().as_bytes() => {
                    return Ok(Self::from_mount(mount, mounts));
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

    fn from_mount(found: &Mount, mounts: &[Mount]) -> Option<Self> {
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
        self.unmount_patiently(root)?;
        root.mount_all(&root.options)
    }

    /// Leaves a layer that is not synced: unmounted, and marked.
    pub(crate) fn abandon(&self) {
        // A read-only upper directory is refused without the mark, too.
        let _ = self.mark();
        if let Ok(root) = &self.root {
            let _ = self.unmount_patiently(root);
        }
    }

    /// Unmounts the root everywhere: lazily if a process of the host has a file of the root open
    /// for [`PATIENCE`], as engines do. The volatile overlay then lasts as long as the file is
    /// open. Until then the kernel allows a second overlay with the same upper directory, if
    /// neither has an index.
    fn unmount_patiently(&self, root: &StepRoot) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.look_for(root).map_err(|why| cannot_mount_back(root.point(), &why))?;
            let is_late = Instant::now() >= end;
            let how = if is_late { UnmountFlags::DETACH } else { UnmountFlags::empty() };
            match root.unmount_all(how) {
                Ok(()) => {
                    // A process may still copy files up, by the overlay's own work directory.
                    if !is_late && !self.is_in_use() {
                        root.remove_work();
                    }
                    return Ok(());
                }
                Err(NotVolatile::Kept(Kept::InUse)) if !is_late => {
                    std::thread::sleep(PAUSE);
                }
                Err(NotVolatile::Lost(error)) => return Err(error),
                Err(NotVolatile::Kept(why)) => return Err(cannot_mount_back(root.point(), &why)),
            }
        }
    }

    /// Checks that an unmount takes the volatile overlay at each point, and no mount over it.
    /// Mounts below it go with it, as they do with the engine's own lazy unmount.
    fn look_for(&self, root: &StepRoot) -> Result<(), Kept> {
        root.points.iter().try_for_each(|point| match rustix::fs::stat(point) {
            Ok(found) if found.st_dev == self.device => Ok(()),
            Ok(_) => Err(Kept::Covered),
            Err(errno) => Err(Kept::Failed(failed("cannot look at", point, errno))),
        })
    }

    /// Whether the volatile overlay, unmounted here, may live on in another mount namespace. Where
    /// ustat(2) cannot say, as on arm64 and below the filter of a container, the answer is yes.
    fn is_in_use(&self) -> bool {
        let [major, minor] = [rustix::fs::major(self.device), rustix::fs::minor(self.device)];
        ustat::is_in_use(major, minor) != Some(false)
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
        let upper = self.upper.as_ref().map_err(|errno| *errno);
        let synced = upper.and_then(|upper| file_system::sync(upper.as_fd()));
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

fn cannot_mount_back(point: &Path, why: &Kept) -> String {
    format!("cannot mount {} as before the step: {why}", point.display())
}

/// Returns the options that the engine gave, if synconce has made the overlay volatile.
fn as_mounted(mount: &Mount) -> Option<String> {
    let is_volatile = |option: &&str| matches!(*option, "volatile" | "fsync=volatile");
    let options = mount.options.split(',');
    let ours = |option: &&str| option.starts_with("workdir=") && option.ends_with(STEP_WORK);
    let is_ours = options.clone().any(|option| is_volatile(&option));
    let is_ours = is_ours && options.clone().any(|option| ours(&option));
    let kept = options.filter(|option| !is_volatile(option));
    let before = kept.map(|option| {
        if ours(&option) { option.strip_suffix(STEP_WORK).unwrap_or(option) } else { option }
    });
    is_ours.then(|| before.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::super::VOLATILE;
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
        let before = Some(format!("rw,{}", root.options));
        assert_eq!(volatile(&options), before);
        let renamed = options.replace(",volatile", ",fsync=volatile");
        assert_eq!(volatile(&renamed), before);
        assert_eq!(volatile(&format!("{}{VOLATILE}", root.options)), None);
        assert_eq!(volatile(&root.options), None);
    }
}
