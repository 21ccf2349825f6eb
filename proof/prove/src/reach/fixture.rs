//! A recorded disk that a run reaches by one of the ways.

use super::{DiskContent, MountEnd, Way};
use crate::Result;
use crate::config::{DiskKind, RunConfig};
use crate::recording::{finish, wait_until};
use crate::work::Work;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;
use synconce_testkit::rig::{Replay, Rig};

/// Bytes of a raw device that are written and compared.
const BYTES: usize = 4 << 20;

/// A disk that is ready for a run.
pub(super) struct ReachFixture {
    way: Way,
    config: RunConfig,
    rig: Rig,
    /// The path by which the run reaches the tree or the device.
    pub path: PathBuf,
    /// The root directory of the disk, or the device; open while the run lasts.
    open: Option<File>,
    /// The process in the other namespace, or the FUSE server.
    server: Option<Server>,
}

/// A process that keeps a file system mounted.
struct Server {
    group: Group,
    /// Where the file system is mounted in this process's namespace, if anywhere.
    point: Option<PathBuf>,
}

impl ReachFixture {
    /// Makes the disk and hides it as `way` requires. `control` is on another disk.
    pub(super) fn new(way: Way, config: RunConfig, control: &Path) -> Result<Self> {
        // A small disk is compared soon; the others refuse such a size.
        let megabytes = if config.disk == DiskKind::Ext4 { 96 } else { 384 };
        let rig = config.disk.rig(megabytes << 20).record(true).up()?;
        let path = rig.path().join("tree");
        let mut fixture = Self { way, config, path, rig, open: None, server: None };
        if !matches!(way, Way::Device { .. } | Way::FuseDisk) {
            fixture.prepare()?;
        }
        fixture.hide(config, control)?;
        if way == Way::FuseDisk {
            fixture.prepare()?;
        }
        Ok(fixture)
    }

    fn prepare(&self) -> Result<()> {
        fs::create_dir_all(&self.path)?;
        Work::Files.prepare(&self.path)?;
        finish("sync", Work::Files.limit(), Command::new("sync").arg("-f").arg(&self.path))
    }

    fn hide(&mut self, config: RunConfig, control: &Path) -> Result<()> {
        match self.way {
            Way::OutsideCommitOnly => {}
            Way::Inside(end) if end.is_from_before() => {}
            Way::Inside(_) => self.rig.unmount()?,
            Way::UnmountedLazily | Way::MountedOver => {
                let root = File::open(self.rig.path())?;
                self.path =
                    format!("/proc/{}/fd/{}/tree", std::process::id(), root.as_raw_fd()).into();
                self.open = Some(root);
                if self.way == Way::MountedOver {
                    mount("over", self.rig.path(), "tmpfs", MountFlags::empty(), None)?;
                } else {
                    unmount(self.rig.path(), UnmountFlags::DETACH)?;
                }
            }
            Way::OtherNamespace => {
                self.rig.unmount()?;
                let point = control.join("there");
                fs::create_dir(&point)?;
                let (server, pid) = in_other_namespace(config, self.rig.device(), &point)?;
                let below = point.join("tree").display().to_string();
                self.path = format!("/proc/{pid}/root{below}").into();
                self.server = Some(server);
            }
            Way::Device { .. } => {
                self.rig.unmount()?;
                self.path = self.rig.device().to_owned();
                self.open = Some(File::open(self.rig.device())?);
            }
            Way::FuseDisk => {
                self.rig.unmount()?;
                let mut mkfs = Command::new("mkfs.ntfs");
                let limit = Work::Files.limit();
                finish("mkfs.ntfs", limit, mkfs.arg("-QF").arg(self.rig.device()))?;
                let server = ntfs(self.rig.device(), &control.join("ntfs"))?;
                self.path = control.join("ntfs/tree");
                self.server = Some(server);
            }
        }
        Ok(())
    }

    pub(super) fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Returns the present content of the tree or the device.
    pub(super) fn content(&self) -> Result<DiskContent> {
        content(self.way, &self.path)
    }

