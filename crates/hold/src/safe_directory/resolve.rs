//! From a path to its directory, component by component.

use super::Astray;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use synconce_durable::error::Error;

/// The kernel's limit for links in one path (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Returns the path without links of the directory to which `path` leads.
///
/// A link is followed if it is root's, or if its user has the directory to which the path leads.
/// Otherwise a user of a directory above could choose which files root holds.
///
/// # Errors
/// Names the path; [`Astray::LinkOf`] for a link that is not followed.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let cannot = |error: Errno| Error::new("cannot find", path, error);
    let mut left: VecDeque<_> = words(path).collect();
    let (mut at, mut real) = (root().map_err(cannot)?, vec![OsString::from("/")]);
    let mut above = Vec::new();
    let mut links: Vec<(PathBuf, u32)> = Vec::new();
    while let Some(word) = left.pop_front() {
        if word == "/" {
            (at, real) = (root().map_err(cannot)?, vec![word]);
            above.clear();
            continue;
        }
        if word == ".." {
            if let Some(directory) = above.pop() {
                at = directory;
                real.pop();
            }
            continue;
        }
        let next = open_at(&at, &word).map_err(cannot)?;
        let stat = rustix::fs::fstat(&next).map_err(cannot)?;
        if FileType::from_raw_mode(stat.st_mode).is_symlink() {
            links.push((real.iter().collect::<PathBuf>().join(&word), stat.st_uid));
            if links.len() > MOST_LINKS {
                return Err(cannot(Errno::LOOP));
            }
            let target = rustix::fs::readlinkat(&next, c"", Vec::new()).map_err(cannot)?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            words(&target).rev().for_each(|word| left.push_front(word));
            continue;
        }
        above.push(std::mem::replace(&mut at, next));
        real.push(word);
    }
    let owner = rustix::fs::fstat(&at).map_err(cannot)?.st_uid;
    match links.into_iter().find(|(_, user)| *user != 0 && *user != owner) {
        Some((link, user)) => Err(Astray::LinkOf(user).on(&link)),
        None => Ok(real.into_iter().collect()),
    }
}

/// Opens the directory `path`, no part of which is a link.
///
/// # Errors
/// Names the path; [`Astray::Link`] names the link.
pub(super) fn without_links(path: &Path) -> Result<OwnedFd, Error> {
    let cannot = |error: Errno| Error::new("cannot open", path, error);
    let (mut at, mut real) = (root().map_err(cannot)?, PathBuf::from("/"));
    for word in words(path).filter(|word| word != "/") {
        real.push(&word);
        // A disk that was shut down has its directories, and answers no fstat(2).
        at = match open_directory_at(&at, &word) {
            Err(Errno::NOTDIR) if is_link(&at, &word) => return Err(Astray::Link.on(&real)),
            opened => opened.map_err(cannot)?,
        };
    }
    Ok(at)
}

/// Returns the components of `path`; the first of an absolute path is `/`.
fn words(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let named = path.components().filter(|part| *part != Component::CurDir);
    named.map(|part| part.as_os_str().to_owned())
}

fn root() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/", flags, Mode::empty())
}

fn open_at(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open_directory_at(directory, name) {
        Err(Errno::NOTDIR) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(directory, name, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Opens the directory `name`. Mounts what autofs has there, as O_PATH alone does not.
fn open_directory_at(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::readlinkat(directory, name, Vec::new()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_resolved_as_the_kernel_does() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join("a/b/c")).unwrap();
        symlink("a/b", at.join("relative")).unwrap();
        symlink(at.join("relative/../b"), at.join("absolute")).unwrap();
        symlink("../..", at.join("a/b/up")).unwrap();
        symlink("loop", at.join("loop")).unwrap();
        for name in ["a/b", "relative/c", "absolute/c", "absolute/up/relative", "a/./b/..", ".."] {
            let path = at.join(name);
            assert_eq!(resolve(&path).unwrap(), path.canonicalize().unwrap(), "{name}");
        }
        for name in ["loop", "missing", "relative/missing"] {
            let (ours, theirs) = (resolve(&at.join(name)), at.join(name).canonicalize());
            let ours = ours.unwrap_err();
            assert_eq!(ours.io().raw_os_error(), theirs.unwrap_err().raw_os_error(), "{name}");
        }
        assert!(without_links(&at.join("a/b")).is_ok());
        assert!(without_links(&at.join("relative/c")).unwrap_err().to_string().contains("a link"));
        assert!(without_links(Path::new("/")).is_ok());
    }
}
