//! The campaign of a row: as many recordings as its cuts need, and the cuts of each.

use crate::Result;
use crate::tool::Tool;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The cuts that a row makes, or those of one of its recordings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Campaign {
    /// Number of cuts.
    pub count: usize,
    pub seed: u64,
    /// Whether the first finding ends it: to catch a mutant once is enough.
    until_broken: bool,
}

impl Campaign {
    pub(crate) fn new(tool: &Tool, count: usize, seed: u64) -> Self {
        Self { count, seed, until_broken: matches!(tool, Tool::Mutant { .. }) }
    }

    /// Returns a campaign that no finding ends.
    pub(crate) fn full(count: usize, seed: u64) -> Self {
        Self { count, seed, until_broken: false }
    }

    /// Spreads the cuts over `recordings`: the number of each, and its part of the campaign.
    pub(crate) fn parts(self, recordings: usize) -> impl Iterator<Item = (u64, Self)> {
        (0..recordings).map(move |round| {
            let count = self.count * (round + 1) / recordings - self.count * round / recordings;
            let round = round as u64;
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(round);
            (round, Self { count, seed, ..self })
        })
    }

    /// Makes and merges the findings of each of [`Self::parts`].
    pub(crate) fn record(
        self,
        recordings: usize,
        mut make: impl FnMut(u64, Self) -> Result<Findings>,
    ) -> Result<Findings> {
        let mut findings = Findings::default();
        for (round, part) in self.parts(recordings) {
            if self.is_over(&findings) {
                break;
            }
            findings.merge(make(round, part)?);
        }
        Ok(findings)
    }

    /// Counts what `look` finds at each of `places`.
    pub(crate) fn at_each<P>(
        self,
        places: impl IntoIterator<Item = P>,
        mut look: impl FnMut(&mut Findings, P) -> Result<()>,
    ) -> Result<Findings> {
        let began = Instant::now();
        let mut findings = Findings::default();
        for place in places {
            look(&mut findings, place)?;
            if self.is_over(&findings) {
                break;
            }
        }
        findings.millis = began.elapsed().as_millis() as u64;
        Ok(findings)
    }

    /// Like [`Self::at_each`], on all `disks` beside each other: each takes the next of `places`.
    /// `look` returns what it has seen, and whether something is promised there.
    pub(crate) fn on_each<D: Sync, P: Copy + Debug + Sync>(
        self,
        disks: &[D],
        places: &[P],
        look: impl Fn(&D, P) -> Result<(Seen, bool)> + Sync,
    ) -> Result<Findings> {
        let began = Instant::now();
        let (findings, next) = (Mutex::new(Findings::default()), AtomicUsize::new(0));
        let lock = || findings.lock().unwrap_or_else(PoisonError::into_inner);
        let work = |disk| -> Result<()> {
            while !self.is_over(&lock()) {
                let Some(place) = places.get(next.fetch_add(1, SeqCst)) else { break };
                let (seen, is_promised) = look(disk, *place)?;
                lock().add(seen, is_promised, || format!("{place:?}"));
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                disks.iter().map(|disk| scope.spawn(move || work(disk))).collect();
            let ended = threads.into_iter().map(|thread| thread.join().expect("no look panics"));
            ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
        })?;
        let mut findings = findings.into_inner().unwrap_or_else(PoisonError::into_inner);
        findings.millis = began.elapsed().as_millis() as u64;
        Ok(findings)
    }

    /// Whether a mutant is caught.
    pub(crate) fn is_over(self, findings: &Findings) -> bool {
        self.until_broken && findings.broken() > 0
    }
}

