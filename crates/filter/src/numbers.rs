//! System call numbers, from the `syscalls` crate's generated tables.
//!
//! The `syscalls` crate has no table for x32. An x32 number is that of x86_64 with bit 30 set,
//! except for a few calls that have an entry of their own ([`on_x32`]).

use syscalls::{aarch64, arm, x86, x86_64};

use crate::abi::Abi;
use crate::call::Call;

/// `__X32_SYSCALL_BIT`, arch/x86/include/uapi/asm/unistd.h.
const X32_BIT: u32 = 0x4000_0000;

/// The number of a call in the table `$abi`. `$open` is the number of open(2), which aarch64 lacks.
/// `$range` is the table's name for sync_file_range(2).
macro_rules! number {
    ($call:expr, $abi:ident, $open:expr, $range:ident) => {{
        let number = match $call {
            Call::Fsync => $abi::Sysno::fsync,
            Call::Fdatasync => $abi::Sysno::fdatasync,
            Call::Sync => $abi::Sysno::sync,
            Call::Syncfs => $abi::Sysno::syncfs,
            Call::Msync => $abi::Sysno::msync,
            Call::SyncFileRange => $abi::Sysno::$range,
            Call::Open => $open,
            Call::Openat => $abi::Sysno::openat,
            Call::Openat2 => $abi::Sysno::openat2,
            Call::OpenByHandleAt => $abi::Sysno::open_by_handle_at,
            Call::Preadv2 => $abi::Sysno::preadv2,
            Call::Pwritev2 => $abi::Sysno::pwritev2,
            Call::IoSubmit => $abi::Sysno::io_submit,
            Call::IoUringSetup => $abi::Sysno::io_uring_setup,
            Call::Ioctl => $abi::Sysno::ioctl,
            Call::Quotactl => $abi::Sysno::quotactl,
            Call::QuotactlFd => $abi::Sysno::quotactl_fd,
            Call::Umount => $abi::Sysno::umount2,
            Call::Seccomp => $abi::Sysno::seccomp,
            Call::Prctl => $abi::Sysno::prctl,
            Call::Reboot => $abi::Sysno::reboot,
        };
        number.id().cast_unsigned()
    }};
}

impl Call {
    /// Returns the number of this call, including bit 30 for x32, or `None` if the ABI does
    /// not have the call. For [`Call::Umount`] this is umount2.
    #[must_use]
    pub fn number(self, abi: Abi) -> Option<u32> {
        match abi {
            Abi::X86_64 => Some(on_x86_64(self)),
            Abi::X32 => Some(on_x32(self)),
            Abi::I386 => Some(number!(self, x86, x86::Sysno::open, sync_file_range)),
            Abi::Aarch64 => Some(number!(self, aarch64, return None, sync_file_range)),
            Abi::Arm => Some(number!(self, arm, arm::Sysno::open, arm_sync_file_range)),
        }
    }

    /// Returns every number of this call: [`Call::number`] and, for [`Call::Umount`] on i386,
    /// the old umount.
    pub fn numbers(self, abi: Abi) -> impl Iterator<Item = u32> {
        let old = (self == Self::Umount).then(|| old_umount(abi));
        self.number(abi).into_iter().chain(old.flatten())
    }

    /// Returns the ABI and the call of `seccomp_data.arch` and `seccomp_data.nr`, or `None` if the
    /// call is none of [`Call::ALL`].
    #[must_use]
    pub fn identify(audit_arch: u32, nr: i32) -> Option<(Abi, Self)> {
        let wanted = nr.cast_unsigned();
        let abis = Abi::ALL.iter().filter(|abi| abi.audit_arch() == audit_arch);
        abis.flat_map(|&abi| Self::ALL.iter().map(move |&call| (abi, call)))
            .find(|&(abi, call)| call.numbers(abi).any(|number| number == wanted))
    }
}

/// Returns the number of the old umount(2), which takes no flags; `None` if the ABI does not have
/// the call. 32-bit Arm had it in an older ABI, whose number a 64-bit kernel refuses
/// (arch/arm64/tools/syscall_32.tbl).
fn old_umount(abi: Abi) -> Option<u32> {
    (abi == Abi::I386).then(|| x86::Sysno::umount.id().cast_unsigned())
}

/// Returns the number of `call` in x32. The calls with an entry of their own are in the block
/// "x32-specific system call numbers" of arch/x86/entry/syscalls/syscall_64.tbl.
fn on_x32(call: Call) -> u32 {
    let number = match call {
        Call::Ioctl => 514,
        Call::IoSubmit => 544,
        Call::Preadv2 => 546,
        Call::Pwritev2 => 547,
        shared => on_x86_64(shared),
    };
    X32_BIT | number
}

fn on_x86_64(call: Call) -> u32 {
    number!(call, x86_64, x86_64::Sysno::open, sync_file_range)
}
