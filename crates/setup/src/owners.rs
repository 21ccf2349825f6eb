//! Whether root may start a program: it can be executed, and no other user can change it.

use crate::error::{Error, NotEdited};
use crate::host::Host;
use rustix::process::{getegid, geteuid};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::text::quote;
use synconce_sys::namespace::is_first_user_namespace;

/// Debian's group staff, for which `/usr/local` is writable (base-passwd). Root installs programs
/// there, and gives this group to users that may do it, too.
const STAFF: u32 = 50;
/// The owner of files whose user has no id in a user namespace (`/proc/sys/kernel/overflowuid`).
const OVERFLOW: u32 = 65534;
const OF_GROUP: u32 = 0o020;
const OF_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// The begin of the names by which synconce acts as a runtime, beside those of the runtimes themselves.
const NAME: &str = "synconce-oci";
/// Where a copy that only root can change is installed.
const INSTALLED: &str = "/usr/local/bin/synconce";

impl Host {
    /// Checks that `synconce-oci` exists, by its name and under a path that every configuration file
    /// can express, and that no other user than root can change it. `set_up` has the words after
    /// `synconce setup`.
    ///
    /// # Errors
    /// The refusal: an engine would fail to start each container, hold none, or start another user's
    /// program.
    pub(crate) fn check_runtime(&self, set_up: &str) -> Result<(), Error> {
        let (synconce, runtime) = (Path::new(self.synconce()), Path::new(self.runtime()));
        // The program of another system is not executed: synconce acts as a runtime by its name.
        let name = runtime.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(NAME) {
            let fault = NotEdited::new(format!("is not named {NAME}"), self.setup(set_up));
            return Err(fault.in_file(&self.real(runtime)).into());
        }
        let target =
            if synconce.parent() == runtime.parent() { Path::new("synconce") } else { synconce };
        let remedy = if self.is_executable(synconce) {
            format!("ln -sf {} {}", quote(target), quote(&self.real(runtime)))
        } else {
            "install synconce-oci there first, or say where it is by --runtime PATH".to_owned()
        };
        self.check_program(runtime, NAME, &remedy, set_up)
    }

    /// Does what [`Host::check_runtime`] does, for `synconce` and units.
    ///
    /// # Errors
    /// The refusal: the daemon would not start any more, or root would start another user's program.
    pub(crate) fn check_synconce(&self, set_up: &str) -> Result<(), Error> {
        let remedy = "install synconce in that system first";
        self.check_program(Path::new(self.synconce()), "synconce", remedy, set_up)
    }

    fn check_program(
        &self,
        path: &Path,
        name: &str,
        remedy: &str,
        set_up: &str,
    ) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte);
        if !path.is_absolute() || !path.as_os_str().as_encoded_bytes().iter().copied().all(plain) {
            let reason = "is no absolute path of letters, digits and /._-+@";
            let remedy = format!("install {name} in a plain place, such as /usr/local/bin");
            return Err(NotEdited::new(reason, remedy).in_file(path).into());
        }
        if !self.is_executable(path) {
            let fault = NotEdited::new("is no executable file", remedy);
            return Err(fault.in_file(&self.real(path)).into());
        }
        check(path, set_up, self)
    }
}

/// Checks that no other user than root can change the file `program` of the system, or a directory
/// or link that leads to it. `set_up` has the words after `synconce setup`.
///
/// # Errors
/// The refusal, with a command that helps.
fn check(program: &Path, set_up: &str, host: &Host) -> Result<(), Error> {
    let Some(path) = changeable(program, host) else { return Ok(()) };
    let real = host.real(&path);
    let at = quote(&real);
    let remedy = if !path.starts_with("/usr") && path != Path::new("/") {
        let (from, to) = (host.real(&host.resolve(program)?), host.real(Path::new(INSTALLED)));
        let (from, to, set_up) = (quote(&from), quote(&to), host.setup(set_up));
        let directory = if host.is_running() { "/usr/local/bin/" } else { "" };
        format!("install -m 755 {from} {to} && ln -sf synconce {to}-oci && {directory}{set_up}")
    } else if real.is_symlink() {
        format!("chown -h root:root {at}")
    } else {
        format!("chown root:root {at} && chmod go-w {at}")
    };
    let reason = if path == program {
        "can be changed by other users than root".to_owned()
    } else {
        format!("can be changed by other users than root, by {}", real.display())
    };
    Err(NotEdited::new(reason, remedy).in_file(&host.real(program)).into())
}

/// Returns the first path on the way to the file `program` that another user than root can change.
pub(crate) fn changeable(program: &Path, host: &Host) -> Option<PathBuf> {
    let mut way = vec![PathBuf::from("/")];
    host.follow(program, &mut |path| way.push(path.to_owned())).ok()?;
    let is_changeable = |path: &PathBuf| {
        let found = fs::symlink_metadata(host.real(path));
        found.is_ok_and(|found| is_of_others(&found, host))
    };
    way.into_iter().find(is_changeable)
}

fn is_of_others(found: &Metadata, host: &Host) -> bool {
    // No user of a user namespace can be the owner of an unmapped file.
    let unmapped = (!is_first_user_namespace()).then_some(OVERFLOW);
    // Another user than root sets up only trees of its own. The group of root's process may have any
    // members (newgrp(1)).
    let is_own_tree = !host.is_running() && !geteuid().is_root();
    let own = is_own_tree.then(|| (geteuid().as_raw(), getegid().as_raw())).unzip();
    let is_of_root = [Some(0), own.0, unmapped].contains(&Some(found.uid()));
    let is_group_of_root = [Some(0), Some(STAFF), own.1, unmapped].contains(&Some(found.gid()));
    let mode = found.mode();
    let is_shared = mode & OF_OTHERS != 0 || mode & OF_GROUP != 0 && !is_group_of_root;
    // In a sticky directory only the owner of a file can rename or remove it. The mode of a link has no
    // effect.
    let is_sticky = found.is_dir() && mode & STICKY != 0;
    !is_of_root || is_shared && !is_sticky && !found.is_symlink()
}
