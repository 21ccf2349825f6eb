//! The mutants of `synconce tree`. Each lacks one step of a verb, or does one step too early.

/// A build of the tool without one step, or with one step in the wrong place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeMutant {
    pub name: &'static str,
    pub about: &'static str,
    pub caught_by: CaughtBy,
}

/// How the proof catches a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaughtBy {
    /// By a power cut: anywhere, or only within this verb of the script.
    Cut(Option<&'static str>),
    /// By a kill of the tool.
    Kill,
    /// By the walk of two processes on the same trees.
    Walk,
}

const fn cut(name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Cut(None) }
}

/// Returns a mutant that only cuts within `verb` can catch.
const fn cut_in(verb: &'static str, name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Cut(Some(verb)) }
}

const fn killed(name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Kill }
}

const fn walked(name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Walk }
}

/// The mutants whose rows on btrfs are judged apart from those on other disks, and must catch them.
/// A commit of a btrfs snapshot syncs the disk once more, for the fingerprint of the layer.
pub(crate) const OF_SNAPSHOTS: [&str; 2] = ["tree-unsynced", "tree-record-first"];

/// All mutants. The crate `tree` leaves out a step by the name of its mutant.
pub(crate) const MUTANTS: [TreeMutant; 15] = [
    cut("tree-unsynced", "a tree's file system not synced before its record is written"),
    cut("tree-record-first", "a tree's record written before its file system is synced"),
    cut("tree-record-unsynced", "a tree's record not synced, nor its directory"),
    cut("tree-record-directory-unsynced", "a tree's record synced, its directory not"),
    cut("tree-trash-first", "layers emptied before the record is durably gone"),
    cut("tree-open-believed", "uncommitted work kept after a cut"),
    cut("tree-discard-unsynced", "discarded changes whose note is not durably gone"),
    cut("tree-protect-unsynced", "the record of a protected tree replaced without a sync"),
    cut("tree-rename-unsynced", "a record renamed without a sync"),
    cut_in(
        "remove older@2",
        "tree-kept-trash-first",
        "a generation's layers removed before its record is",
    ),
    cut("tree-restore-unsynced", "a restored generation whose record is not synced"),
    // No power cut can catch this mutant: the note of the session need not be on the disk.
    killed("tree-interrupted-forgotten", "interrupted sessions removed without a report"),
    killed("tree-lease-ignored", "the lease of an interrupted session taken for held"),
    walked("tree-unlocked", "records changed without the store's lock"),
    walked("tree-readers-ignored", "layers removed while they are read"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_script_has_the_verb_of_each_mutant_of_one_verb() {
        let script = super::super::script::script(Path::new("/source"), None);
        for mutant in MUTANTS {
            let CaughtBy::Cut(Some(verb)) = mutant.caught_by else { continue };
            assert!(script.iter().any(|step| step.name() == verb), "{}", mutant.name);
        }
    }
}
