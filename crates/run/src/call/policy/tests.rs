//! Decisions by look-ups of the test's own.

use super::*;
use crate::call::caller::Memory;
use crate::call::mapping::Mapping;
use crate::call::paths::Start;
use crate::call::rules::RuleVerdict;
use rustix::fs::{CWD, FileType, OFlags};
use std::cell::RefCell;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

const DISK: DeviceId = DeviceId { major: 8, minor: 1 };
const FILE: Target = Target {
    file_type: FileType::RegularFile,
    device: DISK,
    not_held: None,
    readable: true,
    verdict: RuleVerdict::HOLD,
};
const DIRECTORY: Target = Target { file_type: FileType::Directory, ..FILE };

/// The calls that sync what their first argument leads to.
const SYNCS: [Call; 4] = [Call::Fsync, Call::Fdatasync, Call::Syncfs, Call::SyncFileRange];
const DSYNC: u64 = 0o10_000;
const RWF_DSYNC: u64 = 2;

/// What is looked up about a caller.
struct TestLookups {
    target: Result<Target, LookupError>,
    /// The caller's memory, from address 0.
    memory: Result<Vec<u8>, LookupError>,
    mapping: Option<Mapping>,
    mapped: Option<PassReason>,
    page_size: u64,
    waits: bool,
    is_real: bool,
    /// The paths that were looked up.
    paths: RefCell<Vec<PathBuf>>,
    /// The ranges of memory that were looked up.
    ranges: RefCell<Vec<Range<u64>>>,
}

impl TestLookups {
    fn from_target(target: Result<Target, LookupError>) -> Self {
        Self {
            target,
            memory: Ok(b"/a\0".to_vec()),
            mapping: None,
            mapped: None,
            page_size: 4096,
            waits: true,
            is_real: false,
            paths: RefCell::default(),
            ranges: RefCell::default(),
        }
    }

    /// Returns the look-ups about a caller that may not be examined.
    fn unseen() -> Self {
        Self { memory: Err(LookupError::Unseen), ..Self::from_target(Err(LookupError::Unseen)) }
    }
}

impl Lookups for TestLookups {
    fn descriptor(&mut self, _: i32) -> Result<Target, LookupError> {
        self.target
    }

    fn path(&self, _: Start, path: &Path) -> Result<Target, LookupError> {
        self.paths.borrow_mut().push(path.to_owned());
        self.target
    }

    fn memory(&self) -> Result<Memory, LookupError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(self.memory.as_ref().map_err(|error| *error)?).unwrap();
        Ok(Memory::from(file))
    }

    fn mapping(&self, range: Range<u64>) -> Result<Mapping, LookupError> {
        self.ranges.borrow_mut().push(range);
        let copy = |it: &Mapping| Mapping { devices: it.devices.clone(), files: vec![], ..*it };
        self.mapping.as_ref().map(copy).ok_or(LookupError::Unseen)
    }

    fn page_size(&self) -> u64 {
        self.page_size
    }

    fn why_passed(&self, _: &Mapping) -> Option<PassReason> {
        self.mapped
    }

    fn unmounting(&self, path: &Path, _: How) -> Option<Unmounting> {
        self.paths.borrow_mut().push(path.to_owned());
        None
    }

    fn caller_waits(&self) -> bool {
        self.waits
    }

    fn why_real(&self) -> Option<PassReason> {
        self.is_real.then_some(PassReason::Real)
    }
}

fn pending(call: Call, args: [u64; 6]) -> PendingCall {
    let abi = Abi::X86_64;
    let number = call.number(abi).unwrap_or_default().cast_signed();
    let notification = Notification { id: 1, thread: 1, number, arch: abi.audit_arch(), args };
    PendingCall { notification, abi, call }
}

/// Returns the decision about `call` with the arguments `args`.
fn decided(call: Call, args: [u64; 6], lookups: &mut TestLookups) -> Decision {
    decide(&pending(call, args), lookups, &RunOptions::default()).unwrap()
}

/// Returns why `call` passes.
fn why_passed(call: Call, args: [u64; 6], lookups: &mut TestLookups) -> Option<PassReason> {
    match decided(call, args, lookups) {
        Decision::Pass(reason) => Some(reason),
        _ => None,
    }
}

fn with_rules() -> RunOptions {
    RunOptions { except: vec!["/a".into()], ..RunOptions::default() }
}

