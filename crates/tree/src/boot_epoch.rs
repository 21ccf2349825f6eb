//! Detects whether power may have been lost since something was written.

use crate::record::BootEpoch;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Signal, geteuid, set_dumpable_behavior};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use synconce_durable::boot::{is_of_kernel, kernel_boot_id};
use synconce_durable::error::Error;
use synconce_durable::record::boot_id;
use synconce_probe::mounts::Mount;
use synconce_probe::super_block;
use synconce_sys::namespace::is_first_user_namespace;
use synconce_sys::process::{ChildChange, Side, WaitFor, Whose, exit_now, fork, wait};

impl BootEpoch {
    /// Returns whether power may have been lost between this epoch and `now`. A number that either
    /// epoch lacks, as in a chroot without /sys, is not compared.
    pub(crate) fn is_over(&self, now: &Self) -> bool {
        let other_boot = match (&self.kernel, &now.kernel) {
            (Some(then), Some(now)) => then != now,
            _ => self.boot != now.boot,
        };
        let other_disk = self.disk.zip(now.disk).is_some_and(|(then, now)| then != now);
        // Disks can be added to and removed from a mounted btrfs.
        other_boot || other_disk && self.is_same_mount(now) != Some(true)
    }

    /// Returns whether the file system stayed mounted between this epoch and `now`, or `None` if an
    /// epoch lacks the number. An unmount writes all data out, but reports no error.
    pub(crate) fn is_same_mount(&self, now: &Self) -> Option<bool> {
        Some(self.mount? == now.mount?)
    }
}

/// Returns the kernel's boot id, even in a container with a boot id of its own, or `None` if the
/// kernel's id cannot be read there. Forks, so the calling process must be single-threaded.
///
/// A child process reads the id, because a seccomp filter may kill a process that calls fsopen(2).
///
/// # Errors
/// Transient failures: no memory, process or descriptor is free. `None` would be wrong then:
/// without the kernel's id, changes made in an earlier container count as lost.
pub(crate) fn kernel() -> io::Result<Option<String>> {
    if is_of_kernel() {
        return Ok(boot_id().ok());
    }
    // Only root of the initial user namespace can always mount a procfs (mount_namespaces(7)).
    if !geteuid().is_root() || !is_first_user_namespace() {
        return Ok(None);
    }
    let (answers, answer) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = match fork()? {
        Side::Child => {
            // If a filter kills this process, no core is dumped.
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            exit_now(i32::from(tell_kernel(File::from(answer)).is_err()))
        }
        Side::Parent(child) => child,
    };
    drop(answer);
    let mut id = String::new();
    File::from(answers).read_to_string(&mut id)?;
    let end = wait(Whose::Id(child), WaitFor { ends: true, block: true, ..WaitFor::default() })?;
    match end {
        Some((_, ChildChange::Exited(0))) => Ok(Some(id).filter(|id| !id.is_empty())),
        Some((_, ChildChange::Killed(signal))) if signal == Signal::SYS.as_raw() => Ok(None),
        _ => Err(io::Error::other("the process that reads it has failed")),
    }
}

/// Writes the kernel's boot id to `answer`, or nothing if this process has no access to the id.
fn tell_kernel(mut answer: File) -> io::Result<()> {
    match kernel_boot_id() {
        Ok(id) => answer.write_all(id.as_bytes()),
        Err(error) => match error.io().kind() {
            ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::Unsupported => Ok(()),
            kind => Err(kind.into()),
        },
    }
}

/// Returns the current boot epoch of a store on `mount` with `losses` failed syncs. `kernel` is the
/// result of [`kernel`].
///
/// # Errors
/// The file of the boot id cannot be read.
pub(crate) fn now(
    kernel: Option<String>,
    mount: Option<&Mount>,
    losses: u64,
) -> Result<BootEpoch, Error> {
    Ok(BootEpoch {
        boot: boot_id()?,
        kernel,
        disk: mount.and_then(disk_sequence),
        mount: mount.and_then(super_block::directory).map(|(_, number)| number),
        losses: Some(losses),
    })
}

/// Reads `/sys/dev/block/MAJOR:MINOR/diskseq`. A disk or loop device that is attached again
/// gets another number. The device number of a btrfs has no entry in this directory, so the source
/// device is tried, too.
fn disk_sequence(mount: &Mount) -> Option<u64> {
    let by_number = format!("/sys/dev/block/{}/diskseq", mount.device);
    let name = Path::new(&mount.source).file_name()?.to_str()?;
    let by_name = format!("/sys/class/block/{name}/diskseq");
    // A partition has no diskseq; the directory above the partition is the disk's.
    let partition = [&by_number, &by_name].map(|path| path.replace("/diskseq", "/../diskseq"));
    let paths = [by_number, by_name].into_iter().chain(partition);
    paths.into_iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot_epoch(boot: &str, disk: Option<u64>, mount: Option<u64>) -> BootEpoch {
        BootEpoch { boot: boot.to_owned(), kernel: None, disk, mount, losses: None }
    }

    #[test]
    fn the_kernels_boot_id_decides_where_it_is_known() {
        let shown = |boot: &str, kernel: Option<&str>| BootEpoch {
            kernel: kernel.map(str::to_owned),
            ..boot_epoch(boot, None, None)
        };
        let began = shown("a", Some("kernel"));
        assert!(!began.is_over(&shown("b", Some("kernel"))), "a container was made anew");
        assert!(began.is_over(&shown("a", Some("other"))), "a container was restored after a boot");
        assert!(began.is_over(&shown("b", None)) && shown("b", None).is_over(&began));
        assert!(!began.is_over(&shown("a", None)) && !shown("a", None).is_over(&began));
    }

    #[test]
    fn another_boot_or_disk_ends_an_era_and_a_disk_that_was_replaced_does_not() {
        let began = boot_epoch("a", Some(1), Some(7));
        assert!(!began.is_over(&began));
        assert!(began.is_over(&boot_epoch("b", Some(1), Some(7))));
        assert!(began.is_over(&boot_epoch("a", Some(2), Some(8))));
        assert!(!began.is_over(&boot_epoch("a", Some(2), Some(7))), "btrfs replace");
        assert!(!began.is_over(&boot_epoch("a", Some(1), Some(8))), "unmounted and mounted again");
        assert!(!began.is_over(&boot_epoch("a", None, None)), "nothing can be seen");
        assert_eq!(began.is_same_mount(&boot_epoch("a", Some(1), Some(8))), Some(false));
        assert_eq!(began.is_same_mount(&boot_epoch("a", Some(1), None)), None);
        assert!(boot_epoch("a", Some(1), None).is_over(&boot_epoch("a", Some(2), None)));
    }
}
