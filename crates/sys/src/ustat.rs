//! Mounted file systems by their device numbers (ustat(2)).

/// Returns whether the file system with this device number is in use: it is mounted in any mount
/// namespace, or an open file keeps it after its last unmount. Waits while the kernel writes the
/// file system out at its end (`user_get_super` takes `s_umount`, Linux 6.18).
///
/// The number is the number in mountinfo; stat(2) returns other numbers for the subvolumes of a
/// btrfs. Returns `None` if the kernel does not say: arm64 has no ustat(2), and the seccomp
/// profiles of container engines refuse the call.
#[cfg(target_arch = "x86_64")]
pub fn is_in_use(major: u32, minor: u32) -> Option<bool> {
    use std::io;
    // `struct ustat` has 32 bytes.
    let mut answer = [0_u64; 8];
    // As `new_encode_dev` of the kernel does.
    let device = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
    // SAFETY: the kernel writes at most 32 bytes to `answer`.
    let done = unsafe { libc::syscall(libc::SYS_ustat, device, answer.as_mut_ptr()) };
    match done {
        0 => Some(true),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) => Some(false),
        _ => None,
    }
}

/// Returns `None`: this architecture has no ustat(2).
#[cfg(not(target_arch = "x86_64"))]
pub fn is_in_use(_major: u32, _minor: u32) -> Option<bool> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn proc_is_in_use_and_a_number_of_no_driver_is_not() {
        let device = rustix::fs::stat("/proc").unwrap().st_dev;
        let number = (rustix::fs::major(device), rustix::fs::minor(device));
        assert_ne!(is_in_use(number.0, number.1), Some(false));
        assert_ne!(is_in_use(4095, 1_048_575), Some(true));
    }
}
