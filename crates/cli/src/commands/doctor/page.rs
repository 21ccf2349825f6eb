//! `synconce doctor --html FILE`

use crate::arguments::doctor::Doctor;
use crate::commands::error::CommandError;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use synconce_durable::replace::{self, Rights};
use synconce_sys::{process, reason};

/// The file of a page, which can be written.
pub(super) struct PageFile(PathBuf);

/// The mode of a file with this umask; without a umask only its owner reads the file.
const MODE: u32 = 0o666;
const UNKNOWN: u32 = 0o077;

impl PageFile {
    /// Returns the file of `--html FILE`, and `None` without the option. Writes nothing.
    ///
    /// # Errors
    /// FILE cannot be written, or another option names it.
    pub(super) fn check(arguments: &Doctor) -> Result<Option<Self>, CommandError> {
        let Some(path) = arguments.html.as_deref() else { return Ok(None) };
        if path == Path::new("-") {
            return Err(CommandError::from("cannot write to -: a page goes to a file only")
                .hint("synconce doctor --html report.html"));
        }
        let failed = |why: &str| format!("cannot write to {}: {why}", path.display());
        let target = target(path).map_err(|error| failed(&reason(&error)))?;
        let others = [&arguments.json.json, &arguments.output, &arguments.read];
        // The page would replace what the other option reads or writes.
        if others.into_iter().flatten().any(|other| other == path || resolved(other) == target) {
            return Err(failed("another option names this file").into());
        }
        Ok(Some(Self(target)))
    }

    /// Writes the page that `text` makes of what made it and when. The file is replaced as a whole,
    /// durably.
    ///
    /// # Errors
    /// The page cannot be written. The file is as it was.
    pub(super) fn write(&self, text: impl FnOnce(&str) -> String) -> Result<(), CommandError> {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let page = text(&format!("synconce {}, {now}", env!("CARGO_PKG_VERSION")));
        let written = match replace::exists(&self.0) {
            Ok(true) => replace::replace(&self.0, page.as_bytes()),
            Ok(false) => replace::create(&self.0, page.as_bytes(), rights()),
            Err(error) => Err(error),
        };
        written.map_err(|error| error.to_string().into())
    }
}

fn rights() -> Rights {
    Rights { mode: MODE & !process::umask().unwrap_or(UNKNOWN), ..Rights::common() }
}

/// Returns the file to which `path` leads, if this process may write and replace it.
fn target(path: &Path) -> Result<PathBuf, IoError> {
    let target = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => return Err(IoError::other("not a regular file")),
        Ok(meta) => {
            // The new file gets the owner of the old one.
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

fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn may(access: Access, path: &Path) -> Result<(), IoError> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
