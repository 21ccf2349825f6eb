//! Control groups, whose names are shared by the whole machine.

use super::limit;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A unique name. Its drop removes the groups with the name.
pub struct Cgroups {
    unique: String,
}

impl Cgroups {
    /// Makes a name that no other test has.
    #[must_use]
    pub fn unique() -> Self {
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("/proc");
        Self { unique: unique.trim().replace('-', "") }
    }

    /// Returns the parent of the groups that an engine makes for its containers.
    pub fn parent(&self) -> String {
        format!("/synconce-{}", self.unique)
    }

    /// Returns the group of a step of Buildah, which runs in the group itself.
    pub fn step(&self) -> String {
        format!("{}-step", self.parent())
    }

    /// Returns the id of container `name`, which is the name of its group as well.
    pub fn id(&self, name: &str) -> String {
        format!("synconce-{name}-{}", self.unique)
    }

    /// Returns an id in BuildKit's format.
    pub fn short(&self) -> &str {
        &self.unique[..25]
    }

    /// Returns the groups with this name that still exist, in the unified hierarchy or in
    /// every hierarchy.
    fn left(&self) -> Vec<PathBuf> {
        let top = directories(Path::new("/sys/fs/cgroup"));
        let below = top.iter().flat_map(|hierarchy| directories(hierarchy));
        let groups = below.chain(top.iter().cloned());
        let ours = |group: &PathBuf| {
            group.file_name().is_some_and(|name| name.to_string_lossy().contains(self.short()))
        };
        groups.filter(ours).collect()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let end = Instant::now() + limit();
        loop {
            self.left().iter().for_each(|group| remove(group));
            let left = self.left();
            if left.is_empty() {
                return;
            }
            if Instant::now() > end {
                assert!(std::thread::panicking(), "a process still runs in {left:?}");
                eprintln!("a process still runs in {left:?}");
                return;
            }
            // After a test that passes, the processes end by themselves; conmon ends after its
            // container.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes `group` and the groups below it that have no processes.
fn remove(group: &Path) {
    directories(group).iter().for_each(|below| remove(below));
    match fs::remove_dir(group) {
        // Not a group: crun leaves files where no hierarchy is mounted.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            return drop(fs::remove_dir_all(group));
        }
        Err(_) if std::thread::panicking() => {}
        _ => return,
    }
    // The test has failed, and no engine will end its containers.
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // Processes outside this pid namespace have the number 0.
    for pid in text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}
