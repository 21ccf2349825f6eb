//! Real daemons whose databases are held, cut like a run.
//!
//! A *script* of imports, container starts, removals and garbage collection is recorded on a
//! real containerd or dockerd, and cut anywhere. On each disk that is left the hold is
//! recovered and started and the daemon starts. Everything that the daemon lists has to be
//! whole, or the recovery has set the state aside and has said so. The same daemon without a
//! hold, and with its own options, is the control.
//!
//! Rows without a hold build images by dockerd, whose steps have volatile roots. An image that is
//! listed has to be whole, and every image has to be built again with the layers that dockerd has
//! kept. The controls are runc alone, and a mutant that does not sync at the end of a step.

mod containerd;
mod cuts;
mod docker;
mod engine;
mod fixture;
mod hold;
mod judge;
mod recording;
mod script;
mod table;
mod unflushed;
mod world;

use crate::Result;
use crate::background_load::LoadKind;
use crate::campaign::Campaign;
use crate::config::{DiskKind, MarkerPlace};
use crate::row::{caught, make_rows};
use containerd::Containerd;
use cuts::CutTally;
use docker::Docker;
use engine::{DaemonKind, DatabaseSyncs, StepRootKind};
use fixture::ImageArchives;
use recording::Subject;
use rustix::mount::{MountFlags, mount};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;
use table::DaemonRow;
use world::World;

/// Maximum number of cuts of one recording.
const PER_RECORDING: usize = 60;
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct DaemonsArguments {
    /// Test the tool PROGRAM, as it ships
    #[arg(long, value_name = "PROGRAM")]
    synconce: PathBuf,
    /// Try the mutant of PROGRAM, which is built with the feature `mutants` (default: no mutant)
    #[arg(long, value_name = "PROGRAM")]
    mutants: Option<PathBuf>,
    /// Take containerd, ctr, the shim and mkfs.erofs from DIRECTORY
    #[arg(long, value_name = "DIRECTORY")]
    engines: PathBuf,
    /// Create the containers' control groups below NAME; the caller removes them
    #[arg(long, value_name = "NAME", default_value = "/synconce-daemons")]
    group: String,
    /// Cut each row of the tool N times
    #[arg(long, value_name = "N", default_value_t = 60)]
    cuts: usize,
    /// Cut each control N times
    #[arg(long, value_name = "N", default_value_t = 30)]
    control_cuts: usize,
    /// Make only the rows on these file systems (default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["ext4", "xfs", "btrfs"])]
    fs: Vec<String>,
    /// Make only the rows whose name contains TEXT (default: all)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Make N rows in parallel
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Seed the random choices with N
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Make only the rows of ENGINE (default: all)
    #[arg(long, value_name = "ENGINE", value_parser = ["containerd", "docker"])]
    engine: Option<String>,
    /// Cut only where FILE, a path below the daemon's directory, has writes that no flush has
    /// covered (on ext4 and xfs)
    #[arg(long, value_name = "FILE")]
    unflushed: Option<PathBuf>,
}

/// A row that has not been made yet.
struct DaemonJob {
    engine: Box<dyn DaemonKind + Send>,
    way: DatabaseSyncs,
    disk: DiskKind,
    marker: MarkerPlace,
}

impl DaemonJob {
    fn name(&self) -> String {
        let place = match self.marker {
            MarkerPlace::Other => ", marker elsewhere",
            _ => "",
        };
        format!("{} {}{place}", self.disk.kind().name(), self.engine.name())
    }

    /// Records and cuts until the row has its cuts.
    fn make(
        &self,
        index: usize,
        arguments: &DaemonsArguments,
        fixture: &ImageArchives,
    ) -> Result<CutTally> {
        let program = &arguments.synconce;
        let Self { way, disk, marker, .. } = *self;
        let engine = &*self.engine;
        let unflushed = arguments.unflushed.as_deref();
        let subject = Subject { engine, way, disk, marker, program, fixture, unflushed };
        let world = World::new(index, marker, &arguments.group)?;
        let count = if way.is_ours() { arguments.cuts } else { arguments.control_cuts };
        let recordings = count.div_ceil(PER_RECORDING);
        let mut tally = CutTally::default();
        for (round, part) in Campaign::full(count, arguments.seed).parts(recordings) {
            let load = match way {
                // A mutant is missed if another process syncs the disk for it.
                DatabaseSyncs::Steps(StepRootKind::Unsynced) => LoadKind::writing_back(round),
                // Each row of a round has another load.
                _ => LoadKind::for_round(part.seed + index as u64),
            };
            let recorded = subject.record(&world, load)?;
            tally.merge(cuts::cut(&subject, &world, &recorded, part)?);
        }
        Ok(tally)
    }
}

