//! Control groups, whose names the whole machine shares.

use crate::support::limit;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A name that nobody else has; the groups with it go when it does.
pub struct Cgroups {
    unique: String,
}

impl Cgroups {
    pub fn new() -> Self {
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        Self { unique: unique.trim().replace('-', "") }
    }

    /// The group below which an engine makes those of its containers.
    pub fn parent(&self) -> String {
        format!("/synconce-{}", self.unique)
    }

    /// The group of a step of Buildah's, which is in it itself.
    pub fn step(&self) -> String {
        format!("{}-step", self.parent())
    }

    /// The id of container `name`, which is its group's as well.
    pub fn id(&self, name: &str) -> String {
        format!("synconce-{name}-{}", self.unique)
    }

    /// An id as BuildKit makes them.
    pub fn short(&self) -> &str {
        &self.unique[..25]
    }

    /// Ours, in the one hierarchy or in every one.
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
                assert!(std::thread::panicking(), "somebody lives on in {left:?}");
                eprintln!("somebody lives on in {left:?}");
                return;
            }
            // Of a test that passes everybody ends by himself; conmon after its container.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes `group` with those below, as far as nobody is in them.
fn remove(group: &Path) {
    directories(group).iter().for_each(|below| remove(below));
    match fs::remove_dir(group) {
        // No group: crun leaves files where no hierarchy is mounted.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            return drop(fs::remove_dir_all(group));
        }
        Err(_) if std::thread::panicking() => {}
        _ => return,
    }
    // The test has failed, and nobody else will end its containers.
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // Those outside our pid namespace have the number 0.
    for pid in text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}
