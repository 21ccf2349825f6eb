//! What promises to be durable is durable in a run, too: its syncs are real, or it is refused.

use crate::roots;
use crate::site::{Site, limit};
use crate::verbs::with_base;
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{
    Need, Place, StartedCommand, Trace, binary, eventually, perl, trial,
};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::Rig;

const NEEDS: [Need; 1] = [Need::File("/bin/busybox", "busybox-static")];
const TRACED: [Need; 2] = [NEEDS[0], Need::Program("strace", "strace")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(in_a_run_the_syncs_of_each_verb_are_real, &NEEDS),
        trial(in_a_sealed_run_each_verb_is_refused, &NEEDS),
        trial(a_sealed_run_names_no_process_that_empties_the_trash, &NEEDS),
        trial(a_commit_in_a_tree_run_with_the_store_is_flushed, &NEEDS),
        trial(the_marker_of_an_interrupted_run_is_named_at_the_import, &NEEDS),
        trial(a_verb_that_is_repeated_after_a_failed_sync_syncs, &TRACED),
        trial(a_store_in_memory_is_named_by_what_promises_durability, &NEEDS),
    ]
}

/// The words before a verb.
type Around = [&'static [&'static str]];

/// Runs by which a verb is held, or would be; `SYNCONCE` stands for the program.
const SUPERVISED: &Around = &[
    &["SYNCONCE", "run", "--stats", "--json", "--"],
    &["SYNCONCE", "run", "--no-commit", "--stats", "--json", "--"],
    &["SYNCONCE", "run", "--no-commit", "--stats", "--json", "--", "SYNCONCE", "run", "--"],
];
const SEALED: &Around = &[
    &["SYNCONCE", "run", "--sealed", "--"],
    &["SYNCONCE", "run", "--no-commit", "--sealed", "--"],
    &["SYNCONCE", "run", "--sealed", "--", "SYNCONCE", "run", "--"],
];

/// A store, a hold and an engine's configuration, on one disk.
struct World<'a> {
    place: &'a Place,
    rig: Rig,
}

impl<'a> World<'a> {
    fn new(place: &'a Place) -> Self {
        let world = Self { place, rig: Rig::builder().size(256 << 20).up().unwrap() };
        let disk = world.rig.path();
        roots::small(place, "source");
        for directory in ["databases", "etc", "usr/local/bin", "var/lib/synconce"] {
            fs::create_dir_all(disk.join(directory)).unwrap();
        }
        for program in ["synconce-oci", "crun"] {
            fs::copy("/bin/busybox", disk.join("usr/local/bin").join(program)).unwrap();
        }
        let held = disk.join("databases");
        let hold = format!("[[hold]]\npath = \"{}\"\nkind = \"other\"\n", held.display());
        place.write("held.toml", &hold);
        world
    }

    /// Runs `synconce WORDS` after the words `around`.
    fn synconce(&self, around: &[&str], words: &[&str]) -> Finished {
        let (disk, store) = (text(self.rig.path()), self.rig.path().join("store"));
        let words = around.iter().chain(&["SYNCONCE"]).chain(words);
        let words: Vec<_> = words
            .map(|word| if *word == "SYNCONCE" { binary() } else { word })
            .map(|word| word.replace("DISK", disk))
            .collect();
        let mut command = self.place.command(&words[0]);
        command.args(&words[1..]).env("SYNCONCE_TREES", store);
        process::run(&mut command, limit()).unwrap()
    }

    fn well(&self, words: &[&str]) {
        let done = self.synconce(&[], words);
        assert!(done.status.success(), "{words:?}: {done:?}");
    }

