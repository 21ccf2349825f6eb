//! Copies of a mounted tree in other mount namespaces, as a container has one: what they show
//! stays, and nothing changes a layer by them.

use crate::concurrent::{point, text};
use crate::mounts::{hinted, typed};
use crate::roots;
use crate::site::{Site, for_each_strategy, limit};
use crate::users;
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually, trial, trials_on};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(the_hint_about_a_copy_unmounts_it_and_harms_nothing, &NEEDS),
        trial(a_copy_of_an_ordinary_user_is_waited_for, &users::NEEDS),
        trial(a_run_keeps_no_other_tree_in_use_but_by_a_bind, &NEEDS),
        trial(a_run_keeps_no_tree_of_another_store_in_use, &NEEDS),
        trial(a_run_that_begins_in_a_mounted_tree_does_not_keep_it_in_use, &NEEDS),
        trial(a_run_whose_program_is_in_a_mounted_tree_works, &NEEDS),
        trial(a_run_whose_state_directory_is_in_a_mounted_tree_has_its_marker_there, &NEEDS),
        trial(the_layers_of_a_removed_tree_stay_while_a_mount_shows_them, &NEEDS),
    ];
    trials.extend(trials_on(&[FsKind::Ext4, FsKind::Btrfs], a_copy_keeps_a_tree_in_use, &NEEDS));
    trials
}

/// A process in a mount namespace of its own, with a copy of every mount.
struct Copy(StartedCommand);

impl Copy {
    /// Starts the process after something was mounted on `at`.
    fn from_path(place: &Place, at: &Path) -> Self {
        Self::at(place, at, &place.path(""))
    }

