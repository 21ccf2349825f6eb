//! An overlay by the new mount calls: a file system context turns options into a detached
//! mount. Before Linux 6.15 the layers must be opened in the mount namespace in which they are
//! mounted.

use crate::reason;
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_fd, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The longest value that fsconfig(2) takes.
const LONGEST: usize = 255;

/// Returns a detached mount with the options that `configure` sets.
///
/// # Errors
/// The kernel's errors, with its message if there is one.
pub fn mounted(
    attributes: MountAttrFlags,
    configure: impl FnOnce(&OverlayContext) -> Result<()>,
) -> io::Result<OwnedFd> {
    let context = OverlayContext(fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?);
    // The first column of the mount table.
    fsconfig_set_string(&context.0, "source", "synconce")?;
    let created = configure(&context).and_then(|()| fsconfig_create(&context.0));
    created.map_err(|errno| context.explain(errno))?;
    Ok(fsmount(&context.0, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The options of an overlay that is not mounted yet.
#[derive(Debug)]
pub struct OverlayContext(OwnedFd);

impl OverlayContext {
    /// Sets an option that has no value.
    ///
    /// # Errors
    /// The kernel's errors, also those of the other setters: `EINVAL` for an unknown option.
    pub fn flag(&self, name: &str) -> Result<()> {
        fsconfig_set_flag(&self.0, name)
    }

    /// Sets the option `name` to a short `value`.
    ///
    /// # Errors
    /// As for [`OverlayContext::flag`].
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        fsconfig_set_string(&self.0, name, value)
    }

    /// Sets the layers, topmost first.
    ///
    /// # Errors
    /// As for [`OverlayContext::flag`]; `E2BIG` for too many layers before Linux 6.7.
    pub fn lowers(&self, lowers: &[BorrowedFd<'_>]) -> Result<()> {
        if appends_layers(&rustix::system::uname().release().to_string_lossy()) {
            return lowers.iter().try_for_each(|lower| self.directory("lowerdir+", *lower));
        }
        self.joined(lowers)
    }

    /// Sets all layers in one value. Links in /proc are short and need no escapes.
    fn joined(&self, lowers: &[BorrowedFd<'_>]) -> Result<()> {
        let links: Vec<_> = lowers.iter().map(|lower| link_to(*lower)).collect();
        let value = links.join(":");
        if value.len() > LONGEST {
            return Err(Errno::TOOBIG);
        }
        fsconfig_set_string(&self.0, "lowerdir", &*value)
    }

    /// Sets a directory by its descriptor (Linux 6.13; a later version for `O_PATH`), or by a
    /// path. Before Linux 6.5, whose overlay has no options of the new mount calls, the error is
    /// `EOPNOTSUPP` (fs/fsopen.c).
    ///
    /// # Errors
    /// As for [`OverlayContext::flag`].
    pub fn directory(&self, key: &str, directory: BorrowedFd<'_>) -> Result<()> {
        match fsconfig_set_fd(&self.0, key, directory) {
            Err(Errno::INVAL | Errno::BADF | Errno::OPNOTSUPP) => {}
            other => return other,
        }
        self.messages();
        fsconfig_set_string(&self.0, key, &*path_of(directory))
    }

    /// Returns the kernel's messages since the last call. Each begins with `e`, `w` or `i` and
    /// a blank (fs/fs_context.c).
    fn messages(&self) -> Vec<String> {
        let mut buffer = [0; 1024];
        let mut messages = Vec::new();
        while let Ok(length @ 1..) = rustix::io::read(&self.0, &mut buffer) {
            messages.push(String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned());
        }
        messages
    }

    fn explain(&self, errno: Errno) -> io::Error {
        let error = io::Error::from(errno);
        let said = self
            .messages()
            .into_iter()
            .rev()
            .find_map(|message| message.strip_prefix("e ").map(str::to_owned));
        match said {
            Some(said) => io::Error::new(error.kind(), format!("{said}: {}", reason(&error))),
            None => error,
        }
    }
}

/// Returns whether overlay takes layers one by one (Linux 6.7). The version is compared
/// because a trial misleads: before 6.5, whose overlay has no options of the new mount calls,
/// fsconfig(2) takes any name and the mount fails.
fn appends_layers(release: &str) -> bool {
    is_at_least(release, (6, 7))
}

/// Returns whether the kernel is Linux `major`.`minor` or later.
pub fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    is_at_least(&rustix::system::uname().release().to_string_lossy(), (major, minor))
}

fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|one: char| !one.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= version,
        _ => false,
    }
}

/// Returns a path for an option: the directory's own, which the mount table shows, or its link
/// in /proc if the path is too long or needs escapes.
fn path_of(directory: BorrowedFd<'_>) -> String {
    let place = place_of(directory);
    match place.to_str() {
        Some(path)
            if path.len() <= LONGEST
                && !path.contains([':', ',', '\\'])
                && is_at(directory, path) =>
        {
            path.to_owned()
        }
        _ => link_to(directory),
    }
}

/// Whether `path` leads to the open `directory`.
pub fn is_at(directory: BorrowedFd<'_>, path: impl rustix::path::Arg) -> bool {
    let (there, here) = (rustix::fs::stat(path), rustix::fs::fstat(directory));
    matches!((there, here), (Ok(there), Ok(here))
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino))
}

/// Returns the link in /proc to the file of `fd`.
pub fn link_to(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Returns the path of `fd`, as far as the kernel reports one, for messages.
pub fn place_of(fd: BorrowedFd<'_>) -> PathBuf {
    std::fs::read_link(link_to(fd)).unwrap_or_else(|_| link_to(fd).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn layers_are_appended_from_linux_6_7_on() {
        for release in ["6.7.0", "6.18.44-fc-v669", "6.12-rc1", "7.0"] {
            assert!(appends_layers(release), "{release}");
        }
        for release in ["5.10.0-32-amd64", "6.1.0", "6.6.99", "", "next"] {
            assert!(!appends_layers(release), "{release}");
        }
    }

    /// Tests the option for kernels before 6.7.
    #[test]
    fn layers_in_one_value_are_mounted_and_too_many_are_refused() {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let layers: Vec<_> = ["a:b", "c,d", "e\\f"]
            .map(|name| {
                let path = place.path().join(name);
                fs::create_dir(&path).expect("a layer");
                fs::write(path.join(name), "").expect("a file in it");
                openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opened")
            })
            .into();
        let lowers: Vec<_> = layers.iter().map(AsFd::as_fd).collect();
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
        // A detached mount ends with its descriptor.
        let root = mounted(attributes, |context| context.joined(&lowers)).expect("a mount");
        let names = fs::read_dir(link_to(root.as_fd())).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a:b", "c,d", "e\\f"]);
        let many = vec![lowers[0]; 100];
        let refused = mounted(attributes, |context| context.joined(&many)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::TOOBIG.raw_os_error()));
    }
}