    /// Does what the verb needs before it.
    fn prepare(&self, verb: &[&str]) {
        let in_work = ["tree", "run", "work", "--", "/bin/sh", "-c", "date >>/data/file"];
        match verb {
            ["tree", "commit" | "discard", ..] => self.well(&in_work),
            ["tree", "squash", ..] => {
                self.well(&in_work);
                self.well(&["tree", "commit", "work"]);
            }
            ["tree", "mount", ..] => {
                let _ = fs::create_dir(self.rig.path().join("point"));
            }
            ["hold", "stop", ..] => self.well(&["hold", "start", "./held.toml"]),
            ["status", "--clear", ..] => {
                let words = perl("sync_file('data'); kill 9, getppid;");
                drop(self.place.run(&[], &words));
            }
            _ => {}
        }
    }

    /// Returns the interrupted run as the last word of `status --clear`.
    fn complete(&self, verb: &[&'static str]) -> Vec<String> {
        let mut words: Vec<_> = verb.iter().map(|word| (*word).to_owned()).collect();
        if verb[0] == "status" {
            let shown = self.place.status(&["--json"]).stdout;
            let shown: Value = serde_json::from_str(&shown).unwrap();
            words.push(shown[0]["id"].as_str().expect("an interrupted run").to_owned());
        }
        words
    }

    /// Undoes the verb, so that it can be repeated.
    fn undo(&self, verb: &[&str]) {
        match verb {
            ["tree", "init", ..] => fs::remove_dir_all(self.rig.path().join("other")).unwrap(),
            ["tree", "import" | "clone", ..] => self.well(&["tree", "remove", "new"]),
            ["tree", "run", ..] => self.well(&["tree", "remove", "made"]),
            ["tree", "mount", ..] => self.well(&["tree", "umount", "work"]),
            ["tree", "protect", ..] => self.well(&["tree", "unprotect", "old"]),
            ["tree", "rename", ..] => self.well(&["tree", "rename", "older", "old"]),
            ["tree", "remove", ..] => self.well(&["tree", "clone", "base", "old"]),
            _ => {}
        }
    }
}

const VERBS: [&[&str]; 14] = [
    &["tree", "init", "DISK/other"],
    &["tree", "import", "new", "source"],
    &["tree", "clone", "base", "new"],
    &["tree", "mount", "work", "DISK/point"],
    &["tree", "commit", "work"],
    &["tree", "discard", "work"],
    &["tree", "squash", "work"],
    &["tree", "protect", "old"],
    &["tree", "rename", "old", "older"],
    &["tree", "run", "--from", "base", "--commit", "made", "--", "/bin/sh", "-c", "date >/new"],
    &["tree", "remove", "old"],
    &["hold", "stop", "./held.toml"],
    &["status", "--clear"],
    &["setup", "podman", "--root", "DISK"],
];

fn world(place: &Place) -> World<'_> {
    let world = World::new(place);
    world.well(&["tree", "init"]);
    world.well(&["tree", "import", "base", "source"]);
    world.well(&["tree", "clone", "base", "work"]);
    world.well(&["tree", "clone", "base", "old"]);
    world
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn in_a_run_the_syncs_of_each_verb_are_real(place: &Place) {
    let world = world(place);
    for (verb, around) in
        VERBS.into_iter().flat_map(|verb| SUPERVISED.iter().map(move |it| (verb, it)))
    {
        world.prepare(verb);
        let words = world.complete(verb);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let done = world.synconce(around, &words);
        assert!(done.status.success(), "{around:?} {words:?}: {done:?}");
        let stats = done.stderr.lines().find(|line| line.starts_with('{'));
        let stats: Value = serde_json::from_str(stats.expect("the accounts")).unwrap();
        let sum = |key: &str| -> u64 {
            let calls = stats["calls"].as_object().unwrap().iter();
            // Those of the command in the tree are held.
            calls.map(|(_, tally)| tally.pointer(key).and_then(Value::as_u64).unwrap_or(0)).sum()
        };
        assert_eq!(sum("/held"), 0, "{around:?} {words:?}: {}", done.stderr);
        assert!(sum("/reasons/real") > 0, "{around:?} {words:?}: {}", done.stderr);
        world.undo(verb);
        if verb[0] == "setup" {
            world.well(&["setup", "podman", "--root", "DISK", "--undo"]);
        }
    }
    world.rig.down().unwrap();
}

fn in_a_sealed_run_each_verb_is_refused(place: &Place) {
    let world = world(place);
    for (verb, around) in VERBS.into_iter().flat_map(|verb| SEALED.iter().map(move |it| (verb, it)))
    {
        world.prepare(verb);
        let words = world.complete(verb);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let refused = world.synconce(around, &words);
        assert_eq!(refused.status.code(), Some(125), "{around:?} {words:?}: {refused:?}");
        let why = "synconce: cannot make syncs real: this run is sealed";
        assert!(refused.stderr.contains(why), "{around:?} {words:?}: {refused:?}");
        assert!(refused.stderr.contains("synconce: hint: type it outside of the run"));
        // Nothing was done, so it can be done outside.
        world.well(&words);
        world.undo(verb);
        if verb[0] == "setup" {
            world.well(&["setup", "podman", "--root", "DISK", "--undo"]);
        }
    }
    // What promises nothing works.
    let listed = world.synconce(SEALED[0], &["tree", "list"]);
    assert!(listed.status.success() && listed.stdout.contains("work"), "{listed:?}");
    for verb in [&["tree", "verify", "base"][..], &["tree", "fsck"]] {
        let checked = world.synconce(SEALED[0], verb);
        assert!(checked.status.success(), "{verb:?}: {checked:?}");
    }
    // These keep something durably.
    for option in ["--content", "--accept"] {
        let refused = world.synconce(SEALED[0], &["tree", "verify", option, "base"]);
        assert_eq!(refused.status.code(), Some(125), "{option}: {refused:?}");
    }
    world.rig.down().unwrap();
}

fn a_commit_in_a_tree_run_with_the_store_is_flushed(place: &Place) {
    let world = world(place);
    world.prepare(&["tree", "commit"]);
    let flushes = || world.rig.disk().stats().unwrap().flushes;
    fs::copy(binary(), world.rig.path().join("synconce")).unwrap();
    rustix::fs::sync();
    let before = flushes();
    // The command does not end before the flushes are counted: a bind is committed at the end.
    let script = "/mnt/synconce tree --store /mnt/store commit work && touch /mnt/committed && \
                  while ! test -e /mnt/go; do sleep 0.01; done";
    let words = ["tree", "run", "--from", "base", "--bind", "DISK:/mnt", "--", "/bin/sh", "-c"];
    let disk = text(world.rig.path());
    let words: Vec<_> = words.iter().map(|word| word.replace("DISK", disk)).collect();
    let mut command = place.command(binary());
    command.args(words).arg(script).env("SYNCONCE_TREES", world.rig.path().join("store"));
    let run = StartedCommand::new(&mut command);
    eventually("the inner commit is done", || world.rig.path().join("committed").exists());
    let after = flushes();
    fs::write(world.rig.path().join("go"), "").unwrap();
    assert!(run.end().success(), "{}", run.text());
    assert!(after > before, "{before} {after}");
    world.rig.down().unwrap();
}

/// The advice would be to restart the process.
fn a_sealed_run_names_no_process_that_empties_the_trash(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    for number in 0..3_000 {
        fs::write(source.join(format!("data/file-{number}")), "").unwrap();
    }
    site.import("base", &source);
    let store = site.store();
    let mut run = place.synconce(&["run", "--sealed", "--no-commit", "--", binary(), "tree"]);
    run.arg("--store").arg(&store);
    run.args(["run", "--strategy", "copy", "--from", "base", "/bin/true"]);
    let ended = process::run(&mut run, limit()).unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    assert_eq!(fs::read_dir(store.join("trash")).unwrap().count(), 0);
}

/// dpkg may be half configured there, and each clone would report the run as its own.
fn the_marker_of_an_interrupted_run_is_named_at_the_import(place: &Place) {
    let (site, source) = (Site::plain(place), roots::small(place, "source"));
    let root = source.to_str().unwrap();
    let run = place.run(&["--root", root], &["sh", "-c", "sync $0; kill -9 $PPID", root]);
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    let archive = place.text("source.tar");
    assert!(place.bare(&["tar", "-C", root, "-cf", &archive, "."]).status.success());
    let what = "has the marker of a run that has not ended; each clone will report it";
    let shown = format!("`synconce status --root {root}` shows what to do");
    for (name, source, remedy) in [("one", root, shown.as_str()), ("two", &archive, "make it anew")]
    {
        let imported = site.well(&["import", name, source]);
        let wanted = format!("synconce: {source} {what}; {remedy}; then import it again\n");
        assert!(imported.stderr.contains(&wanted), "{imported:?}");
    }
    let id = place.status(&[]).stdout.split(' ').next().unwrap().to_owned();
    assert!(place.status(&["--clear", &id]).status.success());
    let imported = site.well(&["import", "three", root]);
    assert!(!imported.stderr.contains(what), "{imported:?}");
}

fn a_store_in_memory_is_named_by_what_promises_durability(place: &Place) {
    let (source, memory) = (roots::small(place, "source"), place.path("memory"));
    fs::create_dir(&memory).unwrap();
    let source = source.to_str().unwrap();
    let verbs: [&[&str]; 6] = [
        &["init"],
        &["import", "base", source],
        &["run", "--from", "base", "--commit", "new", "--", "true"],
        &["clone", "base", "work"],
        &["run", "work", "--", "touch", "/new"],
        &["commit", "work"],
    ];
    mount("none", &memory, "tmpfs", MountFlags::empty(), None).unwrap();
    for (site, in_memory) in [(Site::new(place, &memory, None), true), (Site::plain(place), false)]
    {
        let store = site.store();
        let notice =
            format!("the store {} is in memory: a reboot removes its trees\n", store.display());
        for words in verbs {
            let said = site.well(words).stderr;
            let promises = !words.contains(&"work") || words[0] == "commit";
            assert_eq!(
                said.matches(&notice).count(),
                usize::from(in_memory && promises),
                "{words:?}: {said}"
            );
        }
    }
    unmount(&memory, UnmountFlags::DETACH).unwrap();
}

/// The first call has made the change, and its sync of the directory has failed.
fn a_verb_that_is_repeated_after_a_failed_sync_syncs(place: &Place) {
    let site = with_base(place);
    site.well(&["unprotect", "base"]);
    for (directory, verb) in [
        ("trees", &["protect", "base"][..]),
        ("trees", &["unprotect", "base"]),
        ("trees", &["restore", "work@1"]),
        ("open", &["discard", "work"]),
        ("trees", &["squash", "work"]),
    ] {
        match verb[0] {
            "restore" => {
                site.clone_of("base", "work");
                site.sh("work", "echo >/data/new");
                site.well(&["commit", "work", "--keep", "2"]);
            }
            "discard" => drop(site.sh("work", "echo >/data/new")),
            "squash" => {
                site.sh("work", "echo >/data/new");
                site.well(&["commit", "work"]);
            }
            _ => {}
        }
        let (directory, tree) = (site.store().join(directory), site.tree(verb));
        let mut failing = place.command("strace");
        failing.args(["-f", "-o", "trace", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO"]);
        failing.arg("-P").arg(&directory).arg(tree.get_program()).args(tree.get_args());
        let failed = process::run(&mut failing, limit()).unwrap();
        assert_eq!(failed.status.code(), Some(125), "{verb:?}: {failed:?}");
        assert!(failed.stderr.contains("cannot sync the directory of"), "{verb:?}: {failed:?}");
        let words: Vec<_> = tree.get_args().filter_map(|word| word.to_str()).collect();
        let trace = Trace::run(place, &[&[binary()], &words[..]].concat());
        let synced = format!("{}>", directory.display());
        let is_whole = trace.find(0, &["syncfs("]).is_some();
        assert!(is_whole || trace.find(0, &["fsync(", &synced]).is_some(), "{verb:?}");
    }
}
