//! Older generations: kept as asked, listed, used by their names, restored and removed.

use crate::roots;
use crate::site::{Site, for_each_strategy, same, strategies, times};
use crate::verbs::{NEEDS, waiting, with_base};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use synconce_testkit::harness::{Place, trial, trials_on};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(a_generation_is_restored_as_the_next_one, &NEEDS),
        trial(only_what_is_asked_for_is_kept, &NEEDS),
        trial(a_generation_goes_on_while_a_run_or_a_mount_uses_it, &NEEDS),
        trial(a_generation_does_not_change, &NEEDS),
        trial(a_tree_comes_before_a_generation_of_its_name, &NEEDS),
        trial(damage_in_an_older_generation_is_found, &NEEDS),
        trial(an_earlier_version_refuses_a_tree_with_older_generations, &NEEDS),
    ];
    trials.extend(trials_on(&[FsKind::Ext4, FsKind::Btrfs], generations_are_kept_and_used, &NEEDS));
    trials
}

/// Returns the numbers in `log NAME --json`.
fn numbers(site: &Site<'_>, name: &str) -> Vec<u64> {
    let log: Value = serde_json::from_str(&site.well(&["log", name, "--json"]).stdout).unwrap();
    let log = log.as_array().unwrap();
    for one in log {
        assert_eq!(one["name"], format!("{name}@{}", one["generation"]), "{one}");
    }
    log.iter().map(|one| one["generation"].as_u64().unwrap()).collect()
}

/// Makes the next generation of `name`, whose /data/round is its number.
fn next(site: &Site<'_>, name: &str, number: u32, options: &[&str]) {
    let script = format!("echo {number} >/data/round; echo x >/data/of{number}");
    let words = ["run", "--from", name, "--commit", name];
    site.well(&[&words[..], options, &["--", "/bin/sh", "-ec", &script]].concat());
}

/// Makes a tree `base` with the generations 1 to `last`, of which all are kept.
fn with_generations(place: &Place, last: u32) -> Site<'_> {
    let site = with_base(place);
    site.well(&["commit", "base", "--keep", "10"]);
    (2..=last).for_each(|number| next(&site, "base", number, &[]));
    site
}

/// Returns the number of layers in the store.
fn layers(site: &Site<'_>) -> usize {
    fs::read_dir(site.store().join("layers")).unwrap().count()
}

fn generations_are_kept_and_used(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    assert!(!strategies(kind).is_empty());
    for_each_strategy(place, kind, 600 << 20, |site| {
        site.import("base", &source);
        let mut wanted = vec![site.content("base")];
        next(site, "base", 2, &["--keep", "2"]);
        wanted.push(site.content("base"));
        // The tree keeps as many from now on, whatever verb makes the generation.
        site.well(&["unprotect", "base"]);
        site.sh("base", "echo 3 >/data/round; rm -r /data/directory");
        assert_eq!(site.from("base@2", "cat /data/round"), "2\n", "an open tree has generations");
        site.well(&["commit", "base"]);
        wanted.push(site.content("base"));
        assert_eq!(numbers(site, "base"), [3, 2, 1]);
        for (index, wanted) in wanted.iter().enumerate() {
            let name = format!("base@{}", index + 1);
            same(&name, wanted, &site.content(&name));
            same(&name, wanted, &site.exported(&name));
            site.well(&["verify", &name]);
        }
        let changes = site.diff("base@1", "base@2");
        assert!(changes.contains(&('A', "data/round".to_owned())), "{changes:?}");
        assert_eq!(site.diff("base@3", "base"), std::collections::BTreeSet::new());
        site.well(&["run", "--discard", "base@2", "/bin/sh", "-ec", "rm -r /data"]);
        site.clone_of("base@1", "old");
        site.sh("old", "test -e /data/directory/inner; echo new >/data/file");
        site.well(&["commit", "old"]);
        site.well(&["squash", "base"]);
        // Only overlays have more than one layer.
        let newest = if site.strategy() == "overlay" { 4 } else { 3 };
        assert_eq!(numbers(site, "base"), [newest, newest - 1, newest - 2]);
        same("squashed", &wanted[2], &site.content("base"));
        same("generation 2", &wanted[1], &site.content("base@2"));
        site.well(&["restore", "base@2"]);
        same("restored", &wanted[1], &site.content("base"));
        site.well(&["rename", "base", "stable"]);
        same("renamed", &wanted[2], &site.content("stable@3"));
        site.well(&["remove", "stable@3"]);
        assert_eq!(numbers(site, "stable"), if newest == 4 { vec![5, 4] } else { vec![4, 2] });
        site.well(&["verify", "stable"]);
        site.well(&["fsck"]);
        for name in ["stable", "old"] {
            site.remove(name);
        }
        site.well(&["gc", "--wait"]);
        assert_eq!(layers(site), 0);
    });
}