    /// Returns the options with which the disk is mounted.
    pub(super) fn mount_options(&self) -> &'static str {
        self.config.disk.options().unwrap_or("defaults")
    }

    /// Describes where the file `image` differs from the disk.
    pub(super) fn differ(&self, image: &Path) -> Result<Option<String>> {
        let Ok(mut image) = File::open(image) else {
            return Ok(Some("it was not taken: the disk could not be unmounted".to_owned()));
        };
        let mut disk = File::open(self.rig.device())?;
        let (mut taken, mut there) = (vec![0; BYTES], vec![0; BYTES]);
        for part in 0.. {
            let length = image.read(&mut taken)?;
            disk.read_exact(&mut there[..length])?;
            if taken[..length] != there[..length] {
                return Ok(Some(format!("it differs from the disk in part {part}")));
            }
            if length == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Undoes the step that hides the disk; unmounts a disk that the run has mounted.
    pub(super) fn reveal(&mut self) -> Result<()> {
        if matches!(self.way, Way::MountedOver | Way::Inside(MountEnd::Covered)) {
            unmount(self.rig.path(), UnmountFlags::empty())?;
        }
        if let Way::Inside(_) = self.way {
            self.rig.unmount()?;
        }
        self.open = None;
        self.server.take().map_or(Ok(()), Server::end)
    }
}

/// Returns the content of the disk of `replay` after a power cut.
pub(super) fn recovered(way: Way, replay: &Replay) -> Result<DiskContent> {
    match way {
        Way::Device { .. } => content(way, replay.device()),
        Way::FuseDisk => {
            let server = ntfs(replay.device(), replay.path())?;
            let found = content(way, &replay.path().join("tree"));
            server.end()?;
            found
        }
        _ => {
            let mounted = crate::cuts::mount(|| replay.mount())?;
            content(way, &mounted.path().join("tree"))
        }
    }
}

fn content(way: Way, path: &Path) -> Result<DiskContent> {
    if let Way::Device { .. } = way {
        let mut bytes = vec![0; BYTES];
        std::os::unix::fs::FileExt::read_exact_at(&File::open(path)?, &mut bytes, 0)?;
        return Ok(DiskContent::Bytes(bytes));
    }
    // ntfs-3g rounds times.
    let options = ManifestOptions::default();
    let options = if way == Way::FuseDisk { options } else { options.mtimes() };
    Ok(DiskContent::Tree(Manifest::with(path, &options)?))
}

/// Mounts `device` at `point` in a mount namespace that only the returned process keeps alive.
fn in_other_namespace(config: RunConfig, device: &Path, point: &Path) -> Result<(Server, u32)> {
    let script = "mount -o \"$1\" \"$2\" \"$3\"; touch \"$3/../mounted\"; exec sleep 600";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
    command.arg(config.disk.options().unwrap_or("defaults")).arg(device).arg(point);
    let group = Group::spawn(&mut command)?;
    wait_until("the disk is mounted", patiently(LIMIT), || {
        point.with_file_name("mounted").exists()
    })?;
    let pid = group.pid();
    Ok((Server { group, point: None }, pid))
}

/// Mounts the NTFS of `device` at `point`.
fn ntfs(device: &Path, point: &Path) -> Result<Server> {
    fs::create_dir_all(point)?;
    let before = rustix::fs::stat(point)?.st_dev;
    let mut command = Command::new("ntfs-3g");
    let group = Group::spawn(command.args(["-o", "no_detach"]).arg(device).arg(point))?;
    wait_until("ntfs-3g has mounted its disk", patiently(LIMIT), || {
        rustix::fs::stat(point).is_ok_and(|stat| stat.st_dev != before)
    })?;
    Ok(Server { group, point: Some(point.to_owned()) })
}

impl Server {
    fn end(self) -> Result<()> {
        if let Some(point) = &self.point {
            unmount(point, UnmountFlags::empty())?;
            self.group.wait(patiently(LIMIT))?.ok_or("the FUSE server did not end")?;
        }
        Ok(())
    }
}

const LIMIT: Duration = Duration::from_secs(60);
