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
    vec![trial(
        a_change_after_the_commit_is_found_in_a_run_too_and_the_hint_lists_it,
        &on(FsKind::Btrfs, &NEEDS),
    )]
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
