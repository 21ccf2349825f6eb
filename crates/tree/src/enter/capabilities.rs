//! The capabilities that no process of a command has.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Each of these changes the whole machine, and no build needs it: modules, ports of devices,
/// accounting of processes, restarts and kexec, the clock, and suspends. Docker and Podman do not
/// give them to a container either; systemd-nspawn gives `SYS_BOOT` alone.
const DROPPED: CapabilitySet = CapabilitySet::SYS_MODULE
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::WAKE_ALARM)
    .union(CapabilitySet::BLOCK_SUSPEND);

/// Removes the capabilities from the calling process for good. Setuid programs that its
/// descendants execute do not get them either (the bounding set, capabilities(7)). The owner of a
/// new user namespace has them there, where the kernel does not let them change the machine.
pub(super) fn drop_machine_wide() -> rustix::io::Result<()> {
    for capability in DROPPED.iter() {
        if !capability_is_in_bounding_set(capability)? {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Without CAP_SETPCAP, as in some units, root gets them again at execve(2).
            Err(Errno::PERM) => break,
            removed => removed?,
        }
    }
    let mut kept = capabilities(None)?;
    for set in [&mut kept.effective, &mut kept.permitted, &mut kept.inheritable] {
        set.remove(DROPPED);
    }
    set_capabilities(None, kept)
}