#[test]
fn a_sync_of_a_file_or_directory_on_a_disk_is_held() {
    for target in [FILE, DIRECTORY] {
        for call in SYNCS {
            let decision =
                decided(call, [3, 0, 0, 0, 0, 0], &mut TestLookups::from_target(Ok(target)));
            assert!(matches!(decision, Decision::Hold(on) if on == [DISK]), "{call:?}");
        }
    }
    let decision = decided(Call::Sync, [0; 6], &mut TestLookups::unseen());
    assert!(matches!(decision, Decision::Hold(on) if on.is_empty()));
}

#[test]
fn a_sync_of_anything_else_passes_with_the_reason() {
    let pipe = Target { file_type: FileType::Fifo, not_held: Some(PassReason::OtherType), ..FILE };
    let in_memory = Target { not_held: Some(PassReason::Memory), ..FILE };
    let verdict = RuleVerdict { file: false, system: false };
    let by_rule = Target { verdict, ..FILE };
    for (target, reason) in [
        (Ok(pipe), PassReason::NoFile),
        (Ok(in_memory), PassReason::Memory),
        (Ok(by_rule), PassReason::Rule),
        (Err(LookupError::NoFile), PassReason::NoFile),
    ] {
        for call in SYNCS.into_iter().chain([Call::Preadv2, Call::Pwritev2, Call::Openat]) {
            let passed = why_passed(call, [0; 6], &mut TestLookups::from_target(target));
            assert_eq!(passed, Some(reason), "{call:?}");
        }
    }
    let syncs = decide(&pending(Call::Sync, [0; 6]), &mut TestLookups::unseen(), &with_rules());
    assert!(matches!(syncs, Ok(Decision::Pass(PassReason::Rule))), "of all disks");
}

#[test]
fn a_look_up_that_may_block_decides_nothing() {
    for call in SYNCS.into_iter().chain([Call::Pwritev2, Call::Openat, Call::OpenByHandleAt]) {
        let mut lookups =
            TestLookups { is_real: true, ..TestLookups::from_target(Err(LookupError::MayBlock)) };
        let decision = decide(&pending(call, [0; 6]), &mut lookups, &RunOptions::default());
        assert!(matches!(decision, Err(MayBlock)), "{call:?}");
    }
}

#[test]
fn of_a_caller_that_cannot_be_examined_only_syncs_are_held() {
    for call in SYNCS {
        let decision = decided(call, [0; 6], &mut TestLookups::unseen());
        assert!(matches!(decision, Decision::HoldUnseen), "{call:?}");
        let decision = decide(&pending(call, [0; 6]), &mut TestLookups::unseen(), &with_rules());
        assert!(matches!(decision, Ok(Decision::PassUnseen)), "{call:?}");
    }
    let sized = [0, 4096, args::MS_SYNC.into(), 0, 0, 0];
    for call in [Call::Msync, Call::Open, Call::Openat, Call::OpenByHandleAt, Call::Pwritev2] {
        let reason = why_passed(call, sized, &mut TestLookups::unseen());
        assert_eq!(reason, Some(PassReason::Unseen), "{call:?}");
    }
    for call in [Call::Openat2, Call::IoSubmit, Call::Seccomp, Call::Prctl] {
        let decision = decided(call, [u64::MAX, 0, 0, 0, 0, 0], &mut TestLookups::unseen());
        assert!(matches!(decision, Decision::Ignore), "{call:?}");
    }
    let unmount = decided(Call::Umount, [0; 6], &mut TestLookups::unseen());
    assert!(matches!(unmount, Decision::Unmount(None)));
    let restart = decided(Call::Reboot, [0; 6], &mut TestLookups::unseen());
    assert!(matches!(restart, Decision::EndMachine));
}

#[test]
fn a_caller_that_has_ended_is_no_caller_that_cannot_be_examined() {
    for call in SYNCS {
        let mut lookups = TestLookups { waits: false, ..TestLookups::unseen() };
        assert!(matches!(decided(call, [0; 6], &mut lookups), Decision::Ignore), "{call:?}");
    }
}

#[test]
fn what_would_be_held_passes_for_a_caller_with_real_syncs() {
    for options in [RunOptions::default(), with_rules()] {
        for lookups in [TestLookups::from_target(Ok(FILE)), TestLookups::unseen()] {
            let mut lookups = TestLookups { is_real: true, ..lookups };
            let decision = decide(&pending(Call::Fsync, [0; 6]), &mut lookups, &options);
            assert!(matches!(decision, Ok(Decision::Pass(PassReason::Real))));
        }
    }
    let mut lookups = TestLookups { is_real: true, ..TestLookups::from_target(Ok(FILE)) };
    assert_eq!(why_passed(Call::Pwritev2, [0; 6], &mut lookups), Some(PassReason::Real));
    assert_eq!(why_passed(Call::Openat, [0; 6], &mut lookups), Some(PassReason::Real));
    let setup = decided(Call::IoUringSetup, [0; 6], &mut lookups);
    assert!(matches!(setup, Decision::Refuse(_)), "not held");
}

