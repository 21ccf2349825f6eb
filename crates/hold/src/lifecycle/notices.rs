//! What the user should know when a run is over.

use crate::accounts::Accounts;
use crate::families::Process;
use crate::judge::Unsynced;
use crate::options::{IoUring, Options};
use crate::protocol::Notice;
use std::collections::HashSet;

/// Finds what is to be said, each thing once.
pub(super) struct Notices<'a> {
    /// Whether no supervisor answered.
    sealed: bool,
    /// Files that were opened without their sync flag.
    unsynced: &'a HashSet<Unsynced>,
    io_uring: bool,
    named: HashSet<u32>,
}

impl<'a> Notices<'a> {
    pub(super) fn new(
        options: &Options,
        sealed: bool,
        accounts: &Accounts,
        unsynced: &'a HashSet<Unsynced>,
    ) -> Self {
        let io_uring = accounts.calls.get("io_uring_setup").is_some_and(|tally| tally.passed > 0)
            || (options.io_uring == IoUring::Pass && sealed);
        Self { sealed, unsynced, io_uring, named: HashSet::new() }
    }

    /// What is to be said about a run that these `survivors` outlive, and was not yet.
    pub(super) fn news(&mut self, survivors: &[Process]) -> Vec<Notice> {
        let mut news = Vec::new();
        if self.sealed {
            news.extend(self.name(survivors, |_| true).map(Notice::SealedSurvivors));
        }
        let unsynced = self.unsynced;
        let keepers = self.name(survivors, |process| keeps(process.pid, unsynced));
        news.extend(keepers.map(Notice::UnsyncedDescriptors));
        if std::mem::take(&mut self.io_uring) {
            news.push(Notice::IoUringPassed);
        }
        news
    }

    /// The names of those `among` the survivors who were not named before.
    fn name(
        &mut self,
        survivors: &[Process],
        among: impl Fn(&Process) -> bool,
    ) -> Option<Vec<String>> {
        let some = survivors.iter().filter(|process| among(process));
        let new = some.filter(|process| self.named.insert(process.pid));
        let names: Vec<_> = new.map(ToString::to_string).collect();
        (!names.is_empty()).then_some(names)
    }
}

/// Whether `pid` has a descriptor of a file in `unsynced` open.
fn keeps(pid: u32, unsynced: &HashSet<Unsynced>) -> bool {
    use std::os::unix::fs::MetadataExt;
    if unsynced.is_empty() {
        return false;
    }
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let files = descriptors.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    files
        .map(|meta| Unsynced { device: meta.dev(), inode: meta.ino() })
        .any(|file| unsynced.contains(&file))
}
