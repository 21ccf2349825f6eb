//! From the paths of a hold's file to the files that are there.

use super::{PREFIX, exists};
use crate::safe_directory::{if_there, resolve};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::wildcards;

/// Returns the files and directories that `patterns` mean, sorted, without those below another.
/// Links in the directories above are resolved, because mount points are compared later.
///
/// # Errors
/// Names a path that cannot be looked at, or a directory that cannot be read. Only what does not
/// exist is left out.
pub(crate) fn expand(patterns: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for pattern in patterns {
        let (Some(parent), Some(last)) = (pattern.parent(), pattern.file_name()) else { continue };
        let Some(parent) = if_there(resolve(parent))? else { continue };
        let path = parent.join(last);
        if last.as_bytes().iter().any(|byte| b"*?".contains(byte)) {
            matching(&parent, last, &mut paths)?;
        } else if !is_ours(last.as_bytes()) && exists(&path)? {
            paths.push(path);
        }
    }
    paths.sort();
    paths.dedup();
    let is_below = |path: &PathBuf| paths.iter().any(|one| path != one && path.starts_with(one));
    Ok(paths.iter().filter(|path| !is_below(path)).cloned().collect())
}

fn is_ours(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

fn matching(parent: &Path, pattern: &OsStr, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    let pattern = wildcards::parse(pattern.as_bytes());
    let entries = match std::fs::read_dir(parent) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.on("cannot read", parent)?,
    };
    for entry in entries {
        let name = entry.on("cannot read", parent)?.file_name();
        if !is_ours(name.as_bytes()) && wildcards::is_match(&pattern, name.as_bytes()) {
            paths.push(parent.join(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours_and_missing_paths_are_left_out_and_what_is_below_another_too() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().canonicalize().unwrap();
        for name in ["a", "a/b", "ab", ".hidden", ".synconce-hold"] {
            std::fs::create_dir(at.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", at.join("link")).unwrap();
        let patterns = ["*", "a", "a/b", "x", "x/y*", ".synconce-hold", "a/none*"];
        let found = expand(&patterns.map(|pattern| at.join(pattern))).unwrap();
        assert_eq!(found, [".hidden", "a", "ab", "link"].map(|name| at.join(name)));
        assert_eq!(expand(&[at.join("l?nk")]).unwrap(), [at.join("link")]);
    }
}
