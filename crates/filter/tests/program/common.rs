//! Shared by the tests: every policy, interesting calls, and a second implementation of the
//! rules, by hand and with plain numbers, for comparison.

use std::io::Write;

use synconce_filter::{Abi, Call, FilterVerdict, HeldAnswer, SeccompData, Spec, native_abis};

/// Includes the smallest and the largest byte, and a byte that equals
/// `HANDSHAKE_SEALED_ERRNO`.
const IDENTITY: [u8; 16] = [0, 255, 76, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 254, 128];

/// Returns every policy.
pub fn specs() -> Vec<Spec> {
    let answers = [HeldAnswer::Supervised, HeldAnswer::Sealed];
    let build = |(answer, bits): (HeldAnswer, u8)| Spec {
        answer,
        io_uring_pass: bits & 1 != 0,
        identity: (bits & 2 != 0).then_some(IDENTITY),
        page_size: 4096,
    };
    answers.iter().flat_map(|&answer| (0..4).map(move |bits| build((answer, bits)))).collect()
}

/// Returns every set of the ABIs of one machine, including the empty set.
pub fn abi_sets() -> Vec<Vec<Abi>> {
    let subsets = |abis: &'static [Abi]| {
        let of = move |bits: usize| {
            abis.iter().enumerate().filter(move |(i, _)| bits >> i & 1 != 0).map(|(_, &abi)| abi)
        };
        (0..1 << abis.len()).map(move |bits| of(bits).collect())
    };
    let (x86, arm) = Abi::ALL.split_at(3);
    subsets(x86).chain(subsets(arm).skip(1)).collect()
}

/// Returns the kernel's description of a call.
pub fn data(abi: Abi, nr: u32, args: [u64; 6]) -> SeccompData {
    SeccompData {
        nr: nr.cast_signed(),
        arch: abi.audit_arch(),
        instruction_pointer: 0x7FFF_1234_5678,
        args,
    }
}

/// Returns the ABIs in which a test process can make calls on this machine.
pub fn usable_abis() -> Vec<Abi> {
    let usable = |abi: &Abi| match abi {
        Abi::I386 if !synconce_sys::questions::i386_works() => {
            skipped("i386 calls in the kernel", "int 0x80 does not work in this process");
            false
        }
        Abi::Arm => {
            skipped("arm calls in the kernel", "a 64-bit process cannot make them");
            false
        }
        _ => true,
    };
    native_abis().iter().copied().filter(usable).collect()
}

/// Returns which argument of sync_file_range(2) has the flags.
pub fn range_flags_at(abi: Abi) -> usize {
    match abi {
        Abi::I386 => 5,
        Abi::Arm => 1,
        Abi::X86_64 | Abi::X32 | Abi::Aarch64 => 3,
    }
}

/// Reports a skipped test on the real standard error, which the test harness does not capture.
pub fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// A reproducible source of numbers (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }
}

const NOT_OPEN: u64 = 1000;
const NOISE: u64 = 0xDEAD_BEEF_0000_0000;
const HANDSHAKE: u64 = 0x5359_4E43;

/// Descriptors; none of them is open.
const DESCRIPTORS: [u64; 6] =
    [NOT_OPEN, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF, NOISE | NOT_OPEN];
const OPEN_FLAGS: [u64; 10] = [
    0,
    0o101,
    0o10_000,
    0o4_000_000,
    0o4_010_000,
    0o4_010_101,
    0o2_000_000,
    0xFFFF_FFFF & !0o4_010_000,
    NOISE | 0o10_001,
    NOISE | 2,
];
const RANGE_FLAGS: [u64; 14] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, HANDSHAKE, HANDSHAKE + 1, 0x8000_0000, NOISE | 2];
/// Offsets and lengths of ranges. The first offsets select bytes of an identity.
const OFFSETS: [u64; 7] = [0, 1, 16, 17, 1 << 62, 1 << 63, NOISE | 0x1000];
const LENGTHS: [u64; 5] = [0, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63];
/// Upper halves of offsets and lengths in 32-bit ABIs, and two lower halves.
const HALVES: [u64; 5] = [0, 1, 0x3FFF_FFFF, 0x4000_0000, 0x8000_0000];
const RWF_FLAGS: [u64; 9] = [0, 1, 2, 4, 6, 8, 0x12, 0xFFFF_FFF9, NOISE | 4];
const IOCTLS: [u64; 9] =
    [0x1261, 0xC004_5877, 0x9408, 0x1260, 0x5401, 0x9409, 0, NOISE | 0x1261, NOISE | 0x5401];
