//! Runs each test in a process, a mount namespace and a pid namespace of its own: nothing of a
//! test outlives it, and no test commits the mounts of another.

use crate::{patiently, process};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::any::type_name_of_val;
use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_probe::filesystem::SyncKind;

const INSIDE: &str = "SYNCONCE_TEST_INSIDE";

/// The directory of run files of root, by default.
const RUN_FILES: &str = "/run/synconce";

/// In practice longer than all limits within a test together.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// Starts this program again in new namespaces and runs `inside` there, with the name of the
/// test. `test` is a closure of the calling test, from which the name is taken.
pub fn isolated<T>(test: T, inside: impl FnOnce(&str, T)) {
    let path = type_name_of_val(&test);
    let name = path.trim_end_matches("::{{closure}}").split_once("::").expect("a module path").1;
    isolated_as(name, patiently(LIMIT), || inside(name, test));
}

/// Like [`isolated`], for the test called `name`, which is killed after `limit`.
pub fn isolated_as(name: &str, limit: Duration, inside: impl FnOnce()) {
    if is_inside() {
        leave_other_disks();
        keep_rigs_apart();
        keep_run_files_apart();
        return inside();
    }
    assert!(rustix::process::geteuid().is_root(), "these tests need root, to unshare namespaces");
    let program = std::env::current_exe().expect("the name of this program");
    // A Ctrl-C ends this process, but not the process groups of its children. setpriv(1) ends
    // them, and unshare(1) ends its own child.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"])
        .arg("--mount-proc")
        .arg(program)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1");
    let finished = process::run(&mut command, limit).unwrap();
    let ran_one = finished.stdout.contains("test result: ok. 1 passed");
    assert!(
        finished.status.success() && ran_one,
        "{name}: {}, {}\n{}\n{}",
        finished.status,
        free_space(),
        finished.stdout,
        finished.stderr
    );
}

/// Makes `directory` empty, with changes in memory, for this test alone. Where the machine has no
/// such directory, the changes of its parent are in memory.
///
/// # Panics
/// The parent does not exist, or the test is not isolated.
pub fn empty(directory: &Path) {
    assert!(is_inside(), "the mounts are those of the machine");
    if directory.exists() {
        return mount("test", directory, "tmpfs", MountFlags::empty(), None).expect("a tmpfs");
    }
    let parent = directory.parent().expect("a directory");
    // In memory as well: see `keep_rigs_apart`.
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory").keep();
    let [upper, work] = ["upper", "work"].map(|name| memory.join(name));
    for layer in [&upper, &work] {
        std::fs::create_dir(layer).expect("a directory of ours");
    }
    let layers = [("lowerdir", parent), ("upperdir", &upper), ("workdir", &work)];
    let options = layers.map(|(name, path)| format!("{name}={}", path.display())).join(",");
    let options = CString::new(options).expect("no path has a NUL");
    mount("test", parent, "overlay", MountFlags::empty(), options.as_c_str()).expect("an overlay");
    std::fs::create_dir(directory).expect("a directory in memory");
}

/// Returns the free space for the output of tests, which a full disk loses without an error.
fn free_space() -> String {
    let directory = std::env::temp_dir();
    let space = rustix::fs::statvfs(&directory).expect("the space of the temporary directory");
    let free = (space.f_bavail * space.f_frsize) >> 20;
    format!("{free} MiB free in {}", directory.display())
}

/// Whether this process is the one in the new namespaces.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Detaches every mount of a disk, and every FUSE mount, but that of `/`: these are rigs of other
/// tests, with slow or broken disks. A commit would wait for them, and a sealed run names them.
fn leave_other_disks() {
    let mounts = synconce_probe::mounts::read("self").expect("the mounts of this process");
    for mount in mounts.iter().rev() {
        let is_of_a_rig = mount.kind().is_held() || matches!(mount.kind(), SyncKind::Fuse { .. });
        if mount.point != Path::new("/") && is_of_a_rig {
            // Detaching the mount above has detached this one, too.
            let _ = unmount(&mount.point, UnmountFlags::DETACH);
        }
    }
}

/// Gives the rigs of the test a directory of their own for their records, which name processes
/// by a number that has another meaning outside the namespace. Their data is in another
/// directory, which goes with the namespace.
fn keep_rigs_apart() {
    for directory in ["/run/synconce-rig", "/dev/shm"] {
        std::fs::create_dir_all(directory).expect("a directory for the rigs' records");
        // As many files as a test makes: the default depends on the memory of the machine.
        let options = Some(c"nr_inodes=0");
        mount("rigs", directory, "tmpfs", MountFlags::empty(), options).expect("a tmpfs for them");
    }
}

/// Gives the test an empty `/run/synconce`: the counts of the machine's own runs, build steps and
/// failed syncs stay as they are.
fn keep_run_files_apart() {
    std::fs::create_dir_all(RUN_FILES).expect("a directory for run files");
    mount("test", RUN_FILES, "tmpfs", MountFlags::empty(), Some(c"mode=755")).expect("a tmpfs");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_files_of_a_test_are_not_those_of_the_machine() {
        let written = Path::new(RUN_FILES).join("of-a-test");
        isolated(
            || std::fs::write(&written, "").expect("a file of the test"),
            |_, write| {
                let found = std::fs::read_dir(RUN_FILES).expect("a directory").count();
                assert_eq!(found, 0);
                write();
            },
        );
        assert_eq!(written.exists(), is_inside());
    }
}
