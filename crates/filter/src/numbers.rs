//! System call numbers, from the `syscalls` crate's generated tables.
//!
//! x32 has no table there. Its numbers are those of x86_64 with bit 30 set,
//! but for the few calls that have an entry of their own.

use syscalls::{aarch64, x86, x86_64};

use crate::abi::Abi;
use crate::call::Call;

/// `__X32_SYSCALL_BIT`, arch/x86/include/uapi/asm/unistd.h.
const X32_BIT: u32 = 0x4000_0000;

/// The number of a call, or `None` where the ABI lacks it.
pub(crate) fn number(call: Call, abi: Abi) -> Option<u32> {
    match abi {
        Abi::X86_64 => Some(on_x86_64(call).id().cast_unsigned()),
        Abi::X32 => Some(on_x32(call)),
        Abi::I386 => Some(on_i386(call).id().cast_unsigned()),
        Abi::Aarch64 => on_aarch64(call).map(|number| number.id().cast_unsigned()),
    }
}

/// The number of umount(2), the call without flags, where it still exists.
pub(crate) fn old_umount(abi: Abi) -> Option<u32> {
    (abi == Abi::I386).then(|| x86::Sysno::umount.id().cast_unsigned())
}

/// x32 entries that are not the x86_64 ones, from the block "x32-specific
/// system call numbers" of arch/x86/entry/syscalls/syscall_64.tbl.
fn on_x32(call: Call) -> u32 {
    let number = match call {
        Call::Ioctl => 514,
        Call::Execve => 520,
        Call::IoSubmit => 544,
        Call::Execveat => 545,
        Call::Preadv2 => 546,
        Call::Pwritev2 => 547,
        shared => on_x86_64(shared).id().cast_unsigned(),
    };
    X32_BIT | number
}

fn on_x86_64(call: Call) -> x86_64::Sysno {
    use x86_64::Sysno;
    match call {
        Call::Fsync => Sysno::fsync,
        Call::Fdatasync => Sysno::fdatasync,
        Call::Sync => Sysno::sync,
        Call::Syncfs => Sysno::syncfs,
        Call::Msync => Sysno::msync,
        Call::SyncFileRange => Sysno::sync_file_range,
        Call::Open => Sysno::open,
        Call::Openat => Sysno::openat,
        Call::Openat2 => Sysno::openat2,
        Call::OpenByHandleAt => Sysno::open_by_handle_at,
        Call::Preadv2 => Sysno::preadv2,
        Call::Pwritev2 => Sysno::pwritev2,
        Call::IoSubmit => Sysno::io_submit,
        Call::IoUringSetup => Sysno::io_uring_setup,
        Call::Ioctl => Sysno::ioctl,
        Call::Quotactl => Sysno::quotactl,
        Call::QuotactlFd => Sysno::quotactl_fd,
        Call::Umount => Sysno::umount2,
        Call::Execve => Sysno::execve,
        Call::Execveat => Sysno::execveat,
    }
}

fn on_i386(call: Call) -> x86::Sysno {
    use x86::Sysno;
    match call {
        Call::Fsync => Sysno::fsync,
        Call::Fdatasync => Sysno::fdatasync,
        Call::Sync => Sysno::sync,
        Call::Syncfs => Sysno::syncfs,
        Call::Msync => Sysno::msync,
        Call::SyncFileRange => Sysno::sync_file_range,
        Call::Open => Sysno::open,
        Call::Openat => Sysno::openat,
        Call::Openat2 => Sysno::openat2,
        Call::OpenByHandleAt => Sysno::open_by_handle_at,
        Call::Preadv2 => Sysno::preadv2,
        Call::Pwritev2 => Sysno::pwritev2,
        Call::IoSubmit => Sysno::io_submit,
        Call::IoUringSetup => Sysno::io_uring_setup,
        Call::Ioctl => Sysno::ioctl,
        Call::Quotactl => Sysno::quotactl,
        Call::QuotactlFd => Sysno::quotactl_fd,
        Call::Umount => Sysno::umount2,
        Call::Execve => Sysno::execve,
        Call::Execveat => Sysno::execveat,
    }
}

fn on_aarch64(call: Call) -> Option<aarch64::Sysno> {
    use aarch64::Sysno;
    Some(match call {
        Call::Open => return None,
        Call::Fsync => Sysno::fsync,
        Call::Fdatasync => Sysno::fdatasync,
        Call::Sync => Sysno::sync,
        Call::Syncfs => Sysno::syncfs,
        Call::Msync => Sysno::msync,
        Call::SyncFileRange => Sysno::sync_file_range,
        Call::Openat => Sysno::openat,
        Call::Openat2 => Sysno::openat2,
        Call::OpenByHandleAt => Sysno::open_by_handle_at,
        Call::Preadv2 => Sysno::preadv2,
        Call::Pwritev2 => Sysno::pwritev2,
        Call::IoSubmit => Sysno::io_submit,
        Call::IoUringSetup => Sysno::io_uring_setup,
        Call::Ioctl => Sysno::ioctl,
        Call::Quotactl => Sysno::quotactl,
        Call::QuotactlFd => Sysno::quotactl_fd,
        Call::Umount => Sysno::umount2,
        Call::Execve => Sysno::execve,
        Call::Execveat => Sysno::execveat,
    })
}
