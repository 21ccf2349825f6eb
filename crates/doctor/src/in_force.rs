//! What skips syncs here already: a hold, a filter, a preloaded library, an option of dpkg.

use crate::error::Error;
use crate::preload::{PRELOAD_FILE, dropper, preloads};
use rustix::io::Errno;
use serde::Serialize;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Whose syncs are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Skipping {
    /// Those of this process and its descendants.
    OfThisProcess,
    /// Those of dynamically linked commands that this process starts.
    OfDynamicPrograms,
    /// Most of those of dpkg.
    OfDpkg,
}

/// Something that skips syncs.
#[derive(Clone, Debug, Serialize)]
pub struct InForce {
    /// Its name.
    pub name: &'static str,
    /// Whose syncs it skips.
    pub skipping: Skipping,
    /// How it was found.
    pub evidence: String,
    /// The library that [`PRELOAD_FILE`] names, if that is how it was found.
    #[serde(skip)]
    pub preload: Option<String>,
}

/// Finds what skips syncs of this process and of commands that it starts.
///
/// # Errors
/// A pipe cannot be made.
pub(crate) fn find(is_held: bool) -> Result<Vec<InForce>, Error> {
    let mut found = Vec::new();
    if is_held {
        found.push(InForce {
            name: "synconce run",
            skipping: Skipping::OfThisProcess,
            evidence: "this process is in a run, which syncs once at its end".to_owned(),
            preload: None,
        });
    } else if a_filter_answers()? {
        found.push(InForce {
            name: "a seccomp filter",
            skipping: Skipping::OfThisProcess,
            evidence: "fsync of a pipe succeeds; the kernel's answer is EINVAL".to_owned(),
            preload: None,
        });
    }
    let variable = env::var("LD_PRELOAD").unwrap_or_default();
    let file = fs::read_to_string(PRELOAD_FILE).unwrap_or_default();
    for (origin, text) in [("LD_PRELOAD", variable), (PRELOAD_FILE, file)] {
        let mut libraries = preloads(&text).into_iter();
        let found_there = libraries.find_map(|library| Some((dropper(&library)?, library)));
        found.extend(found_there.map(|(name, library)| InForce {
            name,
            skipping: Skipping::OfDynamicPrograms,
            evidence: format!("{origin} names {name}"),
            preload: (origin == PRELOAD_FILE).then_some(library),
        }));
    }
    found.extend(unsafe_io_of_dpkg().map(|path| InForce {
        name: "force-unsafe-io of dpkg",
        skipping: Skipping::OfDpkg,
        evidence: format!("{} sets it", path.display()),
        preload: None,
    }));
    Ok(found)
}

/// Whether a filter answers fsync without the kernel, as those of `systemd-nspawn
/// --suppress-sync` and of a sealed run do.
fn a_filter_answers() -> Result<bool, Error> {
    let made = rustix::pipe::pipe();
    let (pipe, _other) = made.map_err(Error::io("make", Path::new("a pipe")))?;
    Ok(rustix::fs::fsync(&pipe) != Err(Errno::INVAL))
}

/// Returns the file that sets `force-unsafe-io` last, if none takes it back (dpkg.cfg(5)).
fn unsafe_io_of_dpkg() -> Option<PathBuf> {
    let is_read = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        name.is_some_and(|name| name.chars().all(is_plain))
    };
    let entries = fs::read_dir("/etc/dpkg/dpkg.cfg.d").into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_read).collect();
    files.sort();
    files.push("/etc/dpkg/dpkg.cfg".into());
    files.extend(env::var_os("HOME").map(|home| Path::new(&home).join(".dpkg.cfg")));
    let text = |path| fs::read_to_string(&path).map(|text| (path, text)).ok();
    last_setting(files.into_iter().filter_map(text))
}

fn last_setting(files: impl Iterator<Item = (PathBuf, String)>) -> Option<PathBuf> {
    let mut set = None;
    for (path, text) in files {
        for line in text.lines().map(str::trim) {
            match line.trim_start_matches("--") {
                "force-unsafe-io" => set = Some(path.clone()),
                "no-force-unsafe-io" => set = None,
                _ => {}
            }
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_of_dpkg_decides_and_comments_do_not() {
        let files = |texts: &[&str]| -> Option<PathBuf> {
            let numbered = texts.iter().enumerate();
            last_setting(numbered.map(|(at, text)| (at.to_string().into(), (*text).to_owned())))
        };
        assert_eq!(files(&["force-unsafe-io\n"]), Some("0".into()));
        assert_eq!(files(&["# force-unsafe-io\n", "log /x\n"]), None);
        assert_eq!(files(&["force-unsafe-io\n", "no-force-unsafe-io"]), None);
        assert_eq!(files(&["no-force-unsafe-io\n", "x\n force-unsafe-io "]), Some("1".into()));
    }

    #[test]
    fn no_filter_answers_the_syncs_of_the_tests() {
        assert!(!a_filter_answers().unwrap());
    }
}
