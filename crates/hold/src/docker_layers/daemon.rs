//! Whether a dockerd runs.

use super::{At, DRIVER, Unsure};
use std::fs;
use std::path::{Path, PathBuf};
use synconce_probe::mounts;

/// Refuses if a process has a file below `root` open, as a running dockerd has its databases,
/// or if a file system is mounted below the layers.
pub(super) fn check_stopped(root: &Path) -> Result<(), Unsure> {
    let layers = root.join(DRIVER);
    let mounts = mounts::ours().at("cannot read", Path::new("/proc/self/mountinfo"))?;
    // dockerd mounts the driver's directory over itself, also in a root of its own.
    if let Some(mount) = mounts.iter().find(|one| one.point.starts_with(&layers)) {
        return Err(Unsure(format!("a file system is mounted on {}", mount.point.display())));
    }
    let proc = Path::new("/proc");
    for entry in fs::read_dir(proc).at("cannot read", proc)? {
        let process = entry.at("cannot read", proc)?.path();
        let Some(pid) = process.file_name().and_then(|name| name.to_str()) else { continue };
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        if let Some(open) = open_below(&process.join("fd"), root) {
            let open = open.display();
            return Err(Unsure(format!("the process {pid} has {open} open")));
        }
    }
    Ok(())
}

/// Returns a file below `root` that a process has open. A process that has ended has none.
fn open_below(descriptors: &Path, root: &Path) -> Option<PathBuf> {
    let descriptors = fs::read_dir(descriptors).ok()?.flatten();
    descriptors.filter_map(|one| fs::read_link(one.path()).ok()).find(|path| path.starts_with(root))
}
