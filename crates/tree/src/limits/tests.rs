//! A hierarchy of version 2 is files in a directory here: the machine's may have no controllers.

use super::place::{of_version_2, places_among};
use super::{Limits, remove};
use std::fs;
use std::path::Path;
use synconce_probe::mounts::{self, Mount};

/// Makes the group `path` below `root`, which passes `passed` on, with the limit `memory`.
fn group(root: &Path, path: &str, passed: &str, memory: &str) {
    let group = root.join(path);
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cgroup.subtree_control"), passed).unwrap();
    fs::write(group.join("memory.max"), memory).unwrap();
}

fn mounted(at: &Path) -> Vec<Mount> {
    mounts::parse(&format!("1 1 0:1 / {} rw - cgroup2 cgroup2 rw\n", at.display()))
}

#[test]
fn the_nearest_group_that_passes_the_controllers_on_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    group(root, "", "cpu memory pids\n", "");
    group(root, "users", "memory pids\n", "max\n");
    group(root, "users/session", "\n", "max\n");
    let mounts = mounted(root);
    let found = |wanted: &[&str]| of_version_2(wanted, "0::/users/session\n", &mounts);
    let (users, session) = (root.join("users"), root.join("users/session"));
    assert_eq!(found(&["memory", "pids"]), Some((users.clone(), vec![session.clone()])));
    assert_eq!(found(&["memory", "cpu"]), Some((root.to_owned(), vec![session, users])));
    assert_eq!(found(&["io"]), None);
}

#[test]
fn controllers_of_one_hierarchy_share_a_group() {
    let groups = "2:memory,pids:/user\n1:cpu,cpuacct:/\n0::/\n";
    let mounts = mounts::parse(
        "1 1 0:1 / /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
         2 1 0:2 / /c/memory rw - cgroup cgroup rw,memory,pids\n",
    );
    let places = places_among(&["memory", "cpu", "pids"], groups, &mounts).unwrap();
    let found = places.iter().map(|place| (place.parent.as_path(), &place.controllers[..]));
    let wanted =
        [(Path::new("/c/memory/user"), &["memory", "pids"][..]), (Path::new("/c/cpu"), &["cpu"])];
    assert_eq!(found.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_run_does_not_escape_the_limits_of_the_groups_that_it_leaves() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    group(root, "", "", "48000\n");
    fs::write(root.join("cpu.max"), "30000 100000\n").unwrap();
    fs::write(root.join("pids.max"), "max\n").unwrap();
    let limits = |memory, cpus, pids| Limits { memory, cpus, pids };
    let none = limits(Some(48_000), Some(0.3), None);
    assert_eq!(Limits::default().within(root), none);
    let wide = limits(Some(50_000), Some(2.0), Some(9));
    assert_eq!(wide.within(root), limits(Some(48_000), Some(0.3), Some(9)));
    let narrow = limits(Some(5), Some(0.1), None);
    assert_eq!(narrow.within(root), narrow);
    assert_eq!(wide.within(&root.join("absent")), wide);
}

#[test]
fn only_a_group_that_is_gone_counts_as_removed() {
    let directory = tempfile::tempdir().unwrap();
    assert!(remove(&directory.path().join("missing")));
    let group = directory.path().join("group");
    fs::create_dir(&group).unwrap();
    // No control group has such a file: rmdir(2) fails with ENOTEMPTY, and not with EBUSY.
    fs::write(group.join("file"), "").unwrap();
    assert!(!remove(&group));
    fs::remove_file(group.join("file")).unwrap();
    assert!(remove(&group));
}
