//! What an isolated test prints when it fails.

use std::env::{current_exe, var_os};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use synconce_testkit::isolation::{empty, isolated, isolated_as};
use synconce_testkit::{patiently, process};

const NAME: &str = "a_failure_names_the_full_disk_that_lost_its_output";

/// Set where the test fails.
const FAILS: &str = "SYNCONCE_TESTKIT_FAILS";

fn limit() -> Duration {
    patiently(Duration::from_secs(60))
}

/// Fills a small disk and runs this test there again; returns what that prints.
fn fail_on_full_disk(disk: &Path) -> String {
    fs::create_dir(disk).unwrap();
    mount("full", disk, "tmpfs", MountFlags::empty(), Some(c"size=64k")).unwrap();
    fs::write(disk.join("filler"), [0; 1 << 17]).unwrap_err();
    let mut command = Command::new(current_exe().unwrap());
    command.args(["--exact", NAME]).env("TMPDIR", disk).env(FAILS, "1");
    // The new process isolates its test itself.
    command.env_remove("SYNCONCE_TEST_INSIDE");
    process::run(&mut command, limit()).unwrap().stdout
}

#[test]
fn a_failure_names_the_full_disk_that_lost_its_output() {
    isolated_as(NAME, limit(), || {
        assert!(var_os(FAILS).is_none(), "the cause");
        let printed = fail_on_full_disk(Path::new("/dev/shm/full"));
        assert!(!printed.contains("the cause"), "{printed}");
        assert!(printed.contains(", 0 MiB free in /dev/shm/full\n"), "{printed}");
    });
}

/// Without that, a dockerd of tests would write its key to the machine's `/etc/docker`.
#[test]
fn a_directory_is_emptied_in_memory_also_where_the_machine_has_none() {
    isolated(
        || {},
        |_, _| {
            let directories = ["/etc/apt", "/etc/synconce-test-only"].map(Path::new);
            let content = |directory| fs::read_dir(directory).ok().map(Iterator::count);
            let before = directories.map(content);
            assert!(before[0] > Some(1) && before[1].is_none(), "{before:?}");
            for directory in directories {
                empty(directory);
                fs::write(directory.join("key"), "").unwrap();
                assert_eq!(content(directory), Some(1), "{directory:?}");
            }
            assert!(Path::new("/etc/passwd").exists());
            unmount("/etc", UnmountFlags::DETACH).unwrap();
            unmount("/etc/apt", UnmountFlags::DETACH).unwrap();
            assert_eq!(directories.map(content), before);
        },
    );
}
