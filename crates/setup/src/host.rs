//! The system that is set up, and all reads of it.

use crate::error::{Error, NotEdited};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use synconce_durable::error::{Context, Error as Failed};
use synconce_durable::replace::Rights;
use synconce_durable::text::quote;
use synconce_probe::version::numbers;
use synconce_probe::{mounts, systemd};

/// The name of synconce-oci as a runtime, in the configuration of every engine.
pub const RUNTIME_NAME: &str = "synconce";

/// The kernel's limit on followed links (`path_resolution(7)`).
const LINKS: usize = 40;

/// Returns the output of `PROGRAM --version`, given the root and a path below it.
pub(crate) type AskVersion = Box<dyn Fn(&Path, &Path) -> Option<String>>;

/// A system by its root.
pub struct Host {
    root: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
    synconce: PathBuf,
    version: AskVersion,
}

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub enum PathState {
    /// Nothing.
    Absent,
    /// A file: its content, owner and mode.
    File(Vec<u8>, Rights),
    /// A symbolic link and its target.
    Link(PathBuf),
}

impl Host {
    /// Makes the system whose root is `root`, with journals below `state`, and `synconce-oci`
    /// at `runtime`, a path within the system. `synconce` is beside it, unless
    /// [`Host::with_synconce`] names another path.
    pub fn new(root: &Path, state: &Path, runtime: &Path, version: AskVersion) -> Self {
        let (root, state, runtime) = (root.to_owned(), state.to_owned(), runtime.to_owned());
        let synconce = runtime.with_file_name("synconce");
        Self { root, state, runtime, synconce, version }
    }

    /// Sets the path of `synconce` within the system, for units.
    pub fn with_synconce(self, synconce: &Path) -> Self {
        Self { synconce: synconce.to_owned(), ..self }
    }

    /// Returns the real path of `path`, which is within the system.
    pub fn real(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the command line of `synconce setup WORDS` for this system.
    pub fn setup(&self, words: &str) -> String {
        if self.is_running() {
            format!("synconce setup {words}")
        } else {
            format!("synconce setup {words} --root {}", quote(&self.root))
        }
    }

    /// Returns where this system is, in words that follow a noun.
    pub(crate) fn place(&self) -> String {
        if self.is_running() { "here".to_owned() } else { format!("in {}", self.root.display()) }
    }

    /// Returns the directory below which journals are kept.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the path of `synconce-oci`, for configuration files.
    pub(crate) fn runtime(&self) -> &str {
        self.runtime.to_str().unwrap_or_default()
    }

    /// Returns the path of `synconce`, for units.
    pub(crate) fn synconce(&self) -> &str {
        self.synconce.to_str().unwrap_or_default()
    }

    /// Returns whether something is at `path`, through links.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.resolve(path).is_ok_and(|path| fs::symlink_metadata(self.real(&path)).is_ok())
    }

