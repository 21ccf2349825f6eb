//! The names of pinned file systems.

use super::Pins;
use synconce_probe::mounts::Mount;

impl Pins {
    /// Names each file system by a mount point among `mounts`, if one shows it. A process in a
    /// chroot or in another mount namespace has other names for mount points.
    pub fn name_as_in(&mut self, mounts: &[Mount]) {
        for pin in &mut self.0 {
            let is_same = |mount: &&Mount| mount.id == pin.mount;
            let shows = |mount: &&Mount| mount.device == pin.device;
            let known = mounts.iter().find(is_same).or_else(|| mounts.iter().find(shows));
            if let Some(mount) = known {
                pin.point.clone_from(&mount.point);
            }
        }
    }
}
