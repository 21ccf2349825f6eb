//! The directory of a daemon's data.

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::systemd::Service;
use std::path::{Component, Path, PathBuf};

/// A directory that a configuration file names.
pub(super) struct Configured {
    /// The directory.
    pub directory: String,
    /// The file, by its path without links.
    pub file: PathBuf,
    /// The line in the file, if known.
    pub line: Option<usize>,
}

/// Returns the directory that one of the flags `names` gives, else the configured one, else
/// `usual`; without links, as mounts and units need it.
///
/// # Errors
/// A path that is relative, or that systemd or a pattern would expand, is refused.
pub(super) fn place(
    host: &Host,
    service: &Service,
    names: &[&str],
    configured: Option<Configured>,
    usual: &str,
) -> Result<PathBuf, Error> {
    let remedy = "write its whole path out, with letters, digits and /._-+@ only, and set up again";
    if let Some((said, given)) = names.iter().find_map(|name| service.flag(name)) {
        let given = given.unwrap_or_default();
        if !is_plain(&given) {
            let reason = format!("gives {given:?} as the directory of its data");
            return Err(said.refuse(host, &reason, remedy).into());
        }
        return Ok(host.resolve(Path::new(&given))?);
    }
    let Some(Configured { directory, file, line }) = configured else {
        return Ok(host.resolve(Path::new(usual))?);
    };
    if !is_plain(&directory) {
        let reason = format!("gives {directory:?} as the directory of its data");
        return Err(NotEdited::new(reason, remedy).on_line(line).in_file(&file).into());
    }
    Ok(host.resolve(Path::new(&directory))?)
}

/// Returns whether `path` is absolute, has no `..`, and means itself in a unit and a pattern.
fn is_plain(path: &str) -> bool {
    let mut components = Path::new(path).components();
    let is_known = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    components.next() == Some(Component::RootDir)
        && components.clone().next().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)))
        && path.chars().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_plain_if_nothing_expands_it() {
        for path in ["/a", "/var/lib/containerd/", "/srv/a.b_c-d+e@f", "/srv/données"] {
            assert!(is_plain(path), "{path}");
        }
        for path in ["", "/", "a", "/a/../b", "/a b", "/%i", "/$A", "/a*", "/a\nb", "/a\"b"] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