    /// Returns whether `path` leads to a directory.
    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        self.resolve(path).is_ok_and(|path| self.real(&path).is_dir())
    }

    /// Returns whether this is the running system.
    pub fn is_running(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns whether systemd starts the daemons of this system. Of another system it is assumed.
    pub(crate) fn has_systemd(&self) -> bool {
        !self.is_running() || systemd::is_running()
    }

    /// Returns whether `path`, of a journal, leads nowhere else in this system. The author of
    /// another system may have written its journal, and put links there that lead to files of the
    /// host.
    pub(crate) fn is_plain(&self, path: &Path) -> bool {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
        self.is_running() || self.resolve(above).is_ok_and(|above| above.join(name) == *path)
    }

    /// Returns whether a file system is mounted at `path` in the running system. Nothing is
    /// known of the mounts of another system.
    pub(crate) fn is_mount_point(&self, path: &Path) -> bool {
        let mounts = mounts::read("self").unwrap_or_default();
        self.is_running() && mounts.iter().any(|mount| mount.point == path)
    }

    /// Returns whether `path` leads to an executable file.
    pub(crate) fn is_executable(&self, path: &Path) -> bool {
        let metadata = self.resolve(path).ok().and_then(|path| fs::metadata(self.real(&path)).ok());
        metadata.is_some_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    }

    /// Returns whether both paths lead to the same file.
    pub(crate) fn is_same(&self, one: &Path, other: &Path) -> bool {
        let identity = |path: &Path| {
            let found = fs::metadata(self.real(&self.resolve(path).ok()?)).ok()?;
            Some((found.dev(), found.ino()))
        };
        identity(one).is_some_and(|one| identity(other) == Some(one))
    }

    /// Returns the first of `paths` that is executable.
    pub(crate) fn first_executable<'a>(&self, paths: &[&'a str]) -> Option<&'a str> {
        paths.iter().copied().find(|path| self.is_executable(Path::new(path)))
    }

    /// Returns the major and the minor version that `program` prints; `None` if there is no such
    /// program, or if it prints none.
    pub(crate) fn version(&self, program: Option<&str>) -> Option<(u32, u32)> {
        numbers(&(self.version)(&self.root, Path::new(program?))?)
    }

    /// Resolves the links in `path` as the system would; the end of the path need not exist.
    ///
    /// # Errors
    /// A link that cannot be read, with its path; a loop.
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, Failed> {
        self.follow(path, &mut |_| {})
    }

    /// Does what [`Host::resolve`] does, and calls `pass` with each directory, link and file on the
    /// way. No path that `pass` gets has links above its last name.
    pub(crate) fn follow(
        &self,
        path: &Path,
        pass: &mut dyn FnMut(&Path),
    ) -> Result<PathBuf, Failed> {
        let mut pending: VecDeque<OsString> = names(path).collect();
        let mut resolved = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            let next = resolved.join(&name);
            pass(&next);
            let Some(target) = self.link_at(&next)? else {
                resolved = next;
                continue;
            };
            links += 1;
            if links > LINKS {
                return Err(Failed::new("cannot follow", &self.real(path), Errno::LOOP));
            }
            if target.is_absolute() {
                resolved = PathBuf::from("/");
            }
            for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                pending.push_front(name);
            }
        }
        Ok(resolved)
    }

    fn link_at(&self, path: &Path) -> Result<Option<PathBuf>, Failed> {
        match fs::read_link(self.real(path)) {
            Ok(target) => Ok(Some(target)),
            // Not a link, missing, or below something that is no directory.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error).on("cannot read the link", &self.real(path)),
        }
    }

    /// Returns what is at the resolved `path`.
    ///
    /// # Errors
    /// Anything but a file or link is refused.
    pub(crate) fn look(&self, path: &Path) -> Result<PathState, Error> {
        let real = self.real(path);
        let metadata = match fs::symlink_metadata(&real) {
            Err(error) if is_absent(&error) => return Ok(PathState::Absent),
            other => other.on("cannot look at", &real)?,
        };
        if metadata.is_symlink() {
            return Ok(PathState::Link(fs::read_link(&real).on("cannot read the link", &real)?));
        }
        if !metadata.is_file() {
            let fault = NotEdited::new("is no regular file", "make it one, or take it away");
            return Err(fault.in_file(&real).into());
        }
        Ok(PathState::File(fs::read(&real).on("cannot read", &real)?, rights(&metadata)))
    }

    /// Returns the resolved path of a file and its text, or `None` for the text if there is no
    /// file.
    ///
    /// # Errors
    /// A file that is no UTF-8 is refused.
    pub(crate) fn text(&self, path: &Path) -> Result<(PathBuf, Option<String>), Error> {
        let resolved = self.resolve(path)?;
        let PathState::File(bytes, _) = self.look(&resolved)? else { return Ok((resolved, None)) };
        match String::from_utf8(bytes) {
            Ok(text) => Ok((resolved, Some(text))),
            Err(error) => {
                let fault =
                    NotEdited::new("is not UTF-8", "the engine cannot read it either: repair it");
                let good = error.utf8_error().valid_up_to();
                let lines = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count();
                Err(fault.on_line(lines + 1).in_file(&self.real(&resolved)).into())
            }
        }
    }

    /// Returns the files in the directory `path` whose names end in `suffix`, sorted by name.
    pub(crate) fn list(&self, path: &Path, suffix: &str) -> Result<Vec<PathBuf>, Failed> {
        let real = self.real(&self.resolve(path)?);
        let entries = match fs::read_dir(&real) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            other => other.on("cannot read", &real)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.on("cannot read", &real)?.file_name();
            if name.to_string_lossy().ends_with(suffix) {
                found.push(path.join(name));
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Returns the components of `path`, without the root and dots.
fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

pub(crate) fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn rights(metadata: &Metadata) -> Rights {
    Rights { mode: metadata.mode() & 0o7777, owner: (metadata.uid(), metadata.gid()) }
}
