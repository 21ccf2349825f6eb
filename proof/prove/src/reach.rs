//! Disks that a run reaches by another way than a mounted file system in its own namespace:
//! data of a held call must be on such a disk after exit code 0.
//!
//! Makes one row at a time: a `sync(2)` of one run would save the data of another.

mod fixture;
mod inside;

use crate::background_load::{BackgroundLoad, LoadKind};
use crate::campaign::{Campaign, Findings};
use crate::config::{DiskKind, MarkerPlace, Mode, RunConfig};
use crate::cuts::{self, BESIDE, cut_at, one_of, replays};
use crate::recording::{finish, mark, place};
use crate::row::{Job, Role};
use crate::tool::{Paths, Tool, environment};
use crate::work::{Work, is_installed};
use crate::{ProveArguments, Result};
use fixture::{ReachFixture, recovered};
use inside::MountEnd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::manifest::Manifest;
use synconce_testkit::rig::Cut;

/// A way to reach a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Mounted, but not among the file systems of `--commit-only`.
    OutsideCommitOnly,
    /// Mounted in another mount namespace, and reached by `/proc/PID/root`.
    OtherNamespace,
    /// Unmounted lazily, and reached by an open directory.
    UnmountedLazily,
    /// Covered by another mount, and reached by an open directory.
    MountedOver,
    /// A block device without a file system that is open elsewhere, too. It is written, and
    /// synced by one `sync(2)` at the end or by many `fsync(2)`.
    Device { by_sync: bool },
    /// A file system that a FUSE server stores on a block device.
    FuseDisk,
    /// Mounted or unmounted by the run itself.
    Inside(MountEnd),
}

/// The content of a disk.
#[derive(Debug, PartialEq)]
enum DiskContent {
    Tree(Manifest),
    Bytes(Vec<u8>),
}

const WAYS: [Way; 18] = [
    Way::OutsideCommitOnly,
    Way::OtherNamespace,
    Way::UnmountedLazily,
    Way::MountedOver,
    Way::Device { by_sync: true },
    Way::Device { by_sync: false },
    Way::FuseDisk,
    Way::Inside(MountEnd::Stays),
    Way::Inside(MountEnd::Unmounted),
    Way::Inside(MountEnd::UnmountedFromBefore),
    Way::Inside(MountEnd::WithNamespace),
    Way::Inside(MountEnd::WithKilledNamespace),
    Way::Inside(MountEnd::UnmountedLazily),
    Way::Inside(MountEnd::Expired),
    Way::Inside(MountEnd::Forced),
    Way::Inside(MountEnd::Covered),
    Way::Inside(MountEnd::ReadOnly),
    Way::Inside(MountEnd::Thawed),
];

/// The ways on which the loss of a step can be seen, and the modes of the run.
type Seen = &'static [(Way, Mode)];

/// Steps of the commit, and the release of a file system before its end.
pub(crate) const MUTANTS: [(&str, &str, Seen); 4] = [
    (
        "everything-skipped",
        "no sync(2) beside the pins",
        &[
            (Way::OtherNamespace, Mode::Sealed),
            (Way::UnmountedLazily, Mode::Sealed),
            (Way::Device { by_sync: true }, Mode::Sealed),
            (Way::Inside(MountEnd::Covered), Mode::Supervised),
        ],
    ),
    (
        "disks-unflushed",
        "sync(2), and no flush of the disks that were written",
        &[
            (Way::Device { by_sync: true }, Mode::Sealed),
            (Way::Device { by_sync: false }, Mode::Sealed),
        ],
    ),
    (
        "pins-kept",
        "file systems kept open until the commit, also those that the run mounts or unmounts",
        &[
            (Way::Inside(MountEnd::UnmountedFromBefore), Mode::Supervised),
            (Way::Inside(MountEnd::WithNamespace), Mode::Supervised),
            (Way::Inside(MountEnd::WithKilledNamespace), Mode::Supervised),
            (Way::Inside(MountEnd::UnmountedLazily), Mode::Supervised),
            (Way::Inside(MountEnd::Expired), Mode::Supervised),
            (Way::Inside(MountEnd::Forced), Mode::Supervised),
        ],
    ),
    (
        "commit-skipped",
        "no commit",
        &[
            (Way::Inside(MountEnd::ReadOnly), Mode::Supervised),
            (Way::Inside(MountEnd::ReadOnly), Mode::Sealed),
            (Way::Inside(MountEnd::Thawed), Mode::Supervised),
            (Way::Inside(MountEnd::Thawed), Mode::Sealed),
        ],
    ),
];

