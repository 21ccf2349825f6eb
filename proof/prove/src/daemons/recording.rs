//! Records the script on one daemon.

use super::engine::{DaemonKind, DatabaseSyncs, RunningDaemon};
use super::fixture::ImageArchives;
use super::hold::Hold;
use super::script::ScriptStep;
use super::world::World;
use crate::Result;
use crate::background_load::{BackgroundLoad, LoadKind};
use crate::config::{DiskKind, MarkerPlace};
use crate::recording::{finish, wait_until};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;
use synconce_testkit::rig::{Rig, Tape};

const SIZE: u64 = 1 << 30;
/// How long the background load continues after the last step.
const AFTER: Duration = Duration::from_millis(80);
/// How long the daemon and the hold stay stopped, so that there are cuts meanwhile.
const STOPPED_FOR: Duration = Duration::from_millis(60);
const LIMIT: Duration = Duration::from_secs(60);

/// Marks in the log of the daemon's disk.
pub(super) mod mark {
    /// Nothing has started yet.
    pub(in super::super) const START: &str = "start";
    /// The daemon and the hold have stopped in order.
    pub(in super::super) const STOPPED: &str = "stopped";
    /// They start again from here on.
    pub(in super::super) const STARTING: &str = "starting";
    /// No place after this mark is cut.
    pub(in super::super) const END: &str = "end";

    /// Returns the mark after step `index` of the script.
    pub(in super::super) fn step(index: usize) -> String {
        format!("step {index}")
    }
}

/// What a row is about.
pub(super) struct Subject<'a> {
    pub engine: &'a dyn DaemonKind,
    pub way: DatabaseSyncs,
    pub disk: DiskKind,
    pub marker: MarkerPlace,
    pub program: &'a Path,
    pub fixture: &'a ImageArchives,
    /// Cut only where this file of the daemon has unflushed writes.
    pub unflushed: Option<&'a Path>,
}

/// A recorded script.
pub(super) struct RecordedDaemon {
    /// The disk of the daemon.
    pub disk: Tape,
    /// The disk of the marker, if that is another disk.
    pub other: Option<Tape>,
}

impl Subject<'_> {
    /// Returns the hold of a row that has one.
    pub(super) fn hold(&self, world: &World) -> Option<Hold> {
        self.way.has_hold().then(|| self.engine.hold(world, self.program))
    }

    /// Ends everything in `world`, as a power cut does.
    pub(super) fn halt(&self, world: &World) -> Result<()> {
        world.halt(self.hold(world).and_then(|hold| hold.guard(world)))
    }

    /// Records the script in `world`.
    pub(super) fn record(&self, world: &World, load: LoadKind) -> Result<RecordedDaemon> {
        let builder = self.disk.rig(SIZE).record(true);
        let rig = builder.clone().at(world.disk()).up()?;
        let other = match self.marker {
            MarkerPlace::Other => Some(builder.at(world.other()).up()?),
            _ => None,
        };
        let done = self.perform(world, &rig, load);
        let halted = self.halt(world);
        done.and(halted)?;
        let other = other.map(Rig::finish).transpose()?;
        Ok(RecordedDaemon { disk: rig.finish()?, other })
    }

    fn perform(&self, world: &World, rig: &Rig, load: LoadKind) -> Result<()> {
        let (own, root) = (rig.path().join("background"), self.engine.root(world));
        for directory in [&own, &root, &world.markers()] {
            fs::create_dir_all(directory)?;
        }
        self.engine.prepare(world, self.fixture)?;
        for disk in [rig.path().to_owned(), world.markers()] {
            finish("sync", patiently(LIMIT), Command::new("sync").arg("-f").arg(disk))?;
        }
        let background_load = BackgroundLoad::start(load, &own, &[root]);
        rig.disk().mark(mark::START)?;
        let mut daemon = None;
        for (index, step) in self.way.script().iter().enumerate() {
            daemon = self
                .step(*step, daemon.take(), world, rig)
                .map_err(|error| format!("step {index}, {step:?}: {error}"))?;
            rig.disk().mark(&mark::step(index))?;
        }
        std::thread::sleep(AFTER);
        rig.disk().mark(mark::END)?;
        drop(background_load);
        daemon.map_or(Ok(()), RunningDaemon::stop)?;
        self.verb("stop", world)
    }

    fn step<'a>(
        &'a self,
        step: ScriptStep,
        daemon: Option<Box<dyn RunningDaemon + 'a>>,
        world: &'a World,
        rig: &Rig,
    ) -> Result<Option<Box<dyn RunningDaemon + 'a>>> {
        match step {
            ScriptStep::Begin => {
                world.boot()?;
                return self.start(world).map(Some);
            }
            ScriptStep::Act(act) => {
                daemon.as_ref().ok_or("no daemon runs")?.act(act, self.fixture)?;
            }
            ScriptStep::Restart => {
                daemon.map_or(Ok(()), RunningDaemon::stop)?;
                self.verb("stop", world)?;
                rig.disk().mark(mark::STOPPED)?;
                std::thread::sleep(STOPPED_FOR);
                rig.disk().mark(mark::STARTING)?;
                return self.start(world).map(Some);
            }
            ScriptStep::Crash => {
                drop(daemon);
                self.halt(world)?;
                // The background load opens files of the disk for a moment.
                let unmounted = || rig.unmount().is_ok();
                wait_until("the disk is unmounted", patiently(LIMIT), unmounted)?;
                rig.mount()?;
                world.boot()?;
                return self.start(world).map(Some);
            }
            ScriptStep::Settle => self.verb("settle", world)?,
        }
        Ok(daemon)
    }

    /// Recovers and starts the hold, and starts the daemon.
    fn start<'a>(&'a self, world: &'a World) -> Result<Box<dyn RunningDaemon + 'a>> {
        self.verb("recover", world)?;
        self.verb("start", world)?;
        self.engine.start(world)
    }

    /// Does a verb of the hold, if the row has a hold.
    fn verb(&self, verb: &str, world: &World) -> Result<()> {
        self.hold(world).map_or(Ok(()), |hold| hold.must(verb, world))
    }
}
