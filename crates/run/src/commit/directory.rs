//! The working directory of a process that asks for a checkpoint: a user expects its file system
//! to be durable, also where no call was held.
//!
//! The process sends a descriptor of the directory. A held call instead would depend on how the
//! supervisor answers calls: it passes those of `synconce real`, and all calls under a foreign
//! /proc.

use crate::report::run_error::{FailedAct, RunError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_durable::pins::{Pins, uppers_of};
use synconce_probe::filesystem::{is_memory_magic, stores_nothing};
use synconce_probe::mounts::{self, DeviceId, Mount, mount_id};
use synconce_sys::descriptors;

/// Sends a descriptor of the working directory to the supervisor at the other end of `socket`.
/// The directory need not be readable (`O_PATH`).
///
/// # Errors
/// The directory cannot be searched, or those of sendmsg(2).
pub(crate) fn send_ours(socket: impl AsFd) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(".", flags, Mode::empty())?;
    descriptors::send(socket, directory.as_fd())
}

/// The working directory of a process of the run.
#[derive(Debug)]
pub(crate) struct Directory {
    file: OwnedFd,
    /// A thread of the process, whose mount namespace the directory may be in.
    thread: u32,
}

/// The file system of a [`Directory`].
#[derive(Debug)]
pub(crate) struct DirectoryDevice {
    pub device: DeviceId,
    pub point: PathBuf,
    /// What could be pinned of the file system and of the upper file systems below it.
    pub pins: Pins,
    /// Why the file system may have no pin.
    pub error: RunError,
}

impl Directory {
    /// Receives the directory that `thread` has sent, if it has sent one. Does not block.
    ///
    /// # Errors
    /// `EMFILE` if this process has too many descriptors.
    pub(crate) fn receive(socket: impl AsFd, thread: u32) -> Result<Option<Self>, RunError> {
        let failed =
            |errno: Errno| RunError::set_up("cannot receive the working directory", &errno.into());
        let file = match descriptors::receive(socket, RecvFlags::DONTWAIT) {
            // Of a version that sends no directory.
            Err(Errno::AGAIN) => return Ok(None),
            other => other.map_err(failed)?,
        };
        Ok(Some(Self { file: file.ok_or_else(|| failed(Errno::MFILE))?, thread }))
    }

    /// Returns the file system of the directory. Returns `None` if nothing written there could
    /// be durable or lost: it is in memory or read-only.
    ///
    /// # Errors
    /// Names a file system that no commit of a supervised run covers.
    pub(crate) fn find(&self) -> Result<Option<DirectoryDevice>, RunError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let Some((mount, mounts, root)) = self.mount(&path) else {
            let system = rustix::fs::fstatfs(&self.file);
            let is_memory = system.is_ok_and(|system| is_memory_magic(system.f_type as u64));
            let point = path.canonicalize().unwrap_or(path);
            return if is_memory { Ok(None) } else { Err(no_disk(&point)) };
        };
        if !mount.kind().is_held() {
            let is_safe = stores_nothing(&mount.type_name) || !mount.writable;
            return if is_safe { Ok(None) } else { Err(no_disk(&mount.point)) };
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.file, ".", flags, Mode::empty());
        let errno = opened.as_ref().err().copied().unwrap_or(Errno::NODEV);
        let mut pins = Pins::default();
        if let Ok(file) = opened {
            pins.adopt(&mount, file);
        }
        // By the mount point if the directory itself is not readable. An overlay's upper file
        // systems as well.
        let uppers = uppers_of(&mount, &mounts, &root);
        let is_wanted = |device| device == mount.device || uppers.contains(&device);
        let wanted: Vec<_> =
            mounts.iter().filter(|other| is_wanted(other.device)).cloned().collect();
        pins.add(&wanted, &root);
        let error = RunError::Path(FailedAct::new("cannot open", &mount.point, &errno.into()));
        Ok(Some(DirectoryDevice { device: mount.device, point: mount.point, pins, error }))
    }

    /// Returns the mount of the directory, which is at `path`, with the mounts around it and
    /// their root.
    fn mount(&self, path: &Path) -> Option<(Mount, Vec<Mount>, PathBuf)> {
        let id = mount_id(&self.file);
        let thread = self.thread.to_string();
        let theirs = Path::new("/proc").join(&thread).join("root");
        let places = [("self", PathBuf::from("/")), (thread.as_str(), theirs)];
        let listed = places.into_iter().find_map(|(place, root)| {
            let mounts = mounts::read(place).ok()?;
            let mount = mounts.iter().find(|mount| Some(mount.id) == id)?.clone();
            Some((mount, mounts, root))
        });
        listed.or_else(|| Some((mounts::at(path)?, Vec::new(), PathBuf::from("/"))))
    }
}

fn no_disk(point: &Path) -> RunError {
    RunError::NoDisk(format!("cannot commit {}", point.display()))
}
