//! Where the markers of holds are. A marker has to survive a crash, so it must not be in a
//! directory whose syncs are held, or in one that a recovery sets aside.

use crate::config::Config;
use crate::error::HoldFailure;
use crate::state_directory;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::pins::mount_of;
use synconce_probe::mounts::{self, Mount};

/// Returns the directory of the markers if it is in memory: a power cut removes the markers.
pub fn in_memory() -> Option<PathBuf> {
    let directory = state_directory::directory();
    with_mount(&directory, Mount::is_in_memory).unwrap_or(false).then_some(directory)
}

/// Refuses a hold that would hold or set aside its own marker, and one whose marker would be in
/// what another hold holds.
pub(crate) fn refuse(config: &Config) -> Result<(), HoldFailure> {
    let directory = state_directory::directory();
    let nearest = existing(&directory);
    let found = nearest.canonicalize().on("cannot find", nearest)?;
    let aside = config.to_set_aside();
    let own = config.hold.iter().map(|held| &held.path).chain(&aside);
    if let Some(path) = own.into_iter().find(|path| found.starts_with(path)) {
        return Err(HoldFailure::MarkerInside(directory, path.clone()));
    }
    let is_held = with_mount(&directory, Mount::is_volatile)?;
    if is_held { Err(HoldFailure::MarkerHeld(directory)) } else { Ok(()) }
}

fn existing(directory: &Path) -> &Path {
    directory.ancestors().find(|above| above.exists()).unwrap_or(directory)
}

/// Returns what `look` finds of the mount on which `directory` is, or will be made.
fn with_mount(directory: &Path, look: impl Fn(&Mount) -> bool) -> Result<bool, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    mount_of(existing(directory), &mounts).map(look)
}
