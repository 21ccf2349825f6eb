//! Which boot of the kernel it is.

pub(crate) use synconce_durable::boot::kernel_boot_id;

use std::io::ErrorKind;
use synconce_durable::error::Error;
use synconce_sys::namespace::is_first_user_namespace;

/// Returns what helps against `error` of [`kernel_boot_id`].
pub(crate) fn remedy(error: &Error) -> String {
    let remedy = match error.io().kind() {
        ErrorKind::NotFound => {
            "in a unit of systemd, say ProcSubset=all; elsewhere, mount a procfs on /proc"
        }
        _ if is_first_user_namespace() => {
            "on the host, type the command behind nsenter --mount --pid --target PID, with the PID of a \
             process of the container; if the container sets SYNCONCE_STATE_DIR, set it there, too"
        }
        // No process below the initial user namespace may mount a procfs here.
        _ => {
            "start the container without a user namespace, as by systemd-nspawn --private-users=no"
        }
    };
    remedy.to_owned()
}

/// Whether `boot` is the boot id of the running kernel; `None` if that is unknown.
pub(crate) fn is_now(boot: &str) -> Option<bool> {
    if boot.is_empty() {
        return None;
    }
    kernel_boot_id().ok().map(|now| boot == now)
}