/// A broken promise: its kind, and what was found.
pub(crate) type BrokenPromise = (&'static str, String);

/// What was seen at a cut; the inner error is that of a disk that does not mount.
pub(crate) type Seen = std::result::Result<Option<BrokenPromise>, String>;

/// The findings of all cuts of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Findings {
    /// Number of cuts.
    pub cuts: usize,
    /// Number of findings of each kind.
    pub found: BTreeMap<&'static str, usize>,
    /// The first finding of each kind with which the promise was broken, and what differed.
    pub first: Option<String>,
    /// Number of disks that did not mount at a cut before the run had returned.
    pub refused: usize,
    /// The first such disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// How often something was lost that the tool does not report: uncommitted work in trees,
    /// before a note of the work had reached the disk.
    #[serde(skip_serializing_if = "is_none")]
    pub silent: usize,
    /// Time for all cuts, in milliseconds.
    pub millis: u64,
    /// Why no cut could be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The defect of the proof that ended the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Findings {
    /// Returns how often the promise was broken.
    pub(crate) fn broken(&self) -> usize {
        self.found.values().sum()
    }

    /// Counts what was seen at a cut. A disk that does not mount is a finding if something was
    /// promised about it.
    pub(crate) fn add(&mut self, seen: Seen, is_promised: bool, at: impl Fn() -> String) {
        match seen {
            Err(error) if !is_promised => {
                self.cuts += 1;
                self.refused += 1;
                self.refusal.get_or_insert_with(|| format!("refused at {}: {error}", at()));
            }
            seen => self.add_promised(seen, at),
        }
    }

    /// Counts what was seen at a cut of a disk about which something was promised.
    pub(crate) fn add_promised(&mut self, seen: Seen, at: impl Fn() -> String) {
        self.cuts += 1;
        match seen {
            Ok(None) => {}
            Ok(Some((kind, detail))) => self.note(kind, || format!("{}: {detail}", at())),
            Err(error) => self.note("unmountable", || format!("{}: {error}", at())),
        }
    }

    /// Counts a finding of this kind.
    pub(crate) fn note(&mut self, kind: &'static str, detail: impl FnOnce() -> String) {
        let count = self.found.entry(kind).or_default();
        *count += 1;
        if *count == 1 {
            let first = format!("{kind} at {}", detail());
            self.first =
                Some(self.first.take().map_or(first.clone(), |all| format!("{all}\n{first}")));
        }
    }

    /// Adds the findings of another recorded run.
    pub(crate) fn merge(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.refused += other.refused;
        self.silent += other.silent;
        self.millis += other.millis;
        for (name, count) in other.found {
            *self.found.entry(name).or_default() += count;
        }
        self.first = self.first.take().or(other.first);
        self.refusal = self.refusal.take().or(other.refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_seen_once_and_a_mutant_ends_with_the_first_finding() {
        let seen = Mutex::new(Vec::new());
        let look = |_: &u8, place: usize| {
            seen.lock().unwrap().push(place);
            Ok((Ok((place.is_multiple_of(2)).then_some(("lost", String::new()))), true))
        };
        let places: Vec<_> = (0..100).collect();
        let campaign = Campaign::full(100, 1);
        let findings = campaign.on_each(&[0, 1, 2], &places, look).unwrap();
        assert_eq!((findings.cuts, findings.broken()), (100, 50));
        let mut all = std::mem::take(&mut *seen.lock().unwrap());
        all.sort_unstable();
        assert_eq!(all, places);

        let campaign = Campaign { until_broken: true, ..campaign };
        let findings = campaign.on_each(&[0], &places, look).unwrap();
        assert_eq!((findings.cuts, findings.broken()), (1, 1));
    }

    #[test]
    fn the_parts_have_all_cuts_and_seeds_of_their_own() {
        let parts: Vec<_> = Campaign::full(7, 2).parts(3).collect();
        let parts = parts.iter().map(|(round, part)| (*round, part.count, part.seed));
        let expected = [(0, 2, 2_000_006), (1, 2, 2_000_007), (2, 3, 2_000_008)];
        assert_eq!(parts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_error_of_one_disk_ends_the_row() {
        let campaign = Campaign::full(9, 1);
        let fails =
            |disk: &u8, _| if *disk == 1 { Err("gone".into()) } else { Ok((Ok(None), true)) };
        assert!(campaign.on_each(&[1, 1], &[0; 9], fails).is_err());
    }
}
