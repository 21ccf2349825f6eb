//! Who can change a program that root starts.

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

/// Checks that no other user than root can change the file `program` of the system, or a directory
/// above it.
///
/// # Errors
/// The refusal, with a command that helps.
pub(crate) fn check(program: &Path, host: &Host) -> Result<(), Error> {
    let Some(path) = changeable(program, host) else { return Ok(()) };
    let (real, at) = (quote(&host.real(program)), quote(&host.real(&path)));
    let remedy = if program.starts_with("/usr") {
        format!("chown root:root {at} && chmod go-w {at}")
    } else {
        let installed = Path::new("/usr/local/bin/synconce");
        let to = quote(&host.real(installed));
        let setup = host.setup("apt").replacen("synconce", &quote(installed), 1);
        format!("install -m 755 {real} {to} && {setup}")
    };
    let reason = if path == program {
        "can be changed by other users than root".to_owned()
    } else {
        format!("can be changed by other users than root, by {}", host.real(&path).display())
    };
    Err(NotEdited::new(reason, remedy).in_file(&host.real(program)).into())
}

/// Returns `program` or the first path above it, also behind links, that another user than root can
/// change.
pub(crate) fn changeable(program: &Path, host: &Host) -> Option<PathBuf> {
    let resolved = host.resolve(program).ok()?;
    let all = program.ancestors().chain(resolved.ancestors());
    let is_changeable = |path: &&Path| {
        let found = fs::symlink_metadata(host.real(path));
        found.is_ok_and(|found| is_of_others(&found))
    };
    all.into_iter().find(is_changeable).map(Path::to_owned)
}

fn is_of_others(found: &Metadata) -> bool {
    // No user of a user namespace can be the owner of an unmapped file.
    let unmapped = (!is_first_user_namespace()).then_some(OVERFLOW);
    // Another user than root sets up only trees of its own.
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let is_of_root = [0, user].contains(&found.uid()) || unmapped == Some(found.uid());
    let is_group_of_root =
        [0, STAFF, group].contains(&found.gid()) || unmapped == Some(found.gid());
    let mode = found.mode();
    let is_shared = mode & OF_OTHERS != 0 || mode & OF_GROUP != 0 && !is_group_of_root;
    // In a sticky directory only the owner of a file can rename or remove it. The mode of a link has no
    // effect.
    let is_sticky = found.is_dir() && mode & STICKY != 0;
    !is_of_root || is_shared && !is_sticky && !found.is_symlink()
}
