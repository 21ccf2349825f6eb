//! The files of holds in the state directory.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use synconce_durable::error::{Context, Error};
use synconce_durable::standard_paths;

/// The directory of the markers below the state directory.
const HOLDS: &str = "holds";
/// The end of the name of a marker. No name of a hold has a dot, so no other file is a marker.
pub(crate) const MARKER: &str = ".json";
/// The end of the name of a journal of what was set aside.
pub(crate) const ASIDE: &str = ".aside.json";

/// Returns the names of the holds that have a file with the `ending`, sorted.
pub(crate) fn names_with(ending: &str) -> Result<Vec<String>, Error> {
    let directory = directory();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.on("cannot read", &directory)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let file = entry.on("cannot read", &directory)?.file_name();
        let name = file.to_str().and_then(|file| file.strip_suffix(ending));
        names.extend(name.filter(|name| !name.contains('.')).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Returns the directory of the markers.
pub fn directory() -> PathBuf {
    standard_paths::system().join(HOLDS)
}

/// Returns the path of the marker of the hold `name`.
pub fn marker(name: &str) -> PathBuf {
    directory().join(format!("{name}{MARKER}"))
}

/// Returns the path of the file of
/// [`HoldRecord::has_intact`](crate::record::HoldRecord::has_intact) of the hold `name`.
pub(crate) fn intact(name: &str) -> PathBuf {
    directory().join(format!("{name}.intact"))
}

/// Returns the path of the journal of what was set aside for the hold `name`.
pub fn journal(name: &str) -> PathBuf {
    directory().join(format!("{name}{ASIDE}"))
}
