//! Which kinds of rules match a file.

use super::RuleKind;

/// The kinds of rules that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matches {
    /// An `--only` matches.
    pub only: bool,
    /// An `--except` matches.
    pub except: bool,
}

impl Matches {
    pub(super) fn with(self, kind: RuleKind) -> Self {
        match kind {
            RuleKind::Only => Self { only: true, ..self },
            RuleKind::Except => Self { except: true, ..self },
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self { only: self.only || other.only, except: self.except || other.except }
    }

    /// Whether a sync is held; `has_only` says whether the run has an `--only`.
    pub(super) fn is_held(self, has_only: bool) -> bool {
        (self.only || !has_only) && !self.except
    }
}
