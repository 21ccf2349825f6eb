//! Checks the state of a recovered disk.

/// What `synconce status` reported about the recovered disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Exit code 0: nothing to report.
    Nothing,
    /// Exit code 4: a run was interrupted.
    Interrupted,
    /// Exit code 4, but the run names other file systems than the one that it changed.
    OtherFileSystems,
    /// `status` failed and printed the reason: not silent, but no answer either.
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

/// The run had returned 0, and its tree is not the finished one.
pub(crate) const LOST: &str = "lost";
/// The run was cut short, its tree is neither the old nor the finished one, and status does not
/// report the run.
pub(crate) const UNDETECTED: &str = "undetected";
/// The run had returned 0 with all its data safe, and status reports it as interrupted.
pub(crate) const FALSE_ALARM: &str = "false alarm";
/// A survivor's own sync after the run, or a commit in the middle of the run, did not make a file
/// durable.
pub(crate) const PART_LOST: &str = "part lost";

/// Checks the tree at a cut. Returns the kind of the broken promise, if any.
pub(crate) fn check(moment: CutMoment, status: Status, tree: TreeFound) -> Option<&'static str> {
    match (moment, status, tree) {
        (CutMoment::Returned, _, TreeFound::Before | TreeFound::Between) => Some(LOST),
        (CutMoment::Returned, Status::Nothing, TreeFound::Finished) => None,
        (CutMoment::Returned, _, TreeFound::Finished) => Some(FALSE_ALARM),
        (CutMoment::Running, Status::Nothing | Status::OtherFileSystems, TreeFound::Between) => {
            Some(UNDETECTED)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_exit_0_only_the_finished_tree_without_a_report_is_accepted() {
        let found = |status, tree| check(CutMoment::Returned, status, tree);
        assert_eq!(found(Status::Nothing, TreeFound::Finished), None);
        assert_eq!(found(Status::Nothing, TreeFound::Between), Some(LOST));
        assert_eq!(found(Status::Interrupted, TreeFound::Between), Some(LOST));
        assert_eq!(found(Status::Nothing, TreeFound::Before), Some(LOST));
        assert_eq!(found(Status::Interrupted, TreeFound::Finished), Some(FALSE_ALARM));
    }

    #[test]
    fn before_exit_0_a_tree_in_between_must_be_reported() {
        let found = |status, tree| check(CutMoment::Running, status, tree);
        for status in [Status::Nothing, Status::OtherFileSystems] {
            assert_eq!(found(status, TreeFound::Between), Some(UNDETECTED));
        }
        for tree in [TreeFound::Before, TreeFound::Between, TreeFound::Finished] {
            assert_eq!(found(Status::Interrupted, tree), None);
        }
        for tree in [TreeFound::Before, TreeFound::Finished] {
            assert_eq!(found(Status::Nothing, tree), None);
        }
    }
}
