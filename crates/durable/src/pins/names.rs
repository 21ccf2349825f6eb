//! The names of pinned file systems.

use super::Pins;
use std::path::Path;
use synconce_probe::mounts::Mount;

impl Pins {
    /// Names each file system by a mount point among `mounts`, if one shows it. A process in a
    /// chroot or in another mount namespace has other names for mount points.
    pub fn name_as_in(&mut self, mounts: &[Mount]) {
        for pin in &mut self.0 {
            let of_device = || mounts.iter().filter(|mount| mount.device == pin.device);
            let known = of_device()
                .find(|mount| mount.id == pin.mount || mount.point == pin.point)
                .or_else(|| of_device().find(|mount| mount.root == Path::new("/")))
                .or_else(|| of_device().next());
            if let Some(mount) = known {
                pin.point.clone_from(&mount.point);
            }
        }
    }
}
