//! Fuzzing of the decisions about calls: arguments and memory come from a caller that may be
//! hostile or broken.

mod caller;
mod request;

use super::*;
use crate::call::fd_info::FdInfo;
use crate::call::lookups::ProcLookups;
use crate::call::tracee_locks::TraceeLocks;
use crate::process::real::RealTrees;
use caller::{AREA, AREA_LENGTH, Caller, ON_DISK, SHARED, page};
use request::FuzzedCall;
use std::collections::BTreeMap;
use synconce_filter::{
    FilterVerdict, HeldAnswer, Program, SeccompData, Spec, interpret, native_abis, program,
};

/// All bits that may ever be cleared in an argument.
const SYNC_BITS: u32 = args::OPEN_SYNC_MASK | args::RWF_SYNC_MASK | args::MS_SYNC;

fn options() -> RunOptions {
    RunOptions { commit: true, ..RunOptions::default() }
}

fn spec() -> Spec {
    let answer = HeldAnswer::Supervised;
    Spec { answer, io_uring_pass: false, identity: None, page_size: page() as u32 }
}

fn pending(caller: &Caller, request: &FuzzedCall) -> Option<PendingCall> {
    let (arch, number) = request.number();
    let (abi, call) = Call::identify(arch, number)?;
    let (thread, args) = (caller.thread(), request.args());
    Some(PendingCall {
        notification: Notification { id: 0, thread, number, arch, args },
        abi,
        call,
    })
}

/// Whether the filter notifies the supervisor of the call.
fn is_notified(filter: &Program, pending: &PendingCall) -> bool {
    let Notification { number: nr, arch, args, .. } = pending.notification;
    let data = SeccompData { nr, arch, instruction_pointer: 0, args };
    interpret(filter, &data) == Ok(FilterVerdict::Notify)
}

/// Asserts what must be true of every decision.
fn check(caller: &Caller, pending: &PendingCall, decision: &Decision) {
    let call = pending.call;
    match decision {
        Decision::Pass(_) | Decision::Ignore => {}
        Decision::Hold(devices) => {
            assert_eq!(devices.is_empty(), call == Call::Sync);
            let without_flags = [Call::Fsync, Call::Fdatasync, Call::Sync, Call::Syncfs];
            let held = [Call::SyncFileRange, Call::Msync];
            assert!(without_flags.contains(&call) || held.contains(&call));
        }
        Decision::HoldUnseen | Decision::PassUnseen => panic!("the caller can be examined"),
        Decision::Refuse(_) => assert_eq!(call, Call::IoUringSetup),
        Decision::Handshake | Decision::Request(_) => {
            assert_eq!((call, pending.descriptor(0)), (Call::SyncFileRange, -1));
        }
        Decision::Unmount(_) => assert_eq!(call, Call::Umount),
        Decision::FlushDevice | Decision::Freeze | Decision::Detach => {
            assert_eq!(call, Call::Ioctl);
        }
        Decision::EndMachine => assert_eq!(call, Call::Reboot),
        Decision::OwnFilter(_) => assert!(matches!(call, Call::Seccomp | Call::Prctl)),
        Decision::Rewrite(change) => check_change(caller, pending, change),
    }
}

fn check_change(caller: &Caller, pending: &PendingCall, change: &CallChange) {
    assert!(!change.devices.is_empty());
    assert!(change.argument.is_some() == change.patches.is_empty());
    if let Some((index, bits)) = change.argument {
        assert_eq!(bits & !u64::from(SYNC_BITS), 0);
        assert_ne!(pending.notification.args[index] & bits, 0, "there is nothing to take away");
    }
    assert!(change.patches.len() <= 1024);
    for patch in &change.patches {
        let end = patch.address + patch.old.len() as u64;
        let inside = |start: u64, length: u64| patch.address >= start && end <= start + length;
        assert!(inside(AREA, AREA_LENGTH) || inside(SHARED, 6 * page()));
        assert_eq!(patch.old.len(), patch.new.len());
        assert!(patch.old.len() <= 8 && patch.old != patch.new);
        assert!(caller.holds(patch.address, &patch.old), "not what the caller has there");
    }
}

#[test]
fn no_arguments_and_no_memory_of_a_caller_lead_to_a_wrong_decision() {
    let place = tempfile::tempdir().expect("a directory");
    let caller = Caller::start(place.path());
    let mut fd_info = FdInfo::default().may_block();
    let (real, unmounters, options) = (RealTrees::default(), TraceeLocks::default(), options());
    let filter = program(&spec(), native_abis());
    let on_disk = fd_info.descriptor(caller.thread(), 3).is_ok_and(|target| target.is_held());
    let mut seen: BTreeMap<(Call, &str), u32> = BTreeMap::new();
    synconce_fuzz::values("requests", 6_000, |request: FuzzedCall| {
        let Some(pending) = pending(&caller, &request) else { return };
        caller.fill(&request.memory());
        let mut lookups = ProcLookups {
            thread: caller.thread(),
            fd_info: &mut fd_info,
            real: &real,
            unmounters: &unmounters,
            waits: &|| true,
        };
        let decision = decide(&pending, &mut lookups, &options).expect("it may block");
        if !is_notified(&filter, &pending) {
            return;
        }
        check(&caller, &pending, &decision);
        if on_disk && matches!(pending.call, Call::Fsync | Call::Fdatasync) {
            let held = ON_DISK.contains(&pending.descriptor(0));
            assert_eq!(matches!(decision, Decision::Hold(_)), held, "{pending:?}");
        }
        *seen.entry((pending.call, name(&decision))).or_default() += 1;
    });
    for call in [Call::Msync, Call::Openat, Call::Openat2, Call::Pwritev2, Call::IoSubmit] {
        assert!(!on_disk || seen.contains_key(&(call, "rewrite")), "{call:?} was never changed");
    }
    assert!(!on_disk || seen.contains_key(&(Call::Msync, "hold")), "{seen:?}");
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Hold(_) => "hold",
        Decision::Rewrite(_) => "rewrite",
        _ => "else",
    }
}
