//! Finds out what overlay can do on a file system, by a trial mount.

use super::{DetachedMount, Features, writable};
use rustix::fs::{
    AtFlags, Mode, OFlags, chmodat, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use synconce_sys::overlay::link_to;
use synconce_sys::reason;

/// The prefix of the directories in which trials are made. The directory of a dead process may
/// be removed.
pub(crate) const TRIAL_PREFIX: &str = ".synconce-trial-";

/// Finds out whether directories on the file system of `dir` can be the upper of an overlay,
/// and with which options. Mounts and uses an overlay in a new directory in `dir`, and removes
/// the directory. This takes about a millisecond.
///
/// # Errors
/// The reason why no overlay can be mounted.
pub fn trial(dir: BorrowedFd<'_>) -> io::Result<Features> {
    let mut place = TrialDirectories::new(dir)?;
    let user_xattr = !synconce_sys::namespace::is_first_user_namespace();
    let bare = Features { user_xattr, ..Features::default() };
    let mut found = Features { user_xattr, ..Features::PRIVILEGED };
    if user_xattr {
        // These options are refused together with `userxattr`.
        found.redirect_dir = place.mount(Features { redirect_dir: true, ..bare }).is_ok();
        found.metacopy = place.mount(Features { metacopy: true, ..bare }).is_ok();
    }
    let mount = match place.mount(found) {
        Ok(mount) => mount,
        Err(_) => {
            drop(place.mount(bare)?);
            found.volatile = place.mount(Features { volatile: true, ..bare }).is_ok();
            found.index = place.mount(Features { index: true, ..bare }).is_ok();
            let redirected = Features { redirect_dir: true, ..bare };
            found.redirect_dir = place.mount(redirected).is_ok();
            found.metacopy = place.mount(Features { metacopy: true, ..redirected }).is_ok();
            place.mount(found)?
        }
    };
    place.judge(&mount, &mut found)?;
    Ok(found)
}

/// Directories for a trial, which are removed on drop.
struct TrialDirectories {
    parent: OwnedFd,
    name: String,
    root: OwnedFd,
    lower: OwnedFd,
    /// The number of mounts tried: each has its own upper and work directory.
    tries: u32,
}

impl TrialDirectories {
    fn new(dir: BorrowedFd<'_>) -> io::Result<Self> {
        let made = || {
            let parent = open(dir, ".")?;
            let name = format!("{TRIAL_PREFIX}{}-{:x}", std::process::id(), fastrand::u64(..));
            let root = make_directory(dir, &name)?;
            // From here on, drop removes the directory.
            let lower = root.try_clone()?;
            let mut place = Self { parent, name, root, lower, tries: 0 };
            place.lower = place.fill()?;
            Ok::<_, io::Error>(place)
        };
        made().map_err(|error| say("cannot make a directory for a trial mount", error))
    }

    /// Makes a lower layer: a directory, and a file with two names.
    fn fill(&self) -> io::Result<OwnedFd> {
        let lower = make_directory(self.root.as_fd(), "lower")?;
        drop(make_directory(lower.as_fd(), "directory")?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&lower, "file", flags, Mode::from_raw_mode(0o600))?;
        rustix::io::write(&file, b"content")?;
        linkat(&lower, "file", &lower, "link", AtFlags::empty())?;
        Ok(lower)
    }

    fn mount(&mut self, features: Features) -> io::Result<DetachedMount> {
        self.tries += 1;
        let made = |kind: &str| make_directory(self.root.as_fd(), &format!("{kind}{}", self.tries));
        let directories = made("upper").and_then(|upper| Ok((upper, made("work")?)));
        let (upper, work) = directories.map_err(|error| say("cannot make a directory", error))?;
        writable(&[self.lower.as_fd()], upper.as_fd(), work.as_fd(), features)
            .map_err(|error| io::Error::new(error.io().kind(), error))
    }

    /// Uses the last mount, and clears in `found` what the kernel accepted but did not do.
    fn judge(&self, mount: &DetachedMount, found: &mut Features) -> io::Result<()> {
        let mode = Mode::from_raw_mode(0o640);
        chmodat(mount, "file", mode, AtFlags::empty())
            .map_err(|error| say("cannot write to an overlay here", error))?;
        let other = statat(mount, "link", AtFlags::SYMLINK_NOFOLLOW);
        unlinkat(mount, "link", AtFlags::empty())
            .map_err(|error| say("cannot remove from an overlay here", error))?;
        found.index &= other.is_ok_and(|link| link.st_mode & 0o777 == 0o640);
        found.redirect_dir &= renameat(mount, "directory", mount, "renamed").is_ok();
        found.metacopy &= self.has_metacopy();
        let guard = format!("work{}/work/incompat/volatile", self.tries);
        found.volatile &= statat(&self.root, &*guard, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        Ok(())
    }

    fn has_metacopy(&self) -> bool {
        let file = format!("{}/upper{}/file", link_to(self.root.as_fd()), self.tries);
        rustix::fs::lgetxattr(&*file, "trusted.overlay.metacopy", &mut [0; 64][..]).is_ok()
    }
}

/// A step of a trial that failed.
#[derive(Debug)]
struct FailedStep {
    act: &'static str,
    source: io::Error,
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.act, reason(&self.source))
    }
}

impl std::error::Error for FailedStep {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Returns `error` with the act that failed, and with the same kind: a full disk is not an overlay
/// that is refused.
fn say(act: &'static str, error: impl Into<io::Error>) -> io::Error {
    let source = error.into();
    io::Error::new(source.kind(), FailedStep { act, source })
}

impl Drop for TrialDirectories {
    fn drop(&mut self) {
        // Leftovers are found later by `TRIAL_PREFIX`.
        let parent = link_to(self.parent.as_fd());
        let _ = std::fs::remove_dir_all(format!("{parent}/{}", self.name));
    }
}

fn make_directory(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::from_raw_mode(0o700))?;
    open(parent, name)
}

fn open(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}
