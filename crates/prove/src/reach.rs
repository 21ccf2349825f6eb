//! Disks that a run reaches in another way than by a mounted file system in its sight: what
//! a call was held on there is on the disk after exit code 0.
//!
//! One row at a time: a `sync(2)` of one run would save the data of another.

mod ground;

use crate::bystanders::{Bystanders, Company};
use crate::cuts::{Findings, Place, cut_at, fate};
use crate::row::{Role, Row};
use crate::scene::{Disk, MarkerPlace, Mode, Scene};
use crate::take::{finish, mark};
use crate::tool::{Places, Tool, environment};
use crate::work::{Work, is_installed};
use crate::{Arguments, Result};
use ground::{Ground, recovered};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, diff};

/// A way to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Mounted, but not among the file systems of `--commit-only`.
    OutsideCommitOnly,
    /// Mounted in another mount namespace, and reached by `/proc/PID/root`.
    OtherNamespace,
    /// Unmounted lazily, and reached by an open directory.
    UnmountedLazily,
    /// Another mount lies over it; reached by an open directory.
    MountedOver,
    /// A block device without a file system that is open elsewhere, too: written, and synced
    /// by one `sync(2)` at the end or by many `fsync(2)`.
    Device { by_sync: bool },
    /// A file system that a FUSE server keeps on a block device.
    FuseDisk,
}

/// What a disk holds.
#[derive(Debug, PartialEq)]
enum Content {
    Tree(Manifest),
    Bytes(Vec<u8>),
}

const WAYS: [Way; 7] = [
    Way::OutsideCommitOnly,
    Way::OtherNamespace,
    Way::UnmountedLazily,
    Way::MountedOver,
    Way::Device { by_sync: true },
    Way::Device { by_sync: false },
    Way::FuseDisk,
];

/// Steps of the commit beside its pins, and the ways on which their loss can be seen.
pub(crate) const MUTANTS: [(&str, &str, &[Way]); 2] = [
    (
        "everything-skipped",
        "no sync(2) beside the pins",
        &[Way::OtherNamespace, Way::UnmountedLazily, Way::Device { by_sync: true }],
    ),
    (
        "disks-unflushed",
        "sync(2), and no flush of the disks that were written",
        &[Way::Device { by_sync: true }, Way::Device { by_sync: false }],
    ),
];

/// Cuts of one recorded run, at most.
const PER_TAKE: usize = 60;
/// Fewer cuts than these are for a quick look, on one kind of file system.
const QUICK: usize = 100;
/// How long bystanders go on after the run.
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
        }
    }

    /// The kinds of file systems that make a difference.
    fn disks(self, arguments: &Arguments) -> &'static [Disk] {
        match self {
            Self::Device { .. } | Self::FuseDisk => &[Disk::Ext4],
            _ if arguments.cuts < QUICK => &[Disk::Ext4],
            _ => &[Disk::Ext4, Disk::Xfs, Disk::Btrfs],
        }
    }

    /// A supervisor lets calls outside `--commit-only` do their work, and so what the work
    /// never syncs is lost there, as it is without the tool.
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

    /// The command that writes at `path`.
    fn words(self, path: &Path, control: &Path) -> Result<Vec<String>> {
        let Self::Device { by_sync } = self else {
            return Work::Files.words(path, control, control);
        };
        let script = include_str!("reach/device.pl");
        let path = path.display().to_string();
        let words = ["perl", "-e", script, &path, if by_sync { "sync" } else { "fsync" }];
        Ok(words.map(str::to_owned).into())
    }
}

/// The rows that `arguments` ask for.
pub(crate) fn rows(arguments: &Arguments) -> Result<Vec<Row>> {
    let shipped = Tool::Synconce(arguments.synconce.clone());
    let mut rows = Vec::new();
    let mut add = |role: Role, name: &str, way: Way, disk, mode, tool: &Tool, cuts| -> Result<()> {
        let scene = Scene { mode, ..Scene::supervised(disk, MarkerPlace::Nowhere) };
        if arguments.wants(role.group(), name, scene) {
            let findings = match way.missing() {
                Some(reason) => Findings { skipped: Some(reason), ..Findings::default() },
                None => make(way, scene, tool, cuts, arguments.seed)?,
            };
            let row = Row { role, name: name.to_owned(), scene, findings };
            eprintln!("{row}");
            rows.push(row);
        }
        Ok(())
    };
    for way in WAYS {
        for disk in way.disks(arguments) {
            for mode in way.modes() {
                let mode = *mode;
                add(Role::Promise, way.name(), way, *disk, mode, &shipped, arguments.cuts)?;
            }
        }
    }
    for (mutant, _, ways) in MUTANTS {
        let Some(program) = &arguments.mutants else { continue };
        let (program, shipped) = (program.clone(), arguments.synconce.clone());
        let tool = Tool::Mutant { program, mutant, shipped };
        for way in ways {
            add(Role::Mutant, mutant, *way, Disk::Ext4, Mode::Sealed, &tool, 1)?;
        }
    }
    Ok(rows)
}