    /// Like [`Copy::of`]; the process works in `directory`.
    fn at(place: &Place, at: &Path, directory: &Path) -> Self {
        let mut other = place.command("unshare");
        other.current_dir(directory);
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

fn a_copy_keeps_a_tree_in_use(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    for_each_strategy(place, kind, 600 << 20, |site| {
        site.import("base", &source);
        let at = point(site, "point");
        let other = fs::read_to_string(source.join("data/other")).unwrap();
        for (name, umount) in [("kept", &["umount"][..]), ("dropped", &["umount", "--discard"])] {
            site.clone_of("base", name);
            site.well(&["mount", name, text(&at)]);
            let copy = Copy::from_path(place, &at);
            let umount = [umount, &[name]].concat();
            let pid = copy.pid();
            let who =
                format!("it is still mounted in the mount namespace of process {pid} (sleep)");
            let hint = format!("hint: `nsenter -t {pid} -m umount {}`", text(&at));
            site.refused(125, &umount, &[&who, &hint, &format!("umount {name}`")]);
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
    let copy = Copy::from_path(place, &stack);
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

/// Runs `umount`, which a copy makes fail, and types the command of its hint.
fn hinted_umount(site: &Site<'_>, umount: &mut Command) -> Finished {
    let refused = process::run(umount, limit()).unwrap();
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    typed(site.place, &hinted(&refused.stderr))
}

fn the_hint_about_a_copy_unmounts_it_and_harms_nothing(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    let mut umount = site.tree(&["umount", "work"]);
    // The copy of another process.
    site.well(&["mount", "work", text(&at)]);
    let copy = Copy::from_path(place, &at);
    let typed = hinted_umount(&site, &mut umount);
    assert!(typed.status.success(), "{typed:?}");
    assert_eq!(copy.read(&at.join("data/other")).unwrap_err().kind(), ErrorKind::NotFound);
    site.well(&["umount", "work"]);
    copy.end();
    // The first process has the mount, and `umount` works in a copy of its namespace.
    site.well(&["mount", "work", text(&at)]);
    let mut apart = place.command("unshare");
    apart.arg("--mount").arg(umount.get_program()).args(umount.get_args());
    let typed = hinted_umount(&site, &mut apart);
    assert!(typed.status.success(), "{typed:?}");
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    site.well(&["umount", "work"]);
    // A process that works in the copy goes on.
    site.well(&["mount", "work", text(&at)]);
    fs::create_dir(at.join("data/worked-in")).unwrap();
    let worker = Copy::at(place, &at, &at.join("data/worked-in"));
    let typed = hinted_umount(&site, &mut umount);
    assert!(!typed.status.success() && typed.stderr.contains("busy"), "{typed:?}");
    assert!(worker.read(&at.join("data/other")).is_ok());
    worker.end();
    site.well(&["umount", "work"]);
}

/// No process can unmount one of the mounts that a namespace of another owner has inherited.
fn a_copy_of_an_ordinary_user_is_waited_for(place: &Place) {
    users::subordinate(place, "nobody:100000:65536\n");
    let tar = users::tar(place);
    users::well(place, &["import", "base", text(&tar)]);
    let site = Site::plain(place);
    site.import("base", &tar);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    let words = ["run", "--from", "base", "--", "/bin/sh", "-c", "echo on; exec sleep 600"];
    let run = StartedCommand::new(&mut users::by_nobody(place, &[], &words));
    eventually("the run has started", || run.text() == "on\n");
    let by = format!("hint: `ps -fp {}` shows that process", run.pid());
    site.refused(125, &["umount", "work"], &["mount namespace of process ", &by]);
    run.signal(Signal::TERM).unwrap();
    run.end();
    site.well(&["umount", "work"]);
}

/// Starts a run of `/bin/sh -c SCRIPT` in a clone of the base of `site`, with the directory
/// `shared` at `/mnt`, by `tree`; returns it when it has written `shared/started`.
fn started(site: &Site<'_>, shared: &Path, change: impl FnOnce(&mut Command)) -> StartedCommand {
    let bind = format!("{}:/mnt", text(shared));
    let script = "echo $A | dd of=/mnt/started conv=fsync; exec sleep 600";
    let words = ["run", "--from", "base", "--env-file", "variables", "--bind", &bind];
    let mut tree = site.tree(&[&words[..], &["--", "/bin/sh", "-c", script]].concat());
    change(&mut tree);
    let run = StartedCommand::new(&mut tree);
    eventually("the run has started", || {
        let has_ended = run.wait(Duration::ZERO).unwrap().is_some();
        assert!(!has_ended, "{}", run.text());
        fs::read_to_string(shared.join("started")).is_ok_and(|text| text == "b\n")
    });
    run
}

fn a_run_keeps_no_tree_of_another_store_in_use(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (at, shared, other) =
        (point(&site, "point"), point(&site, "shared"), point(&site, "other"));
    let other = Site::new(place, &other, None);
    other.import("base", &place.path("source"));
    place.write("variables", "A=b\n");
    site.well(&["mount", "work", text(&at)]);
    let run = started(&other, &shared, |_| ());
    site.well(&["umount", "work"]);
    run.signal(Signal::TERM).unwrap();
    run.end();
}

fn a_run_that_begins_in_a_mounted_tree_does_not_keep_it_in_use(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (at, shared) = (point(&site, "point"), point(&site, "shared"));
    site.well(&["mount", "work", text(&at)]);
    fs::write(at.join("data/variables"), "A=b\n").unwrap();
    let run = started(&site, &shared, |tree| {
        tree.current_dir(at.join("data"));
    });
    site.well(&["umount", "work"]);
    run.signal(Signal::TERM).unwrap();
    run.end();
}

fn a_run_whose_program_is_in_a_mounted_tree_works(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    let program = at.join("data/synconce");
    fs::write(&program, "").unwrap();
    mount_bind(binary(), &program).unwrap();
    for options in [&[][..], &["--no-hold"]] {
        let words = [&["run", "--from", "base"], options, &["--", "/bin/echo", "inside"]].concat();
        let tree = site.tree(&words);
        let mut by_program = place.command(text(&program));
        let finished = process::run(by_program.args(tree.get_args()), limit()).unwrap();
        assert_eq!(finished.stdout, "inside\n", "{options:?} {finished:?}");
    }
    // The process that empties the trash executes the program, too.
    let is_unmounted = || unmount(&program, UnmountFlags::empty()).is_ok();
    eventually("the program has ended", is_unmounted);
    site.well(&["umount", "work"]);
}

fn a_run_whose_state_directory_is_in_a_mounted_tree_has_its_marker_there(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (at, shared) = (point(&site, "point"), point(&site, "shared"));
    place.write("variables", "A=b\n");
    site.well(&["mount", "work", text(&at)]);
    // A link leads there, and the directory itself is missing.
    symlink(at.join("data"), place.path("linked")).unwrap();
    let state = place.path("linked/missing/state");
    let run = started(&site, &shared, |tree| {
        tree.env("SYNCONCE_STATE_DIR", &state);
    });
    let names = || fs::read_dir(at.join("data/missing/state")).unwrap().count();
    assert!(names() > 0, "the marker is in the mounted tree");
    site.refused(125, &["umount", "work"], &["mount namespace of process ", "hint: `"]);
    run.signal(Signal::TERM).unwrap();
    run.end();
    site.well(&["umount", "work"]);
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
