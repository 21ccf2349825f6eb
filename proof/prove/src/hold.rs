//! Held files of a daemon: `synconce hold`, cut and killed.
//!
//! Two holds of real databases are recorded, one after the other, and cut anywhere. On each
//! disk that is left `hold recover` runs. A database is then whole, with everything that was
//! committed before the last `hold stop`, or is set aside with a message. The recovery itself
//! is recorded and cut, too. Kills hit each verb on a disk that stays up.

mod again;
mod copies;
mod cuts;
mod database;
mod faults;
mod fixture;
mod judge;
mod kills;
mod recording;

use crate::background_load::LoadKind;
use crate::campaign::{Campaign, Findings};
use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::{ProveArguments, Result};
use fixture::HoldFixture;

/// Maximum number of cuts of one recording.
const PER_RECORDING: usize = 40;
/// With fewer cuts than this only a few rows are made.
const FEW: usize = 20;
const DISKS: [DiskKind; 3] = [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs];
/// Where the faults occur.
const FAULTS: (DiskKind, MarkerPlace) = (DiskKind::Ext4, MarkerPlace::Other);
const MARKERS: [MarkerPlace; 2] = [MarkerPlace::Same, MarkerPlace::Other];

/// What a row cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldCut {
    /// Holds whose files are set aside after a crash.
    Wipe,
    /// The recovery from a first cut.
    Recovery,
    /// The restore after that recovery.
    Restore,
    /// Nothing: disks lose writes, and directories of root get the names of a hold's own.
    Faults,
}

impl HoldCut {
    fn name(self) -> &'static str {
        match self {
            Self::Wipe => "hold: wipe",
            Self::Recovery => "hold: cut in recover",
            Self::Restore => "hold: cut in restore",
            Self::Faults => "hold: faults",
        }
    }
}

/// A missing or misplaced step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldMutant {
    pub name: &'static str,
    pub about: &'static str,
    caught_by: HoldCut,
    /// A row in which few cuts catch the mutant.
    quick: (DiskKind, MarkerPlace),
}

const fn mutant(
    name: &'static str,
    about: &'static str,
    caught_by: HoldCut,
    quick: (DiskKind, MarkerPlace),
) -> HoldMutant {
    HoldMutant { name, about, caught_by, quick }
}

