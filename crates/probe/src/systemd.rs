//! systemd, as the first process of this machine.

use std::path::Path;

/// Whether systemd runs, so that `systemctl` acts on the units of this machine (sd_booted(3)).
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").exists()
}
