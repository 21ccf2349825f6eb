//! Judges the state of a store after a power cut or a kill.

use super::script::{Effect, State, Trees};
use super::store::{Kill, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use synconce_testkit::manifest::{Manifest, diff};

/// When the power was cut or the kill happened.
#[derive(Clone, Debug)]
pub(super) struct Moment<'a> {
    pub blow: Kill,
    /// The state when the last verb had returned.
    pub before: &'a State,
    /// The state when the interrupted verb returns.
    pub after: &'a State,
    /// The effect of the interrupted verb; `Nothing` after the last verb.
    pub hit: Effect,
    /// Number of sessions, by the tree that they are reported for, of verbs that have returned
    /// and whose work was not to last. The disk may lack the note that they ended.
    pub forgiven: BTreeMap<String, usize>,
}

/// A defect: its kind for the table, and the detail.
pub(super) type Fault = (&'static str, String);

/// Judges what was found; returns `None` if everything is as promised.
pub(super) fn judge(moment: &Moment<'_>, seen: &Seen) -> Option<Fault> {
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
            twice.then(|| ("said twice", format!("{:?}", seen.second)))
        })
        .or_else(|| (!seen.leftovers.is_empty()).then(|| ("leftovers", seen.leftovers.join(", "))))
        .or_else(|| seen.stuck.clone().map(|why| ("does not work on", why)))
}

fn no_store(moment: &Moment<'_>, seen: &Seen) -> Option<Fault> {
    if moment.before.store {
        return Some(("lost", "the store".to_owned()));
    }
    seen.stuck.clone().map(|why| ("does not work on", why))
}

fn readable(seen: &Seen) -> Result<Trees, String> {
    let one = |(name, tree): (&String, &Result<Arc<Manifest>, String>)| match tree {
        Ok(tree) => Ok((name.clone(), Arc::clone(tree))),
        Err(why) => Err(format!("{name}: {why}")),
    };
    seen.trees.iter().map(one).collect()
}

/// Which of the two states was found; both if they do not differ in what lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matched {
    before: bool,
    after: bool,
}

impl Matched {
    fn find(moment: &Moment<'_>, seen: &Seen, trees: &Trees) -> Result<Self, Fault> {
        let open: BTreeSet<String> = seen
            .listed
            .iter()
            .filter(|tree| tree.state == "open")
            .map(|tree| tree.name.clone())
            .collect();
        let is = |state: &State| match moment.blow {
            Kill::Power => state.durable == *trees,
            Kill::Kill => state.live() == *trees && state.open_names() == open,
        };
        let matched = Self { before: is(moment.before), after: is(moment.after) };
        match matched.before || matched.after {
            true => Ok(matched),
            false => Err(differs(moment, trees, &open)),
        }
    }
}

/// Describes how the trees differ from both states.
fn differs(moment: &Moment<'_>, trees: &Trees, open: &BTreeSet<String>) -> Fault {
    let content = |state: &State| match moment.blow {
        Kill::Power => state.durable.clone(),
        Kill::Kill => state.live(),
    };
    let (before, after) = (content(moment.before), content(moment.after));
    for (name, tree) in trees {
        let known = [before.get(name), after.get(name)];
        if known == [None, None] {
            return ("came back", name.clone());
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
        None => ("half", format!("{:?}, open {open:?}", trees.keys().collect::<Vec<_>>())),
    }
}

/// Checks the listed states: no tree is in use when nothing runs, and no tree is open after a
/// power cut.
fn states(moment: &Moment<'_>, seen: &Seen) -> Option<Fault> {
    let wrong = |state: &str| match moment.blow {
        Kill::Power => state != "committed",
        Kill::Kill => state != "committed" && state != "open",
    };
    let wrong = seen.listed.iter().find(|tree| wrong(&tree.state))?;
    Some(("believed", format!("{} is {}", wrong.name, wrong.state)))
}

/// Checks that the loss of every open tree after a power cut is reported, and no other loss.
fn lost(moment: &Moment<'_>, matched: Matched, seen: &Seen) -> Option<Fault> {
    let said: BTreeSet<String> = seen.first.lost.iter().cloned().collect();
    let (may, must) = losses(moment, matched);
    let may = if moment.blow == Kill::Kill { BTreeSet::new() } else { may };
    if let Some(name) = said.difference(&may).next() {
        return Some(("false alarm", format!("{name} is said to have lost something")));
    }
    if moment.blow == Kill::Kill {
        return None;
    }
    // A loss cannot be reported if no note of the work reached the disk.
    let unsaid = must.iter().find(|name| !seen.tells(name) && seen.noted.contains(name))?;
    Some(("unsaid", format!("what was done in {unsaid} is lost")))
}

/// Returns the trees for which a loss may be reported, and those for which it must be.
fn losses(moment: &Moment<'_>, matched: Matched) -> (BTreeSet<String>, BTreeSet<String>) {
    let states = [(matched.before, moment.before), (matched.after, moment.after)];
    let mut possible = states.iter().filter(|(is, _)| *is).map(|(_, state)| state.open_names());
    let first = possible.next().unwrap_or_default();
    match possible.next() {
        None => (first.clone(), first),
        Some(second) => (&first | &second, &first & &second),
    }
}

/// Whether work was lost with the power before a note of the work had reached the disk.
pub(super) fn is_silent(moment: &Moment<'_>, seen: &Seen) -> bool {
    let matched = readable(seen).ok().and_then(|trees| Matched::find(moment, seen, &trees).ok());
    let Some(matched) = matched.filter(|_| moment.blow == Kill::Power) else { return false };
    losses(moment, matched).1.iter().any(|name| !seen.tells(name) && !seen.noted.contains(name))
}

/// Checks that every session that was cut short is reported once, and none that ended well.
fn interrupted(moment: &Moment<'_>, matched: Matched, seen: &Seen) -> Option<Fault> {
    let said = &seen.first.interrupted;
    if said.len() < seen.sessions {
        let sessions = seen.sessions;
        return Some((
            "forgotten",
            format!("{sessions} sessions were cut short, and said: {said:?}"),
        ));
    }
    let mut allowed = moment.forgiven.clone();
    if let Some((name, passing)) = moment.hit.session()
        && (passing && moment.blow == Kill::Power || matched.before)
    {
        *allowed.entry(name.to_owned()).or_default() += 1;
    }
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    said.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let (name, _) = counts
        .iter()
        .find(|(name, count)| allowed.get(**name).copied().unwrap_or_default() < **count)?;
    Some(("false alarm", format!("{name} is said to have been interrupted, which ended well")))
}

#[cfg(test)]
mod tests;
