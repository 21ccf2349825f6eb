//! Snapshots of btrfs, of which a commit looks at no entry.

use crate::roots;
use crate::site::{Site, limit, on};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::{Place, binary, trial};
use synconce_testkit::process;
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    let needs = on(FsKind::Btrfs, &NEEDS);
    vec![
        trial(a_change_after_the_commit_is_found_in_a_run_too_and_the_hint_lists_it, &needs),
        trial(subvolumes_in_a_tree_are_in_its_clones, &needs),
    ]
}

/// Returns the bytes of `tree` alone, in `list`.
fn own(site: &Site<'_>, tree: &str) -> Option<u64> {
    let listed: Value = serde_json::from_str(&site.well(&["list", "--json"]).stdout).unwrap();
    listed.as_array().unwrap().iter().find(|one| one["name"] == tree).unwrap()["own"].as_u64()
}

/// Returns the content of the layer that is only in `tree`.
fn layer(site: &Site<'_>, tree: &str) -> PathBuf {
    let record = fs::read(site.store().join(format!("trees/{tree}.json"))).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    site.store().join("layers").join(record["layers"][0]["id"].as_str().unwrap()).join("tree")
}

fn a_change_after_the_commit_is_found_in_a_run_too_and_the_hint_lists_it(place: &Place) {
    let rig = Rig::builder().fs(FsKind::Btrfs).size(600 << 20).up().unwrap();
    let site = Site::new(place, rig.path(), Some("snapshot"));
    site.import("base", &roots::small(place, "source"));
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
    let hint = found.stderr.lines().find_map(|line| line.strip_prefix("synconce: hint: `"));
    let (find, _) = hint.and_then(|hint| hint.split_once('`')).expect("a hint");
    let listed = process::run(Command::new("sh").args(["-c", find]), limit()).unwrap();
    assert_eq!(listed.stdout.trim(), layer.join("data/directory/inner").display().to_string());
    rig.down().unwrap();
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
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(FsKind::Btrfs).size(600 << 20));
    let volumes =
        || place.sh(&format!("btrfs subvolume list {} | wc -l", rig.path().display())).stdout;
    site.import("base", &roots::small(place, "source"));
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
