//! The cgroup of a benchmark's containers, by either version of cgroups.

use crate::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the hierarchies are mounted, or the one.
const TOP: &str = "/sys/fs/cgroup";
/// How long a killed process may take to be gone.
const SOON: Duration = Duration::from_secs(5);

/// A name that nobody else has as long as the workplace is locked by us, and that is
/// the same after a benchmark that was killed.
pub(super) fn name(workplace: &Path) -> Result<String, Error> {
    let own = fs::metadata(workplace).map_err(Error::io("stat", workplace))?;
    Ok(format!("synconce-bench-{:x}-{:x}", own.dev(), own.ino()))
}

/// Ends who is in the cgroup `name`, and removes what containers leave in every
/// hierarchy: runc removes its own of one of two.
pub(super) fn remove(name: &str) {
    let top = Path::new(TOP);
    let hierarchies = directories(top).into_iter().chain([top.to_owned()]);
    let groups: Vec<PathBuf> = hierarchies.map(|place| place.join(name)).collect();
    let start = Instant::now();
    while groups.iter().map(|group| remove_group(group)).sum::<usize>() > 0
        && start.elapsed() < SOON
    {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes a cgroup with those below it, and says how many are in use still. Whose
/// runtime was killed is in his until he is gone.
fn remove_group(group: &Path) -> usize {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let below: usize = directories(group).iter().map(|group| remove_group(group)).sum();
    let removed = fs::remove_dir(group);
    below + usize::from(removed.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy))
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}
