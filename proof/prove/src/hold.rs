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
use crate::config::{Config, Disk, MarkerPlace};
use crate::cuts::Findings;
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::{Arguments, Result};
use fixture::Fixture;

/// Maximum number of cuts of one recording.
const PER_RECORDING: usize = 40;
/// With fewer cuts than this only a few rows are made.
const FEW: usize = 20;
const DISKS: [Disk; 3] = [Disk::Ext4, Disk::Xfs, Disk::Btrfs];
/// Where the faults occur.
const FAULTS: (Disk, MarkerPlace) = (Disk::Ext4, MarkerPlace::Other);
const MARKERS: [MarkerPlace; 2] = [MarkerPlace::Same, MarkerPlace::Other];

/// What a row cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Holds whose files are set aside after a crash.
    Wipe,
    /// The recovery from a first cut.
    Recovery,
    /// Nothing: disks lose writes, and directories of root get the names of a hold's own.
    Faults,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Wipe => "hold: wipe",
            Self::Recovery => "hold: cut in recover",
            Self::Faults => "hold: faults",
        }
    }
}

/// A missing or misplaced step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    pub name: &'static str,
    pub about: &'static str,
    caught_by: What,
    /// A row in which few cuts catch the mutant.
    quick: (Disk, MarkerPlace),
}

const fn mutant(
    name: &'static str,
    about: &'static str,
    caught_by: What,
    quick: (Disk, MarkerPlace),
) -> Mutant {
    Mutant { name, about, caught_by, quick }
}

/// All mutants; the names are those of the crates `hold` and `durable`.
pub(crate) const MUTANTS: [Mutant; 18] = [
    mutant(
        "hold-marker-unwritten",
        "no marker of a hold",
        What::Wipe,
        (Disk::Ext4, MarkerPlace::Same),
    ),
    mutant(
        "hold-marker-directory-unsynced",
        "marker of a hold synced, its directory not",
        What::Wipe,
        (Disk::Xfs, MarkerPlace::Other),
    ),
    mutant(
        "hold-cleared-first",
        "marker of a hold removed before the syncs",
        What::Wipe,
        (Disk::Ext4, MarkerPlace::Other),
    ),
    mutant(
        "hold-stop-unsynced",
        "held files not synced at the end of a hold",
        What::Wipe,
        (Disk::Btrfs, MarkerPlace::Same),
    ),
    mutant(
        "hold-stop-copies-writable",
        "copies in other mount namespaces writable after the end of a hold",
        What::Wipe,
        (Disk::Ext4, MarkerPlace::Other),
    ),
    mutant(
        "hold-recover-no-rename",
        "files not renamed by a recovery",
        What::Wipe,
        (Disk::Btrfs, MarkerPlace::Same),
    ),
    mutant(
        "hold-recover-marker-first",
        "marker removed before the files are durably set aside",
        What::Recovery,
        (Disk::Ext4, MarkerPlace::Other),
    ),
    mutant(
        "hold-stop-synced-late",
        "held files not synced before their overlays are unmounted",
        What::Faults,
        FAULTS,
    ),
    mutant(
        "hold-failure-in-memory",
        "a lost write noted in memory alone on a full disk",
        What::Faults,
        FAULTS,
    ),
    mutant(
        "hold-marks-removed-first",
        "marks beside the files removed before the last sync",
        What::Faults,
        FAULTS,
    ),
    mutant("hold-loss-unmarked", "a lost write not noted beside the files", What::Faults, FAULTS),
    mutant(
        "hold-others-set-aside",
        "files with the name of a held one set aside",
        What::Faults,
        FAULTS,
    ),
    mutant(
        "hold-foreign-removed",
        "directories of root with names of the hold's own removed",
        What::Faults,
        FAULTS,
    ),
    mutant("hold-settle-by-name", "what is set aside removed by its name", What::Faults, FAULTS),
    mutant(
        "hold-mark-unsynced",
        "the kernel's mark beside the files not synced at the start",
        What::Faults,
        FAULTS,
    ),
    mutant("hold-note-unwritten", "no note of the boot beside the files", What::Faults, FAULTS),
    mutant("hold-unguarded", "no guard with the locks below the files", What::Faults, FAULTS),
    mutant(
        "hold-recover-journal-late",
        "journal of a recovery written after the renames",
        What::Faults,
        FAULTS,
    ),
];

