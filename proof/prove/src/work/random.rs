//! Random programs, after CrashMonkey: crash-consistency bugs need few operations on few
//! names, so all short sequences are tried, and longer ones at random.
//!
//! Hundreds of programs run one after the other in one recorded run, each in its own
//! directory. A kind and a seed alone determine the programs, so that every finding can be
//! repeated.

mod operation;
mod perform;

use crate::Result;
use operation::{DIRECTORIES, FILES, Operation, vocabulary};
pub(crate) use perform::{Perform, perform};
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The length of programs, and how they are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProgramKind {
    /// Sequences of one and of two operations.
    Pairs,
    /// Sequences of three operations.
    Triples,
    /// Sequences of 20 to 60 operations.
    Long,
}

/// Programs, and the batch of them that one recorded run runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Programs {
    /// Choose programs of this kind
    #[arg(long)]
    pub kind: ProgramKind,
    /// Seed the random choices with N
    #[arg(long, value_name = "N")]
    pub seed: u64,
    /// Choose N programs, or all if there are fewer
    #[arg(long, value_name = "N")]
    pub count: usize,
    /// Run batch N of the chosen programs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub batch: usize,
}

/// Operations, one after the other.
type Operations = Vec<Operation>;

/// The number of operations of a long program.
const LENGTHS: std::ops::RangeInclusive<usize> = 20..=60;
const INITIAL: usize = 6000;

impl Programs {
    pub(crate) fn name(self) -> String {
        let (count, words) = (self.all().len(), vocabulary().len());
        let (all, of) = match self.kind {
            ProgramKind::Pairs => (words + words.pow(2), "1-2"),
            ProgramKind::Triples => (words.pow(3), "3"),
            ProgramKind::Long => (usize::MAX, "20-60"),
        };
        let all = if count == all { "all " } else { "" };
        format!("random, {all}{count} of {of}")
    }

    /// Returns how many recorded runs are needed for all programs.
    pub(crate) fn batches(self) -> usize {
        self.all().len().div_ceil(self.kind.batch())
    }

    /// Returns the programs of the batch.
    fn here(self) -> Vec<Operations> {
        let size = self.kind.batch();
        self.all().into_iter().skip(self.batch * size).take(size).collect()
    }

    fn all(self) -> Vec<Operations> {
        let words = vocabulary();
        let mut random = fastrand::Rng::with_seed(self.seed);
        match self.kind {
            ProgramKind::Pairs => {
                let (one, two) = (words.len(), words.len().pow(2));
                let sequence = |index: usize| match index.checked_sub(one) {
                    None => decode(index, 1, &words),
                    Some(index) => decode(index, 2, &words),
                };
                choose(self.count, one + two, &mut random).into_iter().map(sequence).collect()
            }
            ProgramKind::Triples => {
                let total = words.len().pow(3);
                let chosen = choose(self.count, total, &mut random);
                chosen.into_iter().map(|index| decode(index, 3, &words)).collect()
            }
            ProgramKind::Long => {
                let mut one = || {
                    let length = random.usize(LENGTHS);
                    (0..length).map(|_| words[random.usize(..words.len())]).collect()
                };
                (0..self.count).map(|_| one()).collect()
            }
        }
    }

    /// Prepares the tree: some of each program's names exist before the run, others do not.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        for index in 0..self.here().len() {
            let own = tree.join(directory(index));
            fs::create_dir_all(own.join(DIRECTORIES[0]))?;
            fs::write(own.join(FILES[0]), filler(0, INITIAL))?;
        }
        Ok(())
    }

    /// Returns the command line that runs the batch in `tree`: this program itself, which
    /// needs no library.
    pub(crate) fn words(self, tree: &Path) -> Result<Vec<String>> {
        let own = std::env::current_exe()?.display().to_string();
        let mut words = vec![own];
        words.extend(self.repeat().split(' ').map(str::to_owned));
        words.push(tree.display().to_string());
        Ok(words)
    }

    /// Returns how to repeat the batch by hand.
    pub(crate) fn repeat(self) -> String {
        let Self { seed, count, batch, .. } = self;
        let kind = match self.kind {
            ProgramKind::Pairs => "pairs",
            ProgramKind::Triples => "triples",
            ProgramKind::Long => "long",
        };
        format!("perform --kind {kind} --seed {seed} --count {count} --batch {batch}")
    }

    /// Describes the program in whose directory `path` of the tree lies, and how to repeat its
    /// batch.
    pub(crate) fn explain(self, path: &str) -> String {
        let top = path.split('/').next().unwrap_or_default();
        let here = self.here();
        let found = here.iter().enumerate().find(|(index, _)| directory(*index) == top);
        let program = found.map_or_else(String::new, |(_, program)| text(program));
        format!("[{program}] of `prove {}`", self.repeat())
    }
}

