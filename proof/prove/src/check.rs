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
pub(crate) enum Tree {
    /// The state before the run.
    Before,
    /// The state in which the finished run left the tree.
    Finished,
    /// Neither of the two.
    Between,
}

/// When the cut was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the tool returned.
    Running,
    /// After the tool returned 0.
    Returned,
}

/// What was found at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Finding {
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
pub(crate) fn check(moment: Moment, status: Status, tree: Tree) -> Finding {
    match (moment, status, tree) {
        (Moment::Returned, _, Tree::Before | Tree::Between) => Finding::Lost,
        (Moment::Returned, Status::Nothing, Tree::Finished) => Finding::Kept,
        (Moment::Returned, _, Tree::Finished) => Finding::FalseAlarm,
        (Moment::Running, Status::Nothing | Status::OtherFileSystems, Tree::Between) => {
            Finding::Undetected
        }
        _ => Finding::Kept,
    }
}

/// Checks a disk whose file system does not recover.
pub(crate) fn check_unmountable(moment: Moment) -> Finding {
    match moment {
        Moment::Returned => Finding::Lost,
        Moment::Running => Finding::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_exit_0_only_the_finished_tree_without_a_report_is_accepted() {
        let found = |status, tree| check(Moment::Returned, status, tree);
        assert_eq!(found(Status::Nothing, Tree::Finished), Finding::Kept);
        assert_eq!(found(Status::Nothing, Tree::Between), Finding::Lost);
        assert_eq!(found(Status::Interrupted, Tree::Between), Finding::Lost);
        assert_eq!(found(Status::Nothing, Tree::Before), Finding::Lost);
        assert_eq!(found(Status::Interrupted, Tree::Finished), Finding::FalseAlarm);
    }

    #[test]
    fn a_disk_that_does_not_mount_is_lost_after_exit_0_and_no_broken_promise_before() {
        assert_eq!(check_unmountable(Moment::Returned), Finding::Lost);
        assert_eq!(check_unmountable(Moment::Running), Finding::Refused);
    }

    #[test]
    fn before_exit_0_a_tree_in_between_must_be_reported() {
        let found = |status, tree| check(Moment::Running, status, tree);
        for status in [Status::Nothing, Status::OtherFileSystems] {
            assert_eq!(found(status, Tree::Between), Finding::Undetected);
        }
        for tree in [Tree::Before, Tree::Between, Tree::Finished] {
            assert_eq!(found(Status::Interrupted, tree), Finding::Kept);
        }
        for tree in [Tree::Before, Tree::Finished] {
            assert_eq!(found(Status::Nothing, tree), Finding::Kept);
        }
    }
}
