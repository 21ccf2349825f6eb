//! Mounts the root of a build step as `volatile` while the step runs.
//!
//! An overlay syncs inside the kernel: at each copy-up, and when it is unmounted. Only its mount
//! option `volatile` (Linux 5.10) prevents these syncs. [`StepRoot::make_volatile`] mounts the same
//! layers again with that option. [`VolatileRoot::end`] mounts them as the engine did, because
//! the engine writes to the root once more after the step (BuildKit's `MountStubsCleaner`). The
//! engine's own unmount then makes the layer durable, as without synconce.
//!
//! The kernel leaves a mark in the work directory of a volatile overlay and refuses to mount such a
//! directory again (Documentation/filesystems/overlayfs.rst). The mark is removed at once. A
//! step that is cut short is not recorded by the engine, so nothing reads its unsynced files.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use synconce_durable::mutant;
use synconce_probe::mounts::{DeviceId, Mount};
use synconce_sys::{overlay, reason, ustat};

/// The options that mean the same when they are given again.
const KNOWN: [&str; 12] = [
    "rw",
    "lowerdir",
    "upperdir",
    "workdir",
    "index",
    "redirect_dir",
    "metacopy",
    "xino",
    "uuid",
    "nfs_export",
    "userxattr",
    "default_permissions",
];
const VOLATILE: &str = ",volatile";
/// mount(2) reads one page of options, with a terminating zero.
const LONGEST: usize = 4095;
/// How long the end of a step waits for processes of the host that have a file of the root open.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Why a root stays as the engine mounted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// `step-root` is `as-mounted`.
    Settings,
    /// The runtime does not stay until the step ends.
    Detached,
    /// The container shares the process ids or the mounts of another.
    Shared,
    /// The root is read-only.
    ReadOnly,
    /// The root is not an overlay that is mounted there.
    NoOverlay,
    /// The root is a volatile overlay already.
    Volatile,
    /// Something is mounted over or below the root.
    Covered,
    /// The overlay has an option whose effect on a second mount is not known.
    Option(String),
    /// The path of a layer is relative or contains an escaped character.
    Names,
    /// The upper directory is not found by the path in the mount table.
    Elsewhere,
    /// A process or another mount namespace uses the root.
    InUse,
    /// The kernel is older than Linux 5.10.
    Kernel,
    /// A call failed.
    Failed(String),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settings => "step-root is not \"volatile\"",
            Self::Detached => "the runtime does not stay until the step ends",
            Self::Shared => "the step shares the processes or the mounts of another container",
            Self::ReadOnly => "it is read-only",
            Self::NoOverlay => "it is not a mounted overlay",
            Self::Volatile => "it is volatile already",
            Self::Covered => "another mount is over or below it",
            Self::Names => "the paths of its layers are relative or have escaped characters",
            Self::Elsewhere => "its upper directory is not where the mount table says",
            Self::InUse => "it is in use",
            Self::Kernel => "the kernel is older than Linux 5.10",
            Self::Option(name) => return write!(f, "it has the mount option {name}"),
            Self::Failed(error) => error,
        })
    }
}

/// An overlay that is the root of a step, as the engine mounted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepRoot {
    /// Where the overlay is mounted: dockerd mounts the layer, and its BuildKit binds that mount.
    points: Vec<PathBuf>,
    device: DeviceId,
    flags: MountFlags,
    source: String,
    options: String,
    upper: PathBuf,
    work: PathBuf,
}

/// Why a root is not volatile.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The root is mounted as the engine mounted it.
    Kept(Kept),
    /// The root is not mounted any more. The message is for the user.
    Lost(String),
}

impl StepRoot {
    /// Finds the overlay of the step whose root is `root` among `mounts`.
    ///
    /// # Errors
    /// The reason why the root must stay as it is.
    pub(crate) fn find(root: &Path, mounts: &[Mount]) -> Result<Self, Kept> {
        let first = mounts.iter().find(|mount| mount.point == root).ok_or(Kept::NoOverlay)?;
        if first.type_name != "overlay" {
            return Err(Kept::NoOverlay);
        }
        let all = || mounts.iter().filter(|mount| mount.device == first.device);
        let is_covered = |mount: &Mount| {
            mounts
                .iter()
                .filter(|other| other.id != mount.id)
                .any(|other| other.parent == mount.id || other.point == mount.point)
        };
        if all().any(|mount| mount.root != Path::new("/") || is_covered(mount)) {
            return Err(Kept::Covered);
        }
        if let Some(other) = all().find(|mount| mount.mount_options != first.mount_options) {
            return Err(Kept::Option(other.mount_options.clone()));
        }
        if !first.writable {
            return Err(Kept::ReadOnly);
        }
        check_options(first)?;
        let path = |name| first.option(name).ok_or(Kept::NoOverlay);
        Ok(Self {
            points: all().map(|mount| mount.point.clone()).collect(),
            device: first.device,
            flags: flags(&first.mount_options)?,
            source: first.source.clone(),
            options: first.options.clone(),
            upper: path("upperdir")?,
            work: path("workdir")?,
        })
    }