/// Records as many runs as `cuts` ask for, and cuts each after its return.
fn make(way: Way, scene: Scene, tool: &Tool, cuts: usize, seed: u64) -> Result<Findings> {
    let takes = cuts.div_ceil(PER_TAKE);
    let mut findings = Findings::default();
    for round in 0..takes {
        let count = cuts * (round + 1) / takes - cuts * round / takes;
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003) + round as u64);
        findings.merge(record_and_cut(way, scene, tool, round as u64, count, &mut random)?);
    }
    Ok(findings)
}

fn record_and_cut(
    way: Way,
    scene: Scene,
    tool: &Tool,
    round: u64,
    count: usize,
    random: &mut fastrand::Rng,
) -> Result<Findings> {
    let began = Instant::now();
    let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir_in("/var/tmp")?;
    let mut ground = Ground::new(way, scene, control.path())?;
    let pushed: &[_] = if let Way::Device { .. } = way { &[] } else { &[ground.path.clone()] };
    let bystanders = Bystanders::start(Company::pushing(round), control.path(), pushed);
    run(way, scene, tool, &ground, control.path())?;
    ground.rig().disk().mark(mark::RETURNED)?;
    let finished = ground.content()?;
    std::thread::sleep(AFTER);
    drop(bystanders);
    ground.rig().disk().mark(mark::END)?;
    ground.reveal()?;
    let recording = ground.rig().recording()?;
    let log = recording.log()?;
    let at = |name| log.mark(name).ok_or_else(|| format!("the mark {name} is missing"));
    let instants: Vec<usize> = log.places(at(mark::RETURNED)?, at(mark::END)?).collect();
    let replay = recording.replay().up()?;
    let mut findings = Findings::default();
    for number in 0..count {
        // The first cut leaves nothing that no flush has covered, at once.
        let disk = if number == 0 { instants[0] } else { instants[random.usize(..instants.len())] };
        let (survivors, granularity) = fate(random);
        let survivors =
            if number == 0 { synconce_testkit::rig::Survivors::None } else { survivors };
        let place = Place { disk, other: 0, survivors, granularity };
        replay.cut(cut_at(place, disk))?;
        findings.cuts += 1;
        match recovered(way, &replay, control.path()) {
            Ok(found) if found == finished => {}
            Ok(found) => {
                findings.note("lost", || format!("{place:?}: {}", differ(&finished, &found)));
            }
            Err(error) => findings.note("lost", || format!("{place:?}: {error}")),
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
}

/// Runs the work under `tool` to its success.
fn run(way: Way, scene: Scene, tool: &Tool, ground: &Ground, control: &Path) -> Result<()> {
    let (Tool::Synconce(program) | Tool::Mutant { program, .. }) = tool else {
        return Err("only the tool itself reaches such disks".into());
    };
    let mut command = Command::new(program);
    command.arg("run");
    if scene.mode == Mode::Sealed {
        command.arg("--sealed");
    }
    if way == Way::OutsideCommitOnly {
        command.arg("--commit-only").arg(control);
    }
    command.arg("--").args(way.words(&ground.path, control)?);
    let (disk, state) = (control.to_owned(), control.join("state"));
    environment(&mut command, &Places { disk, second: None, state, control: control.to_owned() });
    if let Tool::Mutant { mutant, .. } = tool {
        command.env("SYNCONCE_MUTANT", mutant);
    }
    finish(tool.name(), Work::Files.limit(), &mut command)
}

/// Where two contents differ.
fn differ(finished: &Content, found: &Content) -> String {
    match (finished, found) {
        (Content::Tree(finished), Content::Tree(found)) => {
            let all = diff(finished, found);
            let shown: Vec<_> = all.iter().take(3).map(ToString::to_string).collect();
            format!("{} differences from the finished tree: {}", all.len(), shown.join("; "))
        }
        (Content::Bytes(finished), Content::Bytes(found)) => {
            let first = finished.iter().zip(found).position(|(one, other)| one != other);
            format!("the device differs from byte {} on", first.unwrap_or_default())
        }
        _ => "the disk holds something else".to_owned(),
    }
}
