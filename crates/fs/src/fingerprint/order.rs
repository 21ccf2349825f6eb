//! Orders the directories of a fingerprint, and compares two fingerprints.

use std::collections::{HashMap, HashSet};

use super::{Fingerprint, Fingerprinted};

/// Sorts directories, each with its number, into the order of [`Fingerprint::directories`].
pub(super) fn ordered(mut numbered: Vec<(u32, Fingerprinted)>) -> Vec<Fingerprinted> {
    // Descending, because the last of each group is popped first.
    numbered.sort_unstable_by(|(_, one), (_, other)| {
        (one.parent, &other.name).cmp(&(other.parent, &one.name))
    });
    let mut groups: HashMap<u32, Vec<(u32, Fingerprinted)>> = HashMap::new();
    let mut stack = Vec::new();
    for (number, directory) in numbered {
        match number {
            0 => stack.push((number, directory)),
            _ => groups.entry(directory.parent).or_default().push((number, directory)),
        }
    }
    let mut places: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let mut ordered = Vec::new();
    while let Some((number, mut directory)) = stack.pop() {
        directory.parent = places.get(&directory.parent).copied().unwrap_or_default();
        if let Some(below) = groups.remove(&number) {
            places.insert(number, u32::try_from(ordered.len()).unwrap_or(u32::MAX));
            stack.extend(below);
        }
        ordered.push(directory);
    }
    ordered
}

/// Returns the paths of the directories that differ, sorted, below the root; the root's path
/// is empty. A directory that only one fingerprint has counts as different.
#[must_use]
pub fn compare_fingerprints(one: &Fingerprint, other: &Fingerprint) -> Vec<Vec<u8>> {
    let mut places: HashMap<(u32, &[u8]), u32> = HashMap::new();
    for (place, directory) in (0..).zip(&other.directories) {
        places.insert((directory.parent, &directory.name), place);
    }
    let mut matches: Vec<Option<u32>> = Vec::with_capacity(one.directories.len());
    let mut matched = HashSet::new();
    let mut changed = Vec::new();
    for (place, directory) in one.directories.iter().enumerate() {
        let parent = directory.parent as usize;
        let found = match (place, matches.get(parent)) {
            (0, _) => Some(0).filter(|_| !other.directories.is_empty()),
            (_, Some(Some(parent))) => places.get(&(*parent, &directory.name[..])).copied(),
            _ => None,
        };
        matches.push(found);
        let same = found.is_some_and(|found| {
            matched.insert(found);
            other.directories[found as usize].digest == directory.digest
        });
        if !same {
            changed.push(path(one, place));
        }
    }
    for (place, number) in (0..other.directories.len()).zip(0..) {
        if !matched.contains(&number) {
            changed.push(path(other, place));
        }
    }
    changed.sort_unstable();
    changed.dedup();
    changed
}

fn path(fingerprint: &Fingerprint, mut place: usize) -> Vec<u8> {
    let mut names = Vec::new();
    // A parent precedes its children; an index that violates this is from a damaged file.
    while let Some(directory) = fingerprint.directories.get(place).filter(|_| place != 0) {
        names.push(&directory.name[..]);
        place = (directory.parent as usize).min(place - 1);
    }
    names.reverse();
    names.join(&b'/')
}
