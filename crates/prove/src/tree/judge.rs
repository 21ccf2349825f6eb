//! What a store has to be after a power cut or a kill.

use super::script::{Effect, State, Trees};
use super::store::{Kill, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use synconce_testkit::manifest::{Manifest, diff};

/// Where the blow fell.
#[derive(Clone, Debug)]
pub(super) struct Moment<'a> {
    pub blow: Kill,
    /// As it was when the last verb had returned.
    pub before: &'a State,
    /// As it is when the verb that was hit returns.
    pub after: &'a State,
    /// What was hit; nothing where the blow fell after the last verb.
    pub hit: Effect,
    /// Sessions of verbs that have returned and whose work was not to last, by the tree that they are
    /// reported for: the disk need not know that they are over.
    pub forgiven: BTreeMap<String, usize>,
}

/// What is wrong: a kind for the table, and the detail.
pub(super) type Fault = (&'static str, String);

/// Judges what was found; nothing when all is as promised.
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

/// Which of the two states it can be; both where they do not differ in what lasts.
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

/// In what the trees are neither the one state nor the other.
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

/// Nothing is in use when nothing runs, and nothing is open when the power was gone.
fn states(moment: &Moment<'_>, seen: &Seen) -> Option<Fault> {
    let wrong = |state: &str| match moment.blow {
        Kill::Power => state != "committed",
        Kill::Kill => state != "committed" && state != "open",
    };
    let wrong = seen.listed.iter().find(|tree| wrong(&tree.state))?;
    Some(("believed", format!("{} is {}", wrong.name, wrong.state)))
}

/// What was open is lost with the power, which is said, and nothing else is said to be.
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
    // Of what no disk knows nothing can be said.
    let unsaid = must.iter().find(|name| !seen.tells(name) && seen.noted.contains(name))?;
    Some(("unsaid", format!("what was done in {unsaid} is lost")))
}

/// The trees that may be said to have lost something, and those that have.
fn losses(moment: &Moment<'_>, matched: Matched) -> (BTreeSet<String>, BTreeSet<String>) {
    let states = [(matched.before, moment.before), (matched.after, moment.after)];
    let mut possible = states.iter().filter(|(is, _)| *is).map(|(_, state)| state.open_names());
    let first = possible.next().unwrap_or_default();
    match possible.next() {
        None => (first.clone(), first),
        Some(second) => (&first | &second, &first & &second),
    }
}

/// Whether something was lost with the power before the disk had heard of it.
pub(super) fn is_silent(moment: &Moment<'_>, seen: &Seen) -> bool {
    let matched = readable(seen).ok().and_then(|trees| Matched::find(moment, seen, &trees).ok());
    let Some(matched) = matched.filter(|_| moment.blow == Kill::Power) else { return false };
    losses(moment, matched).1.iter().any(|name| !seen.tells(name) && !seen.noted.contains(name))
}

/// Every session that was cut short is said once, and none that ended well.
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
