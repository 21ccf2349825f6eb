//! Checks the state of a store after a power cut or a kill.

use super::script::{Effect, StoreState, Trees};
use super::store::{Interruption, SeenStore};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use synconce_testkit::manifest::{Manifest, diff};

/// When the power was cut or the kill happened.
#[derive(Clone, Debug)]
pub(super) struct TreeMoment<'a> {
    pub by: Interruption,
    /// The state when the last verb had returned.
    pub before: &'a StoreState,
    /// The state when the interrupted verb returns.
    pub after: &'a StoreState,
    /// The effect of the interrupted verb; `Nothing` after the last verb.
    pub interrupted: Effect,
    /// How many sessions may be reported for each tree, although their verbs have returned: the
    /// work was not meant to last, and the disk may lack the note that the session ended.
    pub accepted: BTreeMap<String, usize>,
}

/// A defect: its kind for the table, and the detail.
pub(super) type Defect = (&'static str, String);

/// Checks what was found; returns `None` if everything is as promised.
pub(super) fn check(moment: &TreeMoment<'_>, seen: &SeenStore) -> Option<Defect> {
    if !seen.store {
        return no_store(moment, seen);
    }
    if !seen.faults.is_empty() {
        return Some(("faults", seen.faults.join(" | ")));
    }
    let trees = match readable(seen) {
        Ok(trees) => trees,
        Err(why) => return Some(("unreadable tree", why)),
    };
    let matched = match Matched::find(moment, seen, &trees) {
        Ok(matched) => matched,
        Err(fault) => return Some(fault),
    };
    states(moment, seen)
        .or_else(|| lost(moment, matched, seen))
        .or_else(|| interrupted(moment, matched, seen))
        .or_else(|| {
            let twice = !seen.second.interrupted.is_empty() || !seen.second.lost.is_empty();
            twice.then(|| ("reported twice", format!("{:?}", seen.second)))
        })
        .or_else(|| (!seen.leftovers.is_empty()).then(|| ("leftovers", seen.leftovers.join(", "))))
        .or_else(|| seen.unusable.clone().map(|why| ("unusable", why)))
}

fn no_store(moment: &TreeMoment<'_>, seen: &SeenStore) -> Option<Defect> {
    if moment.before.store {
        return Some(("lost", "the store".to_owned()));
    }
    seen.unusable.clone().map(|why| ("unusable", why))
}

fn readable(seen: &SeenStore) -> Result<Trees, String> {
    let one = |(name, tree): (&String, &Result<Arc<Manifest>, String>)| match tree {
        Ok(tree) => Ok((name.clone(), Arc::clone(tree))),
        Err(why) => Err(format!("{name}: {why}")),
    };
    seen.trees.iter().map(one).collect()
}

/// Which of the two states was found; both if what lasts is the same in the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matched {
    before: bool,
    after: bool,
}

impl Matched {
    fn find(moment: &TreeMoment<'_>, seen: &SeenStore, trees: &Trees) -> Result<Self, Defect> {
        let open: BTreeSet<String> = seen
            .listed
            .iter()
            .filter(|tree| tree.state == "open")
            .map(|tree| tree.name.clone())
            .collect();
        let protected = seen.listed.iter().filter(|tree| tree.protected);
        let protected: BTreeSet<String> = protected.map(|tree| tree.name.clone()).collect();
        let is = |state: &StoreState| {
            state.protected == protected
                && match moment.by {
                    Interruption::PowerCut => state.durable == *trees,
                    Interruption::Kill => state.live() == *trees && state.open_names() == open,
                }
        };
        let matched = Self { before: is(moment.before), after: is(moment.after) };
        if matched.before || matched.after {
            Ok(matched)
        } else {
            Err(differs(moment, trees, &open, &protected))
        }
    }
}

