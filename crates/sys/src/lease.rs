//! Leases of files (fcntl(2), F_SETLEASE).

use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};

/// Whether the regular file `file`, a descriptor for reading, is open for writing anywhere: the
/// kernel then gives no read lease. That includes what /proc does not show, such as processes
/// outside of this pid namespace, descriptors in a socket, and files of an io_uring. A process that
/// opens the file for writing during the call waits until its end, or gets EWOULDBLOCK with
/// O_NONBLOCK.
///
/// # Errors
/// `EACCES` without CAP_LEASE, if the file is of another user; `EINVAL` where there are no leases.
pub fn is_open_for_writing(file: impl AsFd) -> Result<bool> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: fcntl takes no pointer here.
    let set = |act: libc::c_int, value: libc::c_int| match unsafe { libc::fcntl(file, act, value) }
    {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    };
    // An open for writing breaks the lease by a signal. SIGIO, the default, would end this process.
    set(F_SETSIG, libc::SIGURG)?;
    match set(libc::F_SETLEASE, libc::F_RDLCK) {
        Err(Errno::AGAIN) => Ok(true),
        other => other.and_then(|()| set(libc::F_SETLEASE, libc::F_UNLCK)).map(|()| false),
    }
}

/// The signal of a lease (linux/fcntl.h), which the crate libc lacks.
const F_SETSIG: libc::c_int = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Command, Stdio};

    /// The end of this process by a signal is the failure.
    #[test]
    fn an_open_for_writing_during_a_look_does_no_harm() {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut shell = Command::new("sh");
        // It ends with this process, too: no process has the pipe open for reading then.
        shell.args(["-c", "while echo; do : >>\"$0\"; done"]).arg(&file);
        let mut writer = shell.stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let looks = || is_open_for_writing(File::open(&file).unwrap()).unwrap();
        let seen = (0..10_000_000).filter(|_| looks()).take(50).count();
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert_eq!((seen, looks()), (50, false));
    }
}
