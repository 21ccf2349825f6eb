//! Control groups, whose names are shared by the whole machine.

use super::limit;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A unique name. Its drop removes the groups with the name.
pub struct Cgroups {
    unique: String,
    /// Bound to [`owner`], which the kernel frees when the test is killed.
    _owner: UnixListener,
}

impl Cgroups {
    /// Makes a name that no other test has.
    #[must_use]
    pub fn unique() -> Self {
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("/proc");
        let unique = unique.trim().replace('-', "");
        let owner = UnixListener::bind_addr(&owner(&unique)).expect("no other test has the name");
        Self { unique, _owner: owner }
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

    /// Returns the groups with this name that still exist.
    fn left(&self) -> Vec<PathBuf> {
        let ours = |group: &PathBuf| {
            group.file_name().is_some_and(|name| name.to_string_lossy().contains(self.short()))
        };
        groups().filter(ours).collect()
    }
}

/// Removes the groups of killed tests, which have no processes. A group of a living test is not
/// touched.
pub(crate) fn reap() {
    groups().for_each(|group| reap_one(&group));
}

fn reap_one(group: &Path) {
    let unique = || {
        let name = group.file_name()?.to_str()?.strip_prefix("synconce-")?;
        let is_digit = |byte: u8| byte.is_ascii_hexdigit();
        name.split('-').find(|word| word.len() == 32 && word.bytes().all(is_digit))
    };
    if unique().is_some_and(|unique| UnixListener::bind_addr(&owner(unique)).is_ok()) {
        remove_empty(group);
    }
}

/// Returns the address, in the kernel's memory alone, that the test with the name `unique` has.
fn owner(unique: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("synconce-cgroups-{unique}")).expect("a short name")
}

/// Returns the groups at the top of the unified hierarchy, or of every hierarchy.
fn groups() -> impl Iterator<Item = PathBuf> {
    let top = directories(Path::new("/sys/fs/cgroup"));
    let below: Vec<_> = top.iter().flat_map(|hierarchy| directories(hierarchy)).collect();
    below.into_iter().chain(top)
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

/// Removes `group` and the groups below it, each after those below it. A group with a process
/// stays.
fn remove_empty(group: &Path) {
    directories(group).iter().for_each(|below| remove_empty(below));
    let _ = fs::remove_dir(group);
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_killed_test_are_removed_and_those_of_a_living_one_are_not() {
        let is_hierarchy = |path: &&PathBuf| path.join("cgroup.procs").exists();
        let tops = directories(Path::new("/sys/fs/cgroup"));
        let top = tops.iter().find(is_hierarchy).expect("a hierarchy");
        let owner = Cgroups::unique();
        // The name of a test whose drop did not run.
        let killed = Cgroups::unique().parent();
        let [living, killed] = [&owner.parent(), &killed].map(|name| top.join(&name[1..]));
        for group in [&living, &killed] {
            fs::create_dir_all(group.join("buildkit/step")).unwrap();
            reap_one(group);
        }
        assert_eq!([living.exists(), killed.exists()], [true, false]);
    }
}
