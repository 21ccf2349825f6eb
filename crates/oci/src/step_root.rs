//! Mounts the root of a build step as `volatile` while the step runs.
//!
//! An overlay syncs inside the kernel: at each copy-up, and when it is unmounted. Only its mount
//! option `volatile` (Linux 5.10) prevents these syncs. [`StepRoot::make_volatile`] mounts the same
//! layers again with that option. [`VolatileRoot::end`] mounts them as the engine did, because
//! the engine writes to the root once more after the step (BuildKit's `MountStubsCleaner`). The
//! engine's own unmount then makes the layer durable, as without synconce. A step that is cut
//! short is not recorded by the engine, so nothing reads its unsynced files.

mod ending;
mod volatile;

pub(crate) use volatile::{MARK, NotVolatile, VolatileRoot};

use rustix::mount::MountFlags;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::STEP_WORK;
use synconce_probe::mounts::{DeviceId, Mount};
use synconce_sys::reason;

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

/// Why a root stays as the engine mounted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// `step-root` is `as-mounted`.
    Settings,
    /// No call of the engine shows the end of the step.
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
            Self::Settings => "step-root is \"as-mounted\"",
            Self::Detached => "no call of the runtime shows the end of the step",
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
            // Before Linux 6.5 an overlay refuses `rw` among its own options.
            options: first.options.trim_start_matches("rw,").to_owned(),
            upper: path("upperdir")?,
            work: path("workdir")?,
        })
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
    let is_short = mount.options.len() + STEP_WORK.len() + VOLATILE.len() <= LONGEST;
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
        let options = "lowerdir=/d/l/A:/d/l/B,upperdir=/d/7/diff,workdir=/d/7/work,index=off";
        assert_eq!(root.options, options);
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
