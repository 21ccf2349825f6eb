//! The teardown of a rig, for all callers: its owner, `rig down` and the reaper.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::mount::UnmountFlags;

use super::record::RigRecord;
use super::system;
use crate::patiently;
use crate::{Error, Result};

/// How long to wait for a resource in use.
const BUSY: Duration = Duration::from_secs(2);
/// How long to wait for a file system that is unmounted here but not yet in another mount
/// namespace: a process that makes a mount namespace gets a copy of every mount.
pub(super) const ELSEWHERE: Duration = Duration::from_secs(10);
/// How long the daemon may take to exit after its file system is gone.
const ENDING: Duration = Duration::from_secs(5);

/// What to do about a file system in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// Leave everything as it is and name the users.
    Refuse,
    /// Remove the disk: the users get EIO.
    Force,
}

/// Takes the rig down: file system, loop device, FUSE, daemon, files. What is already gone is
/// no error.
///
/// Returns false if another process is taking the rig down at this moment.
pub(super) fn teardown(record: &RigRecord, busy: Busy) -> Result<bool> {
    let Some(_lock) = record.lock()? else {
        return Ok(false);
    };
    take_apart(record, busy)?;
    // Last: as long as the record exists, the rest can be found.
    remove_files(record);
    Ok(true)
}

/// Takes the rig down except its record and its recording, which the record leads to.
pub(super) fn retire(record: &RigRecord) -> Result<()> {
    let Some(_lock) = record.lock()? else {
        return Err(Error::Refused("another process is taking the rig down".to_owned()));
    };
    take_apart(record, Busy::Refuse)?;
    let _ = fs::remove_file(&record.backing);
    Ok(())
}

fn take_apart(record: &RigRecord, busy: Busy) -> Result<()> {
    // A daemon that does not answer would block the unmount for ever; without the daemon, I/O
    // fails at once.
    if record.disk().calm().is_err() {
        end_daemon(record);
    }
    match dismantle(record, UnmountFlags::empty()) {
        Err(error) if busy == Busy::Refuse => Err(named(record, &error)),
        Err(error) => {
            eprintln!("rig: {}; taking the disk away", named(record, &error));
            end_daemon(record);
            dismantle(record, UnmountFlags::DETACH)
        }
        done => done,
    }
}

fn dismantle(record: &RigRecord, flags: UnmountFlags) -> Result<()> {
    let (file, fuse) = (record.disk_file(), record.fuse_dir());
    if let Some(device) = system::loop_device(&file) {
        system::unmount_all(|mount| mount.source == device, flags, BUSY)?;
        let limit = if flags.contains(UnmountFlags::DETACH) { BUSY } else { patiently(ELSEWHERE) };
        match system::detach(&file, limit) {
            // The device is marked to be detached with its last user; no more can be done.
            Err(_) if flags.contains(UnmountFlags::DETACH) => {}
            result => result?,
        }
    }
    system::unmount_all(|mount| mount.point == fuse, flags, BUSY)?;
    if record.daemon().is_some_and(|daemon| !daemon.wait(ENDING)) {
        end_daemon(record);
    }
    Ok(())
}

fn end_daemon(record: &RigRecord) {
    if let Some(daemon) = record.daemon() {
        daemon.kill();
    }
}

/// Never recursive: if something is still mounted here, its files must not be removed.
fn remove_files(record: &RigRecord) {
    let _ = fs::remove_file(&record.backing);
    if let Some(recording) = &record.recording {
        // Separately: a rig whose set-up was killed has only one of them.
        for file in [&recording.log, &recording.base] {
            let _ = fs::remove_file(file);
        }
    }
    let entries = fs::read_dir(&record.dir).into_iter().flatten().flatten();
    // The record goes last, because it leads to the rest.
    let (known, rest): (Vec<_>, Vec<_>) =
        entries.map(|entry| entry.path()).partition(|path| path.ends_with("rig.json"));
    for path in rest.iter().chain(&known) {
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    }
    let _ = fs::remove_dir(&record.dir);
}

/// Returns the error with the names of the processes that use the file system.
fn named(record: &RigRecord, error: &Error) -> Error {
    let users = system::users(&record.mount_point);
    let by =
        if users.is_empty() { String::new() } else { format!("; in use by {}", users.join(", ")) };
    Error::Refused(format!("{error}{by}"))
}

/// Takes down the rigs of dead owners; rigs of living owners are not touched.
///
/// Returns the mount points of the rigs that were taken down. A rig that cannot be taken down
/// is named on stderr and retried next time: it is no error of the rig that is being set up.
pub(super) fn reap() -> Result<Vec<std::path::PathBuf>> {
    for dir in RigRecord::stillborn()? {
        let _ = fs::remove_dir_all(dir);
    }
    let mut reaped = Vec::new();
    for record in RigRecord::all()?.into_iter().filter(RigRecord::is_stale) {
        match teardown(&record, Busy::Force) {
            Ok(true) => reaped.push(record.mount_point),
            Ok(false) => {}
            Err(error) if gone(&record.dir) => drop(error),
            Err(error) => eprintln!("rig: cannot reap {}: {error}", record.dir.display()),
        }
    }
    Ok(reaped)
}

/// Whether another reaper was faster.
fn gone(dir: &Path) -> bool {
    !dir.join("rig.json").exists()
}
