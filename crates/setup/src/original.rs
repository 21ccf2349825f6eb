//! Checks that synconce-oci would execute the runtime that the engine calls now.

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::toml::TomlFile;
use std::path::{Path, PathBuf};
use synconce_sys::search::SYSTEM_DIRECTORIES;

/// The operator's configuration of synconce-oci.
const SETTINGS: &str = "/etc/synconce/oci.toml";

/// Returns the first program `name` in [`SYSTEM_DIRECTORIES`] that is not synconce-oci. The
/// engine's PATH is unknown.
pub(crate) fn by_name(host: &Host, name: &str) -> Option<PathBuf> {
    let ours = Path::new(host.runtime());
    let mut paths = SYSTEM_DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    paths.find(|path| host.is_executable(path) && !host.is_same(path, ours))
}

/// Refuses if `engine`, which uses `wanted`, would get another runtime from a synconce-oci
/// that searches for `names`. If the operator has chosen another runtime, returns a note.
///
/// # Errors
/// The inner error is the refusal; the outer is an error of reading the operator's file.
pub(crate) fn check(
    host: &Host,
    engine: &str,
    wanted: &Path,
    names: &[&str],
) -> Result<Result<Option<String>, NotEdited>, Error> {
    let settings = host.real(Path::new(SETTINGS));
    let settings = settings.display();
    if let Some(chosen) = chosen(host)? {
        let note = || {
            let (chosen, wanted) = (chosen.display(), wanted.display());
            format!("{settings} names {chosen}: it is executed for {engine}, not {wanted}")
        };
        return Ok(Ok((!host.is_same(&chosen, wanted)).then(note)));
    }
    let found = names.iter().find_map(|name| by_name(host, name));
    if found.as_ref().is_some_and(|found| host.is_same(found, wanted)) {
        return Ok(Ok(None));
    }
    let instead = match found {
        Some(found) => format!("would execute {}", found.display()),
        None => "would not find it".to_owned(),
    };
    let named = wanted.display();
    let reason = format!("has {engine} use {named}, where synconce-oci {instead}");
    let remedy = if wanted.is_absolute() {
        format!("put runtime = \"{named}\" in {settings}, and set up again")
    } else {
        format!("name its path there, and as runtime in {settings}")
    };
    Ok(Err(NotEdited::new(reason, remedy)))
}

/// Returns the runtime that the operator has configured for synconce-oci.
fn chosen(host: &Host) -> Result<Option<PathBuf>, Error> {
    let settings = TomlFile::read(host, Path::new(SETTINGS))?;
    Ok(settings.text(&["runtime"])?.map(|(path, _)| PathBuf::from(path)))
}
