//! Copies of the overlays of a hold in a user namespace, whose mount namespace locks them: `stop`
//! cannot unmount them (mount_namespaces(7)).

use super::fixture::waited;
use crate::Result;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_sys::procfs::process_name;
use synconce_testkit::patiently;
use synconce_testkit::process::{Group, run};

const LIMIT: Duration = Duration::from_secs(60);

/// A process in user and mount namespaces of its own, until the value is dropped.
pub(super) struct Copies(Group);

impl Copies {
    /// Starts the process. Its mount namespace has a copy of each mount that exists now. A later
    /// unmount on `disk` leaves the copy. Any other unmount ends the copy too, so that the disks of
    /// other rows do not stay busy.
    pub(super) fn make(disk: &Path) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--propagation", "slave"]);
        command.args(["sh", "-c", "mount --make-private \"$1\" && exec sleep 600", "sh"]).arg(disk);
        let process = Group::spawn(&mut command)?;
        let pid = process.pid();
        if waited(|| process_name(pid).is_ok_and(|name| name == "sleep")) {
            Ok(Self(process))
        } else {
            Err("unshare does not start".into())
        }
    }

    /// Runs the command `words` in both namespaces, and returns whether its exit status was 0.
    pub(super) fn accept(&self, words: &[OsString]) -> Result<bool> {
        let pid = self.0.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--user", "--mount", "--target", &pid]).args(words);
        Ok(run(&mut command, patiently(LIMIT))?.status.success())
    }
}