const QUOTA_COMMANDS: [u64; 7] = [
    0x8000_0100,
    0x8000_0101,
    0x8000_01FF,
    0x8000_0400,
    0x80_0001,
    0x0000_0100,
    NOISE | 0x8000_0102,
];
const REBOOT_COMMANDS: [u64; 8] = [
    0x0123_4567,
    0xCDEF_0123,
    0x4321_FEDC,
    0xA1B2_C3D4,
    NOISE | 0x4558_4543,
    0x89AB_CDEF,
    0xD000_FCE2,
    0,
];
const ADDRESSES: [u64; 4] = [0x1000, 0x1001, 0x1800, 0x3000];
const MSYNC_FLAGS: [u64; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 12, NOISE | 4];

/// Returns interesting and harmless arguments: none of their descriptors is open and every
/// pointer is null or unmapped. Arguments that a case does not set are `filler`.
pub fn cases(call: Call, abi: Abi, filler: u64) -> Vec<[u64; 6]> {
    let varied: Vec<(usize, &[u64])> = match call {
        Call::Fsync | Call::Fdatasync | Call::Syncfs => vec![(0, &DESCRIPTORS)],
        Call::Sync => vec![],
        Call::Msync => vec![(0, &ADDRESSES), (1, &[4096]), (2, &MSYNC_FLAGS)],
        Call::SyncFileRange if abi == Abi::I386 => vec![
            (0, &DESCRIPTORS),
            (1, &OFFSETS[..3]),
            (2, &HALVES),
            (3, &HALVES[..2]),
            (4, &HALVES),
            (5, &RANGE_FLAGS),
        ],
        Call::SyncFileRange if abi == Abi::Arm => vec![
            (0, &DESCRIPTORS),
            (1, &RANGE_FLAGS),
            (2, &OFFSETS[..3]),
            (3, &HALVES),
            (4, &HALVES[..2]),
            (5, &HALVES),
        ],
        Call::SyncFileRange => {
            vec![(0, &DESCRIPTORS), (1, &OFFSETS), (2, &LENGTHS), (3, &RANGE_FLAGS)]
        }
        Call::Open => vec![(1, &OPEN_FLAGS)],
        // With flags the strict mode is EINVAL; so is the mode 0 of prctl(2).
        Call::Seccomp => vec![(0, &[0, 1, 2, NOISE | 1]), (1, &[1])],
        Call::Prctl => vec![(0, &[22, 16, NOISE | 22]), (1, &[0])],
        Call::Openat | Call::OpenByHandleAt => vec![(2, &OPEN_FLAGS)],
        Call::Openat2 => vec![(3, &[0, 24])],
        Call::Preadv2 | Call::Pwritev2 if abi == Abi::X32 => {
            vec![(0, &[NOT_OPEN]), (4, &RWF_FLAGS)]
        }
        Call::Preadv2 | Call::Pwritev2 => vec![(0, &[NOT_OPEN]), (5, &RWF_FLAGS)],
        Call::IoSubmit => vec![(1, &[1])],
        Call::IoUringSetup => vec![(0, &[0, 8])],
        Call::Ioctl => vec![(0, &[NOT_OPEN]), (1, &IOCTLS)],
        // Without the name of a device, Q_SYNC waits for every file system of the machine.
        Call::Quotactl => vec![(0, &QUOTA_COMMANDS), (1, &ADDRESSES[..1])],
        Call::QuotactlFd => vec![(0, &[NOT_OPEN]), (1, &QUOTA_COMMANDS)],
        Call::Umount => vec![(1, &[0, 2])],
        // The first magic number is wrong: the kernel refuses the call.
        Call::Reboot => vec![(0, &[0]), (2, &REBOOT_COMMANDS)],
    };
    let mut cases = vec![[filler; 6]];
    for (at, values) in varied {
        let with = |case: &[u64; 6], value: u64| {
            let mut case = *case;
            case[at] = value;
            case
        };
        cases = cases.iter().flat_map(|case| values.iter().map(|&v| with(case, v))).collect();
    }
    if abi.is_32_bit() {
        // A 32-bit caller has no upper halves.
        cases.iter_mut().flatten().for_each(|arg| *arg &= 0xFFFF_FFFF);
    }
    cases
}

