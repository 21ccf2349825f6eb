//! Whether root may start a program: it can be executed, and no other user can change it.

use crate::error::{Error, NotEdited};
use crate::host::{Host, is_absent};
use rustix::buffer::spare_capacity;
use rustix::fs::lgetxattr;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error as Failed};
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
const ACCESS_LIST: &str = "system.posix_acl_access";
/// XATTR_SIZE_MAX (linux/limits.h).
const LONGEST_ATTRIBUTE: usize = 1 << 16;
/// Tags and rights of an access list (linux/posix_acl.h).
const OF_NAMED_USER: u16 = 0x02;
const OF_NAMED_GROUP: u16 = 0x08;
const WRITE: u16 = 0o2;
/// The id in an access list of a user or group that has no id in the user namespace.
const UNMAPPED: u32 = u32::MAX;
/// A synconce whose name begins with this acts as a runtime, and so does one with the name of a
/// runtime, such as runc.
const NAME: &str = "synconce-oci";
/// Where a copy that only root can change is installed.
const INSTALLED: &str = "/usr/local/bin/synconce";

impl Host {
    /// Checks that `synconce-oci` exists, by its name and under a path that every configuration
    /// file can express, and that no other user than root can change it. `set_up` has the words
    /// after `synconce setup`.
    ///
    /// # Errors
    /// The refusal: an engine would fail to start each container, hold none, or start another
    /// user's program.
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
    /// The refusal: the daemon would not start any more, or root would start another user's
    /// program.
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
    let Some(path) = changeable(program, host)? else { return Ok(()) };
    let real = host.real(&path);
    let at = quote(&real);
    let remedy = if !path.starts_with("/usr") && path != Path::new("/") {
        let (from, to) = (host.resolve(program)?, Path::new(INSTALLED));
        let link = format!("ln -sf synconce {}-oci", quote(&host.real(to)));
        let directory = if host.is_running() { "/usr/local/bin/" } else { "" };
        let set_up = format!("{link} && {directory}{}", host.setup(set_up));
        if from == to {
            // The copy is there; only the way to the program leads through a directory of another
            // user.
            set_up
        } else {
            let (from, to) = (quote(&host.real(&from)), quote(&host.real(to)));
            format!("install -m 755 {from} {to} && {set_up}")
        }
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
/// The program need not exist.
///
/// # Errors
/// A link that cannot be followed, or a path whose owner or access list cannot be read.
pub(crate) fn changeable(program: &Path, host: &Host) -> Result<Option<PathBuf>, Failed> {
    let mut way = vec![PathBuf::from("/")];
    host.follow(program, &mut |path| way.push(path.to_owned()))?;
    for path in way {
        let real = host.real(&path);
        let found = match fs::symlink_metadata(&real) {
            Err(error) if is_absent(&error) => continue,
            found => found.on("cannot look at", &real)?,
        };
        if is_of_others(&found, &real, host)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Users or groups that count as root.
type Trusted = [Option<u32>; 4];

fn is_of_others(found: &Metadata, real: &Path, host: &Host) -> Result<bool, Failed> {
    // No user of a user namespace can be the owner of an unmapped file.
    let unmapped = (!is_first_user_namespace()).then_some(OVERFLOW);
    // Another user than root sets up only trees of its own. The group of root's process may have
    // any members (newgrp(1)).
    let is_own_tree = !host.is_running() && !geteuid().is_root();
    let own = is_own_tree.then(|| (geteuid().as_raw(), getegid().as_raw())).unzip();
    let users: Trusted = [Some(0), own.0, unmapped, None];
    let groups: Trusted = [Some(0), Some(STAFF), own.1, unmapped];
    if !users.contains(&Some(found.uid())) {
        return Ok(true);
    }
    let mode = found.mode();
    // In a sticky directory only the owner of a file can rename or remove it. The mode of a link
    // has no effect.
    if found.is_symlink() || found.is_dir() && mode & STICKY != 0 {
        return Ok(false);
    }
    if mode & OF_OTHERS != 0 {
        return Ok(true);
    }
    // With an access list these bits are its mask: without them no entry lets a user or group
    // write.
    Ok(mode & OF_GROUP != 0
        && (!groups.contains(&Some(found.gid())) || lets_others_write(real, &users, &groups)?))
}

/// Returns whether the access list of `real` (acl(5)) lets a user or group write that is not among
/// `users` and `groups`, if its mask does.
fn lets_others_write(real: &Path, users: &Trusted, groups: &Trusted) -> Result<bool, Failed> {
    let mut list = Vec::with_capacity(LONGEST_ATTRIBUTE);
    match lgetxattr(real, ACCESS_LIST, spare_capacity(&mut list)) {
        // There is no list, or the file system has none.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(false),
        read => read.on("cannot read the access list of", real)?,
    };
    // A version, and entries of a tag, rights and an id (linux/posix_acl_xattr.h).
    let (_, entries) = list.split_at_checked(4).unwrap_or_default();
    Ok(entries.chunks_exact(8).any(|entry| {
        let [t0, t1, r0, r1, ref id @ ..] = *entry else { return false };
        let (tag, rights) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([r0, r1]));
        let id = id.try_into().map(u32::from_le_bytes).unwrap_or_default();
        let trusted = match tag {
            OF_NAMED_USER => users,
            OF_NAMED_GROUP => groups,
            _ => return false,
        };
        rights & WRITE != 0 && id != UNMAPPED && !trusted.contains(&Some(id))
    }))
}