fn jobs(arguments: &DaemonsArguments) -> Vec<DaemonJob> {
    let rows = [
        (DatabaseSyncs::Held, MarkerPlace::Same),
        (DatabaseSyncs::Held, MarkerPlace::Other),
        (DatabaseSyncs::Plain, MarkerPlace::Nowhere),
        (DatabaseSyncs::SyncFs, MarkerPlace::Nowhere),
        (DatabaseSyncs::NoSync, MarkerPlace::Nowhere),
    ];
    let mut jobs = Vec::new();
    for (way, marker) in rows {
        for disk in [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs] {
            for snapshotter in ["overlayfs", "erofs"] {
                let programs = arguments.engines.clone();
                let engine = Box::new(Containerd { programs, snapshotter, way });
                jobs.push(DaemonJob { engine, way, disk, marker });
            }
        }
    }
    for (way, marker) in
        [(DatabaseSyncs::Held, MarkerPlace::Same), (DatabaseSyncs::Plain, MarkerPlace::Nowhere)]
    {
        for disk in [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs] {
            let engine = Box::new(Docker { way, program: arguments.synconce.clone() });
            jobs.push(DaemonJob { engine, way, disk, marker });
        }
    }
    for root in [StepRootKind::Volatile, StepRootKind::AsMounted, StepRootKind::Unsynced] {
        let way = DatabaseSyncs::Steps(root);
        for disk in [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs] {
            let program = match root {
                StepRootKind::Unsynced => arguments.mutants.clone(),
                _ => Some(arguments.synconce.clone()),
            };
            let Some(program) = program else { continue };
            let engine = Box::new(Docker { way, program });
            jobs.push(DaemonJob { engine, way, disk, marker: MarkerPlace::Nowhere });
        }
    }
    let wants = |job: &DaemonJob| {
        let (name, kind) = (job.name(), job.disk.kind().name());
        let is_fs = arguments.fs.is_empty() || arguments.fs.iter().any(|fs| fs == kind);
        let is_engine = arguments.engine.as_ref().is_none_or(|engine| name.contains(&**engine));
        let only = &arguments.only;
        is_fs && is_engine && (only.is_empty() || only.iter().any(|text| name.contains(text)))
    };
    jobs.retain(wants);
    jobs
}

/// Makes every row; returns whether each shows what is expected. The process must have a pid
/// namespace and a mount namespace of its own (scripts/daemons makes them): every process in it
/// ends with this one.
pub(crate) fn prove(arguments: &DaemonsArguments) -> Result<bool> {
    if std::process::id() != 1 {
        return Err("not the first process of a pid namespace: use scripts/daemons".into());
    }
    for directory in ["/run", "/dev/shm"] {
        mount("daemons", directory, "tmpfs", MountFlags::empty(), None)
            .map_err(|errno| format!("cannot mount a tmpfs on {directory}: {errno}"))?;
    }
    // runc looks for one hierarchy or the other, and fails where it finds parts of both.
    let _ = rustix::mount::unmount("/sys/fs/cgroup/unified", rustix::mount::UnmountFlags::DETACH);
    let fixture = ImageArchives::make(&Path::new(world::WORLDS).join("fixture"))?;
    let jobs = jobs(arguments);
    if jobs.is_empty() {
        return Err("no row has such a name".into());
    }
    Ok(table::print(&make_all(&jobs, arguments, &fixture)))
}

/// Makes all rows. An error of the proof itself fails its row alone.
fn make_all(
    jobs: &[DaemonJob],
    arguments: &DaemonsArguments,
    fixture: &ImageArchives,
) -> Vec<DaemonRow> {
    let make = |index: usize, job: &DaemonJob| {
        let tally = caught(|| job.make(index, arguments, fixture));
        let row = DaemonRow::new(job.name(), job.way, tally);
        eprintln!("{row}");
        // Printed at once: hours of work may be interrupted.
        if row.way.is_ours() {
            row.tally.first.values().for_each(|first| eprintln!("{first}"));
        }
        row
    };
    let rows = make_rows(jobs, arguments.jobs.max(1), |_, _| true, make);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Runs a command that has to succeed.
fn command(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    crate::recording::finish(&name, patiently(LIMIT), command)
}
