//! Which users can change a program that root starts.

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
/// Where a copy that only root can change is installed.
const INSTALLED: &str = "/usr/local/bin/synconce";

/// Checks that no other user than root can change the file `program` of the system, or a directory
/// or link that leads to it. `set_up` has the words after `synconce setup`.
///
/// # Errors
/// The refusal, with a command that helps.
pub(crate) fn check(program: &Path, set_up: &str, host: &Host) -> Result<(), Error> {
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
