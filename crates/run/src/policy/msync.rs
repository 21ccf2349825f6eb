//! msync(2).

use super::{CallChange, Decision, PendingCall};
use crate::accounts::PassReason;
use crate::fd_info::{FdInfo, Mounts};
use synconce_filter::args;

/// Holds the call if the kernel would only write back. Bad arguments, holes and
/// `MS_INVALIDATE`, which checks memory locks, are left to the kernel.
pub(super) fn decide(fd_info: &mut FdInfo, pending: &PendingCall) -> Decision {
    let (address, length) = (pending.argument(0), pending.argument(1));
    let flags = args::low(pending.argument(2));
    let page = rustix::param::page_size() as u64;
    let end = length.checked_next_multiple_of(page).and_then(|length| address.checked_add(length));
    let (true, Some(end)) = (address.is_multiple_of(page), end) else {
        return Decision::Pass(PassReason::Arguments);
    };
    if length == 0 || flags & !(args::MS_SYNC | args::MS_INVALIDATE) != 0 {
        return Decision::Pass(PassReason::Arguments);
    }
    let Some(mapping) = fd_info.mapping(pending.thread(), address..end) else {
        return Decision::Pass(PassReason::Unseen);
    };
    let mounts = Mounts::of(pending.thread());
    let on_disk = !mapping.devices.is_empty() && mounts.are_disks(&mapping.devices);
    // A real call syncs all of its range, so one file with real syncs decides.
    let by_rules = mapping.files.iter().all(|file| fd_info.mapped(pending.thread(), file));
    let passes = match mapping.devices.is_empty() {
        _ if !mapping.complete => Some(PassReason::Arguments),
        // Private memory, of which nothing is written.
        true => Some(PassReason::Memory),
        false if !on_disk => Some(mounts.why_passed(&mapping.devices)),
        false => (!by_rules).then_some(PassReason::Rule),
    };
    if let Some(reason) = passes {
        return Decision::Pass(reason);
    }
    if flags & args::MS_INVALIDATE == 0 {
        return Decision::Hold(mapping.devices);
    }
    // Without MS_SYNC the kernel makes the same checks and does not write back.
    let argument = Some((2, u64::from(args::MS_SYNC)));
    Decision::Rewrite(CallChange { argument, devices: mapping.devices, ..CallChange::default() })
}
