//! Looks at a place where builds and installs write, and says why they are slow there: measures
//! syncs, names and writes, reads limits and settings, and derives findings, each with the least
//! seconds that its remedy saves for a stated workload.
//!
//! [`examine`] does all I/O. `finding`, `text` and `page` are pure: values in, values out. Nothing
//! outside of one temporary directory is written. [`examine_record`] reads what `synconce-run`
//! recorded of a command.
#![forbid(unsafe_code)]

mod bundle;
mod cgroup;
mod command;
mod context;
mod device;
mod engine;
mod error;
mod finding;
mod host;
mod in_force;
mod measure;
mod not_measured;
mod observer;
mod page;
mod place;
mod preload;
mod program;
mod regular_file;
mod report;
mod scratch;
mod text;
mod units;
mod upload;

pub use bundle::redacted;
pub use cgroup::{Limit, LimitKind};
pub use command::{
    BuildSteps, CommandComparison, CommandEnding, CommandReport, ComparedGroup, Dropped, Emulated,
    NotCovered, RecordFormat, RecordSums, Savings, Slowest, StepWaits, SyncGroup, TriggerRuns,
    Waits, asks_builder, builds_without_daemon, compare, examine_record, export_record,
};
pub use context::{
    Amount, BuildContext, ContextDirectory, ContextPart, Sending, SendingCost, examine_context,
};
pub use device::Device;
pub use engine::{
    BoltDatabase, BuildCache, ContainerEngine, EmulatedImages, InstalledProgram, SetUp,
    ask_buildkit, ask_containerd, ask_docker, ask_podman, installed_programs,
};
pub use error::Error;
pub use finding::{Action, FINDINGS, Finding};
pub use host::{Distribution, Host};
pub use in_force::{InForce, Skipping};
pub use measure::{
    AtOnce, Depth, DeviceFlushes, Export, Layers, Load, Measured, NameRates, Times, Transaction,
    Writes,
};
pub use not_measured::NotMeasured;
pub use observer::Observer;
pub use place::{ExaminedPlace, Overlay};
pub use preload::{PRELOAD_FILE, dropper, preload_removal, preloads};
pub use report::PlaceReport;

use measure::{Budget, export, load};
use place::Space;
use std::path::PathBuf;

/// What [`examine`] looks at.
#[derive(Clone, Debug)]
pub struct ExamineOptions {
    /// A directory on the file system.
    pub path: PathBuf,
    /// How long to measure.
    pub depth: Depth,
    /// Whether a run of synconce holds this process.
    pub is_held: bool,
    /// The engine whose data are at `path`.
    pub engine: Option<ContainerEngine>,
    /// Names of findings that are left out.
    pub ignored: Vec<String>,
}

/// Examines the place of `options`. All temporary files are removed when this returns.
///
/// # Errors
/// The place cannot be read or written, or a signal has arrived.
pub fn examine(
    options: &ExamineOptions,
    observer: &mut dyn Observer,
) -> Result<PlaceReport, Error> {
    let place = place::look(&options.path)?;
    let limits = cgroup::limits(&place);
    let in_force = in_force::find(options.is_held)?;
    let engine = options.engine.as_ref();
    let budget = Budget::for_depth(options.depth, engine);
    let mut not_measured = engine.map_or_else(Vec::new, |engine| engine.unknown.clone());
    let space = place.space_for(budget.bytes());
    let is_held = in_force.iter().any(|found| found.skipping == Skipping::OfThisProcess);
    let no_syncs = if is_held {
        Some("syncs of this process are answered without being done")
    } else if place.needs_no_sync() {
        Some("no sync reaches a disk here")
    } else {
        None
    };
    let too_little = match space {
        Space::Enough => None,
        Space::Full => Some("the file system has too little free space for temporary files"),
        Space::TooSmall => Some("the file system is too small for temporary files"),
    };
    let measured = match too_little {
        None => {
            let mut measured =
                measure::measure(&place, &budget, no_syncs, observer, &mut not_measured)?;
            if options.depth == Depth::Full {
                if let Some(source) = engine.and_then(|it| it.exportable.as_ref()) {
                    measured.export = export::measure(source, &place, observer, &mut not_measured)?;
                }
                if let Some(api) = engine.and_then(|it| it.api.as_ref()) {
                    measured.load = load::measure(api, &place, observer, &mut not_measured)?;
                }
            }
            measured
        }
        Some(why) => {
            not_measured.push(NotMeasured::new("syncs, names and writes", why));
            Measured::default()
        }
    };
    let host = Host::read();
    let facts = finding::Facts { place: &place, host: &host, limits: &limits, space, engine };
    let all = finding::derive(&facts, &in_force, &measured);
    let (ignored, findings) = finding::split(all, &options.ignored);
    let verdict = finding::verdict(&facts, &in_force, &measured, &findings, &ignored);
    let engine = options.engine.clone();
    Ok(PlaceReport {
        verdict,
        engine,
        place,
        host,
        limits,
        in_force,
        measured,
        not_measured,
        findings,
        ignored,
    })
}
