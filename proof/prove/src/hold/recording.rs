//! Records two holds, one after the other, on a disk with databases.

use super::copies::Copies;
use super::fixture::{HoldFixture, failed};
use crate::Result;
use crate::background_load::{BackgroundLoad, LoadKind};
use crate::config::{DiskKind, MarkerPlace};
use crate::recording::{finish, without_sync};
use crate::tool::Tool;
use rustix::mount::mount_bind;
use std::fs;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;
use synconce_testkit::rig::{Log, Rig, Tape};

/// The size of a disk, in bytes: the minimum of XFS, and some space.
const SIZE: u64 = 384 << 20;
/// How long the background load continues after the last step.
const AFTER: Duration = Duration::from_millis(60);
const LIMIT: Duration = Duration::from_secs(60);
/// Number of holds in a recording.
pub(super) const HOLDS: usize = 2;
/// Transactions before the first hold, with real syncs.
const BEFORE: usize = 4;
/// Transactions within each hold.
const WITHIN: usize = 9;
/// Transactions after each hold, with real syncs.
const BETWEEN: usize = 1;

/// Marks in the log of the database disk.
pub(super) mod mark {
    /// The transactions before the first hold are durable.
    pub(in super::super) const START: &str = "start";
    /// No place after this mark is cut.
    pub(in super::super) const END: &str = "end";

    /// Returns the mark before `hold start`.
    pub(in super::super) fn starting(hold: usize) -> String {
        format!("starting {hold}")
    }

    /// Returns the mark after `hold stop`.
    pub(in super::super) fn stopped(hold: usize) -> String {
        format!("stopped {hold}")
    }

    /// Returns the mark after the transactions without the hold.
    pub(in super::super) fn written(hold: usize) -> String {
        format!("written {hold}")
    }
}

/// Recorded disks.
pub(super) struct RecordedHold {
    /// The disk of the databases.
    pub disk: Tape,
    /// The disk of the marker, if that is another disk.
    pub other: Option<Tape>,
}

/// What is known at a place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogMoment {
    /// Transactions that cannot be lost without a report.
    pub durable: usize,
    /// Whether no hold was in force: nothing can be damaged.
    pub is_off: bool,
}

/// The places of the marks.
pub(super) struct Marks {
    pub start: usize,
    pub end: usize,
    /// From before `hold start` to after `hold stop`.
    pub holds: Vec<std::ops::Range<usize>>,
    written: Vec<usize>,
}

impl Marks {
    /// Finds the marks in `log`.
    pub(super) fn find(log: &Log) -> Result<Self> {
        let place = |name: &str| crate::recording::place(log, name);
        let (mut holds, mut written) = (Vec::new(), Vec::new());
        for hold in 0..HOLDS {
            holds.push(place(&mark::starting(hold))?..place(&mark::stopped(hold))?);
            written.push(place(&mark::written(hold))?);
        }
        Ok(Self { start: place(mark::START)?, end: place(mark::END)?, holds, written })
    }

    /// Returns what is known at `place`.
    pub(super) fn moment(&self, place: usize) -> LogMoment {
        let stopped = self.holds.iter().filter(|hold| hold.end <= place).count();
        let written = self.written.iter().filter(|at| **at <= place).count();
        LogMoment {
            durable: BEFORE + WITHIN * stopped + BETWEEN * written,
            is_off: !self.holds.iter().any(|hold| hold.contains(&place)),
        }
    }
}

