//! io_submit(2).

use super::{CallChange, Decided, Decision, Patch, PendingCall};
use crate::call::fd_info::LookupError;
use crate::call::lookups::Lookups;
use crate::report::accounts::PassReason;
use synconce_filter::args;
use synconce_probe::mounts::DeviceId;

/// Offsets and values in `struct iocb` (include/uapi/linux/aio_abi.h).
mod iocb {
    pub(super) const LENGTH: usize = 64;
    pub(super) const RW_FLAGS: usize = 12;
    pub(super) const OPCODE: usize = 16;
    pub(super) const DESCRIPTOR: usize = 20;
    /// Buffer, length and offset. The kernel refuses a sync in which they are not 0.
    pub(super) const TRANSFER: std::ops::Range<usize> = 24..48;
    pub(super) const PREAD: u16 = 0;
    pub(super) const PWRITE: u16 = 1;
    pub(super) const FSYNC: u16 = 2;
    pub(super) const FDSYNC: u16 = 3;
}

/// Decides about the call. A sync request becomes a transfer of no bytes, which completes with the
/// same event. A transfer loses its sync flag.
pub(super) fn decide(pending: &PendingCall, lookups: &mut impl Lookups) -> Decided {
    let Ok(memory) = lookups.memory() else { return Ok(Decision::Ignore) };
    let width = pending.abi.pointer_width();
    // The kernel takes a long of the caller's width, and refuses a negative count.
    let count = pending.argument(1);
    let requests = memory.pointers(pending.argument(2), count, width);
    let (0, Ok(requests)) = (count >> (8 * width - 1), requests) else {
        return Ok(Decision::Ignore);
    };
    let mut change = CallChange::default();
    let mut passed = (count > requests.len() as u64).then_some(PassReason::Arguments);
    for address in requests {
        let Ok(request) = memory.bytes::<{ iocb::LENGTH }>(address) else {
            break;
        };
        match strip_request(lookups, address, &request)? {
            Stripped::Plain => {}
            Stripped::Passes(reason) => passed = Some(reason),
            Stripped::Held(patch, device) => {
                change.patches.push(patch);
                change.devices.push(device);
            }
        }
    }
    if !change.patches.is_empty() {
        return Ok(Decision::Rewrite(change));
    }
    Ok(passed.map_or(Decision::Ignore, Decision::Pass))
}

enum Stripped {
    Plain,
    Passes(PassReason),
    Held(Patch, DeviceId),
}

fn strip_request(
    lookups: &mut impl Lookups,
    address: u64,
    request: &[u8; iocb::LENGTH],
) -> Result<Stripped, LookupError> {
    let word = |at: usize| {
        u32::from_ne_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]])
    };
    let opcode = u16::from_ne_bytes([request[iocb::OPCODE], request[iocb::OPCODE + 1]]);
    let syncs = matches!(opcode, iocb::FSYNC | iocb::FDSYNC);
    let flags = word(iocb::RW_FLAGS);
    if !syncs && flags & args::RWF_SYNC_MASK == 0 {
        return Ok(Stripped::Plain);
    }
    // The kernel refuses a sync with these fields. As the empty transfer that replaces a held sync,
    // the request might move data.
    if syncs && (flags != 0 || request[iocb::TRANSFER].iter().any(|byte| *byte != 0)) {
        return Ok(Stripped::Passes(PassReason::Arguments));
    }
    let target = match lookups.descriptor(word(iocb::DESCRIPTOR).cast_signed()) {
        // The other requests are done.
        Err(LookupError::NoFile) => return Ok(Stripped::Passes(PassReason::NoFile)),
        target => target?,
    };
    if !target.is_held_file() {
        return Ok(Stripped::Passes(target.why_passed()));
    }
    let (at, old, new) = if syncs {
        let empty = if target.readable { iocb::PREAD } else { iocb::PWRITE };
        (iocb::OPCODE, opcode.to_ne_bytes().to_vec(), empty.to_ne_bytes().to_vec())
    } else {
        let new = flags & !args::RWF_SYNC_MASK;
        (iocb::RW_FLAGS, flags.to_ne_bytes().to_vec(), new.to_ne_bytes().to_vec())
    };
    Ok(Stripped::Held(Patch { address: address + at as u64, old, new }, target.device))
}