/// Maximum number of cuts of one recorded run.
const PER_RECORDING: usize = 60;
/// With fewer cuts than this only one kind of file system is tried.
const QUICK: usize = 100;
/// The name of the image that a run takes of a disk.
const IMAGE: &str = "image";
/// The mark after the disk was unmounted.
const REVEALED: &str = "revealed";
/// How long the background load continues after the run.
const AFTER: Duration = Duration::from_millis(80);

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::OutsideCommitOnly => "outside --commit-only",
            Self::OtherNamespace => "other mount namespace",
            Self::UnmountedLazily => "unmounted lazily before",
            Self::MountedOver => "mounted over",
            Self::Device { by_sync: true } => "block device, sync(2)",
            Self::Device { by_sync: false } => "block device, fsync(2)",
            Self::FuseDisk => "FUSE disk",
            Self::Inside(end) => end.name(),
        }
    }

    /// Returns the kinds of file systems that make a difference.
    fn disks(self, arguments: &ProveArguments) -> &'static [DiskKind] {
        match self {
            Self::Device { .. } | Self::FuseDisk => &[DiskKind::Ext4],
            _ if arguments.cuts < QUICK => &[DiskKind::Ext4],
            _ => &[DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs],
        }
    }

    /// Returns the modes in which the way is tried. A supervisor passes calls outside
    /// `--commit-only` to the kernel, so work that is never synced there is lost, as without
    /// the tool.
    fn modes(self) -> &'static [Mode] {
        match self {
            Self::OutsideCommitOnly => &[Mode::Sealed],
            _ => &[Mode::Supervised, Mode::Sealed],
        }
    }

    fn missing(self) -> Option<String> {
        let is_missing = self == Self::FuseDisk && !is_installed("ntfs-3g");
        is_missing.then(|| "ntfs-3g is not installed".to_owned())
    }

    /// Returns the command that writes at `path`.
    fn words(self, fixture: &ReachFixture, control: &Path) -> Result<Vec<String>> {
        let path = &fixture.path;
        if let Self::Device { by_sync } = self {
            let script = include_str!("reach/device.pl");
            let path = path.display().to_string();
            let words = ["perl", "-e", script, &path, if by_sync { "sync" } else { "fsync" }];
            return Ok(words.map(str::to_owned).into());
        }
        let work = Work::Files.words(path, control, control)?;
        let Self::Inside(end) = self else { return Ok(work) };
        Ok(end.words(fixture, &control.join(IMAGE), work))
    }
}

/// Returns the rows of the shipped tool and of the mutants.
pub(crate) fn jobs(arguments: &ProveArguments) -> Vec<Job<'static>> {
    let seed = arguments.seed;
    let mut jobs = Vec::new();
    let mut add = |role: Role, name: &str, way: Way, disk, mode, tool: Tool, cuts| {
        let config = RunConfig { mode, ..RunConfig::supervised(disk, MarkerPlace::Nowhere) };
        let make = move |_| match way.missing() {
            Some(reason) => Ok(Findings { skipped: Some(reason), ..Findings::default() }),
            None => make(way, config, &tool, cuts, seed),
        };
        jobs.push(Job::new(role, name, config, make));
    };
    for way in WAYS {
        for disk in way.disks(arguments) {
            for mode in way.modes() {
                let tool = arguments.shipped();
                add(Role::Promise, way.name(), way, *disk, *mode, tool, arguments.cuts);
            }
        }
    }
    for (mutant, _, ways) in MUTANTS {
        let Some(tool) = arguments.mutant(mutant) else { continue };
        for (way, mode) in ways {
            add(Role::Mutant, mutant, *way, DiskKind::Ext4, *mode, tool.clone(), 1);
        }
    }
    jobs
}

/// Records as many runs as `cuts` need, and cuts each after its return.
fn make(way: Way, config: RunConfig, tool: &Tool, cuts: usize, seed: u64) -> Result<Findings> {
    Campaign::new(tool, cuts, seed).record(cuts.div_ceil(PER_RECORDING), |round, part| {
        record_and_cut(way, config, tool, round, part)
    })
}

