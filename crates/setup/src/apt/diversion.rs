//! The diversions of dpkg, read and changed by dpkg-divert(1).

use crate::error::{Error, NotEdited};
use crate::host::Host;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use synconce_durable::error::Context;
use synconce_durable::{mutant, replace};

/// dpkg's list of diversions.
const LIST: &str = "/var/lib/dpkg/diversions";

/// Returns where dpkg writes the file that a package has at `path`: `path`, if it is not
/// diverted.
///
/// # Errors
/// dpkg-divert cannot be started, or fails.
pub(super) fn target(path: &Path, host: &Host) -> Result<PathBuf, Error> {
    let said = call(path, host, &[OsStr::new("--truename"), path.as_os_str()])?;
    Ok(PathBuf::from(said.trim_end_matches('\n')))
}

/// Has dpkg write the file at `path` of every package to `target`. Moves no file.
///
/// # Errors
/// As for [`target`]; dpkg's directory cannot be synced.
pub(super) fn add(path: &Path, target: &Path, host: &Host) -> Result<(), Error> {
    let words = ["--quiet", "--local", "--no-rename", "--divert"].map(OsStr::new);
    let rest = [target.as_os_str(), OsStr::new("--add"), path.as_os_str()];
    call(path, host, &[&words[..], &rest].concat())?;
    make_durable(host)
}

/// Takes the diversion of `path` away. Moves no file.
///
/// # Errors
/// As for [`add`].
pub(super) fn remove(path: &Path, host: &Host) -> Result<(), Error> {
    let words = ["--quiet", "--local", "--no-rename", "--remove"].map(OsStr::new);
    call(path, host, &[&words[..], &[path.as_os_str()]].concat())?;
    make_durable(host)
}

/// dpkg-divert syncs its new list, but not the directory after the rename.
fn make_durable(host: &Host) -> Result<(), Error> {
    if mutant::is("setup-diversion-unsynced") {
        return Ok(());
    }
    Ok(replace::sync_directory_of(&host.real(&host.resolve(Path::new(LIST))?))?)
}

fn call(path: &Path, host: &Host, words: &[&OsStr]) -> Result<String, Error> {
    let root = host.real(Path::new("/"));
    let mut own = Command::new("dpkg-divert");
    if !host.is_running() {
        own.arg("--root").arg(&root);
    }
    let output = match start(own.args(words)) {
        // A machine without dpkg, such as an installer: by the dpkg of that system.
        Err(error) if error.kind() == ErrorKind::NotFound && !host.is_running() => {
            start(Command::new("chroot").arg(&root).arg("/usr/bin/dpkg-divert").args(words))
        }
        other => other,
    };
    let output = output.on("cannot start", Path::new("dpkg-divert"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim_end().replace('\n', " ");
    let fault = NotEdited::new(
        format!("cannot be diverted: {said}"),
        "mend what dpkg-divert says, and try again",
    );
    Err(fault.in_file(&host.real(path)).into())
}

fn start(command: &mut Command) -> std::io::Result<Output> {
    // dpkg gives its maintainer scripts these variables, which would name another system.
    command.env_remove("DPKG_ROOT").env_remove("DPKG_ADMINDIR");
    command.env("LC_ALL", "C").stdin(Stdio::null()).output()
}
