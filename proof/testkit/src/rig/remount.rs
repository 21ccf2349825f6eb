//! Mounts without mount(8), for the thousands of mounts of a replay.

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::{FsKind, system};
use crate::Result;
use crate::error::Context;

/// How long to wait for a device that is still being unmounted in another mount namespace.
const BUSY: Duration = Duration::from_secs(10);

/// The options of mount(8) that are flags of mount(2); other options belong to the file
/// system.
const FLAGS: [(&str, MountFlags); 11] = [
    ("rw", MountFlags::empty()),
    ("ro", MountFlags::RDONLY),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
];

/// Mounts like `mount -t KIND -o OPTIONS DEVICE POINT`, by one system call.
pub(super) fn mount(
    kind: FsKind,
    device: &Path,
    point: &Path,
    options: Option<&str>,
) -> Result<()> {
    let (flags, own) = split(options.unwrap_or_default());
    let data = CString::new(own).map_err(|_| Errno::INVAL).context("mount", device)?;
    let mount = || rustix::mount::mount(device, point, kind.name(), flags, data.as_c_str());
    system::retry(BUSY, mount).context("mount", device)
}

fn split(options: &str) -> (MountFlags, String) {
    let known = |option: &str| FLAGS.iter().find(|(name, _)| *name == option);
    let (flags, own): (Vec<_>, Vec<_>) =
        options.split(',').filter(|option| !option.is_empty()).partition(|o| known(o).is_some());
    let flags = flags.iter().filter_map(|option| known(option)).map(|(_, flag)| *flag).collect();
    (flags, own.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_flags_or_the_file_systems_own() {
        let (flags, own) = split("noatime,commit=1,ro,data=writeback");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(own, "commit=1,data=writeback");
        assert_eq!(split(""), (MountFlags::empty(), String::new()));
    }
}
