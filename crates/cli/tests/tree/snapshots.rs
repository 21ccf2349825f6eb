//! Trees on btrfs: a commit takes a snapshot, and looks at no entry.

use crate::roots;
use crate::site::{CUT, Site, disk, limit, on};
use crate::users;
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use synconce_testkit::harness::{Need, Place, binary, eventually, trial};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{FsKind, Rig, RigBuilder};

pub fn trials() -> Vec<Trial> {
    let needs = on(FsKind::Btrfs, &NEEDS);
    let traced = on(FsKind::Btrfs, &[NEEDS[0], Need::Program("strace", "strace")]);
    vec![
        trial(a_change_after_the_commit_is_found_in_a_run_too_and_the_hint_lists_it, &needs),
        trial(subvolumes_in_a_tree_are_in_its_clones, &needs),
        trial(a_run_that_is_killed_while_it_copies_subvolumes_leaves_nothing, &traced),
        trial(subvolumes_of_an_ordinary_user_are_in_clones, &on(FsKind::Btrfs, &users::NEEDS)),
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

/// Returns the number of bytes that only `tree` has, as `list` says; `None` if it is unknown.
fn own(site: &Site<'_>, tree: &str) -> Option<u64> {
    let listed: Value = serde_json::from_str(&site.well(&["list", "--json"]).stdout).unwrap();
    listed.as_array().unwrap().iter().find(|one| one["name"] == tree).unwrap()["own"].as_u64()
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

    // The kernel has not written the appended bytes to the disk yet, and btrfs counts only written
    // bytes as a change. So `verify` needs a real sync.
    let layer = site.newest_layer("changed");
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
    // `--accept` promises that the fingerprint is durable.
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
        site.newest_layer(tree)
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
    let layer = site.newest_layer("new");
    place.sh(&format!("btrfs property set -f {} ro false", layer.display()));
    fs::write(layer.join("data/new"), "changed").unwrap();
    assert_eq!(site.ends(&["verify", "new"]).status.code(), Some(1));
    site.well(&["verify", "--accept", "new"]);
    rig.disk().mark(CUT).unwrap();
    site.after_the_cut(rig, || {
        site.well(&["verify", "new"]);
        assert_eq!(fs::read_to_string(layer.join("data/new")).unwrap(), "changed");
    });
}

/// Makes subvolumes in the working directory, as systemd-tmpfiles, snapper and engines of
/// containers do.
const MAKE: &str = "
    btrfs -q subvolume create volume; chmod 700 volume; chown 1000 volume; echo kept >volume/file
    mkdir volume/below; btrfs -q subvolume create volume/below/inner; echo deep >volume/below/inner/file
    btrfs -q subvolume snapshot -r volume/below/inner locked
    mkdir many
    for number in $(seq 300); do btrfs -q subvolume create many/$number; done
    touch -d @1000000000 .";

/// Returns how many subvolumes the disk of `rig` has.
fn volumes(place: &Place, rig: &Rig) -> String {
    place.sh(&format!("btrfs subvolume list {} | wc -l", rig.path().display())).stdout
}

/// Makes the tree `work`, a clone of `base` in which `script` was done in the directory `data`.
fn make_work(site: &Site<'_>, script: &str) {
    site.clone_of("base", "work");
    let point = site.fresh("point");
    fs::create_dir(&point).unwrap();
    let point = point.display().to_string();
    site.well(&["mount", "work", &point]);
    site.place.sh(&format!("cd {point}/data; {script}"));
    site.well(&["umount", &point]);
    site.well(&["commit", "work"]);
}

/// btrfs's own snapshot has an empty directory in the place of each subvolume of its source.
fn subvolumes_in_a_tree_are_in_its_clones(place: &Place) {
    let (rig, site) = site(place);
    let before = volumes(place, &rig);
    make_work(&site, MAKE);

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
    assert_eq!(volumes(place, &rig), before, "no subvolume is left");
    rig.down().unwrap();
}

/// The directory of a subvolume in a subvolume is removed before a snapshot takes its place.
fn a_run_that_is_killed_while_it_copies_subvolumes_leaves_nothing(place: &Place) {
    let (rig, site) = site(place);
    make_work(&site, "btrfs -q subvolume create volume; echo kept >volume/file");
    let before = volumes(place, &rig);
    let sessions = || fs::read_dir(site.store().join("sessions")).unwrap();
    let (mut kills, mut is_removed) = (0, false);
    loop {
        let run = site.tree(&["run", "--from", "work", "--", "/bin/true"]);
        let mut traced = place.command("strace");
        let inject = format!("inject=ioctl:signal=KILL:when={}", kills + 1);
        traced.args(["-qq", "-o", "trace", "-e", "trace=ioctl", "-e", &inject]);
        traced.arg(run.get_program()).args(run.get_args());
        if process::run(&mut traced, limit()).unwrap().status.success() {
            break;
        }
        kills += 1;
        let mut copies = sessions().map(|session| session.unwrap().path().join("tree/data"));
        is_removed |= copies.any(|copy| copy.exists() && !copy.join("volume").exists());
        eventually("the killed run is thrown away", || {
            site.well(&["gc", "--wait"]);
            sessions().next().is_none()
        });
        assert_eq!(volumes(place, &rig), before, "kill {kills}");
    }
    assert!(is_removed, "none of {kills} kills was between the removal and the snapshot");
    assert_eq!(site.from("work", "cat /data/volume/file"), "kept\n");
    site.well(&["verify", "work"]);
    drop(site);
    rig.down().unwrap();
}

/// The host's btrfs(8) makes the subvolume in the run.
fn subvolumes_of_an_ordinary_user_are_in_clones(place: &Place) {
    let rig = disk(place, Rig::builder().fs(FsKind::Btrfs).size(600 << 20));
    let home = rig.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(users::NOBODY), Some(users::NOBODY)).unwrap();
    let source = roots::small(place, "source");
    roots::link_to_usr(&source);
    place.sh("tar --numeric-owner -cf source.tar -C source .");
    users::subordinate(place, "nobody:100000:65536\n");
    let store = home.join("store").display().to_string();
    let well = |words: &[&str]| users::well(place, &[&["--store", &store], words].concat());
    let script = |words: &[&str], script: &str| {
        let end = ["--bind", "/usr:/usr:ro", "--", "/bin/sh", "-ec", script];
        well(&[&["run"], words, &end].concat())
    };
    let before = volumes(place, &rig);
    well(&["init"]);
    well(&["import", "base", &place.text("source.tar")]);
    well(&["clone", "base", "work"]);
    let make = "cd /data; /usr/bin/btrfs -q subvolume create volume; echo kept >volume/file";
    script(&["work"], make);
    well(&["commit", "work"]);
    let more = "cd /data/volume; cat file; echo more >>file";
    assert_eq!(script(&["--from", "work", "--commit", "next"], more), "kept\n");
    assert_eq!(script(&["--from", "next"], "cat /data/volume/file"), "kept\nmore\n");
    assert_eq!(script(&["--from", "work"], "cat /data/volume/file"), "kept\n");
    for tree in ["next", "work", "base"] {
        well(&["verify", tree]);
        well(&["remove", "--wait", tree]);
    }
    assert_eq!(volumes(place, &rig), before, "no subvolume is left");
    rig.down().unwrap();
}
