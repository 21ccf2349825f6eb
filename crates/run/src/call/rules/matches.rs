//! Which kinds of rules match a file.

use super::error::RuleKind;
use super::pattern::Pattern;
use std::path::Component;

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

/// What the rules demand of the paths in a mount, because of the mount points of the mount and of
/// the mounts above it.
#[derive(Debug, Default)]
pub(super) struct Inherited(pub(super) Vec<(RuleKind, Pattern)>);

impl Inherited {
    /// Returns the kinds that match `below`, a path in the mount.
    pub(super) fn matches<'a>(
        &self,
        below: impl Iterator<Item = Component<'a>> + Clone,
    ) -> Matches {
        let matching = self.0.iter().filter(|(_, pattern)| pattern.matches(below.clone()));
        matching.fold(Matches::default(), |matches, (kind, _)| matches.with(*kind))
    }

    /// Whether an `--except` may match a file in the mount.
    pub(super) fn has_except(&self) -> bool {
        self.0.iter().any(|(kind, _)| *kind == RuleKind::Except)
    }
}
