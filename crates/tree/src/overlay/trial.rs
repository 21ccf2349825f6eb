//! Finds out what overlay can do on a file system, by a trial mount.

use super::{DetachedMount, Features, writable};
use rustix::fs::{
    AtFlags, Mode, OFlags, chmodat, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use synconce_sys::overlay::link_to;
use synconce_sys::reason;

/// The prefix of the directories in which trials are made. The directory of a dead process may
/// be removed.
pub(crate) const TRIAL_PREFIX: &str = ".synconce-trial-";

/// Why an option does not work, in the kernel's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionReason(pub String);

impl fmt::Display for OptionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionReason {}

impl OptionReason {
    fn of(act: &str, error: impl Into<io::Error>) -> Self {
        Self(format!("{act}: {}", reason(&error.into())))
    }
}

/// What an overlay with an upper directory can do on a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Whether [`Features::user_xattr`] is required.
    pub user_xattr: bool,
    /// Whether hard links survive a copy up.
    pub index: Result<(), OptionReason>,
    /// Whether lower directories can be renamed.
    pub redirect_dir: Result<(), OptionReason>,
    /// Whether a change of mode copies no content.
    pub metacopy: Result<(), OptionReason>,
    /// Whether the overlay can be mounted so that nothing is synced.
    pub volatile: Result<(), OptionReason>,
}

impl Abilities {
    /// Returns the options for [`writable`].
    pub fn features(&self) -> Features {
        Features {
            user_xattr: self.user_xattr,
            index: self.index.is_ok(),
            redirect_dir: self.redirect_dir.is_ok(),
            metacopy: self.metacopy.is_ok(),
            volatile: self.volatile.is_ok(),
        }
    }
}

/// Finds out whether directories on the file system of `dir` can be the upper of an overlay,
/// and with which options. Mounts and uses an overlay in a new directory in `dir`, and removes
/// the directory. This takes about a millisecond.
///
/// # Errors
/// The reason why no overlay can be mounted.
pub fn trial(dir: BorrowedFd<'_>) -> Result<Abilities, OptionReason> {
    let mut place = TrialDirectories::new(dir)?;
    let user_xattr = !synconce_sys::namespace::is_first_user_namespace();
    let bare = Features { user_xattr, ..Features::default() };
    let mut abilities = Abilities {
        user_xattr,
        index: Ok(()),
        redirect_dir: Ok(()),
        metacopy: Ok(()),
        volatile: Ok(()),
    };
    if user_xattr {
        // These options are refused together with `userxattr`; the mounts fetch the kernel's
        // message.
        abilities.redirect_dir = place.mount(Features { redirect_dir: true, ..bare }).map(drop);
        abilities.metacopy = place.mount(Features { metacopy: true, ..bare }).map(drop);
    }
    let mount = match place.mount(abilities.features()) {
        Ok(mount) => mount,
        Err(_) => {
            drop(place.mount(bare)?);
            abilities.volatile = place.mount(Features { volatile: true, ..bare }).map(drop);
            abilities.index = place.mount(Features { index: true, ..bare }).map(drop);
            let redirected = Features { redirect_dir: true, ..bare };
            abilities.redirect_dir = place.mount(redirected).map(drop);
            abilities.metacopy = place.mount(Features { metacopy: true, ..redirected }).map(drop);
            place.mount(abilities.features())?
        }
    };
    place.judge(&mount, &mut abilities)?;
    Ok(abilities)
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
    fn new(dir: BorrowedFd<'_>) -> Result<Self, OptionReason> {
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
        made().map_err(|error| OptionReason::of("cannot make a directory for a trial mount", error))
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

    fn mount(&mut self, features: Features) -> Result<DetachedMount, OptionReason> {
        self.tries += 1;
        let made = |kind: &str| make_directory(self.root.as_fd(), &format!("{kind}{}", self.tries));
        let directories = made("upper").and_then(|upper| Ok((upper, made("work")?)));
        let (upper, work) =
            directories.map_err(|error| OptionReason::of("cannot make a directory", error))?;
        writable(&[self.lower.as_fd()], upper.as_fd(), work.as_fd(), features)
            .map_err(|error| OptionReason(error.to_string()))
    }

    /// Uses the last mount, and clears in `abilities` what the kernel accepted but did not do.
    fn judge(&self, mount: &DetachedMount, abilities: &mut Abilities) -> Result<(), OptionReason> {
        let mode = Mode::from_raw_mode(0o640);
        chmodat(mount, "file", mode, AtFlags::empty())
            .map_err(|error| OptionReason::of("cannot write to an overlay here", error))?;
        let other = statat(mount, "link", AtFlags::SYMLINK_NOFOLLOW);
        unlinkat(mount, "link", AtFlags::empty())
            .map_err(|error| OptionReason::of("cannot remove from an overlay here", error))?;
        if abilities.index.is_ok() && !other.is_ok_and(|link| link.st_mode & 0o777 == 0o640) {
            abilities.index = Err(OptionReason("a hard link was broken all the same".to_owned()));
        }
        if abilities.redirect_dir.is_ok() {
            abilities.redirect_dir = renameat(mount, "directory", mount, "renamed")
                .map_err(|error| OptionReason::of("cannot rename a lower directory", error));
        }
        if abilities.metacopy.is_ok() {
            abilities.metacopy = self.has_metacopy();
        }
        let guard = format!("work{}/work/incompat/volatile", self.tries);
        if abilities.volatile.is_ok() {
            abilities.volatile = statat(&self.root, &*guard, AtFlags::SYMLINK_NOFOLLOW)
                .map(drop)
                .map_err(|error| OptionReason::of("the kernel's guard is not there", error));
        }
        Ok(())
    }

    fn has_metacopy(&self) -> Result<(), OptionReason> {
        let file = format!("{}/upper{}/file", link_to(self.root.as_fd()), self.tries);
        let mut value = [0; 64];
        match rustix::fs::lgetxattr(&*file, "trusted.overlay.metacopy", &mut value[..]) {
            Ok(_) => Ok(()),
            Err(error) => Err(OptionReason::of("a change of mode copied the content", error)),
        }
    }
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
