//! msync(2).

use super::{CallChange, Decided, Decision, PendingCall};
use crate::call::lookups::Lookups;
use crate::report::accounts::PassReason;
use synconce_filter::args;

/// Holds the call if the kernel would only write back. Bad arguments, holes and
/// `MS_INVALIDATE`, which checks memory locks, are left to the kernel.
pub(super) fn decide(pending: &PendingCall, lookups: &impl Lookups) -> Decided {
    let (address, length) = (pending.argument(0), pending.argument(1));
    let flags = args::low(pending.argument(2));
    let page = lookups.page_size();
    let end = length.checked_next_multiple_of(page).and_then(|length| address.checked_add(length));
    let (true, Some(end)) = (address.is_multiple_of(page), end) else {
        return Ok(Decision::Pass(PassReason::Arguments));
    };
    if length == 0 || flags & !(args::MS_SYNC | args::MS_INVALIDATE) != 0 {
        return Ok(Decision::Pass(PassReason::Arguments));
    }
    let mapping = lookups.mapping(address..end)?;
    if !mapping.complete {
        return Ok(Decision::Pass(PassReason::Arguments));
    }
    if mapping.devices.is_empty() {
        // Private memory, of which nothing is written.
        return Ok(Decision::Pass(PassReason::Memory));
    }
    if let Some(reason) = lookups.why_passed(&mapping) {
        return Ok(Decision::Pass(reason));
    }
    let devices = mapping.devices;
    if flags & args::MS_INVALIDATE == 0 {
        return Ok(Decision::Hold(devices));
    }
    // Without MS_SYNC the kernel makes the same checks and does not write back.
    let argument = Some((2, u64::from(args::MS_SYNC)));
    Ok(Decision::Rewrite(CallChange { argument, devices, ..CallChange::default() }))
}
