//! The steps that are removed, one at a time, to check that the proof notices.
//!
//! The names are those of the tool's feature `mutants`.

use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::row::Role;
use crate::work::Work;

/// A missing or misplaced step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    pub name: &'static str,
    pub about: &'static str,
    pub work: Work,
    /// Whether these file systems do not need the step.
    needless: bool,
    markers: &'static [MarkerPlace],
    /// The file system on which the fewest cuts catch the mutant. Its rows come first.
    soonest: DiskKind,
}

pub(crate) const MUTANTS: [Mutant; 13] = [
    Mutant {
        name: "marker-late",
        about: "marker written after the first hold",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "marker-unsynced",
        about: "marker not synced, nor its directory",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "marker-directory-unsynced",
        about: "marker synced, its directory not",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
        soonest: DiskKind::Xfs,
    },
    Mutant {
        name: "marker-parents-unsynced",
        about: "directories made for the marker not synced",
        work: Work::Files,
        needless: true,
        markers: &[MarkerPlace::Root],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "marker-file-system-missing",
        about: "another file system not named in the marker",
        work: Work::TwoDisks,
        needless: false,
        markers: &[MarkerPlace::Other],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "marker-file-systems-unsynced",
        about: "another file system named in the marker, which is not synced",
        work: Work::TwoDisks,
        needless: false,
        markers: &[MarkerPlace::Other],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "clear-before-commit",
        about: "marker removed before the commit",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "commit-skipped",
        about: "no commit",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "commit-by-write-back",
        about: "commit by starting and awaiting write-back of data only (sync_file_range)",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Other, MarkerPlace::Same],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "checkpoint-skipped",
        about: "no commit in the middle",
        work: Work::Checkpoint,
        needless: false,
        markers: &[MarkerPlace::Same],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "except-ignored",
        about: "--except is ignored: every sync is held",
        work: Work::Excepted,
        needless: false,
        markers: &[MarkerPlace::Same],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "unseen-uncovered",
        about: "no commit of what a caller synced that could not be examined",
        work: Work::OtherUser,
        needless: false,
        markers: &[MarkerPlace::Same],
        soonest: DiskKind::Ext4,
    },
    Mutant {
        name: "survivors-not-released",
        about: "survivors' syncs stay held",
        work: Work::Daemon,
        needless: false,
        markers: &[MarkerPlace::Same],
        soonest: DiskKind::Ext4,
    },
];

impl Mutant {
    /// Returns the role of the mutant's rows.
    pub(crate) fn role(&self) -> Role {
        if self.needless { Role::NeedlessMutant } else { Role::Mutant }
    }

    /// Returns the configs in which the mutant is tried, those that catch it soonest first.
    pub(crate) fn configs(&self) -> Vec<RunConfig> {
        let disks = [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs];
        let row = |marker: &MarkerPlace| disks.map(|disk| RunConfig::supervised(disk, *marker));
        let mut configs: Vec<_> = self.markers.iter().flat_map(row).collect();
        configs.sort_by_key(|config| config.disk != self.soonest);
        configs
    }
}
