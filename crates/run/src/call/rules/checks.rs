//! Refuses rules that can never matter, because of the other rules.

use super::{Pattern, Rule, RuleError, RuleKind, RuleReason};
use synconce_probe::mounts::DeviceId;

/// Checks every rule against the others.
///
/// # Errors
/// The first rule that has no effect because of the others: another rule covers it, or it can
/// match nothing. Or an `--except` that leaves nothing to hold.
pub(super) fn check(rules: &[Rule]) -> Result<(), RuleError> {
    let of = |kind| rules.iter().filter(move |rule| rule.kind == kind);
    for (at, rule) in rules.iter().enumerate() {
        let others = rules.iter().enumerate().filter(|(other, _)| *other != at);
        let same = others.filter(|(_, other)| other.kind == rule.kind);
        // Of two rules that cover each other, the later rule is refused.
        let by = same.filter(|(other, by)| covers(by, rule) && (*other < at || !covers(rule, by)));
        if let Some((_, by)) = by.into_iter().next() {
            return Err(rule.refused(RuleReason::Covered(by.typed.clone())));
        }
    }
    for only in of(RuleKind::Only) {
        if let Some(by) = of(RuleKind::Except).find(|except| covers(except, only)) {
            return Err(only.refused(RuleReason::Excepted(by.typed.clone())));
        }
    }
    if let Some(except) = of(RuleKind::Except).find(|except| except.visible.is_everything()) {
        return Err(except.refused(RuleReason::Everything));
    }
    let has_only = of(RuleKind::Only).next().is_some();
    let is_outside = |except: &&Rule| !of(RuleKind::Only).any(|only| may_meet(only, except));
    match of(RuleKind::Except).find(|except| has_only && is_outside(except)) {
        Some(except) => Err(except.refused(RuleReason::OutsideOnly)),
        None => Ok(()),
    }
}

impl Rule {
    pub(super) fn refused(&self, reason: RuleReason) -> RuleError {
        RuleError { kind: self.kind, path: self.typed.clone(), reason }
    }
}

type DevicePattern = (DeviceId, Pattern);

/// Whether `one` matches everything that `other` matches, by their visible paths or their
/// places.
fn covers(one: &Rule, other: &Rule) -> bool {
    let is_covered = |place: &DevicePattern| is_any(one, place, Pattern::covers);
    one.visible.covers(&other.visible) || other.places.iter().all(is_covered)
}

fn may_meet(one: &Rule, other: &Rule) -> bool {
    let meets = |place: &DevicePattern| is_any(one, place, Pattern::may_meet);
    one.visible.may_meet(&other.visible) || other.places.iter().any(meets)
}

fn is_any(rule: &Rule, place: &DevicePattern, relation: fn(&Pattern, &Pattern) -> bool) -> bool {
    rule.places.iter().any(|(device, own)| *device == place.0 && relation(own, &place.1))
}