    /// Mounts the layers as volatile, at the same places.
    ///
    /// # Errors
    /// The root is as it was, or is lost.
    pub(crate) fn make_volatile(self) -> Result<VolatileRoot, Failure> {
        let upper = self.look().map_err(Failure::Kept)?;
        self.unmount_all()?;
        // The kernel gives the number of an ended file system to the next one.
        let is_free = ustat::is_in_use(self.device.major, self.device.minor) == Some(false);
        if !is_free && self.is_upper_in_use() {
            return Err(self.undo(Kept::InUse));
        }
        if let Err(error) = self.mount_all(&format!("{}{VOLATILE}", self.options)) {
            return Err(self.undo(Kept::Failed(error)));
        }
        if let Err(error) = self.remove_mark() {
            self.unmount_all()?;
            return Err(self.undo(Kept::Failed(error)));
        }
        Ok(VolatileRoot { root: self, upper })
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
        let data = CString::new(options).unwrap_or_default();
        mount(&self.source, self.point(), "overlay", self.flags, data.as_c_str())
            .map_err(|errno| failed("cannot mount the overlay on", self.point(), errno))?;
        self.bind(1)
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
        match self.mount_all(&self.options) {
            Ok(()) => Failure::Kept(why),
            Err(error) => Failure::Lost(format!("{error}, after the root was left because {why}")),
        }
    }

    /// Whether another overlay has the upper directory. With an index the kernel refuses such a
    /// directory (`ovl_report_in_use`, 6.18), and any other by the mark.
    fn is_upper_in_use(&self) -> bool {
        let marked = std::fs::create_dir_all(self.work.join("work/incompat/volatile"));
        let data = CString::new(format!("{},index=on", self.options)).unwrap_or_default();
        let probe = marked
            .map(|()| mount(&self.source, self.point(), "overlay", self.flags, data.as_c_str()));
        if matches!(probe, Ok(Ok(()))) {
            let _ = unmount(self.point(), UnmountFlags::NOFOLLOW);
        }
        !matches!(probe, Ok(Err(Errno::INVAL))) | self.remove_mark().is_err()
    }

    /// Removes the mark by which the kernel refuses to mount the work directory again.
    fn remove_mark(&self) -> Result<(), String> {
        let mark = self.work.join("work/incompat");
        std::fs::remove_dir_all(&mark).map_err(|error| failed("cannot remove", &mark, error))
    }

    /// Opens the upper directory, after a look at everything that can be seen before a change.
    fn look(&self) -> Result<OwnedFd, Kept> {
        if !overlay::kernel_is_at_least(5, 10) {
            return Err(Kept::Kernel);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let upper = rustix::fs::open(&self.upper, flags, Mode::empty());
        let upper = upper.map_err(|_| Kept::Elsewhere)?;
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

/// Checks that the options of the overlay can be given once more.
fn check_options(mount: &Mount) -> Result<(), Kept> {
    for option in mount.options.split(',') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value) {
            ("volatile", _) | ("fsync", "volatile") => return Err(Kept::Volatile),
            ("ro", _) => return Err(Kept::ReadOnly),
            // The kernel refuses an index for an upper directory that was just in use.
            ("index", "on") => return Err(Kept::Option(option.to_owned())),
            (name, _) if !KNOWN.contains(&name) => return Err(Kept::Option(name.to_owned())),
            _ => {}
        }
    }
    let default = std::fs::read_to_string("/sys/module/overlay/parameters/index");
    if mount.option("index").is_none() && default.is_ok_and(|value| value.starts_with('Y')) {
        return Err(Kept::Option("index=on".to_owned()));
    }
    let layers = mount.options.split(',').filter_map(|option| {
        let (name, paths) = option.split_once('=')?;
        name.ends_with("dir").then_some(paths).filter(|_| name != "redirect_dir")
    });
    let is_plain = |paths: &str| paths.split(':').all(|path| path.starts_with('/'));
    let is_short = mount.options.len() + VOLATILE.len() <= LONGEST;
    if mount.options.contains('\\') || !layers.into_iter().all(is_plain) || !is_short {
        return Err(Kept::Names);
    }
    Ok(())
}

/// Returns the flags of mount(2) for the options of one mount.
fn flags(options: &str) -> Result<MountFlags, Kept> {
    let mut flags = MountFlags::empty();
    for option in options.split(',') {
        flags |= match option {
            "rw" | "relatime" => MountFlags::empty(),
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            other => return Err(Kept::Option(other.to_owned())),
        };
    }
    Ok(flags)
}

fn failed(act: &str, path: &Path, error: impl Into<io::Error>) -> String {
    format!("{act} {}: {}", path.display(), reason(&error.into()))
}

/// A root that is volatile while the step runs.
#[derive(Debug)]
pub(crate) struct VolatileRoot {
    root: StepRoot,
    /// The upper directory, opened before the step: syncfs(2) on a descriptor reports the
    /// write-back errors since it was opened (errseq, Linux 5.8).
    upper: OwnedFd,
}

impl VolatileRoot {
    /// Mounts the root as the engine did, and syncs the file system of the layer. No process of
    /// the step may run any more.
    ///
    /// # Errors
    /// The layer may be incomplete on the disk. The message is for the user.
    pub(crate) fn end(self) -> Result<(), String> {
        if mutant::is("step-root-unsynced") {
            return Ok(());
        }
        let mounted = if mutant::is("step-root-volatile") { Ok(()) } else { self.mount_back() };
        let path = &self.root.upper;
        let synced = rustix::fs::syncfs(&self.upper);
        let synced = synced.map_err(|errno| failed("cannot sync the file system of", path, errno));
        mounted.and(synced)
    }

