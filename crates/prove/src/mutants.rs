//! The steps that are taken away, one at a time, to see whether it would be seen.
//!
//! The names are those that the feature `mutants` of the tool knows.

use crate::row::Role;
use crate::scene::{Disk, MarkerPlace, Scene};
use crate::work::Work;

/// A missing or misplaced step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    pub name: &'static str,
    pub about: &'static str,
    pub work: Work,
    /// Whether these file systems do without the step.
    needless: bool,
    markers: &'static [MarkerPlace],
}

/// All of them.
pub(crate) const MUTANTS: [Mutant; 10] = [
    Mutant {
        name: "marker-late",
        about: "marker written after the first hold",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
    },
    Mutant {
        name: "marker-unsynced",
        about: "marker not synced, nor its directory",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
    },
    Mutant {
        name: "marker-directory-unsynced",
        about: "marker synced, its directory not",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
    },
    Mutant {
        name: "marker-parents-unsynced",
        about: "directories made for the marker not synced",
        work: Work::Files,
        needless: true,
        markers: &[MarkerPlace::Root],
    },
    Mutant {
        name: "marker-file-system-missing",
        about: "another file system not named in the marker",
        work: Work::TwoDisks,
        needless: false,
        markers: &[MarkerPlace::Other],
    },
    Mutant {
        name: "marker-file-systems-unsynced",
        about: "another file system named in the marker, which is not synced",
        work: Work::TwoDisks,
        needless: false,
        markers: &[MarkerPlace::Other],
    },
    Mutant {
        name: "clear-before-commit",
        about: "marker removed before the commit",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
    },
    Mutant {
        name: "commit-skipped",
        about: "no commit",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
    },
    Mutant {
        name: "commit-by-write-back",
        about: "commit by starting and awaiting write-back of data only (sync_file_range)",
        work: Work::Files,
        needless: false,
        markers: &[MarkerPlace::Same, MarkerPlace::Other],
    },
    Mutant {
        name: "survivors-not-released",
        about: "survivors' syncs stay held",
        work: Work::Daemon,
        needless: false,
        markers: &[MarkerPlace::Same],
    },
];

impl Mutant {
    /// What its rows are for.
    pub(crate) fn role(&self) -> Role {
        if self.needless { Role::NeedlessMutant } else { Role::Mutant }
    }

    /// The scenes in which it is tried.
    pub(crate) fn scenes(&self) -> Vec<Scene> {
        let disks = [Disk::Ext4, Disk::Xfs, Disk::Btrfs];
        let row = |marker: &MarkerPlace| disks.map(|disk| Scene::supervised(disk, *marker));
        self.markers.iter().flat_map(row).collect()
    }
}
