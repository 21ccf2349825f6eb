//! Counts of the calls held, passed and refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many calls were held, passed and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Answered with success and not done.
    pub held: u64,
    /// Left to the kernel.
    pub passed: u64,
    /// Those of `passed` that were passed because the program runs under `synconce real`.
    #[serde(default)]
    pub real: u64,
    /// Answered with an error, so that the program falls back (`io_uring_setup`).
    pub refused: u64,
    /// Those of `held` whose caller could not be examined: they were held whatever their
    /// descriptor led to.
    #[serde(default)]
    pub unseen: u64,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Held,
    /// Held, although the caller could not be examined.
    Unseen,
    Passed,
    /// Passed because the caller runs under `synconce real`.
    Real,
    Refused,
}

impl Tally {
    fn change(&mut self, end: End, by: fn(u64) -> u64) {
        let count = match end {
            End::Held | End::Unseen => &mut self.held,
            End::Passed | End::Real => &mut self.passed,
            End::Refused => &mut self.refused,
        };
        *count = by(*count);
        match end {
            End::Real => self.real = by(self.real),
            End::Unseen => self.unseen = by(self.unseen),
            End::Held | End::Passed | End::Refused => {}
        }
    }
}

/// The counts of a run. Empty for a sealed run, which counts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// By system call.
    pub calls: BTreeMap<String, Tally>,
    /// By program name (`/proc/PID/comm` of the process), if requested.
    pub programs: BTreeMap<String, Tally>,
}

impl Accounts {
    /// Returns the sum over all calls.
    pub fn total(&self) -> Tally {
        self.calls.values().fold(Tally::default(), |sum, tally| Tally {
            held: sum.held + tally.held,
            unseen: sum.unseen + tally.unseen,
            passed: sum.passed + tally.passed,
            real: sum.real + tally.real,
            refused: sum.refused + tally.refused,
        })
    }

    pub(crate) fn count(&mut self, call: &str, program: Option<&str>, end: End) {
        add(&mut self.calls, call, end);
        if let Some(program) = program {
            add(&mut self.programs, program, end);
        }
    }

    /// Undoes a `count`. Does nothing if the count has been taken out already.
    pub(crate) fn take_back(&mut self, call: &str, program: Option<&str>, end: End) {
        subtract(&mut self.calls, call, end);
        if let Some(program) = program {
            subtract(&mut self.programs, program, end);
        }
    }
}

fn subtract(tallies: &mut BTreeMap<String, Tally>, name: &str, end: End) {
    let Some(tally) = tallies.get_mut(name) else { return };
    tally.change(end, |count| count.saturating_sub(1));
    if *tally == Tally::default() {
        tallies.remove(name);
    }
}

fn add(tallies: &mut BTreeMap<String, Tally>, name: &str, end: End) {
    if !tallies.contains_key(name) {
        tallies.insert(name.to_owned(), Tally::default());
    }
    let tally = tallies.get_mut(name);
    tally.into_iter().for_each(|tally| tally.change(end, |count| count + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_by_kind_and_once_by_program() {
        let mut accounts = Accounts::default();
        accounts.count("fsync", Some("dpkg"), End::Held);
        accounts.count("fsync", None, End::Passed);
        accounts.count("io_uring_setup", None, End::Refused);
        assert_eq!(accounts.calls["fsync"], Tally { held: 1, passed: 1, ..Tally::default() });
        assert_eq!(accounts.programs.len(), 1);
        assert_eq!(accounts.total(), Tally { held: 1, passed: 1, refused: 1, ..Tally::default() });
    }

    #[test]
    fn a_real_call_counts_as_passed_too() {
        let mut accounts = Accounts::default();
        accounts.count("fsync", None, End::Real);
        accounts.count("fsync", None, End::Passed);
        assert_eq!(accounts.total(), Tally { passed: 2, real: 1, ..Tally::default() });
        accounts.take_back("fsync", None, End::Real);
        assert_eq!(accounts.total(), Tally { passed: 1, ..Tally::default() });
    }

    #[test]
    fn a_held_call_of_an_unseen_caller_counts_as_held_too() {
        let mut accounts = Accounts::default();
        accounts.count("fsync", None, End::Unseen);
        accounts.count("fsync", None, End::Held);
        assert_eq!(accounts.total(), Tally { held: 2, unseen: 1, ..Tally::default() });
        accounts.take_back("fsync", None, End::Unseen);
        assert_eq!(accounts.total(), Tally { held: 1, ..Tally::default() });
    }

    #[test]
    fn what_was_counted_can_be_taken_back() {
        let mut accounts = Accounts::default();
        accounts.count("fsync", Some("dpkg"), End::Held);
        accounts.count("fsync", Some("dpkg"), End::Held);
        accounts.take_back("fsync", Some("dpkg"), End::Held);
        assert_eq!([accounts.calls["fsync"].held, accounts.programs["dpkg"].held], [1, 1]);
        for _ in 0..2 {
            accounts.take_back("fsync", Some("dpkg"), End::Held);
            assert_eq!(accounts, Accounts::default());
        }
    }
}