/// Returns the verdict that the policy requires.
pub fn expected(spec: &Spec, abi: Abi, call: Call, args: &[u64; 6]) -> FilterVerdict {
    match spec.answer {
        HeldAnswer::Supervised if supervisor_is_asked(spec, abi, call, args) => {
            FilterVerdict::Notify
        }
        HeldAnswer::Supervised => FilterVerdict::Allow,
        HeldAnswer::Sealed => {
            sealed_errno(spec, abi, call, args).map_or(FilterVerdict::Allow, FilterVerdict::Errno)
        }
    }
}

fn low(arg: u64) -> u32 {
    arg as u32
}

fn range_flags(abi: Abi, args: &[u64; 6]) -> u32 {
    low(args[range_flags_at(abi)])
}

fn supervisor_is_asked(spec: &Spec, abi: Abi, call: Call, args: &[u64; 6]) -> bool {
    let fd = low(args[0]) as i32;
    match call {
        Call::Fsync | Call::Fdatasync | Call::Syncfs => fd >= 0,
        Call::Sync | Call::Openat2 | Call::IoSubmit | Call::Umount => true,
        Call::Msync => low(args[2]) & 4 != 0,
        Call::SyncFileRange => match (fd, range_flags(abi, args)) {
            (-1, flags) => flags == 0x5359_4E43,
            (..-1, _) => false,
            _ => true,
        },
        Call::Open => low(args[1]) & 0x10_1000 != 0,
        Call::Openat | Call::OpenByHandleAt => low(args[2]) & 0x10_1000 != 0,
        Call::Preadv2 | Call::Pwritev2 if abi == Abi::X32 => low(args[4]) & 6 != 0,
        Call::Preadv2 | Call::Pwritev2 => low(args[5]) & 6 != 0,
        Call::IoUringSetup => !spec.io_uring_pass,
        Call::Ioctl => matches!(low(args[1]), 0x1261 | 0xC004_5877 | 0x9408),
        Call::Quotactl => low(args[0]) >> 8 == 0x80_0001,
        Call::Seccomp => low(args[0]) <= 1,
        Call::Prctl => low(args[0]) == 22,
        Call::QuotactlFd => low(args[1]) >> 8 == 0x80_0001,
        Call::Reboot => matches!(
            low(args[2]),
            0x0123_4567 | 0xCDEF_0123 | 0x4321_FEDC | 0xA1B2_C3D4 | 0x4558_4543
        ),
    }
}

fn sealed_errno(spec: &Spec, abi: Abi, call: Call, args: &[u64; 6]) -> Option<u16> {
    let fd = low(args[0]) as i32;
    match call {
        Call::Fsync | Call::Fdatasync | Call::Syncfs => (fd >= 0).then_some(0),
        Call::Sync => Some(0),
        Call::Msync => {
            let aligned = args[0].is_multiple_of(spec.page_size.into());
            (matches!(low(args[2]), 4 | 6) && aligned).then_some(0)
        }
        Call::SyncFileRange => match (fd, range_flags(abi, args)) {
            (-1, 0x5359_4E43) => {
                let offset = if abi == Abi::Arm { args[2] } else { args[1] };
                Some(handshake(spec, low(offset)))
            }
            (0.., 0..=7) => may_be_valid(abi, args).then_some(0),
            _ => None,
        },
        Call::IoUringSetup => (!spec.io_uring_pass).then_some(38),
        _ => None,
    }
}

fn handshake(spec: &Spec, offset: u32) -> u16 {
    let byte = |identity: &[u8; 16]| identity.get(offset.checked_sub(1)? as usize).copied();
    spec.identity.as_ref().and_then(byte).map_or(76, u16::from)
}

/// Whether the program holds the range. A range whose end may be past the largest file is left
/// to the kernel.
fn may_be_valid(abi: Abi, args: &[u64; 6]) -> bool {
    let (offset, length) = match abi {
        Abi::I386 => {
            (args[2] << 32 | u64::from(low(args[1])), args[4] << 32 | u64::from(low(args[3])))
        }
        Abi::Arm => {
            (args[3] << 32 | u64::from(low(args[2])), args[5] << 32 | u64::from(low(args[4])))
        }
        _ => (args[1], args[2]),
    };
    offset < 1 << 62 && (length < 1 << 62 || length < 1 << 63 && offset == 0)
}