/// Returns every row of holds.
pub(crate) fn jobs(arguments: &Arguments) -> Vec<Job<'_>> {
    let shipped = Tool::Synconce(arguments.synconce.clone());
    let cuts = arguments.hold_cuts.unwrap_or(arguments.cuts);
    let is_quick = cuts < FEW;
    let mut jobs = Vec::new();
    let mut row = |role, name: &str, what, (disk, marker), tool: &Tool, cuts| {
        let tool = tool.clone();
        let make = move |seed| made(what, (disk, marker), &tool, cuts, seed);
        let config = Config::supervised(disk, marker);
        jobs.push(Job { role, name: name.to_owned(), config, make: Box::new(make) });
    };
    for (what, place) in rows(is_quick) {
        row(Role::Promise, what.name(), what, place, &shipped, cuts);
    }
    let control = (Disk::Ext4NoBarrier, MarkerPlace::Same);
    let name = "hold: no flush reaches the disk";
    row(Role::Control, name, What::Wipe, control, &shipped, cuts.max(FEW));
    for mutant in MUTANTS {
        let Some(program) = &arguments.mutants else { break };
        let (program, shipped) = (program.clone(), arguments.synconce.clone());
        let tool = Tool::Mutant { program, mutant: mutant.name, shipped };
        let all = DISKS.into_iter().flat_map(|disk| MARKERS.map(|marker| (disk, marker)));
        let has_one = is_quick || mutant.caught_by == What::Faults;
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
        let (tool, name) = (shipped.clone(), "hold: kills".to_owned());
        let make = move |seed| match database::missing() {
            None => kills::kill(disk, &tool, arguments.kills, seed),
            missing => Ok(Findings { skipped: missing, ..Findings::default() }),
        };
        let config = Config::supervised(disk, MarkerPlace::Same);
        jobs.push(Job { role: Role::Promise, name, config, make: Box::new(make) });
    }
    jobs
}

/// Returns the rows of the promise: in the quick proof each file system and each place of the
/// marker occurs.
fn rows(is_quick: bool) -> Vec<(What, (Disk, MarkerPlace))> {
    use MarkerPlace::{Other, Same};
    if is_quick {
        return vec![
            (What::Wipe, (Disk::Ext4, Other)),
            (What::Wipe, (Disk::Btrfs, Same)),
            (What::Wipe, (Disk::Xfs, Same)),
            (What::Recovery, (Disk::Ext4, Same)),
            (What::Faults, FAULTS),
        ];
    }
    let on = |disk| {
        let wipes = MARKERS.map(|marker| (What::Wipe, (disk, marker)));
        let recoveries = MARKERS.map(|marker| (What::Recovery, (disk, marker)));
        wipes.into_iter().chain(recoveries)
    };
    DISKS.into_iter().flat_map(on).chain([(What::Faults, FAULTS)]).collect()
}

/// Records and cuts until the row has its cuts; a mutant's row ends when the mutant is caught.
fn made(
    what: What,
    (disk, marker): (Disk, MarkerPlace),
    tool: &Tool,
    count: usize,
    seed: u64,
) -> Result<Findings> {
    if what == What::Faults {
        return faults::all(tool);
    }
    if let Some(missing) = database::missing() {
        return Ok(Findings { skipped: Some(missing), ..Findings::default() });
    }
    let until_broken = matches!(tool, Tool::Mutant { .. });
    let mut findings = Findings::default();
    let recordings = count.div_ceil(PER_RECORDING);
    for round in 0..recordings {
        if until_broken && findings.broken() > 0 {
            break;
        }
        let mut fixture = Fixture::new(tool, marker)?;
        let load = LoadKind::of(seed.wrapping_add(3 * round as u64));
        let recorded = recording::record(&fixture, disk, load)?;
        let cuts = count * (round + 1) / recordings - count * round / recordings;
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(round as u64);
        fixture.recover_by_shipped();
        findings.merge(match what {
            What::Recovery => again::cut(&fixture, &recorded, disk, cuts, seed, until_broken)?,
            _ => cuts::cut(&fixture, &recorded, cuts, seed, until_broken)?,
        });
    }
    Ok(findings)
}