fn a_generation_is_restored_as_the_next_one(place: &Place) {
    let site = with_generations(place, 3);
    let before = times(&site.store().join("layers"));
    let made = site.well(&["restore", "base@2", "--json"]).stdout;
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made, serde_json::json!({ "name": "base", "generation": 4 }));
    assert_eq!(site.from("base", "cat /data/round"), "2\n");
    assert_eq!(site.from("base@3", "cat /data/round"), "3\n");
    same("the layers", &before, &times(&site.store().join("layers")));
    // What is restored already makes no generation.
    for name in ["base@2", "base@4"] {
        site.well(&["restore", name]);
    }
    assert_eq!(numbers(&site, "base"), [4, 3, 2, 1]);
    site.refused(125, &["run", "base", "true"], &["it is a protected base"]);
    // What is open or in use stays.
    site.well(&["unprotect", "base"]);
    site.sh("base", "echo mine >/data/mine");
    let why = "cannot restore a generation of base: it has changes that are not committed";
    site.refused(125, &["restore", "base@1"], &[why, "tree --store", "discard base"]);
    let run = waiting(&site, &["base"], "");
    site.refused(125, &["restore", "base@1"], &["it is in use by process"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    site.well(&["commit", "base"]);
    site.well(&["restore", "base@1"]);
    assert_eq!(site.from("base", "ls /data/round 2>&1 || true").lines().count(), 1);
    site.refused(125, &["restore", "base"], &["it is a tree"]);
    site.refused(125, &["restore", "none@2"], &["none@2: no such tree"]);
    let why = "cannot find the generation base@9: base has only the generations 1, 2, 3, 4, 5, 6";
    site.refused(125, &["restore", "base@9"], &[why]);
    site.clone_of("base", "one");
    let why = "cannot find the generation one@2: one has only generation 1";
    site.refused(125, &["run", "--from", "one@2", "true"], &[why]);
}

fn only_what_is_asked_for_is_kept(place: &Place) {
    let site = with_base(place);
    next(&site, "base", 2, &[]);
    assert_eq!(numbers(&site, "base"), [2], "nothing is kept unasked");
    site.well(&["commit", "base", "--keep", "2"]);
    (3..=5).for_each(|number| next(&site, "base", number, &[]));
    assert_eq!(numbers(&site, "base"), [5, 4, 3]);
    // A run that changes nothing pushes no older generation out.
    site.well(&["run", "--from", "base", "--commit", "base", "true"]);
    assert_eq!(numbers(&site, "base"), [5, 4, 3]);
    site.well(&["remove", "base@4"]);
    next(&site, "base", 6, &[]);
    assert_eq!(numbers(&site, "base"), [6, 5, 3]);
    assert_eq!(site.from("base@3", "cat /data/round"), "3\n");
    // A clone and a tree that --as or --commit makes keep nothing unasked.
    site.clone_of("base@3", "work");
    site.sh("work", "echo work >/data/round");
    site.well(&["commit", "work", "--as", "made", "--keep", "1"]);
    site.sh("made", "echo made >/data/round");
    site.well(&["commit", "made"]);
    site.sh("work", "echo work >/data/round");
    site.well(&["commit", "work"]);
    assert_eq!((numbers(&site, "made"), numbers(&site, "work")), (vec![2, 1], vec![2]));
    let list: Value = serde_json::from_str(&site.well(&["list", "--json"]).stdout).unwrap();
    assert_eq!((&list[0]["keep"], &list[0]["kept"]), (&2.into(), &2.into()));
    // Fewer from now on.
    site.well(&["squash", "base"]);
    let frees = site.well(&["remove", "-n", "base@5"]).stdout;
    assert!(frees.starts_with("base@5 would be removed and free 0 B"), "{frees}");
    site.well(&["commit", "base", "--keep", "0"]);
    assert_eq!(numbers(&site, "base"), [7]);
    for name in ["work", "made"] {
        site.remove(name);
    }
    site.well(&["gc", "--wait"]);
    assert_eq!(layers(&site), 1);
    for words in [&["commit", "base", "--keep", "101"][..], &["run", "base", "--keep", "1"]] {
        assert_eq!(site.ends(words).status.code(), Some(125), "{words:?}");
    }
}

fn a_generation_goes_on_while_a_run_or_a_mount_uses_it(place: &Place) {
    let site = with_generations(place, 2);
    let point = place.path("point");
    fs::create_dir(&point).unwrap();
    site.well(&["mount", "base@1", point.to_str().unwrap(), "--read-only"]);
    let run = waiting(&site, &["--from", "base@1"], "ls /data; test ! -e /data/round");
    site.well(&["squash", "base"]);
    site.well(&["remove", "base@1", "base@2", "--wait"]);
    assert!(point.join("data/directory/inner").exists() && !point.join("data/round").exists());
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert_eq!(layers(&site), 2);
    // The last that uses the generation takes its layers along.
    site.well(&["umount", "base@1"]);
    assert_eq!(layers(&site), 1);
    let run = waiting(&site, &["--from", "base@3"], "");
    next(&site, "base", 4, &[]);
    site.well(&["squash", "base"]);
    site.well(&["commit", "base", "--keep", "0"]);
    assert_eq!(layers(&site), 2);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert_eq!(layers(&site), 1);
    site.well(&["fsck"]);
}

fn a_generation_does_not_change(place: &Place) {
    let site = with_generations(place, 2);
    let record = fs::read(site.store().join("trees/base.json")).unwrap();
    let point = place.path("point");
    fs::create_dir(&point).unwrap();
    let fixed = "base@1: it is a generation, and generations do not change";
    let restore = "restore base@1` makes it the newest generation";
    for words in [
        &["mount", "base@1", point.to_str().unwrap()][..],
        &["commit", "base@1"],
        &["discard", "base@1"],
        &["protect", "base@1"],
        &["unprotect", "base@1"],
        &["squash", "base@1"],
        &["rename", "base@1", "new"],
        &["log", "base@1"],
    ] {
        site.refused(125, words, &[fixed, restore]);
    }
    site.refused(125, &["run", "base@1", "true"], &[fixed, "run --from base@1 -- COMMAND`"]);
    let meanwhile = "it is at generation 2 by now, or another tree, and this began from 1";
    let from = ["run", "--from", "base@1", "--commit"];
    site.refused(125, &[&from[..], &["base", "true"]].concat(), &[meanwhile]);
    // A new tree must not hide a generation.
    let taken = "base@1: it is a generation of base";
    for words in [
        &["clone", "base", "base@1"][..],
        &["import", "base@1", place.path("source").to_str().unwrap()],
        &["commit", "base", "--as", "base@1"],
        &[&from[..], &["base@1", "true"]].concat(),
    ] {
        site.refused(125, words, &[taken]);
    }
    let newest = "cannot remove base@2: it is the newest generation of base";
    site.refused(125, &["remove", "base@2"], &[newest]);
    site.refused(125, &["remove", "-n", "base@2"], &[newest]);
    assert_eq!(fs::read(site.store().join("trees/base.json")).unwrap(), record);
    assert_eq!(fs::read_dir(site.store().join("sessions")).unwrap().count(), 0);
}

fn a_tree_comes_before_a_generation_of_its_name(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "base@2");
    site.sh("base@2", "echo tree >/data/round");
    site.well(&["commit", "base@2"]);
    next(&site, "base", 2, &["--keep", "1"]);
    assert_eq!(site.from("base@2", "cat /data/round"), "tree\n");
    site.refused(125, &["restore", "base@2"], &["it is a tree"]);
    site.well(&["rename", "base@2", "other"]);
    assert_eq!(site.from("base@2", "cat /data/round"), "2\n");
}

