//! All ways of the C program, in every build: the results and the files are the same bare and
//! held, and the accounts are exact.

use crate::builds::{Build, ways};
use crate::support::{Place, Run, isolated};
use std::collections::BTreeMap;
use std::path::Path;

/// The numbers of held, passed and refused calls.
type CallCounts = [Count; 3];

/// The expected value of one number in the accounts.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// `None` if the number depends on time.
    wanted: Option<u64>,
    /// Whether a signal may interrupt a call while it is answered. The answer is then lost, and
    /// the call is made and counted again. Less than twice the number is accepted then.
    signals: bool,
}

impl Count {
    const NONE: Self = Self { wanted: Some(0), signals: false };

    fn parse(word: &str) -> Self {
        let number = word.trim_end_matches('+');
        let wanted = (word != "*").then(|| number.parse().expect("a count"));
        Self { wanted, signals: number != word }
    }

    fn plus(self, more: Self) -> Self {
        let wanted = self.wanted.zip(more.wanted).map(|(one, other)| one + other);
        Self { wanted, signals: self.signals || more.signals }
    }

    fn fits(self, seen: u64) -> bool {
        match self.wanted {
            Some(wanted) if self.signals => (wanted..2 * wanted).contains(&seen),
            Some(wanted) => seen == wanted,
            None => true,
        }
    }
}

/// The expected accounts of each way, by call.
pub struct ExpectedCounts(BTreeMap<String, Vec<(String, CallCounts)>>);

impl ExpectedCounts {
    pub fn of(place: &Place, program: &str) -> Self {
        let list = place.bare(Path::new("/"), &[program, "list"]);
        assert!(list.status.success(), "{list:?}");
        Self(list.stdout.lines().map(parse_way).collect())
    }

    fn assert_programs(&self, run: &Run) {
        let seen = run.programs();
        for (way, calls) in &self.0 {
            let counts = seen.get(way.as_str()).copied().unwrap_or_default();
            let sum = calls.iter().fold([Count::NONE; 3], |sum, (_, counts)| plus(sum, *counts));
            assert_fits(way, counts, sum);
        }
        let unknown: Vec<_> = seen.keys().filter(|name| !self.0.contains_key(**name)).collect();
        assert!(unknown.is_empty(), "accounts of others: {unknown:?}");
    }

    /// Asserts that `seen` is the number of `call`, whatever a run does with them.
    pub fn assert_total(&self, call: &str, seen: u64) {
        let of_call = self.0.values().flatten().filter(|(name, _)| name == call);
        let sum = of_call.fold([Count::NONE; 3], |sum, (_, counts)| plus(sum, *counts));
        let total = Count::NONE.plus(sum[0]).plus(sum[1]).plus(sum[2]);
        assert!(total.fits(seen), "{call}: {seen}, and not {total:?}");
    }

    fn assert_calls(&self, run: &Run) {
        let mut sums: BTreeMap<&str, CallCounts> = BTreeMap::new();
        for (call, counts) in self.0.values().flatten() {
            let sum = sums.entry(call).or_insert([Count::NONE; 3]);
            *sum = plus(*sum, *counts);
        }
        for (call, sum) in &sums {
            assert_fits(call, run.counts(call), *sum);
        }
        let unknown = run.accounts.calls.keys().find(|call| !sums.contains_key(call.as_str()));
        assert_eq!(unknown, None, "a call that no way makes");
    }
}

fn plus(sum: CallCounts, more: CallCounts) -> CallCounts {
    [0, 1, 2].map(|at| sum[at].plus(more[at]))
}

fn assert_fits(name: &str, seen: [u64; 3], wanted: CallCounts) {
    let fits = wanted.iter().zip(seen).all(|(count, seen)| count.fits(seen));
    assert!(fits, "{name}: {seen:?} held, passed, refused, and not {wanted:?}");
}

/// Parses `NAME TAB CALL HELD PASSED REFUSED, ...`
fn parse_way(line: &str) -> (String, Vec<(String, CallCounts)>) {
    let (name, accounts) = line.split_once('\t').expect("a name and accounts");
    let calls = accounts.split(',').filter(|part| !part.is_empty()).map(|part| {
        let words: Vec<_> = part.split(' ').collect();
        (words[0].to_owned(), [1, 2, 3].map(|at| Count::parse(words[at])))
    });
    (name.to_owned(), calls.collect())
}

/// Runs every way bare and held, and compares them.
fn compare(place: &Place, build: Build) {
    let program = ways(build);
    let program = program.to_str().expect("a path of ours is UTF-8");
    let expected = ExpectedCounts::of(place, program);
    let bare = place.bare(&place.directory("bare"), &[program, "all"]);
    let held = place.held(&place.directory("held"), &["--commit-only", "."], &[program, "all"]);
    crate::support::agree(&bare, &held.finished);
    for way in expected.0.keys() {
        let printed = bare.stdout.lines().any(|line| line.starts_with(&format!("{way}: ")));
        assert!(printed, "{way} printed nothing");
    }
    let (flagged, unflagged) =
        ["disk-sync=1", "disk-sync=0"].map(|text| bare.stdout.matches(text).count()).into();
    assert!(flagged >= 30 && unflagged == 2, "bare: {flagged} with the flag, {unflagged} without");
    assert!(!held.finished.stdout.contains("disk-sync=1"), "{}", held.finished.stdout);
    expected.assert_programs(&held);
    expected.assert_calls(&held);
    assert_eq!(held.notices(), "");
}

#[test]
fn every_way_of_a_dynamic_program_is_held_and_looks_as_it_does_bare() {
    isolated(|place: &Place| compare(place, Build::Dynamic));
}

#[test]
fn every_way_of_a_static_program_is_held_and_looks_as_it_does_bare() {
    isolated(|place: &Place| compare(place, Build::Static));
}

#[test]
fn every_way_of_a_32_bit_program_is_held_and_looks_as_it_does_bare() {
    isolated(|place: &Place| compare(place, Build::Compat));
}

#[test]
fn every_way_of_a_program_with_musl_is_held_and_looks_as_it_does_bare() {
    isolated(|place: &Place| compare(place, Build::Musl));
}
