//! Resolves a caller's path as the caller would: with its root, its working directory and its
//! mount namespace.
//!
//! The kernel would resolve an absolute symbolic link against *our* root, and `..` past the
//! caller's root. Only paths without either are resolved by one openat2(2); the others are
//! walked name by name.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// How many links are followed, as in the kernel (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// `PROC_SUPER_MAGIC`. The targets of /proc's links are not paths, or depend on the process
/// that reads them.
const PROC: u64 = 0x9fa0;

/// Where the resolution of a caller's path starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The caller.
    pub thread: u32,
    /// The caller's directory descriptor; `AT_FDCWD` for the working directory.
    pub directory: i32,
    /// Whether `directory` is the root for this path (`RESOLVE_IN_ROOT`).
    pub is_root: bool,
}

impl Start {
    /// Returns the start at the descriptor `directory` of `thread`.
    pub(crate) fn new(thread: u32, directory: i32) -> Self {
        Self { thread, directory, is_root: false }
    }

    fn base(self) -> Result<OwnedFd, Errno> {
        let Self { thread, directory, .. } = self;
        if directory == CWD.as_raw_fd() {
            open(CWD, format!("/proc/{thread}/cwd"))
        } else {
            open(CWD, format!("/proc/{thread}/fd/{directory}"))
        }
    }

    fn root(self) -> Result<OwnedFd, Errno> {
        if self.is_root { self.base() } else { open(CWD, format!("/proc/{}/root", self.thread)) }
    }
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) struct FoundPath {
    /// The file; for a name that does not exist, the directory that it would be in. `O_PATH`.
    pub file: OwnedFd,
    /// The name that does not exist.
    pub new_name: Option<OsString>,
}

/// Opens what `path` leads to, without side effects.
///
/// # Errors
/// The kernel's errors; `ELOOP` for a link that only the caller could follow.
pub(crate) fn find(start: Start, path: &Path) -> Result<FoundPath, Errno> {
    let from = if path.is_absolute() { start.root()? } else { start.base()? };
    if path.as_os_str().is_empty() {
        return Ok(FoundPath { file: from, new_name: None });
    }
    if !path.components().any(|component| component == Component::ParentDir) {
        let relative: PathBuf = path.components().filter(|c| *c != Component::RootDir).collect();
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { &*relative };
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(&from, relative, flags, Mode::empty(), resolve) {
            // The path has a link, or its last name does not exist yet.
            Err(Errno::LOOP | Errno::NOENT) => {}
            other => return other.map(|file| FoundPath { file, new_name: None }),
        }
    }
    Walk { at: from, root: start.root()?, rest: names(path), links: 0 }.end()
}

struct Walk {
    at: OwnedFd,
    root: OwnedFd,
    rest: VecDeque<OsString>,
    links: usize,
}

impl Walk {
    fn end(mut self) -> Result<FoundPath, Errno> {
        let mut new_name = None;
        while let Some(name) = self.rest.pop_front() {
            if name == ".." {
                if !is_same(&self.at, &self.root)? {
                    self.at = open(self.at.as_fd(), &name)?;
                }
                continue;
            }
            match open(self.at.as_fd(), &name) {
                Err(Errno::NOENT) if self.rest.is_empty() => new_name = Some(name),
                Err(error) => return Err(error),
                Ok(next) if is_link(&next)? => self.follow(&next)?,
                Ok(next) => self.at = next,
            }
        }
        Ok(FoundPath { file: self.at, new_name })
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), Errno> {
        self.links += 1;
        if self.links > LINKS || rustix::fs::fstatfs(link)?.f_type.cast_unsigned() == PROC {
            return Err(Errno::LOOP);
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.at = self.root.try_clone().map_err(|_| Errno::MFILE)?;
        }
        for name in names(&target).into_iter().rev() {
            self.rest.push_front(name);
        }
        Ok(())
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let wanted =
        |component: &Component| !matches!(component, Component::RootDir | Component::CurDir);
    path.components().filter(wanted).map(|component| component.as_os_str().to_owned()).collect()
}

fn open(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    // Only the links in the caller's /proc directory, which may be followed, come as whole
    // paths.
    let follow = if at.as_raw_fd() == CWD.as_raw_fd() { OFlags::empty() } else { OFlags::NOFOLLOW };
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::CLOEXEC | follow, Mode::empty())
}

fn is_link(file: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) == FileType::Symlink)
}

/// Whether two descriptors refer to the same directory in the same mount.
fn is_same(one: &OwnedFd, other: &OwnedFd) -> Result<bool, Errno> {
    use rustix::fs::{StatxFlags, statx};
    let look = |file| {
        let mask = StatxFlags::INO | StatxFlags::MNT_ID;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(file, "", flags, mask)?;
        Ok::<_, Errno>((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino, stat.stx_mnt_id))
    };
    Ok(look(one)? == look(other)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// A directory with `d/a`, `l -> d`, `up -> ../../a`, `gone -> d/new`, `loop -> loop`.
    struct TestTree(PathBuf);

    impl TestTree {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("paths-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("d")).unwrap();
            fs::write(path.join("d/a"), "").unwrap();
            fs::write(path.join("a"), "").unwrap();
            for (link, target) in
                [("l", "/d"), ("up", "../../a"), ("gone", "d/new"), ("loop", "loop")]
            {
                symlink(target, path.join(link)).unwrap();
            }
            Self(path)
        }

        /// Returns the inode that `path` leads to if the tree is the root.
        fn rooted(&self, path: &str) -> Result<u64, Errno> {
            let directory = fs::File::open(&self.0).unwrap();
            let thread = std::process::id();
            let start = Start { thread, directory: directory.as_raw_fd(), is_root: true };
            let found = find(start, Path::new(path));
            found.map(|found| fs::File::from(found.file).metadata().unwrap().ino())
        }

        fn inode(&self, path: &str) -> u64 {
            fs::metadata(self.0.join(path)).unwrap().ino()
        }
    }

    impl Drop for TestTree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_absolute_link_and_dots_stay_below_the_callers_root() {
        let tree = TestTree::new("root");
        assert_eq!(tree.rooted("/l/a"), Ok(tree.inode("d/a")));
        assert_eq!(tree.rooted("up"), Ok(tree.inode("a")));
        assert_eq!(tree.rooted("/d/../../../a"), Ok(tree.inode("a")));
        assert_eq!(tree.rooted("/"), Ok(tree.inode("")));
        assert_eq!(tree.rooted("d/./a"), Ok(tree.inode("d/a")));
    }

    #[test]
    fn a_name_that_is_not_there_yet_leads_to_the_directory_it_will_be_in() {
        let tree = TestTree::new("new");
        assert_eq!(tree.rooted("d/b"), Ok(tree.inode("d")));
        assert_eq!(tree.rooted("gone"), Ok(tree.inode("d")));
        let found = find(Start::new(std::process::id(), CWD.as_raw_fd()), &tree.0.join("gone"));
        assert_eq!(found.unwrap().new_name, Some("new".into()));
        assert_eq!(tree.rooted("b/c"), Err(Errno::NOENT));
    }

    #[test]
    fn a_loop_and_the_links_of_proc_are_not_followed() {
        let tree = TestTree::new("loop");
        assert_eq!(tree.rooted("loop"), Err(Errno::LOOP));
        let start = Start::new(std::process::id(), CWD.as_raw_fd());
        assert_eq!(find(start, Path::new("/proc/self/cwd/x")).err(), Some(Errno::LOOP));
    }
}
