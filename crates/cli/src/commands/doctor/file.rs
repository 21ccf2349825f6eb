//! The files of `synconce doctor --html FILE` and `--support-bundle FILE`

use crate::arguments::doctor::Doctor;
use crate::commands::error::CommandError;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::record;
use synconce_durable::replace::{self, Rights};
use synconce_sys::{process, reason};

/// The file of `--html` or `--support-bundle`, which can be written.
pub(super) struct ReportFile {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file of the user, whose owner and mode stay.
    Page,
    /// Only this user may read the file: root's has the runs of all users.
    Bundle,
}

/// The mode of a new page before the umask; without a umask only its owner reads it.
const PAGE: u32 = 0o666;
const BUNDLE: u32 = 0o600;
const UNKNOWN: u32 = 0o077;

impl ReportFile {
    /// Returns the files of `--html` and `--support-bundle`, as far as `arguments` name them.
    /// Writes nothing.
    ///
    /// # Errors
    /// A file cannot be written, or another option names it.
    pub(super) fn check(arguments: &Doctor) -> Result<[Option<Self>; 2], CommandError> {
        let Doctor { html, support_bundle, output, read, against, json, .. } = arguments;
        let records = [output, read, against];
        let is_json = |other: &&Option<PathBuf>| is_same(json.json.as_deref(), other.as_deref());
        if let Some(path) = json.json.as_deref().filter(|_| records.iter().any(is_json)) {
            return Err(named_twice(path).into());
        }
        let common = [&json.json, output, read, against];
        let of_page = [common.as_slice(), &[support_bundle]].concat();
        Ok([
            Self::check_one(html, of_page, Kind::Page)?,
            Self::check_one(support_bundle, common.to_vec(), Kind::Bundle)?,
        ])
    }

    /// `others` are the files of other options.
    fn check_one(
        path: &Option<PathBuf>,
        others: Vec<&Option<PathBuf>>,
        kind: Kind,
    ) -> Result<Option<Self>, CommandError> {
        let Some(path) = path.as_deref() else { return Ok(None) };
        if path == Path::new("-") {
            let example = match kind {
                Kind::Page => "--html report.html",
                Kind::Bundle => "--support-bundle bundle.json",
            };
            let option = example.split(' ').next().unwrap_or_default();
            let why = format!("cannot write to -: {option} writes to a file only");
            return Err(CommandError::from(why).hint(format!("synconce doctor {example}")));
        }
        // In a directory that others can write to, the link may be another user's.
        if kind == Kind::Bundle && path.is_symlink() {
            return Err(format!("cannot write to {}: a symbolic link", path.display()).into());
        }
        let failed = |why: &str| format!("cannot write to {}: {why}", path.display());
        let target = target(path).map_err(|error| failed(&reason(&error)))?;
        // The file would replace what the other option reads or writes.
        if others.into_iter().any(|other| is_same(Some(&target), other.as_deref())) {
            return Err(named_twice(path).into());
        }
        Ok(Some(Self { path: target, kind }))
    }

    /// Writes the text that `text` makes of what made it and when. The file is replaced as a whole,
    /// durably.
    ///
    /// # Errors
    /// The text cannot be made or written. The file is as it was.
    pub(super) fn write(
        &self,
        text: impl FnOnce(&str) -> Result<String, CommandError>,
    ) -> Result<(), CommandError> {
        let now = record::now();
        let text = text(&format!("synconce {}, {now}", env!("CARGO_PKG_VERSION")))?;
        let (path, text) = (&self.path, text.as_bytes());
        let written = match self.kind {
            Kind::Page => replace::write(path, text, rights(PAGE)),
            Kind::Bundle => replace::write_anew(path, text, rights(BUNDLE)),
        };
        written.map_err(|error| error.to_string().into())
    }
}

fn rights(mode: u32) -> Rights {
    Rights { mode: mode & !process::umask().unwrap_or(UNKNOWN), ..Rights::common() }
}

/// Returns the file to which `path` leads, if this process may write and replace it.
fn target(path: &Path) -> Result<PathBuf, IoError> {
    let target = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => return Err(IoError::other("not a regular file")),
        Ok(meta) => {
            // A new page gets the owner of the old one.
            let user = rustix::process::geteuid();
            if !user.is_root() && meta.uid() != user.as_raw() {
                return Err(IoError::other("the file belongs to another user"));
            }
            may(Access::READ_OK | Access::WRITE_OK, path)?;
            // A rename would replace a link.
            fs::canonicalize(path)?
        }
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => path.to_owned(),
        Err(error) => return Err(error),
    };
    let above = target.parent().filter(|above| !above.as_os_str().is_empty());
    may(Access::WRITE_OK, above.unwrap_or(Path::new(".")))?;
    Ok(target)
}

fn named_twice(path: &Path) -> String {
    format!("cannot write to {}: another option names this file", path.display())
}

/// Whether both lead to one file, which may be new.
fn is_same(one: Option<&Path>, other: Option<&Path>) -> bool {
    one.zip(other).is_some_and(|(one, other)| resolved(one) == resolved(other))
}

/// Returns the file to which `path` leads, which may be new.
fn resolved(path: &Path) -> PathBuf {
    let new = || {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = fs::canonicalize(above.unwrap_or(Path::new("."))).ok()?;
        Some(above.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(new).unwrap_or_else(|| path.to_owned())
}

fn may(access: Access, path: &Path) -> Result<(), IoError> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
