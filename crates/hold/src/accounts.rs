//! Calls held, passed and refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many calls met which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Answered with success and not done.
    pub held: u64,
    /// Left to the kernel.
    pub passed: u64,
    /// Answered with an error, so that the program falls back (`io_uring_setup`).
    pub refused: u64,
}

/// The end of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Held,
    Passed,
    Refused,
}

impl Tally {
    fn add(&mut self, end: End) {
        match end {
            End::Held => self.held += 1,
            End::Passed => self.passed += 1,
            End::Refused => self.refused += 1,
        }
    }
}

/// The accounts of a run. Empty for a sealed one, which keeps none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// By system call.
    pub calls: BTreeMap<String, Tally>,
    /// By program name (`/proc/PID/comm`), when that was asked for.
    pub programs: BTreeMap<String, Tally>,
}

impl Accounts {
    /// All calls together.
    pub fn total(&self) -> Tally {
        self.calls.values().fold(Tally::default(), |sum, tally| Tally {
            held: sum.held + tally.held,
            passed: sum.passed + tally.passed,
            refused: sum.refused + tally.refused,
        })
    }

    pub(crate) fn count(&mut self, call: &str, program: Option<&str>, end: End) {
        add(&mut self.calls, call, end);
        if let Some(program) = program {
            add(&mut self.programs, program, end);
        }
    }
}

fn add(tallies: &mut BTreeMap<String, Tally>, name: &str, end: End) {
    match tallies.get_mut(name) {
        Some(tally) => tally.add(end),
        None => tallies.entry(name.to_owned()).or_default().add(end),
    }
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
        assert_eq!(accounts.calls["fsync"], Tally { held: 1, passed: 1, refused: 0 });
        assert_eq!(accounts.programs.len(), 1);
        assert_eq!(accounts.total(), Tally { held: 1, passed: 1, refused: 1 });
    }
}
