//! The files of a user, which Podman and Buildah read after the system's, or instead of them.

use super::{DIRECTORY, DROP_IN, name, or_default, parts};
use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::toml::TomlFile;
use std::env;
use std::path::{Path, PathBuf};
use synconce_sys::accounts;

/// Checks that no file of the calling user makes Podman and Buildah call another runtime than
/// synconce-oci (containers.conf(5)). CONTAINERS_CONF_OVERRIDE is read last of all, also after
/// CONTAINERS_CONF (`newLocked` in containers/common); Podman 4.3 does not read it.
///
/// # Errors
/// [`Error::Refused`] names the file and the setting.
pub(crate) fn check(host: &Host) -> Result<(), Error> {
    let runtime = name(host, &parts(host)?)?;
    let runtime = runtime.as_str();
    let list = ["engine", "runtimes", runtime];
    let ours = Path::new(DIRECTORY).join(runtime);
    let is_ours = |path: &String| Path::new(path) == ours || path == host.runtime();
    let instead = variable("CONTAINERS_CONF");
    let paths = match &instead {
        Some(path) => vec![path.clone()],
        None => files(host)?,
    };
    let paths = paths.into_iter().chain(variable("CONTAINERS_CONF_OVERRIDE"));
    let files = paths.map(|path| TomlFile::read(host, &path)).collect::<Result<Vec<_>, _>>()?;
    // The last file that sets a key wins.
    let (mut last_runtime, mut last_list) = (None, None);
    for file in &files {
        last_runtime = file.text(&["engine", "runtime"])?.map(|set| (file, set)).or(last_runtime);
        last_list = file.texts(&list)?.map(|set| (file, set)).or(last_list);
    }
    let is_other = |name| or_default(host, name) != runtime;
    if let Some((file, (other, line))) = last_runtime.filter(|(_, (own, _))| is_other(own)) {
        if is_ours(&other.to_owned()) {
            return Ok(());
        }
        let reason = format!("sets engine.runtime = \"{other}\", but the set-up is for {runtime}");
        return Err(file.refuse(NotEdited::new(reason, "remove that line").on_line(line)));
    }
    match last_list {
        Some((_, own)) if own.first().is_some_and(is_ours) => Ok(()),
        _ if instead.is_some() => {
            let reason = format!("is in CONTAINERS_CONF, so podman does not read {DROP_IN}");
            Err(files[0].refuse(NotEdited::new(reason, "unset CONTAINERS_CONF")))
        }
        Some((file, _)) => {
            let line = file.toml.get(&list).and_then(|(_, line)| line);
            let reason = format!("sets {}, and is read after {DROP_IN}", list.join("."));
            Err(file.refuse(NotEdited::new(reason, "remove that list").on_line(line)))
        }
        None => Ok(()),
    }
}

/// Returns the user's own files, in Podman's order. Root has none.
fn files(host: &Host) -> Result<Vec<PathBuf>, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let home = || variable("HOME").or_else(home).map(|home| home.join(".config"));
    let Some(own) = variable("XDG_CONFIG_HOME").or_else(home) else { return Ok(Vec::new()) };
    let own = own.join("containers");
    let drop_ins = host.list(&own.join("containers.conf.d"), ".conf")?;
    Ok([own.join("containers.conf")].into_iter().chain(drop_ins).collect())
}

/// Returns the home directory of the calling user in passwd(5).
fn home() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let user = rustix::process::geteuid().as_raw();
    accounts::passwd(&text).find(|line| line.user == user).map(|line| line.home.into())
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
