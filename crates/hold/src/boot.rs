//! Which boot of the kernel it is.

pub(crate) use synconce_durable::boot::kernel_boot_id as boot_id;

/// What helps if [`boot_id`] fails.
pub(crate) const REMEDY: &str = "in a unit of systemd say ProcSubset=all; in a container type: umount \
     /proc/sys/kernel/random/boot_id";

/// Whether `boot` is the boot id of the running kernel; `None` if that is unknown.
pub(crate) fn is_now(boot: &str) -> Option<bool> {
    if boot.is_empty() {
        return None;
    }
    boot_id().ok().map(|now| boot == now)
}
