//! Copies of a mounted tree in other mount namespaces, as a container has one: what they show
//! stays, and nothing changes a layer by them.

use crate::concurrent::{point, text};
use crate::roots;
use crate::site::for_each_strategy;
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Place, StartedCommand, eventually, trial};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_copy_keeps_a_tree_in_use_on_ext4, &NEEDS),
        trial(a_copy_keeps_a_tree_in_use_on_btrfs, &NEEDS),
        trial(a_run_keeps_no_other_tree_in_use_but_by_a_bind, &NEEDS),
        trial(the_layers_of_a_removed_tree_stay_while_a_mount_shows_them, &NEEDS),
    ]
}

/// A process in a mount namespace of its own, with a copy of every mount.
struct Copy(StartedCommand);

impl Copy {
    /// Starts the process after something was mounted on `at`.
    fn of(place: &Place, at: &Path) -> Self {
        let mut other = place.command("unshare");
        other.args(["--mount", "--propagation", "private", "sleep", "600"]);
        let copy = Self(StartedCommand::new(&mut other));
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).unwrap();
        let mounts = || fs::read_to_string(format!("/proc/{}/mountinfo", copy.pid())).unwrap();
        let is_private = || !mounts().contains(" shared:") && mounts().contains(text(at));
        let has_it = || namespace(&copy.pid()) != namespace("self") && is_private();
        eventually("it has a copy of the mounts", has_it);
        copy
    }

    fn pid(&self) -> String {
        self.0.pid().to_string()
    }

    /// Reads the file `path` through the copy.
    fn read(&self, path: &Path) -> std::io::Result<String> {
        fs::read_to_string(format!("/proc/{}/root{}", self.pid(), path.display()))
    }

    fn end(self) {
        self.0.signal(Signal::KILL).unwrap();
        self.0.end();
    }
}

fn a_copy_keeps_a_tree_in_use_on_ext4(place: &Place) {
    a_copy_keeps_a_tree_in_use(place, FsKind::Ext4);
}

fn a_copy_keeps_a_tree_in_use_on_btrfs(place: &Place) {
    a_copy_keeps_a_tree_in_use(place, FsKind::Btrfs);
}

fn a_copy_keeps_a_tree_in_use(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    for_each_strategy(place, kind, 600 << 20, |site| {
        site.import("base", &source);
        let at = point(site, "point");
        let other = fs::read_to_string(source.join("data/other")).unwrap();
        for (name, umount) in [("kept", &["umount"][..]), ("dropped", &["umount", "--discard"])] {
            site.clone_of("base", name);
            site.well(&["mount", name, text(&at)]);
            let copy = Copy::of(place, &at);
            let umount = [umount, &[name]].concat();
            let pid = copy.pid();
            let who =
                format!("it is still mounted in the mount namespace of process {pid} (sleep)");
            site.refused(125, &umount, &[&who, &format!("hint: `ps -fp {pid}`"), "umount"]);
            site.refused(125, &["remove", "--force", name], &["its mount at", " is gone"]);
            site.well(&["gc", "--wait"]);
            assert_eq!(copy.read(&at.join("data/other")).unwrap(), other);
            copy.end();
            site.well(&umount);
            site.well(&["run", name, "--", "/bin/true"]);
            site.well(&["commit", name]);
        }
        site.well(&["fsck"]);
    });
}

fn the_layers_of_a_removed_tree_stay_while_a_mount_shows_them(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    site.sh("work", "echo new >/data/new");
    // One layer is a bind mount, a stack is an overlay.
    let [one, stack, bound] = ["one", "stack", "bound"].map(|name| point(&site, name));
    site.well(&["mount", "--read-only", "base", text(&one)]);
    site.well(&["mount", "--read-only", "work", text(&stack)]);
    mount_bind(&one, &bound).unwrap();
    let copy = Copy::of(place, &stack);
    for at in [&one, &stack] {
        site.well(&["umount", text(at)]);
    }
    site.well(&["remove", "--force", "--wait", "work", "base"]);
    let stays = |place: &str| {
        let collected = site.well(&["gc", "--wait"]);
        let stays = format!("a layer of a removed tree stays: it is mounted at {place}");
        assert!(collected.stderr.contains(&stays), "{stays}: {collected:?}");
    };
    let other = bound.join("data/other");
    let expected = "another\n".repeat(8192);
    stays(&format!("{} in the mount namespace of process {}", text(&stack), copy.pid()));
    assert_eq!(copy.read(&stack.join("data/new")).unwrap(), "new\n");
    assert_eq!(copy.read(&one.join("data/other")).unwrap(), expected);
    copy.end();
    stays(&format!("{}\n", text(&bound)));
    assert_eq!(fs::read_to_string(&other).unwrap(), expected);
    unmount(&bound, UnmountFlags::empty()).unwrap();
    eventually("nothing shows a layer", || {
        let collected = site.well(&["gc", "--wait"]);
        !collected.stderr.contains(" stays: ")
    });
    assert_eq!(fs::read_dir(site.store().join("layers")).unwrap().count(), 0);
}

fn a_run_keeps_no_other_tree_in_use_but_by_a_bind(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (at, shared) = (point(&site, "point"), point(&site, "shared"));
    let started = shared.join("started");
    let bind = format!("{}:/data/empty", text(&at));
    // What is private propagates no unmount to the namespace of the run.
    for (options, is_in_use) in [(&[][..], false), (&["--bind", &bind], true)] {
        site.well(&["mount", "work", text(&at)]);
        let shared = format!("{}:/mnt", text(&shared));
        let run = [&["run", "--from", "base", "--bind", &shared], options];
        let command = ["--", "/bin/sh", "-c", "touch /mnt/started; exec sleep 600"];
        let run = StartedCommand::new(&mut site.tree(&[&run.concat()[..], &command].concat()));
        eventually("the run has started", || started.exists());
        fs::write(at.join("data/new"), "new\n").unwrap();
        if is_in_use {
            site.refused(125, &["umount", "work"], &["mount namespace of process ", "hint: `ps "]);
        } else {
            site.well(&["umount", "work"]);
        }
        run.signal(Signal::TERM).unwrap();
        run.end();
        fs::remove_file(&started).unwrap();
        if is_in_use {
            site.well(&["umount", "work"]);
        }
    }
}
