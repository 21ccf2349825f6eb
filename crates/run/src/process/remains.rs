//! Processes that an interrupted run has left.

use crate::process::process_tree::{Process, Snapshot};
use crate::request::held::RUN_VARIABLE;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use synconce_durable::recovery::RunKey;
use synconce_sys::procfs;

/// An upper bound of the size of an environment, in bytes (execve(2)).
const LONGEST: u64 = 8 << 20;

/// Returns the living processes of each of `runs`: those with the run's id in their
/// environment, and their descendants.
///
/// Omits processes that may not be examined, and processes that have overwritten their
/// environment. A process of another user counts only for root's runs, because any process may
/// set the id of any run.
pub fn processes_of(runs: &HashSet<RunKey>) -> HashMap<RunKey, Vec<Process>> {
    let mut found: HashMap<RunKey, Vec<u32>> = HashMap::new();
    if runs.is_empty() {
        return HashMap::new();
    }
    for pid in procfs::pids() {
        let Some(id) = id_in(pid) else { continue };
        let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
        let users = BTreeSet::from_iter([0].into_iter().chain(owner.ok()));
        for run in users.into_iter().map(|user| (user, id.clone())).filter(|it| runs.contains(it)) {
            found.entry(run).or_default().push(pid);
        }
    }
    // One snapshot for all, because a user may have thousands of processes that name a run.
    let snapshot = Snapshot::now();
    let us = std::process::id();
    let family = |pids| {
        let mut family = snapshot.family(pids);
        family.retain(|process| process.pid != us);
        family
    };
    found.into_iter().map(|(run, pids)| (run, family(pids))).collect()
}

/// Returns the id of the run that the environment of `pid` names.
fn id_in(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let variables = bytes.split(|byte| *byte == 0);
    let prefix = [RUN_VARIABLE.as_bytes(), b"="].concat();
    let value = variables.filter_map(|variable| variable.strip_prefix(&prefix[..])).next()?;
    String::from_utf8(value.to_owned()).ok()
}