impl ProgramKind {
    /// Returns how many programs run in one recorded run.
    fn batch(self) -> usize {
        match self {
            Self::Pairs | Self::Triples => 1400,
            Self::Long => 100,
        }
    }
}

/// Returns sequence number `index` of all sequences of `length` words.
fn decode(mut index: usize, length: usize, words: &[Operation]) -> Operations {
    let mut program = Vec::with_capacity(length);
    for _ in 0..length {
        program.push(words[index % words.len()]);
        index /= words.len();
    }
    program
}

/// Returns `count` different numbers below `total`, in ascending order.
fn choose(count: usize, total: usize, random: &mut fastrand::Rng) -> Vec<usize> {
    if count >= total {
        return (0..total).collect();
    }
    let mut chosen = HashSet::new();
    while chosen.len() < count {
        chosen.insert(random.usize(..total));
    }
    let mut chosen: Vec<usize> = chosen.into_iter().collect();
    chosen.sort_unstable();
    chosen
}

/// Returns a program's directory in the tree.
fn directory(index: usize) -> String {
    format!("s{index:05}")
}

/// Returns the text that a step writes: no other step writes the same, and every line has its
/// number.
fn filler(step: usize, length: usize) -> Vec<u8> {
    let mut text = String::new();
    for line in 0.. {
        if text.len() >= length {
            break;
        }
        let _ = writeln!(text, "step {step} line {line}");
    }
    text.truncate(length);
    text.into_bytes()
}

fn text(program: &[Operation]) -> String {
    let words = program.iter().map(|operation| operation.to_string().trim_end().to_owned());
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(kind: ProgramKind, seed: u64, count: usize) -> Vec<Operations> {
        Programs { kind, seed, count, batch: 0 }.all()
    }

    #[test]
    fn every_sequence_of_one_and_of_two_operations_is_there_exactly_once() {
        let words = vocabulary();
        let all = programs(ProgramKind::Pairs, 1, usize::MAX);
        let distinct: HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        for first in &words {
            assert!(distinct.contains(&vec![*first]), "{first}");
            for second in &words {
                assert!(distinct.contains(&vec![*first, *second]), "{first}; {second}");
            }
        }
        assert_eq!(all.len(), words.len() + words.len().pow(2));
    }

    #[test]
    fn equal_seeds_give_equal_programs_and_other_seeds_other_programs() {
        for kind in [ProgramKind::Pairs, ProgramKind::Triples, ProgramKind::Long] {
            assert_eq!(programs(kind, 7, 50), programs(kind, 7, 50));
            assert_ne!(programs(kind, 7, 50), programs(kind, 8, 50));
        }
    }

    #[test]
    fn chosen_sequences_of_three_are_different_ones_and_all_when_all_are_asked_for() {
        let chosen = programs(ProgramKind::Triples, 3, 500);
        assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), 500);
        assert!(chosen.iter().all(|program| program.len() == 3));
        let random = &mut fastrand::Rng::with_seed(1);
        assert_eq!(choose(60, 50, random), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn every_program_is_in_one_batch() {
        let all = Programs { kind: ProgramKind::Pairs, seed: 1, count: usize::MAX, batch: 0 };
        let batches = (0..all.batches()).flat_map(|batch| Programs { batch, ..all }.here());
        assert_eq!(batches.collect::<Vec<_>>(), all.all());
    }

    #[test]
    fn two_steps_write_different_data_in_every_block() {
        let (one, two) = (filler(1, 9000), filler(2, 9000));
        assert!(one.chunks(4096).zip(two.chunks(4096)).all(|(one, two)| one != two));
        assert_eq!(one.len(), 9000);
    }
}
