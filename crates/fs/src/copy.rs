//! Copies whole trees.

mod attributes;
mod content;
mod files;
mod links;
mod report;
mod visit;

use std::os::fd::BorrowedFd;
use std::path::Path;

pub use self::report::CopyReport;
use self::visit::Copying;
use crate::walk::directory::{Mounts, look_at};
use crate::walk::node::{DirFds, anew, path_of_root};
use crate::walk::walk;
use crate::{Error, Progress, threads};

/// How the content of files gets into the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// Shared until written to where the file system supports it; else copied.
    #[default]
    Auto,
    /// Copied by the kernel, which may share large files.
    Copy,
    /// Shared until written to; an error (`EOPNOTSUPP`, `EXDEV`, `EINVAL`) where that is
    /// impossible.
    Reflink,
}

/// What becomes of the attributes by which overlays keep their own data (`trusted.overlay.*`,
/// `user.overlay.*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlayAttributes {
    /// They are left out, and their files are named in the report: they would control an overlay
    /// above the copy.
    #[default]
    LeftOut,
    /// They are copied, for programs that find their own overlays in the copy.
    Kept,
}

/// Options of a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// How content is copied.
    pub mode: CopyMode,
    /// What becomes of attributes of overlays.
    pub overlays: OverlayAttributes,
    /// Whether mounts below the source are copied. If not, they are named in the report, and
    /// the copy has an empty directory or file in their place.
    pub cross_mounts: bool,
    /// Whether files and directories that this process may not read (`EACCES`) are left out, and
    /// named in the report.
    pub skip_unreadable: bool,
    /// A directory below the source that is left out.
    pub except: Option<Inode>,
    /// The number of threads.
    pub threads: usize,
}

/// The device and inode number of a directory.
pub type Inode = (u64, u64);

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            mode: CopyMode::default(),
            overlays: OverlayAttributes::default(),
            cross_mounts: false,
            skip_unreadable: false,
            except: None,
            threads: threads(),
        }
    }
}

/// Copies the content of the directory `source` into the empty directory `target`, which also
/// gets the attributes of `source`.
///
/// The copy keeps hard links within the tree, holes, extended attributes (access lists and
/// capabilities included), devices, pipes, sockets, symbolic links, times to the nanosecond
/// (access times included), owners and all bits of modes. Anything that is not kept is named
/// in the report. Until the copy is complete, `target` and all directories in it belong to
/// this process and are closed to other users.
///
/// # Errors
/// The first error of a call, such as `ENOSPC`, with the path; `ENOTEMPTY`; `EINVAL` if `target`
/// is within `source`; `ECANCELED`. Entries that were copied until then stay.
pub fn copy(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    options: &CopyOptions,
    progress: &dyn Progress,
) -> Result<CopyReport, Error> {
    let pair = DirFds { first: anew(source)?, second: Some(anew(target)?) };
    let stat = look_at(&pair.first)
        .map_err(|errno| Error::new("cannot look at", &path_of_root(source), errno))?;
    let mounts = if options.cross_mounts { Mounts::Cross } else { Mounts::Stop };
    let copying = Copying::new(&pair, options, mounts, progress)?;
    copying.begin(&pair)?;
    let root = DirFds { first: anew(source)?, second: Some(anew(target)?) };
    walk(&copying, root, stat, options.threads)?;
    Ok(copying.report())
}

/// Returns a path below a root, for a report.
fn below(path: Vec<u8>) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let path = std::ffi::OsString::from_vec(path);
    if path.is_empty() { Path::new(".").to_owned() } else { path.into() }
}
