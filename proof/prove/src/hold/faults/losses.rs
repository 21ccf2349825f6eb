//! Writes that a disk loses.

use super::super::fixture::{HoldFixture, NAME, failed};
use super::{SIZE, kill_at, kill_on, start_anew, traced};
use crate::Result;
use crate::campaign::BrokenPromise;
use crate::config::DiskKind;
use crate::tool::held_path;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use synconce_testkit::rig::{Fault as DiskFault, Rig};

const LOST: &str = "these bytes are lost";

/// Starts the hold, and lets the disk lose what is written from now on.
fn lose_a_write(fixture: &HoldFixture, rig: &Rig) -> Result<()> {
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), LOST.repeat(200))?;
    Ok(rig.disk().fail(DiskFault::writes().holding(LOST))?)
}

/// Ends the fault of the disk, and stops twice: neither stop may say that all is durable.
fn stop_after_the_loss(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    rig.disk().recover()?;
    for _turn in 0..2 {
        if fixture.verb("stop")?.status.success() {
            return Ok(Some(("lost", "a stop succeeds after a lost write".to_owned())));
        }
    }
    Ok(None)
}

/// The first sync of a stop takes the error, and the second one, of another disk, is not made.
pub(super) fn at_a_later_sync(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    let (second, _) = on_a_second_disk(fixture)?;
    lose_a_write(fixture, rig)?;
    kill_at(fixture, "stop", "syncfs", 2)?;
    let fault = stop_after_the_loss(fixture, rig)?;
    second.down()?;
    Ok(fault)
}

pub(super) fn at_the_last_sync(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    lose_a_write(fixture, rig)?;
    // The sync before the unmounts does nothing.
    let stopped = traced(fixture, "stop", "syncfs", "inject=syncfs:retval=0:when=1")?;
    start_without_the_marker(fixture, rig, stopped.status.success())
}

pub(super) fn with_its_marker(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    lose_a_write(fixture, rig)?;
    let stopped = fixture.verb("stop")?;
    start_without_the_marker(fixture, rig, stopped.status.success())
}

/// Ends the fault of the disk, and loses the marker: a start has to be refused.
fn start_without_the_marker(
    fixture: &HoldFixture,
    rig: &Rig,
    has_stopped: bool,
) -> Result<Option<BrokenPromise>> {
    rig.disk().recover()?;
    if has_stopped {
        return Ok(Some(("lost", "a stop succeeds after a lost write".to_owned())));
    }
    // A start refuses this file, which no database made.
    fs::remove_file(fixture.data().join("jobs/data"))?;
    start_anew(fixture)
}

pub(super) fn before_a_restore(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    lose_a_write(fixture, rig)?;
    if fixture.verb("stop")?.status.success() {
        return Ok(Some(("lost", "a stop succeeds after a lost write".to_owned())));
    }
    rig.disk().recover()?;
    fixture.must("recover")?;
    restore_in_another_container(fixture)
}

/// The recovery is the first to sync the disk.
pub(super) fn before_a_wipe(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    lose_a_write(fixture, rig)?;
    fixture.crash()?;
    fixture.must("recover")?;
    // Any program may be the one to which the kernel reports a loss.
    let _ = rustix::fs::syncfs(fs::File::open(fixture.disk())?);
    rig.disk().recover()?;
    restore_in_another_container(fixture)
}

pub(super) fn with_a_full_state_disk(
    fixture: &HoldFixture,
    rig: &Rig,
) -> Result<Option<BrokenPromise>> {
    lose_a_write(fixture, rig)?;
    let mut fill = fs::File::create(fixture.other().join("fill"))?;
    while fill.write(&[0; 4096]).is_ok() {}
    let stopped = fixture.verb("stop")?;
    if stopped.status.success() {
        return Ok(Some(("lost", "the first stop succeeds".to_owned())));
    }
    // A container is made anew in the same boot.
    fixture.boot()?;
    stop_after_the_loss(fixture, rig)
}

/// Restores, which has to be refused, without what is in memory.
fn restore_in_another_container(fixture: &HoldFixture) -> Result<Option<BrokenPromise>> {
    fixture.boot()?;
    let restored = fixture.verb("restore")?;
    if restored.status.success() {
        Ok(Some(("forgotten", "a restore succeeds after a lost write".to_owned())))
    } else if restored.stderr.contains("was not mounted again since") {
        Ok(None)
    } else {
        Err(failed("restore", &restored).into())
    }
}

/// Adds a directory on a second disk to the hold.
fn on_a_second_disk(fixture: &HoldFixture) -> Result<(Rig, PathBuf)> {
    let point = fixture.base().join("second");
    fs::create_dir(&point)?;
    let second = DiskKind::Ext4.rig(SIZE).at(&point).up()?;
    let held = point.join("held");
    fs::create_dir(&held)?;
    let file = fixture.base().join(format!("{NAME}.toml"));
    fs::write(&file, fs::read_to_string(&file)? + &held_path(&held, "other"))?;
    Ok((second, held))
}

/// The first sync of a recovery takes the error, and the second one, of another disk, is not made.
pub(super) fn at_the_first_of_two_disks(
    fixture: &HoldFixture,
    rig: &Rig,
) -> Result<Option<BrokenPromise>> {
    let (second, held) = on_a_second_disk(fixture)?;
    lose_a_write(fixture, rig)?;
    unmount(&held, UnmountFlags::NOFOLLOW)?;
    fixture.crash()?;
    let point = second.path().display().to_string();
    kill_on(fixture, "recover", "syncfs", &point)?;
    rig.disk().recover()?;
    fixture.must("recover")?;
    let fault = restore_in_another_container(fixture)?;
    second.down()?;
    Ok(fault)
}

/// A wipe that goes on with the renames of an earlier one is the first to sync the disk, and is
/// killed before the journal has the loss.
pub(super) fn between_two_wipes(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), "old")?;
    fixture.crash()?;
    // The first rename makes the journal.
    kill_at(fixture, "recover", "renameat2", 3)?;
    fs::write(fixture.data().join("lost"), LOST.repeat(200))?;
    rig.disk().fail(DiskFault::writes().holding(LOST))?;
    kill_on(fixture, "recover", "renameat", &format!("{NAME}.aside.json"))?;
    rig.disk().recover()?;
    restore_in_another_container(fixture)
}
