//! The arguments of the held calls: constants and argument positions, for the program and for
//! the supervisor, which reads the same words.
//!
//! Constants are those of the generic ABI; x86, aarch64 and arm have the same values.

use crate::abi::Abi;
use crate::call::Call;

/// `O_DSYNC | __O_SYNC`: either bit makes every write to the descriptor wait for the disk.
/// `O_SYNC` is both (include/uapi/asm-generic/fcntl.h).
pub const OPEN_SYNC_MASK: u32 = 0o4_010_000;

/// The bit of [`OPEN_SYNC_MASK`] that both flags of programs have.
pub const O_DSYNC: u32 = 0o10_000;

/// `RWF_DSYNC | RWF_SYNC` (include/uapi/linux/fs.h).
pub const RWF_SYNC_MASK: u32 = 0x6;

/// `MS_ASYNC` of msync(2) (include/uapi/asm-generic/mman-common.h).
pub const MS_ASYNC: u32 = 1;
/// `MS_INVALIDATE` of msync(2).
pub const MS_INVALIDATE: u32 = 2;
/// `MS_SYNC` of msync(2).
pub const MS_SYNC: u32 = 4;

/// `SYNC_FILE_RANGE_WAIT_BEFORE` (include/uapi/linux/fs.h).
pub const SYNC_FILE_RANGE_WAIT_BEFORE: u32 = 1;
/// `SYNC_FILE_RANGE_WRITE`: start write-back, do not wait for it.
pub const SYNC_FILE_RANGE_WRITE: u32 = 2;
/// `SYNC_FILE_RANGE_WAIT_AFTER`.
pub const SYNC_FILE_RANGE_WAIT_AFTER: u32 = 4;
/// Every valid flag of sync_file_range(2); any other bit gives `EINVAL`.
pub const SYNC_FILE_RANGE_MASK: u32 =
    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

/// `SECCOMP_SET_MODE_STRICT` of seccomp(2) (include/uapi/linux/seccomp.h).
pub const SET_MODE_STRICT: u32 = 0;
/// `SECCOMP_SET_MODE_FILTER`.
pub const SET_MODE_FILTER: u32 = 1;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub const NEW_LISTENER: u32 = 8;
/// `PR_SET_SECCOMP` of prctl(2) (include/uapi/linux/prctl.h).
pub const PR_SET_SECCOMP: u32 = 22;

/// `BLKFLSBUF`, `_IO(0x12, 97)`: write out and drop a block device's cache.
pub const BLKFLSBUF: u32 = 0x1261;
/// `FIFREEZE`, `_IOWR('X', 119, int)`: freeze a file system, which syncs it.
pub const FIFREEZE: u32 = 0xC004_5877;
/// `BTRFS_IOC_SYNC`, `_IO(0x94, 8)`: btrfs's own syncfs.
pub const BTRFS_IOC_SYNC: u32 = 0x9408;
/// `LOOP_CLR_FD`: detach a loop device from its file (include/uapi/linux/loop.h).
pub const LOOP_CLR_FD: u32 = 0x4C01;
/// The ioctl(2) commands that a supervised program stops.
pub(crate) const SYNC_IOCTLS: [u32; 4] = [BLKFLSBUF, FIFREEZE, BTRFS_IOC_SYNC, LOOP_CLR_FD];

/// `Q_SYNC` of quotactl(2), before `QCMD` shifts it (include/uapi/linux/quota.h).
pub const Q_SYNC: u32 = 0x80_0001;
/// How far `QCMD` shifts a command; the type of quota is in the bits below.
pub(crate) const QUOTA_COMMAND_SHIFT: u32 = 8;

/// The commands of reboot(2) that end the machine without a sync: `LINUX_REBOOT_CMD_RESTART`,
/// `HALT`, `POWER_OFF`, `RESTART2` and `KEXEC` (include/uapi/linux/reboot.h). Before `SW_SUSPEND`
/// the kernel syncs by itself.
pub(crate) const ENDS_OF_MACHINE: [u32; 5] =
    [0x0123_4567, 0xCDEF_0123, 0x4321_FEDC, 0xA1B2_C3D4, 0x4558_4543];
/// Which argument of reboot(2) has the command.
pub(crate) const REBOOT_COMMAND_INDEX: usize = 2;

/// Returns the low half of an argument: the kernel reads only this half of an `int`.
#[must_use]
pub const fn low(arg: u64) -> u32 {
    (arg & 0xFFFF_FFFF) as u32
}

/// Returns an argument as a descriptor, as the kernel reads it.
#[must_use]
pub const fn descriptor(arg: u64) -> i32 {
    low(arg).cast_signed()
}

/// Returns which argument has the open flags, or `None` for a call without flags in its
/// arguments (openat2(2) has them in memory).
#[must_use]
pub const fn open_flags_index(call: Call) -> Option<usize> {
    match call {
        Call::Open => Some(1),
        Call::Openat | Call::OpenByHandleAt => Some(2),
        _ => None,
    }
}

/// Returns which argument has the `RWF_*` flags of preadv2(2) and pwritev2(2): the last of six
/// where the offset is split into two halves, the last of five on x32, where the offset is one
/// argument (`compat_sys_preadv64v2`, fs/read_write.c).
#[must_use]
pub const fn rwf_index(abi: Abi) -> usize {
    match abi {
        Abi::X32 => 4,
        Abi::X86_64 | Abi::I386 | Abi::Aarch64 | Abi::Arm => 5,
    }
}

/// Returns which argument has the command of quotactl(2) or quotactl_fd(2), or `None` for any
/// other call.
#[must_use]
pub const fn quota_command_index(call: Call) -> Option<usize> {
    match call {
        Call::Quotactl => Some(0),
        Call::QuotactlFd => Some(1),
        _ => None,
    }
}

/// Returns which argument has the flags of sync_file_range(2). On arm the call is
/// arm_sync_file_range(2), in which the flags come second: a 64-bit argument begins at an even
/// register there.
#[must_use]
pub const fn sync_file_range_flags_index(abi: Abi) -> usize {
    match abi {
        Abi::I386 => 5,
        Abi::Arm => 1,
        Abi::X86_64 | Abi::X32 | Abi::Aarch64 => 3,
    }
}

/// Returns the offset in bytes, the length in bytes and the flags of a sync_file_range(2)
/// call.
///
/// 32-bit ABIs split the 64-bit arguments.
/// - i386: descriptor, offset low, offset high, length low, length high, flags
///   (`ia32_sync_file_range`, arch/x86/kernel/sys_ia32.c).
/// - arm: descriptor, flags, offset low, offset high, length low, length high
///   (`aarch32_sync_file_range2`, arch/arm64/kernel/sys32.c).
#[must_use]
pub const fn sync_file_range(abi: Abi, args: &[u64; 6]) -> (i64, i64, u32) {
    let flags = low(args[sync_file_range_flags_index(abi)]);
    match abi {
        Abi::I386 => (join(args[1], args[2]), join(args[3], args[4]), flags),
        Abi::Arm => (join(args[2], args[3]), join(args[4], args[5]), flags),
        Abi::X86_64 | Abi::X32 | Abi::Aarch64 => {
            (args[1].cast_signed(), args[2].cast_signed(), flags)
        }
    }
}

const fn join(low_half: u64, high_half: u64) -> i64 {
    ((high_half << 32) | (low_half & 0xFFFF_FFFF)).cast_signed()
}