    fn mount_back(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.root.unmount_all() {
                Ok(()) => return self.root.mount_all(&self.root.options),
                Err(Failure::Kept(Kept::InUse)) if Instant::now() < end => {
                    std::thread::sleep(PAUSE);
                }
                Err(Failure::Lost(error)) => return Err(error),
                Err(Failure::Kept(why)) => {
                    let point = self.root.point().display();
                    return Err(format!("cannot mount {point} as before the step: {why}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use synconce_probe::mounts::parse;

    /// The mounts of dockerd's BuildKit, and a root of another step.
    const MOUNTS: &str = "\
30 1 8:1 / / rw,relatime - ext4 /dev/sda rw\n\
40 30 0:50 / /d/7/merged rw,relatime - overlay overlay rw,lowerdir=/d/l/A:/d/l/B,upperdir=/d/7/diff,workdir=/d/7/work,index=off\n\
41 30 0:50 / /x/1/rootfs rw,relatime - overlay overlay rw,lowerdir=/d/l/A:/d/l/B,upperdir=/d/7/diff,workdir=/d/7/work,index=off\n\
42 30 0:51 / /x/2/rootfs rw,relatime - overlay overlay rw,lowerdir=/d/l/A,upperdir=/d/8/diff,workdir=/d/8/work,index=off\n";

    fn found(mounts: &str) -> Result<StepRoot, Kept> {
        StepRoot::find(Path::new("/x/1/rootfs"), &parse(mounts))
    }

    #[test]
    fn a_root_is_found_at_every_place_where_it_is_mounted() {
        let root = found(MOUNTS).unwrap();
        assert_eq!(root.points, [Path::new("/d/7/merged"), Path::new("/x/1/rootfs")]);
        assert_eq!((root.upper, root.work), ("/d/7/diff".into(), "/d/7/work".into()));
    }

    #[test]
    fn a_root_that_would_not_be_the_same_again_is_kept() {
        let kept = |from: &str, to: &str| found(&MOUNTS.replace(from, to)).unwrap_err();
        assert_eq!(kept("overlay overlay", "fuse.fuse-overlayfs x"), Kept::NoOverlay);
        assert_eq!(kept("/x/1/rootfs", "/x/3/rootfs"), Kept::NoOverlay);
        assert_eq!(kept("lowerdir=/d/l/A", "lowerdir=l/A"), Kept::Names);
        assert_eq!(kept("/d/l/A", "/d\\040/A"), Kept::Names);
        assert_eq!(kept("index=off", "index=off,volatile"), Kept::Volatile);
        assert_eq!(kept("index=off", "fsync=volatile"), Kept::Volatile);
        assert_eq!(kept("index=off", "index=on"), Kept::Option("index=on".to_owned()));
        assert_eq!(kept("index=off", "verity=on"), Kept::Option("verity".to_owned()));
        assert_eq!(kept("rw,relatime - overlay", "ro - overlay"), Kept::ReadOnly);
        let with = |line: &str| found(&format!("{MOUNTS}{line}\n")).unwrap_err();
        assert_eq!(with("43 41 0:60 / /x/1/rootfs/a rw - tmpfs a rw"), Kept::Covered);
        assert_eq!(with("43 30 0:60 / /d/7/merged rw - tmpfs a rw"), Kept::Covered);
        assert_eq!(with("43 30 0:50 /etc /y rw,relatime - overlay overlay rw"), Kept::Covered);
    }
}
