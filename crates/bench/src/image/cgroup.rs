//! The cgroup of a benchmark's containers, with either version of cgroups.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mount point of the hierarchies, or of the unified one.
const TOP: &str = "/sys/fs/cgroup";
/// How long a killed process may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Kills the processes in the cgroup `name`, and removes the cgroup in every hierarchy: runc
/// does not remove it in all of them.
pub(super) fn remove(name: &str) {
    let top = Path::new(TOP);
    let hierarchies = directories(top).into_iter().chain([top.to_owned()]);
    let groups: Vec<PathBuf> = hierarchies.map(|dir| dir.join(name)).collect();
    let start = Instant::now();
    while groups.iter().map(|group| remove_group(group)).sum::<usize>() > 0
        && start.elapsed() < EXIT_TIMEOUT
    {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes a cgroup with its descendants, and returns how many are still in use. A killed
/// process is counted in its cgroup until it has exited.
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
