//! The files of a user, which Podman and Buildah read after the system's, or instead of them.

use super::{DIRECTORY, DROP_IN, name, parts};
use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::toml::TomlFile;
use std::env;
use std::path::{Path, PathBuf};

/// Checks that no file of the calling user makes Podman and Buildah call another runtime than
/// synconce-oci (containers.conf(5)).
///
/// # Errors
/// [`Error::Refused`] names the file and the setting.
pub(crate) fn check(host: &Host) -> Result<(), Error> {
    let runtime = name(host, &parts(host)?)?;
    let runtime = runtime.as_str();
    let list = ["engine", "runtimes", runtime];
    let ours = Path::new(DIRECTORY).join(runtime);
    let is_ours = |path: &String| Path::new(path) == ours || path == host.runtime();
    let first_is_ours = |own: &Vec<String>| own.first().is_some_and(is_ours);
    if let Some(path) = variable("CONTAINERS_CONF") {
        let file = TomlFile::read(host, &path)?;
        if file.texts(&list)?.as_ref().is_some_and(first_is_ours) {
            return Ok(());
        }
        let reason = format!("is in CONTAINERS_CONF, so podman does not read {DROP_IN}");
        return Err(file.refuse(NotEdited::new(reason, "unset CONTAINERS_CONF")));
    }
    for path in files(host)? {
        let file = TomlFile::read(host, &path)?;
        let other = file.text(&["engine", "runtime"])?.filter(|(own, _)| *own != runtime);
        let own = file.texts(&list)?.filter(|own| !first_is_ours(own));
        let fault = match (other, own) {
            (Some((other, line)), _) => {
                let reason =
                    format!("sets engine.runtime = \"{other}\", and the set-up is of {runtime}");
                NotEdited::new(reason, "remove that line").on_line(line)
            }
            (None, Some(_)) => {
                let line = file.toml.get(&list).and_then(|(_, line)| line);
                let reason = format!("sets {}, and is read after {DROP_IN}", list.join("."));
                NotEdited::new(reason, "remove that list").on_line(line)
            }
            (None, None) => continue,
        };
        return Err(file.refuse(fault));
    }
    Ok(())
}

/// Returns the user's own files, in Podman's order. Root has none.
fn files(host: &Host) -> Result<Vec<PathBuf>, Error> {
    let home = || variable("HOME").map(|home| home.join(".config"));
    let Some(own) = variable("XDG_CONFIG_HOME").or_else(home) else { return Ok(Vec::new()) };
    if rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let own = own.join("containers");
    let drop_ins = host.list(&own.join("containers.conf.d"), ".conf")?;
    Ok([own.join("containers.conf")].into_iter().chain(drop_ins).collect())
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