/// All mutants; the names are those of the crates `hold` and `durable`.
pub(crate) const MUTANTS: [HoldMutant; 27] = [
    mutant(
        "hold-marker-unwritten",
        "no marker of a hold",
        HoldCut::Wipe,
        (DiskKind::Ext4, MarkerPlace::Same),
    ),
    mutant(
        "hold-marker-directory-unsynced",
        "marker of a hold synced, its directory not",
        HoldCut::Wipe,
        (DiskKind::Xfs, MarkerPlace::Other),
    ),
    mutant(
        "hold-cleared-first",
        "marker of a hold removed before the syncs",
        HoldCut::Wipe,
        (DiskKind::Ext4, MarkerPlace::Other),
    ),
    mutant(
        "hold-stop-unsynced",
        "held files not synced at the end of a hold",
        HoldCut::Wipe,
        (DiskKind::Btrfs, MarkerPlace::Same),
    ),
    mutant(
        "hold-stop-copies-writable",
        "copies in other mount namespaces writable after the end of a hold",
        HoldCut::Wipe,
        (DiskKind::Ext4, MarkerPlace::Other),
    ),
    mutant(
        "hold-recover-no-rename",
        "files not renamed by a recovery",
        HoldCut::Recovery,
        (DiskKind::Ext4, MarkerPlace::Other),
    ),
    mutant(
        "hold-recover-marker-first",
        "marker removed before the files are durably set aside",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-stop-synced-late",
        "held files not synced before their overlays are unmounted",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-failure-in-memory",
        "a lost write noted in memory alone on a full disk",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-marks-removed-first",
        "marks beside the files removed before the last sync",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-loss-unmarked",
        "a lost write not noted beside the files",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-loss-unjournaled",
        "a lost write not noted for a restore in another container",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-loss-noted-late",
        "a lost write noted after the syncs of all disks",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-marker-losses-unread",
        "lost writes in the marker not read by a restore",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-wipe-unsynced",
        "disks not synced before their files are set aside",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-wipe-marks-first",
        "marks beside the files removed before the files are set aside",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-boot-of-container",
        "the boot id of a container taken for that of the kernel",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-others-set-aside",
        "files with the name of a held one set aside",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-foreign-removed",
        "directories of root with names of the hold's own removed",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant("hold-settle-by-name", "what is set aside removed by its name", HoldCut::Faults, FAULTS),
    mutant(
        "hold-mark-unsynced",
        "the kernel's mark beside the files not synced at the start",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant("hold-note-unwritten", "no note of the boot beside the files", HoldCut::Faults, FAULTS),
    mutant("hold-unguarded", "no guard with the locks below the files", HoldCut::Faults, FAULTS),
    mutant(
        "hold-looked-once",
        "a start looks for open files before the mount only",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-recover-journal-late",
        "journal of a recovery written after the renames",
        HoldCut::Faults,
        FAULTS,
    ),
    mutant(
        "hold-restore-unsynced",
        "renames of a restore not synced before the journal",
        HoldCut::Restore,
        (DiskKind::Btrfs, MarkerPlace::Other),
    ),
    mutant(
        "hold-restore-journal-late",
        "journal of a restore not written before the renames",
        HoldCut::Faults,
        FAULTS,
    ),
];

/// Returns every row of holds.
pub(crate) fn jobs(arguments: &ProveArguments) -> Vec<Job<'_>> {
    let shipped = arguments.shipped();
    let cuts = arguments.hold_cuts.unwrap_or(arguments.cuts);
    let is_quick = cuts < FEW;
    let mut jobs = Vec::new();
    let mut row = |role, name: &str, what, (disk, marker), tool: &Tool, cuts| {
        let tool = tool.clone();
        let make = move |seed| made(what, (disk, marker), &tool, cuts, seed);
        jobs.push(Job::new(role, name, RunConfig::supervised(disk, marker), make));
    };
    for (what, place) in rows(is_quick) {
        row(Role::Promise, what.name(), what, place, &shipped, cuts);
    }
    let control = (DiskKind::Ext4NoBarrier, MarkerPlace::Same);
    let name = "hold: no flush reaches the disk";
    row(Role::Control, name, HoldCut::Wipe, control, &shipped, cuts.max(FEW));
    for mutant in MUTANTS {
        let Some(tool) = arguments.mutant(mutant.name) else { break };
        let all = DISKS.into_iter().flat_map(|disk| MARKERS.map(|marker| (disk, marker)));
        let has_one = is_quick || mutant.caught_by == HoldCut::Faults;
        let places = if has_one { vec![mutant.quick] } else { all.collect() };
        for place in places {
            // Under some background loads no cut of a recording catches a mutant.
            // A row ends with the first cut that catches the mutant. The rarest is caught by one in
            // forty.
            let cuts = 8 * arguments.mutant_cuts;
            row(Role::Mutant, mutant.name, mutant.caught_by, place, &tool, cuts);
        }
    }
    for disk in DISKS.into_iter().take(if is_quick { 1 } else { DISKS.len() }) {
        let tool = shipped.clone();
        let make = move |seed| match database::missing() {
            None => kills::kill(disk, &tool, arguments.kills, seed),
            missing => Ok(Findings { skipped: missing, ..Findings::default() }),
        };
        let config = RunConfig::supervised(disk, MarkerPlace::Same);
        jobs.push(Job::new(Role::Promise, "hold: kills", config, make));
    }
    jobs
}

/// Returns the rows of the promise: in the quick proof each file system and each place of the
/// marker occurs.
fn rows(is_quick: bool) -> Vec<(HoldCut, (DiskKind, MarkerPlace))> {
    use MarkerPlace::{Other, Same};
    if is_quick {
        return vec![
            (HoldCut::Wipe, (DiskKind::Ext4, Other)),
            (HoldCut::Wipe, (DiskKind::Btrfs, Same)),
            (HoldCut::Wipe, (DiskKind::Xfs, Same)),
            (HoldCut::Recovery, (DiskKind::Ext4, Same)),
            (HoldCut::Restore, (DiskKind::Xfs, Other)),
            (HoldCut::Faults, FAULTS),
        ];
    }
    let on = |disk| {
        let wipes = MARKERS.map(|marker| (HoldCut::Wipe, (disk, marker)));
        let recoveries = MARKERS.map(|marker| (HoldCut::Recovery, (disk, marker)));
        let restores = MARKERS.map(|marker| (HoldCut::Restore, (disk, marker)));
        wipes.into_iter().chain(recoveries).chain(restores)
    };
    DISKS.into_iter().flat_map(on).chain([(HoldCut::Faults, FAULTS)]).collect()
}

/// Records and cuts until the row has its cuts; a mutant's row ends when the mutant is caught.
fn made(
    what: HoldCut,
    (disk, marker): (DiskKind, MarkerPlace),
    tool: &Tool,
    count: usize,
    seed: u64,
) -> Result<Findings> {
    if what == HoldCut::Faults {
        return faults::all(tool);
    }
    if let Some(missing) = database::missing() {
        return Ok(Findings { skipped: Some(missing), ..Findings::default() });
    }
    Campaign::new(tool, count, seed).record(count.div_ceil(PER_RECORDING), |round, part| {
        let mut fixture = HoldFixture::new(tool, marker)?;
        let load = LoadKind::for_round(seed.wrapping_add(3 * round));
        let recorded = recording::record(&fixture, disk, load)?;
        fixture.recover_by_shipped();
        match what {
            HoldCut::Recovery | HoldCut::Restore => {
                again::cut(what, &fixture, &recorded, disk, part)
            }
            _ => cuts::cut(&fixture, &recorded, part),
        }
    })
}
