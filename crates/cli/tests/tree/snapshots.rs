//! Snapshots of btrfs, of which a commit looks at no entry.

use crate::roots;
use crate::site::{Site, disk, limit, on};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Place, binary, eventually, trial};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{Cut, FsKind, Rig, RigBuilder, Survivors};

pub fn trials() -> Vec<Trial> {
    let needs = on(FsKind::Btrfs, &NEEDS);
    vec![
        trial(a_change_after_the_commit_is_found_in_a_run_too_and_the_hint_lists_it, &needs),
        trial(subvolumes_in_a_tree_are_in_its_clones, &needs),
        trial(in_a_sealed_run_only_what_needs_a_sync_is_refused, &needs),
        trial(each_layer_that_differs_has_its_reason_and_can_be_accepted, &needs),
        trial(what_was_accepted_stays_so_after_a_power_cut, &needs),
    ]
}

/// Makes a site with the tree `base`, whose clones are snapshots.
fn site(place: &Place) -> (Rig, Site<'_>) {
    site_on(place, Rig::builder().size(600 << 20))
}

fn site_on(place: &Place, builder: RigBuilder) -> (Rig, Site<'_>) {
    let rig = disk(place, builder.fs(FsKind::Btrfs));
    let site = Site::new(place, rig.path(), Some("snapshot"));
    site.import("base", &roots::small(place, "source"));
    (rig, site)
}

/// Returns the command in the hint that lists what has changed.
fn hint(found: &Finished) -> &str {
    let hint = found.stderr.lines().find_map(|line| line.strip_prefix("synconce: hint: `"));
    hint.and_then(|hint| hint.split_once('`')).expect("a hint").0
}

/// Returns the bytes of `tree` alone, in `list`.
fn own(site: &Site<'_>, tree: &str) -> Option<u64> {
    let listed: Value = serde_json::from_str(&site.well(&["list", "--json"]).stdout).unwrap();
    listed.as_array().unwrap().iter().find(|one| one["name"] == tree).unwrap()["own"].as_u64()
}

/// Returns the content of the newest layer of `tree`.
fn layer(site: &Site<'_>, tree: &str) -> PathBuf {
    let record = fs::read(site.store().join(format!("trees/{tree}.json"))).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    site.store().join("layers").join(record["layers"][0]["id"].as_str().unwrap()).join("tree")
}