fn damage_in_an_older_generation_is_found(place: &Place) {
    let site = with_generations(place, 2);
    site.well(&["squash", "base"]);
    let record = fs::read(site.store().join("trees/base.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let layer = record["kept"][1]["layers"][1]["id"].as_str().unwrap();
    let content = site.store().join("layers").join(layer).join("tree");
    fs::write(content.join("data/round"), "damaged").unwrap();
    for words in [&["verify", "base"][..], &["verify", "base@2"]] {
        let ended = site.ends(words);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains(layer), "{ended:?}");
    }
    site.well(&["verify", "base@1"]);
    let faults = site.ends(&["fsck"]).stderr;
    assert!(faults.contains("1 fault in "), "{faults}");
    // The tree itself is whole.
    assert!(faults.contains(" remove NAME@N` only its generation N"), "{faults}");
    fs::remove_dir_all(content).unwrap();
    let ended = site.ends(&["fsck"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains(layer), "{ended:?}");
    // The damaged generation is removed, and the tree stays.
    site.well(&["remove", "base@2"]);
    site.well(&["fsck"]);
    assert_eq!(numbers(&site, "base"), [3, 1]);
}

/// An earlier version reads only records of format 1, and removes no layer as long as there is
/// another record.
fn an_earlier_version_refuses_a_tree_with_older_generations(place: &Place) {
    let site = with_base(place);
    let format = || {
        let record = fs::read(site.store().join("trees/base.json")).unwrap();
        serde_json::from_slice::<Value>(&record).unwrap()["format"].as_u64().unwrap()
    };
    next(&site, "base", 2, &[]);
    assert_eq!(format(), 1, "an earlier version loses nothing");
    next(&site, "base", 3, &["--keep", "1"]);
    assert_eq!(format(), 2);
    site.well(&["unprotect", "base"]);
    assert_eq!(format(), 2);
    // As this version does with the next format.
    let path = site.store().join("trees/base.json");
    let record = fs::read_to_string(&path).unwrap();
    fs::write(&path, record.replace("\"format\": 2", "\"format\": 3")).unwrap();
    let kept = layers(&site);
    let why = "format 3, and this version knows 1 to 2";
    site.refused(125, &["gc"], &[why]);
    site.refused(125, &["run", "--from", "base", "true"], &[why]);
    assert_eq!(layers(&site), kept);
    fs::write(&path, record).unwrap();
    site.well(&["commit", "base", "--keep", "0"]);
    assert_eq!(format(), 1);
}
