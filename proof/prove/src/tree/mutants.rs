//! The steps of a commit and of a removal that are removed, one at a time.

/// A missing or misplaced step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeMutant {
    pub name: &'static str,
    pub about: &'static str,
    pub caught_by: CaughtBy,
}

/// How the missing step is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaughtBy {
    /// By a power cut; if only one verb of the script has the step, in that verb.
    Cut(Option<&'static str>),
    /// By a kill.
    Kill,
    /// By two processes that work in parallel.
    Walk,
}

const fn cut(name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Cut(None) }
}

/// A mutant of the step of one verb. Cuts anywhere else cannot catch it.
const fn cut_in(verb: &'static str, name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Cut(Some(verb)) }
}

const fn killed(name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Kill }
}

const fn walked(name: &'static str, about: &'static str) -> TreeMutant {
    TreeMutant { name, about, caught_by: CaughtBy::Walk }
}

/// The mutants that a commit of a snapshot of btrfs must have a row of its own for, which has to catch
/// them: it syncs the disk once more, for the layer's fingerprint.
pub(crate) const OF_SNAPSHOTS: [&str; 2] = ["tree-unsynced", "tree-record-first"];

/// All mutants; the names are those of the crate `tree`.
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
    // Only a kill can show this mutant: after a power cut the note of the session may not be
    // on the disk.
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
