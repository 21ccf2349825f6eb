//! Checks the state of a recovered disk.

use serde::Serialize;

/// What `synconce status` reported about the recovered disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Exit code 0: nothing to report.
    Nothing,
    /// Exit code 4: a run was interrupted.
    Interrupted,
    /// Exit code 4, but the run names other file systems than the one that it changed.
    OtherFileSystems,
    /// Status failed and printed why: loud enough, but no answer.
    Failed,
}

/// The state of the tree, by its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeFound {
    /// The state before the run.
    Before,
    /// The state in which the finished run left the tree.
    Finished,
    /// Neither of the two.
    Between,
}

/// When the cut was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutMoment {
    /// Before the tool returned.
    Running,
    /// After the tool returned 0.
    Returned,
}

/// What was found at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CutFinding {
    /// The promise was kept.
    Kept,
    /// The run had returned 0, and its tree is not the finished one or cannot be mounted.
    Lost,
    /// The run was cut short, its tree is neither the old nor the finished one, and status
    /// does not report the run.
    Undetected,
    /// The run had returned 0 with all its data safe, and status reports it as interrupted.
    FalseAlarm,
    /// A survivor's own sync after the run, or a commit in the middle of the run, did not make a
    /// file durable.
    PartLost,
    /// The file system did not recover, and the run had not returned. Nothing had been
    /// promised about the disk yet, and a command without the tool leaves such disks as well.
    Refused,
}

/// Checks the tree at a cut.
pub(crate) fn check(moment: CutMoment, status: Status, tree: TreeFound) -> CutFinding {
    match (moment, status, tree) {
        (CutMoment::Returned, _, TreeFound::Before | TreeFound::Between) => CutFinding::Lost,
        (CutMoment::Returned, Status::Nothing, TreeFound::Finished) => CutFinding::Kept,
        (CutMoment::Returned, _, TreeFound::Finished) => CutFinding::FalseAlarm,
        (CutMoment::Running, Status::Nothing | Status::OtherFileSystems, TreeFound::Between) => {
            CutFinding::Undetected
        }
        _ => CutFinding::Kept,
    }
}

/// Checks a disk whose file system does not recover.
pub(crate) fn check_unmountable(moment: CutMoment) -> CutFinding {
    match moment {
        CutMoment::Returned => CutFinding::Lost,
        CutMoment::Running => CutFinding::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_exit_0_only_the_finished_tree_without_a_report_is_accepted() {
        let found = |status, tree| check(CutMoment::Returned, status, tree);
        assert_eq!(found(Status::Nothing, TreeFound::Finished), CutFinding::Kept);
        assert_eq!(found(Status::Nothing, TreeFound::Between), CutFinding::Lost);
        assert_eq!(found(Status::Interrupted, TreeFound::Between), CutFinding::Lost);
        assert_eq!(found(Status::Nothing, TreeFound::Before), CutFinding::Lost);
        assert_eq!(found(Status::Interrupted, TreeFound::Finished), CutFinding::FalseAlarm);
    }

    #[test]
    fn a_disk_that_does_not_mount_is_lost_after_exit_0_and_no_broken_promise_before() {
        assert_eq!(check_unmountable(CutMoment::Returned), CutFinding::Lost);
        assert_eq!(check_unmountable(CutMoment::Running), CutFinding::Refused);
    }

    #[test]
    fn before_exit_0_a_tree_in_between_must_be_reported() {
        let found = |status, tree| check(CutMoment::Running, status, tree);
        for status in [Status::Nothing, Status::OtherFileSystems] {
            assert_eq!(found(status, TreeFound::Between), CutFinding::Undetected);
        }
        for tree in [TreeFound::Before, TreeFound::Between, TreeFound::Finished] {
            assert_eq!(found(Status::Interrupted, tree), CutFinding::Kept);
        }
        for tree in [TreeFound::Before, TreeFound::Finished] {
            assert_eq!(found(Status::Nothing, tree), CutFinding::Kept);
        }
    }
}
