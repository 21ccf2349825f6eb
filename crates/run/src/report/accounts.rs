//! Counts of the calls held, passed and refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a call was left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassReason {
    /// The file is in memory, or on a file system that stores nothing: its sync costs nothing.
    Memory,
    /// The file is on a volatile overlay, such as the root of a tree's session or of a build step.
    /// The kernel answers without a sync.
    Volatile,
    /// A network file system.
    Network,
    /// A file system that a process serves.
    Fuse,
    /// A file system of another type that is not held.
    OtherType,
    /// A pipe, a socket, a device or a closed descriptor.
    NoFile,
    /// The kernel refuses the arguments, or the call syncs nothing.
    Arguments,
    /// The caller could not be examined.
    Unseen,
    /// `--only` or `--except`.
    Rule,
    /// The file is outside the file systems of `--commit-only`.
    CommitOnly,
    /// The caller runs under `synconce real`.
    Real,
    /// The caller reads a disk below its file system, as `grub-install` does for block lists.
    Disk,
    /// The commit could not cover the call: no marker or pin was ready in time, or the file system
    /// was being unmounted, or its sync has failed.
    Uncovered,
    /// The supervisor could not trace the caller to take the sync flag away: another program traces
    /// the caller, or a sandbox refuses ptrace(2).
    Traced,
    /// The kernel has an error of an earlier write to report.
    WriteError,
    /// The kernel may have an error of an earlier write to report, and the supervisor cannot find
    /// out: msync, syncfs and aio on a file system that was pinned late.
    ErrorUnknown,
    /// Calls of this kind are never held: a freeze, a quota's sync, io_uring that was let through.
    NeverHeld,
    /// The command had ended, and the commit went on.
    AfterEnd,
}

/// How many calls were held, passed and refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Answered with success and not done.
    pub held: u64,
    /// Left to the kernel.
    pub passed: u64,
    /// Answered with an error, so that the program falls back (`io_uring_setup`).
    pub refused: u64,
    /// The calls of `held` whose caller could not be examined. They were held without a look at the
    /// file of their descriptor.
    #[serde(default)]
    pub unseen: u64,
    /// The calls of `passed`, by the reason.
    #[serde(default)]
    pub reasons: BTreeMap<PassReason, u64>,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Held,
    /// Held, although the caller could not be examined.
    Unseen,
    Passed(PassReason),
    Refused,
}

impl Tally {
    fn change(&mut self, end: End, by: fn(u64) -> u64) {
        let count = match end {
            End::Held | End::Unseen => &mut self.held,
            End::Passed(_) => &mut self.passed,
            End::Refused => &mut self.refused,
        };
        *count = by(*count);
        match end {
            End::Passed(reason) => {
                let count = self.reasons.entry(reason).or_default();
                *count = by(*count);
                self.reasons.retain(|_, count| *count > 0);
            }
            End::Unseen => self.unseen = by(self.unseen),
            End::Held | End::Refused => {}
        }
    }

    fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.passed += other.passed;
        self.refused += other.refused;
        self.unseen += other.unseen;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(*reason).or_default() += count;
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
        let mut total = Tally::default();
        self.calls.values().for_each(|tally| total.add(tally));
        total
    }

    /// Adds the calls of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (call, tally) in &other.calls {
            self.calls.entry(call.clone()).or_default().add(tally);
        }
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
    if let Some(tally) = tally {
        tally.change(end, |count| count + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_by_kind_and_once_by_program() {
        let mut accounts = Accounts::default();
        accounts.count("fsync", Some("dpkg"), End::Held);
        accounts.count("fsync", None, End::Passed(PassReason::Memory));
        accounts.count("io_uring_setup", None, End::Refused);
        let reasons = BTreeMap::from([(PassReason::Memory, 1)]);
        let fsync = Tally { held: 1, passed: 1, reasons, ..Tally::default() };
        assert_eq!(accounts.calls["fsync"], fsync);
        assert_eq!(accounts.programs.len(), 1);
        assert_eq!(accounts.total(), Tally { refused: 1, ..fsync });
    }

    #[test]
    fn a_passed_call_has_its_reason_until_it_is_taken_back() {
        let [real, rule] = [PassReason::Real, PassReason::Rule].map(End::Passed);
        let mut accounts = Accounts::default();
        accounts.count("fsync", None, real);
        accounts.count("fsync", None, rule);
        accounts.take_back("fsync", None, real);
        let reasons = BTreeMap::from([(PassReason::Rule, 1)]);
        assert_eq!(accounts.total(), Tally { passed: 1, reasons, ..Tally::default() });
        let mut both = accounts.clone();
        both.add(&accounts);
        assert_eq!(both.calls["fsync"].reasons[&PassReason::Rule], 2);
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
