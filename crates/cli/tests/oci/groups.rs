//! The control groups that Podman and buildkitd make for all containers, and never remove.

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The groups, for a test whose engines make them. All tests of the machine share the groups: the
/// removal of a group that another test's engine has just made, and not used yet, would fail that
/// engine. So the last of the tests that run removes the groups that were not there before the
/// first of them.
pub struct GroupsOfEngines {
    /// Locked, as a shared lock, while the test runs. The file has the groups that were there
    /// before.
    file: File,
}

impl GroupsOfEngines {
    /// Waits while another test removes groups.
    pub fn shared() -> Self {
        let _turn = turn();
        let mut file = open("synconce-tests-groups");
        if is_alone(&file) {
            let before: Vec<_> = present().iter().map(|it| it.display().to_string()).collect();
            file.set_len(0).expect("an empty file");
            file.write_all(before.join("\n").as_bytes()).expect("a list");
        }
        retry_on_intr(|| flock(&file, FlockOperation::LockShared)).expect("a lock");
        Self { file }
    }
}

impl Drop for GroupsOfEngines {
    fn drop(&mut self) {
        let _turn = turn();
        if is_alone(&self.file) {
            self.remove_new_groups();
        }
        // A test whose turn comes next would not find itself alone while this lock is there.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl GroupsOfEngines {
    /// Removes the groups that were not there before the first test.
    fn remove_new_groups(&mut self) {
        let mut before = String::new();
        if self.file.rewind().and_then(|()| self.file.read_to_string(&mut before)).is_err() {
            return;
        }
        let before: Vec<_> = before.lines().map(Path::new).collect();
        for group in present().iter().filter(|group| !before.contains(&group.as_path())) {
            // A container of another program than a test may have processes there.
            let _ = fs::remove_dir(group.join("conmon"));
            let _ = fs::remove_dir(group);
        }
    }
}

/// Waits until no other test begins or ends: a shared lock becomes an exclusive one in two steps
/// (flock(2)).
fn turn() -> File {
    let turn = open("synconce-tests-groups.turn");
    retry_on_intr(|| flock(&turn, FlockOperation::LockExclusive)).expect("a lock");
    turn
}

/// Whether no other test has the lock of `file`. Gives up a shared lock.
fn is_alone(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn open(name: &str) -> File {
    let path = std::env::temp_dir().join(name);
    File::options().read(true).append(true).create(true).open(path).expect("a lock file")
}

/// Returns the groups that are there now.
fn present() -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(top).expect("control groups").map(|it| it.unwrap().path());
    let all = hierarchies.chain([top.to_owned()]);
    let all = all.flat_map(|it| ["libpod_parent", "buildkit"].map(|name| it.join(name)));
    all.filter(|group| group.is_dir()).collect()
}