/// Describes how the trees differ from both states.
fn differs(
    moment: &TreeMoment<'_>,
    trees: &Trees,
    open: &BTreeSet<String>,
    protected: &BTreeSet<String>,
) -> Defect {
    let content = |state: &StoreState| match moment.by {
        Interruption::PowerCut => state.durable.clone(),
        Interruption::Kill => state.live(),
    };
    let (before, after) = (content(moment.before), content(moment.after));
    for (name, tree) in trees {
        let known = [before.get(name), after.get(name)];
        if known == [None, None] {
            return ("reappeared", name.clone());
        }
        if !known.contains(&Some(tree)) {
            let nearest = known.into_iter().flatten().map(|known| diff(known, tree));
            let nearest = nearest.min_by_key(Vec::len).unwrap_or_default();
            let shown: Vec<String> = nearest.iter().take(3).map(ToString::to_string).collect();
            let count = nearest.len();
            return ("altered", format!("{name}: {count} differences: {}", shown.join("; ")));
        }
    }
    let has = |trees: &Trees, name: &String| trees.contains_key(name);
    match before.keys().find(|name| has(&after, name) && !has(trees, name)) {
        Some(name) => ("lost", name.clone()),
        None => {
            let names: Vec<_> = trees.keys().collect();
            ("mixed", format!("{names:?}, open {open:?}, protected {protected:?}"))
        }
    }
}

/// Checks the listed states: no tree is in use when nothing runs, and no tree is open after a
/// power cut.
fn states(moment: &TreeMoment<'_>, seen: &SeenStore) -> Option<Defect> {
    let wrong = |state: &str| match moment.by {
        Interruption::PowerCut => state != "committed",
        Interruption::Kill => state != "committed" && state != "open",
    };
    let wrong = seen.listed.iter().find(|tree| wrong(&tree.state))?;
    Some(("wrong state", format!("{} is {}", wrong.name, wrong.state)))
}

/// Checks that the loss of every open tree after a power cut is reported, and no other loss.
fn lost(moment: &TreeMoment<'_>, matched: Matched, seen: &SeenStore) -> Option<Defect> {
    let reported: BTreeSet<String> = seen.first.lost.iter().cloned().collect();
    let (may, must) = losses(moment, matched);
    let may = if moment.by == Interruption::Kill { BTreeSet::new() } else { may };
    if let Some(name) = reported.difference(&may).next() {
        return Some(("false alarm", format!("{name} is reported as lost, which it is not")));
    }
    if moment.by == Interruption::Kill {
        return None;
    }
    // A loss cannot be reported if no note of the work reached the disk.
    let unreported =
        must.iter().find(|name| !seen.reports_loss(name) && seen.noted.contains(name))?;
    Some(("loss not reported", format!("the work in {unreported} is lost")))
}

/// Returns the trees for which a loss may be reported, and those for which it must be.
fn losses(moment: &TreeMoment<'_>, matched: Matched) -> (BTreeSet<String>, BTreeSet<String>) {
    let states = [(matched.before, moment.before), (matched.after, moment.after)];
    let mut possible = states.iter().filter(|(is, _)| *is).map(|(_, state)| state.open_names());
    let first = possible.next().unwrap_or_default();
    match possible.next() {
        None => (first.clone(), first),
        Some(second) => (&first | &second, &first & &second),
    }
}

/// Whether work was lost with the power before a note of the work had reached the disk.
pub(super) fn is_silent(moment: &TreeMoment<'_>, seen: &SeenStore) -> bool {
    let matched = readable(seen).ok().and_then(|trees| Matched::find(moment, seen, &trees).ok());
    let Some(matched) = matched.filter(|_| moment.by == Interruption::PowerCut) else {
        return false;
    };
    losses(moment, matched)
        .1
        .iter()
        .any(|name| !seen.reports_loss(name) && !seen.noted.contains(name))
}

/// Checks that every session that was cut short is reported once, and none that ended well.
fn interrupted(moment: &TreeMoment<'_>, matched: Matched, seen: &SeenStore) -> Option<Defect> {
    let reported = &seen.first.interrupted;
    if reported.len() < seen.sessions {
        let sessions = seen.sessions;
        return Some((
            "interruption not reported",
            format!("{sessions} sessions were cut short, and reported: {reported:?}"),
        ));
    }
    let mut allowed = moment.accepted.clone();
    if let Some((name, passing)) = moment.interrupted.session()
        && (passing && moment.by == Interruption::PowerCut || matched.before)
    {
        *allowed.entry(name.to_owned()).or_default() += 1;
    }
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    reported.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let (name, _) = counts
        .iter()
        .find(|(name, count)| allowed.get(**name).copied().unwrap_or_default() < **count)?;
    Some(("false alarm", format!("{name} is reported as interrupted, which ended well")))
}

#[cfg(test)]
mod tests;