#[test]
fn an_open_and_a_write_lose_their_sync_flag() {
    let path = [CWD.as_raw_fd() as u64, 0, DSYNC, 0, 0, 0];
    let vector = [3, 0, 0, 0, 0, RWF_DSYNC];
    for (call, args, flag, opens) in [
        (Call::Open, [0, DSYNC, 0, 0, 0, 0], (1, args::OPEN_SYNC_MASK), true),
        (Call::Openat, path, (2, args::OPEN_SYNC_MASK), true),
        (Call::OpenByHandleAt, path, (2, args::OPEN_SYNC_MASK), true),
        (Call::Pwritev2, vector, (5, args::RWF_SYNC_MASK), false),
    ] {
        let mut lookups = TestLookups::from_target(Ok(FILE));
        let Decision::Rewrite(change) = decided(call, args, &mut lookups) else {
            panic!("{call:?}");
        };
        assert_eq!(change.argument, Some((flag.0, flag.1.into())), "{call:?}");
        assert_eq!((change.opens, change.devices), (opens, vec![DISK]), "{call:?}");
        assert_eq!(change.patches.len(), 0);
    }
    let lookups = &mut TestLookups::from_target(Ok(FILE));
    let no_flag = decided(Call::Openat, [0, 0, u64::from(OFlags::PATH.bits()), 0, 0, 0], lookups);
    assert!(matches!(no_flag, Decision::Ignore), "open(2) ignores the flag");
    assert_eq!(*lookups.paths.borrow(), [""; 0].map(PathBuf::from), "nothing is looked up");
    let mut lookups = TestLookups::from_target(Ok(DIRECTORY));
    let on_directory = why_passed(Call::Pwritev2, vector, &mut lookups);
    assert_eq!(on_directory, Some(PassReason::Arguments), "the kernel refuses the flag");
}

#[test]
fn openat2_loses_its_sync_flag_in_memory() {
    const HOW: u64 = 8;
    let memory = |flags: u64| {
        let mut memory = b"/a\0\0\0\0\0\0".to_vec();
        [flags, 0, 0].iter().for_each(|word| memory.extend(word.to_ne_bytes()));
        Ok(memory)
    };
    let args = [0, 0, HOW, 24, 0, 0];
    let mut lookups =
        TestLookups { memory: memory(DSYNC | 2), ..TestLookups::from_target(Ok(FILE)) };
    let Decision::Rewrite(change) = decided(Call::Openat2, args, &mut lookups) else { panic!() };
    let [patch] = &change.patches[..] else { panic!("{change:?}") };
    assert_eq!((patch.address, &patch.new), (HOW, &2u64.to_ne_bytes().to_vec()));
    assert_eq!(*lookups.paths.borrow(), [Path::new("/a")]);
    for (flags, target) in [(2, Ok(FILE)), (DSYNC | u64::from(OFlags::PATH.bits()), Ok(FILE))] {
        let mut lookups = TestLookups { memory: memory(flags), ..TestLookups::from_target(target) };
        assert!(matches!(decided(Call::Openat2, args, &mut lookups), Decision::Ignore));
    }
    let mut lookups = TestLookups { memory: Ok(vec![]), ..TestLookups::from_target(Ok(FILE)) };
    let unreadable = decided(Call::Openat2, args, &mut lookups);
    assert!(matches!(unreadable, Decision::Ignore), "the kernel answers EFAULT");
}