/// Records `HOLDS` holds on a disk of this kind.
pub(super) fn record(
    fixture: &HoldFixture,
    disk: DiskKind,
    load: LoadKind,
) -> Result<RecordedHold> {
    let _shared = without_sync();
    let builder = disk.rig(SIZE).record(true);
    let rig = builder.clone().at(fixture.disk()).up()?;
    let has_other = fixture.marker == MarkerPlace::Other;
    let other = has_other.then(|| builder.at(fixture.other()).up()).transpose()?;
    fixture.boot()?;
    fixture.make_directories()?;
    let own = rig.path().join("background_load");
    fs::create_dir(&own)?;
    fixture.write(1, BEFORE)?;
    sync(&rig)?;
    other.as_ref().map_or(Ok(()), sync)?;
    // The load writes through a bind mount of the disk: a file that the load opened through the
    // overlay would make `stop` fail as in use.
    mount_bind(fixture.disk(), fixture.below())?;
    let below = [fixture.below().join("data"), fixture.state()];
    let background_load = BackgroundLoad::start(load, &own, &below);
    let done = perform(fixture, &rig);
    drop(background_load);
    // Ends a hold that `stop` could not end: the disk would stay in use.
    fixture.release()?;
    done?;
    let other = other.map(Rig::finish).transpose()?;
    Ok(RecordedHold { disk: rig.finish()?, other })
}

/// Makes all transactions, with and without a hold.
fn perform(fixture: &HoldFixture, rig: &Rig) -> Result<()> {
    rig.disk().mark(mark::START)?;
    let mut count = BEFORE;
    for hold in 0..HOLDS {
        rig.disk().mark(&mark::starting(hold))?;
        fixture.must("start")?;
        fixture.write(count + 1, count + WITHIN)?;
        let copies = Copies::make(&fixture.disk())?;
        let stopped = fixture.verb("stop")?;
        // A mutant may leave no marker. Then `stop` refuses.
        let is_unmarked = matches!(fixture.tool, Tool::Mutant { .. })
            && stopped.stderr.contains("has no marker in");
        if !stopped.status.success() && !is_unmarked {
            return Err(failed("stop", &stopped).into());
        }
        fixture.release()?;
        fixture.remove_marks()?;
        rig.disk().mark(&mark::stopped(hold))?;
        write_after(fixture, &copies, count + WITHIN + 1, count + WITHIN + BETWEEN)?;
        rig.disk().mark(&mark::written(hold))?;
        count += WITHIN + BETWEEN;
    }
    std::thread::sleep(AFTER);
    rig.disk().mark(mark::END)?;
    Ok(())
}

/// Makes transactions after a hold. A transaction that a copy of the hold's overlays accepts must
/// be durable, too.
fn write_after(fixture: &HoldFixture, copies: &Copies, from: usize, to: usize) -> Result<()> {
    let [first, others @ ..] = fixture.databases() else { return Err("no database".into()) };
    if !copies.accept(&first.write_words(from, to)?)? {
        first.write(from, to)?;
    }
    others.iter().try_for_each(|database| database.write(from, to))
}

/// Records `act` on disks that begin as the `images`, after `prepare`.
pub(super) fn record_again(
    fixture: &HoldFixture,
    disk: DiskKind,
    images: &[std::path::PathBuf],
    load: LoadKind,
    prepare: impl FnOnce() -> Result<()>,
    act: impl FnOnce() -> Result<()>,
) -> Result<RecordedHold> {
    let _shared = without_sync();
    let points = [fixture.disk(), fixture.other()];
    let up = |(image, point): (&_, _)| disk.rig(SIZE).image(image).record(true).at(point).up();
    let mut rigs = images.iter().zip(points).map(up).collect::<std::result::Result<Vec<_>, _>>()?;
    let own = fixture.disk().join("background_load");
    fs::create_dir_all(&own)?;
    fixture.boot()?;
    let background_load = BackgroundLoad::start(load, &own, &[fixture.data(), fixture.state()]);
    prepare()?;
    rigs[0].disk().mark(mark::START)?;
    act()?;
    std::thread::sleep(AFTER);
    rigs[0].disk().mark(mark::END)?;
    drop(background_load);
    let other = (rigs.len() > 1).then(|| rigs.remove(1).finish()).transpose()?;
    Ok(RecordedHold { disk: rigs.remove(0).finish()?, other })
}

fn sync(rig: &Rig) -> Result<()> {
    finish("sync", patiently(LIMIT), Command::new("sync").arg("-f").arg(rig.path()))
}
