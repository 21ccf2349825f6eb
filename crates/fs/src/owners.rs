//! Why a file cannot get its owner.

use rustix::io::Errno;
use std::io;
use synconce_sys::namespace::is_first_user_namespace;

/// Returns the reason for a chown(2) to `uid` and `gid` that failed with `errno`.
pub(crate) fn why_not_owned(uid: u32, gid: u32, errno: Errno) -> io::Error {
    match errno {
        // chown(2): the id is not mapped in the user namespace. The first one has all ids; there a
        // FUSE server gave the error.
        Errno::INVAL if !is_first_user_namespace() => io::Error::other(format!(
            "{uid}:{gid} is not among this user's ids (/etc/subuid, /etc/subgid)"
        )),
        errno => errno.into(),
    }
}