#[test]
fn an_aio_sync_becomes_a_transfer_of_nothing() {
    const FSYNC: u8 = 2;
    let memory = |opcode: u8, buffer: u8| {
        let mut memory = 8u64.to_ne_bytes().to_vec();
        let mut request = [0; 64];
        (request[16], request[24]) = (opcode, buffer);
        memory.extend(request);
        Ok(memory)
    };
    let args = [0, 1, 0, 0, 0, 0];
    let mut lookups =
        TestLookups { memory: memory(FSYNC, 0), ..TestLookups::from_target(Ok(FILE)) };
    let Decision::Rewrite(change) = decided(Call::IoSubmit, args, &mut lookups) else { panic!() };
    assert_eq!((change.patches[0].address, change.patches[0].new.as_slice()), (24, &[0, 0][..]));
    let closed = Err(LookupError::NoFile);
    for (memory, target, reason) in [
        (memory(FSYNC, 1), Ok(FILE), Some(PassReason::Arguments)),
        (memory(FSYNC, 0), closed, Some(PassReason::NoFile)),
        (memory(FSYNC, 0), Err(LookupError::Unseen), Some(PassReason::Unseen)),
        (memory(0, 0), closed, None),
    ] {
        let mut lookups = TestLookups { memory, ..TestLookups::from_target(target) };
        assert_eq!(why_passed(Call::IoSubmit, args, &mut lookups), reason);
    }
}

#[test]
fn msync_is_held_if_it_only_writes_back() {
    let mapping = |complete, devices| Some(Mapping { complete, devices, files: vec![] });
    let on_disk = || mapping(true, vec![DISK]);
    let sync = |flags: u32| [0, 4096, flags.into(), 0, 0, 0];
    let lookups = |mapping| TestLookups { mapping, ..TestLookups::from_target(Ok(FILE)) };
    let held = decided(Call::Msync, sync(args::MS_SYNC), &mut lookups(on_disk()));
    assert!(matches!(held, Decision::Hold(on) if on == [DISK]));
    let both = sync(args::MS_SYNC | args::MS_INVALIDATE);
    let changed = decided(Call::Msync, both, &mut lookups(on_disk()));
    assert!(matches!(changed, Decision::Rewrite(it) if it.argument == Some((2, 4))));
    for (args, mapping, reason) in [
        (sync(args::MS_SYNC), mapping(false, vec![DISK]), PassReason::Arguments),
        (sync(args::MS_SYNC | args::MS_ASYNC), on_disk(), PassReason::Arguments),
        ([1, 4096, 4, 0, 0, 0], on_disk(), PassReason::Arguments),
        (sync(args::MS_SYNC), mapping(true, vec![]), PassReason::Memory),
    ] {
        let reason = Some(reason);
        assert_eq!(why_passed(Call::Msync, args, &mut lookups(mapping)), reason);
    }
    let mut by_rule = TestLookups { mapped: Some(PassReason::Rule), ..lookups(on_disk()) };
    let reason = why_passed(Call::Msync, sync(args::MS_SYNC), &mut by_rule);
    assert_eq!(reason, Some(PassReason::Rule));
}

#[test]
fn msync_is_of_whole_pages_of_the_size_that_the_kernel_has() {
    for page_size in [4096, 16_384, 65_536] {
        for (address, length) in
            [(0_u64, 1_u64), (4096, 4096), (16_384, 16_385), (3 << 16, 1 << 16)]
        {
            let mapping = Some(Mapping { complete: true, devices: vec![DISK], files: vec![] });
            let mut lookups =
                TestLookups { mapping, page_size, ..TestLookups::from_target(Ok(FILE)) };
            let args = [address, length, args::MS_SYNC.into(), 0, 0, 0];
            let said = format!("{length} bytes at {address} with pages of {page_size}");
            if !address.is_multiple_of(page_size) {
                let reason = why_passed(Call::Msync, args, &mut lookups);
                assert_eq!(reason, Some(PassReason::Arguments), "{said}");
                continue;
            }
            let held = decided(Call::Msync, args, &mut lookups);
            assert!(matches!(held, Decision::Hold(on) if on == [DISK]), "{said}");
            let pages = length.div_ceil(page_size) * page_size;
            assert_eq!(lookups.ranges.take(), vec![address..address + pages], "{said}");
        }
    }
}

#[test]
fn a_question_to_the_supervisor_is_no_sync() {
    let ask = |offset: u64| [u64::from(u32::MAX), offset, 0, HANDSHAKE_FLAGS.into(), 0, 0];
    let mut lookups = TestLookups::unseen();
    let decision = decided(Call::SyncFileRange, ask(0), &mut lookups);
    assert!(matches!(decision, Decision::Handshake));
    let decision = decided(Call::SyncFileRange, ask(0x102), &mut lookups);
    assert!(matches!(decision, Decision::Request(Request::Real)));
    let flags = [3, 0, 0, HANDSHAKE_FLAGS.into(), 0, 0];
    let reason = why_passed(Call::SyncFileRange, flags, &mut TestLookups::from_target(Ok(FILE)));
    assert_eq!(reason, Some(PassReason::Arguments), "of a descriptor");
}