fn a_change_after_the_commit_is_found_in_a_run_too_and_the_hint_lists_it(place: &Place) {
    let (rig, site) = site(place);
    let words = ["run", "--from", "base", "--commit"];
    let script = ["--", "/bin/sh", "-c", "echo x >/data/new"];
    for tree in ["changed", "kept"] {
        site.well(&[&words[..], &[tree], &script].concat());
        assert_eq!(own(&site, tree), None, "no entry was looked at");
    }
    site.well(&["verify", "kept"]);
    assert!(own(&site, "kept") > Some(0), "each entry was looked at");

    // What was appended is not written yet. A held sync in `verify` would leave it so, and btrfs
    // counts it as a change only once it is written.
    let layer = layer(&site, "changed");
    let ro = format!("btrfs property set -f {} ro", layer.display());
    let file = layer.join("data/directory/inner").display().to_string();
    let verify = format!("{} tree --store {} verify changed", binary(), site.store().display());
    let script = format!("{ro} false; echo more >>{file}; {ro} true; {verify}");
    let in_run = |options: &[&str]| {
        let mut run = place.command(binary());
        // The run holds the syncs of the disk that it begins on.
        run.current_dir(&site.dir).arg("run").args(options).args(["--", "sh", "-c", &script]);
        process::run(&mut run, limit()).unwrap()
    };
    let refused = in_run(&["--sealed"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let found = in_run(&[]);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    let found = site.ends(&["verify", "changed"]);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert_eq!(place.sh(hint(&found)).stdout.trim(), file);
    drop(site);
    rig.down().unwrap();
}

fn in_a_sealed_run_only_what_needs_a_sync_is_refused(place: &Place) {
    let (rig, site) = site(place);
    site.keep("base", "new", &["/bin/sh", "-c", "echo x >/data/new"]);
    let sealed = |words: &[&str]| {
        let mut run = place.command(binary());
        run.args(["run", "--sealed", "--", binary(), "tree", "--store"]).arg(site.store());
        process::run(run.args(words), limit()).unwrap()
    };
    let refused = |words: &[&str]| {
        let refused = sealed(words);
        assert_eq!(refused.status.code(), Some(125), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains("this run is sealed"), "{words:?}: {refused:?}");
    };
    let works = |words: &[&str]| {
        let works = sealed(words);
        assert!(works.status.success(), "{words:?}: {works:?}");
    };
    works(&["verify", "base"]);
    refused(&["verify", "new"]);
    refused(&["fsck"]);
    site.well(&["verify", "new"]);
    works(&["verify", "new"]);
    works(&["fsck"]);
    // It promises that the fingerprint is durable.
    refused(&["verify", "--accept", "new"]);
    drop(site);
    rig.down().unwrap();
}

fn each_layer_that_differs_has_its_reason_and_can_be_accepted(place: &Place) {
    let (rig, site) = site(place);
    let writable = |layer: &Path, value: &str| {
        place.sh(&format!("btrfs property set -f {} ro {value}", layer.display()));
    };
    let keep = |words: &[&str], tree: &str, script: &str| {
        let words = [&["run", "--from"], words, &["--commit", tree, "--", "/bin/sh", "-c", script]];
        site.well(&words.concat());
        layer(&site, tree)
    };
    let first = keep(&["base", "--keep", "1"], "tree", "echo x >/data/new");
    let second = keep(&["tree"], "tree", "echo y >/data/new");
    for layer in [&first, &second] {
        writable(layer, "false");
        fs::write(layer.join("data/new"), "changed").unwrap();
    }
    writable(&second, "true");
    let found = site.ends(&["verify", "tree"]);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    let (newer, older) = (second.display(), first.display());
    for said in [
        format!("{newer} has changed since it was frozen\n"),
        format!("{older} was made writable after it was frozen\n"),
        " lists the entries that changed after the layer was frozen; ".to_owned(),
    ] {
        assert!(found.stderr.contains(&said), "{said}: {found:?}");
    }
    let listed = place.sh(hint(&found)).stdout;
    assert_eq!(listed, format!("{newer}/data/new\n{older}/data/new\n"));

    let other = keep(&["base"], "other", "echo x >/data/new");
    place.sh(&format!(
        "btrfs subvolume delete {0} && btrfs subvolume snapshot -r {newer} {0}",
        other.display()
    ));
    let why = format!("{} is another subvolume or directory than was frozen\n", other.display());
    let found = site.ends(&["verify", "other"]);
    assert!(found.stderr.contains(&why), "{found:?}");
    let hint = found.stderr.split_once("hint: ").unwrap().1;
    assert!(hint.starts_with("after a copy of the store, `synconce tree --store "), "{found:?}");
    let found = site.ends(&["fsck"]);
    for why in ["it is another subvolume", "it was made writable", "it has changed since"] {
        assert!(found.stderr.contains(why), "{why}: {found:?}");
    }
    for (tree, accepted) in
        [("tree", "accepted 2 layers of tree"), ("other", "accepted 1 layer of")]
    {
        let found = site.well(&["verify", "--accept", tree]);
        assert!(found.stderr.contains(accepted), "{found:?}");
        site.well(&["verify", tree]);
    }
    site.well(&["fsck"]);
    assert!(fs::write(first.join("data/new"), "again").is_err(), "it is read-only again");
    drop(site);
    rig.down().unwrap();
}

fn what_was_accepted_stays_so_after_a_power_cut(place: &Place) {
    let (rig, site) = site_on(place, Rig::builder().size(320 << 20).record(true));
    site.keep("base", "new", &["/bin/sh", "-c", "echo x >/data/new"]);
    let layer = layer(&site, "new");
    place.sh(&format!("btrfs property set -f {} ro false", layer.display()));
    fs::write(layer.join("data/new"), "changed").unwrap();
    assert_eq!(site.ends(&["verify", "new"]).status.code(), Some(1));
    site.well(&["verify", "--accept", "new"]);
    rig.disk().mark("cut").unwrap();
    eventually("no process has the disk open", || rig.unmount().is_ok());
    rig.mount().unwrap();
    let tape = rig.finish().unwrap();
    let at = tape.log().unwrap().mark("cut").unwrap();
    for survivors in [Survivors::None, Survivors::All] {
        let replay = tape.replay().at(place.path("rig")).up().unwrap();
        let cut = replay.mounted(Cut::at(at).survivors(survivors)).unwrap();
        site.well(&["verify", "new"]);
        assert_eq!(fs::read_to_string(layer.join("data/new")).unwrap(), "changed");
        cut.unmount().unwrap();
        replay.down().unwrap();
    }
}

/// Makes subvolumes in the working directory, as systemd-tmpfiles, snapper and engines of containers do.
const MAKE: &str = "
    btrfs -q subvolume create volume; chmod 700 volume; chown 1000 volume; echo kept >volume/file
    mkdir volume/below; btrfs -q subvolume create volume/below/inner; echo deep >volume/below/inner/file
    btrfs -q subvolume snapshot -r volume/below/inner locked
    mkdir many
    for number in $(seq 300); do btrfs -q subvolume create many/$number; done
    touch -d @1000000000 .";

/// Of a subvolume in its source, btrfs's own snapshot has an empty directory.
fn subvolumes_in_a_tree_are_in_its_clones(place: &Place) {
    let (rig, site) = site(place);
    let volumes =
        || place.sh(&format!("btrfs subvolume list {} | wc -l", rig.path().display())).stdout;
    let before = volumes();
    site.clone_of("base", "work");
    let point = site.fresh("point");
    fs::create_dir(&point).unwrap();
    let point = point.display().to_string();
    site.well(&["mount", "work", &point]);
    place.sh(&format!("cd {point}/data; {MAKE}"));
    site.well(&["umount", &point]);
    site.well(&["commit", "work"]);

    let look =
        "cd /data; cat volume/file volume/below/inner/file locked/file; stat -c '%a %u' volume
                stat -c %Y .; ls many | wc -l; ! touch locked/new 2>/dev/null";
    let wanted = "kept\ndeep\ndeep\n700 1000\n1000000000\n300\n";
    let add = "echo more >>/data/volume/file; touch /data/volume/below/inner/new";
    assert_eq!(site.from("work", &format!("{look}; {add}")), wanted);
    site.keep("work", "next", &["/bin/sh", "-ec", add]);
    assert_eq!(site.from("work", look), wanted, "a clone changes nothing in its base");
    let seen = site.from("next", "cat /data/volume/file; ls /data/volume/below/inner");
    assert_eq!(seen, "kept\nmore\nfile\nnew\n");
    for tree in ["work", "next"] {
        site.well(&["verify", tree]);
        site.well(&["remove", "--wait", tree]);
    }
    assert_eq!(volumes(), before, "no subvolume is left");
    rig.down().unwrap();
}
