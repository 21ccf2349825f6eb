//! Compares the argument helpers with libc's constants and the kernel's signatures.

use synconce_filter::{Abi, Call, args};

#[test]
fn the_constants_are_those_of_the_c_library() {
    assert_eq!(args::OPEN_SYNC_MASK, (libc::O_SYNC | libc::O_DSYNC) as u32);
    assert_eq!(args::OPEN_SYNC_MASK, 0o4_010_000);
    assert_eq!(args::RWF_SYNC_MASK, (libc::RWF_SYNC | libc::RWF_DSYNC) as u32);
    assert_eq!(args::MS_SYNC, libc::MS_SYNC as u32);
    assert_eq!(args::MS_ASYNC, libc::MS_ASYNC as u32);
    assert_eq!(args::MS_INVALIDATE, libc::MS_INVALIDATE as u32);
    assert_eq!(args::SYNC_FILE_RANGE_WAIT_BEFORE, libc::SYNC_FILE_RANGE_WAIT_BEFORE);
    assert_eq!(args::SYNC_FILE_RANGE_WRITE, libc::SYNC_FILE_RANGE_WRITE);
    assert_eq!(args::SYNC_FILE_RANGE_WAIT_AFTER, libc::SYNC_FILE_RANGE_WAIT_AFTER);
    assert_eq!(args::Q_SYNC, libc::Q_SYNC as u32);
}

#[test]
fn the_ioctl_commands_are_what_their_macros_give() {
    let command = |direction: u32, size: u32, kind: u32, number: u32| {
        direction << 30 | size << 16 | kind << 8 | number
    };
    assert_eq!(args::BLKFLSBUF, command(0, 0, 0x12, 97));
    assert_eq!(args::FIFREEZE, command(3, 4, u32::from(b'X'), 119));
    assert_eq!(args::BTRFS_IOC_SYNC, command(0, 0, 0x94, 8));
    // From before the macros.
    assert_eq!(args::LOOP_CLR_FD, command(0, 0, u32::from(b'L'), 1));
}

#[test]
fn abis_of_32_bits_split_the_offsets_of_sync_file_range() {
    let split = (0x1234_5678_9ABC_DEF0, i64::MAX, 7);
    let words = [3, 0x9ABC_DEF0, 0x1234_5678, 0xFFFF_FFFF, 0x7FFF_FFFF, 7];
    assert_eq!(args::sync_file_range(Abi::I386, &words), split);
    let words = [3, 7, 0x9ABC_DEF0, 0x1234_5678, 0xFFFF_FFFF, 0x7FFF_FFFF];
    assert_eq!(args::sync_file_range(Abi::Arm, &words), split);
    let whole = [3, u64::MAX, 4096, 0xDEAD_0000_0000_0002, 9, 9];
    for abi in [Abi::X86_64, Abi::X32, Abi::Aarch64] {
        assert_eq!(args::sync_file_range(abi, &whole), (-1, 4096, 2), "{abi:?}");
    }
}

#[test]
fn only_calls_with_flags_in_an_argument_have_an_index_for_them() {
    let with: Vec<_> =
        Call::ALL.iter().filter_map(|&c| args::open_flags_index(c).map(|at| (c, at))).collect();
    assert_eq!(with, [(Call::Open, 1), (Call::Openat, 2), (Call::OpenByHandleAt, 2)]);
    let quota: Vec<_> =
        Call::ALL.iter().filter_map(|&c| args::quota_command_index(c).map(|at| (c, at))).collect();
    assert_eq!(quota, [(Call::Quotactl, 0), (Call::QuotactlFd, 1)]);
}

#[test]
fn pointers_have_the_width_of_the_abi() {
    let wide: Vec<_> = Abi::ALL.iter().filter(|abi| abi.pointer_width() == 8).collect();
    assert_eq!(wide, [&Abi::X86_64, &Abi::Aarch64]);
    let halved: Vec<_> = Abi::ALL.iter().filter(|abi| abi.is_32_bit()).collect();
    assert_eq!(halved, [&Abi::I386, &Abi::Arm]);
}

#[test]
fn a_descriptor_is_the_low_half_of_its_argument() {
    assert_eq!(args::descriptor(0xFFFF_FFFF), -1);
    assert_eq!(args::descriptor(u64::MAX), -1);
    assert_eq!(args::descriptor(0xDEAD_BEEF_0000_0003), 3);
}