fn record_and_cut(
    way: Way,
    config: RunConfig,
    tool: &Tool,
    round: u64,
    campaign: Campaign,
) -> Result<Findings> {
    let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir_in("/var/tmp")?;
    let mut fixture = ReachFixture::new(way, config, control.path())?;
    let written_back: &[_] = match way {
        Way::Device { .. } | Way::Inside(_) => &[],
        _ => &[fixture.path.clone()],
    };
    let background_load =
        BackgroundLoad::start(LoadKind::writing_back(round), control.path(), written_back);
    run(way, config, tool, &fixture, control.path())?;
    fixture.rig().disk().mark(mark::RETURNED)?;
    // A look at a disk that the run has unmounted would mount it, and so flush it.
    let is_inside = matches!(way, Way::Inside(_));
    let seen = if is_inside { None } else { Some(fixture.content()?) };
    std::thread::sleep(AFTER);
    drop(background_load);
    fixture.rig().disk().mark(mark::END)?;
    fixture.reveal()?;
    fixture.rig().disk().mark(REVEALED)?;
    let image = match way {
        Way::Inside(end) if end.is_over() => Some(fixture.differ(&control.path().join(IMAGE))?),
        _ => None,
    };
    let recording = fixture.rig().recording()?;
    let log = recording.log()?;
    let range = place(&log, mark::RETURNED)?..place(&log, mark::END)?;
    let instants: Vec<usize> = log.places(range.start, range.end).collect();
    // A FUSE server has its disk alone, and a process that another thread starts may inherit it.
    let beside = if way == Way::FuseDisk { 1 } else { BESIDE };
    let replays = replays(recording, config.disk, campaign, beside)?;
    let finished = match seen {
        Some(seen) => seen,
        None => {
            replays[0].cut(Cut::at(place(&log, REVEALED)?))?;
            recovered(way, &replays[0])?
        }
    };
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let mut place = |number| one_of(&instants, 0..instants.len(), (number, 0), &mut random);
    let places: Vec<_> = (0..campaign.count).map(&mut place).collect();
    let mut findings = campaign.on_each(&replays, &places, |replay, place| {
        replay.cut(cut_at(place, place.disk))?;
        let seen = match recovered(way, replay) {
            Ok(found) if found == finished => Ok(None),
            Ok(found) => Ok(Some(("lost", differ(&finished, &found)))),
            Err(error) => Ok(Some(("lost", error.to_string()))),
        };
        Ok((seen, true))
    })?;
    if let Some(differs) = image {
        let seen = Ok(differs.map(|what| ("lost", what)));
        findings.add_promised(seen, || "the image that the run took".to_owned());
    }
    Ok(findings)
}

/// Runs the work under `tool`, which must succeed.
fn run(
    way: Way,
    config: RunConfig,
    tool: &Tool,
    fixture: &ReachFixture,
    control: &Path,
) -> Result<()> {
    let (Tool::Synconce(program) | Tool::Mutant { program, .. }) = tool else {
        return Err("only the tool itself reaches such disks".into());
    };
    let mut command = Command::new(program);
    command.arg("run");
    if config.mode == Mode::Sealed {
        command.arg("--sealed");
    }
    if way == Way::OutsideCommitOnly {
        command.arg("--commit-only").arg(control);
    }
    command.arg("--").args(way.words(fixture, control)?);
    let (disk, state) = (control.to_owned(), control.join("state"));
    environment(&mut command, &Paths { disk, second: None, state, control: control.to_owned() });
    if let Tool::Mutant { mutant, .. } = tool {
        command.env("SYNCONCE_MUTANT", mutant);
    }
    finish(tool.name(), Work::Files.limit(), &mut command)
}

/// Describes where two contents differ.
fn differ(finished: &DiskContent, found: &DiskContent) -> String {
    match (finished, found) {
        (DiskContent::Tree(finished), DiskContent::Tree(found)) => cuts::differ(finished, found),
        (DiskContent::Bytes(finished), DiskContent::Bytes(found)) => {
            let first = finished.iter().zip(found).position(|(one, other)| one != other);
            format!("the device differs from byte {} on", first.unwrap_or_default())
        }
        _ => "the disk holds something else".to_owned(),
    }
}
