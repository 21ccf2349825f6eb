//! Calls and the memory that they point to, made from a fuzzing input.

use super::caller::{AREA, AREA_LENGTH, SHARED, page};
use synconce_filter::{Abi, Call, native_abis};
use synconce_fuzz::arbitrary::{self, Arbitrary};

/// Offsets in the area.
const POINTERS: u64 = 0;
const REQUESTS: u64 = 0x2000;
const HOW: u64 = 0x6000;
const PATH: u64 = AREA_LENGTH - PATH_LENGTH;
const PATH_LENGTH: u64 = 4096;

const PATHS: [&str; 16] = [
    "data",
    "d/new",
    "d/../data",
    "l",
    "up",
    "loop",
    "fd",
    "",
    "/",
    "//.",
    "..",
    "/proc/self/exe",
    "/dev/null",
    "/bin/su",
    "d/",
    "absent/x",
];

/// A word of an argument or of memory.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Word {
    Little(u8),
    Any(u64),
    Negative(u8),
    Bit(u8),
    Descriptor(u8),
    Here,
    Area(u16),
    EndOfArea(u8),
    Shared(u8),
    Request(u8),
    Flags(u8),
}

impl Word {
    fn value(self) -> u64 {
        match self {
            Self::Little(value) => value.into(),
            Self::Any(value) => value,
            Self::Negative(value) => u64::MAX - u64::from(value),
            Self::Bit(bit) => 1 << (bit % 64),
            Self::Descriptor(fd) => u64::from(fd % 15),
            Self::Here => i64::from(-100).cast_unsigned(),
            Self::Area(offset) => AREA + u64::from(offset) % AREA_LENGTH,
            Self::EndOfArea(before) => AREA + AREA_LENGTH - u64::from(before),
            Self::Shared(number) => SHARED + u64::from(number % 8) * page(),
            Self::Request(which) => AREA + REQUESTS + 64 * u64::from(which % 64),
            // O_DSYNC, __O_SYNC, O_PATH, RWF_DSYNC, RWF_SYNC, MS_SYNC.
            Self::Flags(bits) => [0o10_000, 0o4_000_000, 0o10_000_000, 2, 4, 1, 0o100, 0o2]
                .iter()
                .enumerate()
                .map(|(at, flag)| if bits >> at & 1 != 0 { *flag } else { 0 })
                .sum(),
        }
    }
}

/// One `struct iocb`.
#[derive(Clone, Debug, Arbitrary)]
struct Iocb {
    flags: Option<Word>,
    opcode: u8,
    descriptor: u8,
    buffer: Option<Word>,
    rest: [u8; 16],
}

impl Iocb {
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let flags = self.flags.map_or(0, Word::value);
        bytes[12..16].copy_from_slice(&flags.to_le_bytes()[..4]);
        bytes[16] = self.opcode % 9;
        bytes[20] = self.descriptor % 15;
        if let Some(buffer) = self.buffer {
            bytes[24..32].copy_from_slice(&buffer.value().to_le_bytes());
            bytes[32..48].copy_from_slice(&self.rest);
        }
        bytes
    }
}

#[derive(Clone, Debug, Arbitrary)]
enum Path {
    Known(u8),
    Bytes(Vec<u8>),
    UpToTheEnd(u8),
}

/// A call, and the caller's memory.
#[derive(Clone, Debug, Arbitrary)]
pub(super) struct FuzzedCall {
    abi: u8,
    call: u8,
    any_call: Option<(u32, i32)>,
    args: [Word; 6],
    /// Whether pointers lead to valid arguments of the call.
    fits: bool,
    pointers: Vec<Word>,
    requests: Vec<Iocb>,
    how: [Word; 3],
    path: Path,
    patches: Vec<(u16, u8)>,
}

impl FuzzedCall {
    /// Returns the architecture and number, as in a notification.
    pub(super) fn number(&self) -> (u32, i32) {
        let abi = self.abi();
        let call = self.wanted();
        self.any_call.filter(|_| self.abi > 250).unwrap_or_else(|| {
            (abi.audit_arch(), call.number(abi).unwrap_or_default().cast_signed())
        })
    }

    fn abi(&self) -> Abi {
        let abis = native_abis();
        abis[usize::from(self.abi) % abis.len()]
    }

    fn wanted(&self) -> Call {
        // The last call, reboot(2), is decided without its arguments. The corpus numbers the
        // others.
        Call::ALL[usize::from(self.call) % (Call::ALL.len() - 1)]
    }

    pub(super) fn args(&self) -> [u64; 6] {
        let mut args = self.args.map(Word::value);
        if self.fits {
            let (how, path) = (AREA + HOW, AREA + PATH);
            match self.wanted() {
                Call::Open | Call::Umount => args[0] = path,
                Call::Openat => args[1] = path,
                Call::Openat2 => (args[1], args[2]) = (path, how),
                Call::IoSubmit => {
                    let all = self.requests.len() + self.pointers.len();
                    args[1] = (args[1] % 2048).max(1).min(all as u64);
                    args[2] = AREA + POINTERS;
                }
                Call::Msync => {
                    args[0] = SHARED + args[0] % 4 * page();
                    (args[1], args[2]) = (args[1] % (6 * page()), args[2] % 8);
                }
                _ => {}
            }
        }
        args
    }

    /// Returns the content of the area.
    pub(super) fn memory(&self) -> Vec<u8> {
        let mut memory = vec![0; AREA_LENGTH as usize];
        let mut put = |at: u64, bytes: &[u8]| {
            let at = at as usize % AREA_LENGTH as usize;
            let room = (memory.len() - at).min(bytes.len());
            memory[at..at + room].copy_from_slice(&bytes[..room]);
        };
        let width = self.abi().pointer_width() as usize;
        let requests = (0..=u8::MAX).take(self.requests.len()).map(Word::Request);
        let pointers = requests.filter(|_| self.fits).chain(self.pointers.iter().copied());
        for (word, at) in pointers.take(1024).zip((POINTERS..).step_by(width)) {
            put(at, &word.value().to_le_bytes()[..width]);
        }
        for (request, at) in self.requests.iter().take(200).zip((REQUESTS..).step_by(64)) {
            put(at, &request.bytes());
        }
        for (word, at) in self.how.iter().zip((HOW..).step_by(8)) {
            put(at, &word.value().to_le_bytes());
        }
        match &self.path {
            Path::Known(which) => put(PATH, PATHS[usize::from(which % 16)].as_bytes()),
            Path::Bytes(bytes) => put(PATH, bytes),
            Path::UpToTheEnd(byte) => put(PATH, &[*byte; PATH_LENGTH as usize]),
        }
        for (at, byte) in &self.patches {
            put(u64::from(*at), &[*byte]);
        }
        memory
    }
}
