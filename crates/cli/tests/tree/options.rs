//! The effects of options, and the notices for trees that cannot be as their source.

use crate::roots;
use crate::site::{Site, limit, same, times};
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, mount};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_testkit::harness::trial;
use synconce_testkit::harness::{Place, StartedCommand, eventually};
use synconce_testkit::process;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(what_is_mounted_in_a_source_is_taken_when_asked_for, &NEEDS),
        trial(a_source_that_changes_is_refused_unless_that_is_tolerated, &NEEDS),
        trial(a_store_in_an_imported_directory_is_left_out, &NEEDS),
        trial(a_device_that_an_overlay_takes_for_a_removal_is_named, &NEEDS),
        trial(a_device_that_a_run_by_copy_made_is_not_hidden_by_an_overlay, &NEEDS),
        trial(a_squash_keeps_how_clones_are_made_and_where_they_came_from, &NEEDS),
        trial(a_squash_of_one_layer_does_nothing_and_says_so, &NEEDS),
        trial(an_archive_whose_program_is_missing_names_the_package, &NEEDS),
        trial(a_source_that_does_not_exist_gets_the_command_that_works, &NEEDS),
        trial(a_run_that_cannot_begin_names_the_option_and_not_the_store, &NEEDS),
        trial(a_run_is_held_unless_that_is_not_wanted, &NEEDS),
        trial(a_place_that_cannot_be_bound_is_named_with_the_reason, &NEEDS),
        trial(the_statistics_of_a_run_have_the_commit_of_its_tree, &NEEDS),
        trial(a_directory_that_is_no_store_is_named_as_that, &NEEDS),
        trial(a_run_begins_in_the_directory_of_its_option, &NEEDS),
        trial(differences_can_have_any_name, &NEEDS),
    ]
}

fn what_is_mounted_in_a_source_is_taken_when_asked_for(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    let point = source.join("data/empty");
    mount("tmpfs", &point, "tmpfs", MountFlags::empty(), c"mode=0700").unwrap();
    fs::write(point.join("inside"), "mounted\n").unwrap();
    let source = source.to_str().unwrap();
    let without = site.well(&["import", "without", source]);
    let notice = "1 are mount points, left empty (--cross-mounts takes them in): data/empty";
    assert!(without.stderr.contains(notice), "{without:?}");
    assert_eq!(site.from("without", "ls /data/empty; stat -c %a /data/empty"), "700\n");
    let with = site.well(&["import", "--cross-mounts", "with", source]);
    assert!(!with.stderr.contains("mount point"), "{with:?}");
    assert_eq!(site.from("with", "cat /data/empty/inside"), "mounted\n");
}

fn a_source_that_changes_is_refused_unless_that_is_tolerated(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    // Large enough that the file grows while it is read.
    fs::write(source.join("data/growing"), vec![b'x'; 64 << 20]).unwrap();
    let mut grow = place.command("sh");
    grow.args(["-c", "until [ -e stop ]; do echo more; done >>source/data/growing"]);
    let grow = StartedCommand::new(&mut grow);
    let size = || fs::metadata(source.join("data/growing")).unwrap().size();
    eventually("the file grows", || size() > 64 << 20);
    let source = source.to_str().unwrap();
    let refused = ["data/growing", "--tolerate-changes"];
    site.refused(125, &["import", "new", source], &refused);
    site.refused(125, &["verify", "new"], &["new"]);
    let taken = site.well(&["import", "--tolerate-changes", "new", source]);
    place.write("stop", "");
    assert!(grow.end().success(), "{}", grow.text());
    assert!(taken.stderr.contains("1 changed while they were read: data/growing"), "{taken:?}");
    assert_eq!(site.from("new", "head -c 3 /data/growing"), "xxx");
}

/// As `synconce tree import host /` with the default store does.
fn a_store_in_an_imported_directory_is_left_out(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "chosen/source");
    fs::rename(site.store(), source.join("data/store")).unwrap();
    let (store, source) = (source.join("data/store"), source.to_str().unwrap());
    let ends = |words: &[&str]| {
        let mut command = place.synconce(&["tree", "--store"]);
        process::run(command.arg(&store).args(words), limit()).unwrap()
    };
    let imported = ends(&["import", "host", source]);
    let notice = "1 is the store itself, and is left out: data/store\n";
    assert!(imported.status.success() && imported.stderr.contains(notice), "{imported:?}");
    let seen = ends(&["run", "--from", "host", "sh", "-c", "ls /data/file /data/store"]);
    assert_eq!(seen.stdout, "/data/file\n", "{seen:?}");
    // The store is no tree.
    let refused = ends(&["import", "store", store.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
}

fn a_device_that_an_overlay_takes_for_a_removal_is_named(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    let device = FileType::CharacterDevice;
    for (name, number) in [("data/strange", makedev(0, 0)), ("data/null", makedev(1, 3))] {
        mknodat(CWD, source.join(name), device, Mode::RUSR, number).unwrap();
    }
    let directory = site.well(&["import", "directory", source.to_str().unwrap()]);
    assert!(directory.stderr.contains("1 are devices 0:0"), "{directory:?}");
    assert!(directory.stderr.contains("data/strange"), "{directory:?}");
    assert!(!directory.stderr.contains("data/null"), "{directory:?}");
    let packed = place.bare(&["tar", "-cf", "source.tar", "-C", "source", "."]);
    assert!(packed.status.success(), "{packed:?}");
    let tar = site.well(&["import", "tar", &place.text("source.tar")]);
    assert!(tar.stderr.contains("data/strange: a device 0:0"), "{tar:?}");
    assert!(!tar.stderr.contains("data/null"), "{tar:?}");
    // Their clones are made by another strategy, which keeps the device.
    for name in ["directory", "tar"] {
        site.clone_of(name, "work");
        assert_eq!(site.sh("work", "test -c /data/strange; touch /data/new"), "");
        site.well(&["commit", "work"]);
        site.well(&["squash", "work"]);
        assert_eq!(site.sh("work", "test -c /data/strange"), "");
        site.well(&["commit", "work"]);
        let differences = site.diff(name, "work");
        assert!(!differences.iter().any(|(kind, _)| *kind == 'D'), "{differences:?}");
        site.remove("work");
        let by_overlay: [&[&str]; 2] = [
            &["clone", "--strategy", "overlay", name, "other"],
            &["run", "--from", name, "--strategy", "overlay", "--", "true"],
        ];
        by_overlay.iter().for_each(|words| site.refused(125, words, &["0:0"]));
    }
    let asked = ["import", "--strategy", "overlay", "other", source.to_str().unwrap()];
    site.refused(125, &asked, &["0:0"]);
}

/// docs/trees.md: `--strategy copy` of one run, as overlays refuse to make such a device.
fn a_device_that_a_run_by_copy_made_is_not_hidden_by_an_overlay(place: &Place) {
    let site = with_base(place);
    let make = ["--strategy", "copy", "--", "mknod", "/data/strange", "c", "0", "0"];
    let by_copy = |words: &[&str]| drop(site.well(&[words, &make].concat()));
    let see = "test -c /data/strange; echo >>/data/new";
    site.clone_of("base", "work");
    by_copy(&["run", "work"]);
    site.sh("work", see);
    site.well(&["commit", "work"]);
    site.sh("work", see);
    by_copy(&["run", "--from", "base", "--commit", "made"]);
    site.from("made", see);
    site.clone_of("made", "clone");
    site.sh("clone", see);
    // A clone of `base` is an overlay, as before.
    site.well(&["run", "--from", "base", "--strategy", "overlay", "--", "true"]);
}

fn a_squash_keeps_how_clones_are_made_and_where_they_came_from(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    let seen = |name: &str| {
        let listed: Value = serde_json::from_str(&site.well(&["list", "--json"]).stdout).unwrap();
        let tree = listed.as_array().unwrap().iter().find(|tree| tree["name"] == name).cloned();
        let tree = tree.unwrap();
        [tree["strategy"].clone(), tree["parent"].clone()].map(|it| it.as_str().unwrap().to_owned())
    };
    for strategy in ["copy", "overlay"] {
        let base = format!("base-{strategy}");
        site.well(&["import", "--strategy", strategy, &base, source.to_str().unwrap()]);
        site.well(&["clone", &base, strategy]);
        let wanted = [strategy.to_owned(), base.clone()];
        site.sh(strategy, "touch /data/new");
        site.well(&["commit", strategy]);
        site.well(&["squash", strategy]);
        assert_eq!(seen(strategy), wanted);
        // A new generation of the tree keeps the parent.
        site.well(&["run", "--from", strategy, "--commit", strategy, "--", "/bin/rm", "/data/new"]);
        assert_eq!(seen(strategy), wanted);
    }
}

fn a_squash_of_one_layer_does_nothing_and_says_so(place: &Place) {
    let site = with_base(place);
    let record = || fs::read(site.store().join("trees/base.json")).unwrap();
    let before = (record(), times(&site.store().join("layers")));
    let said = "synconce: nothing to squash: base has one layer\n";
    assert_eq!(site.well(&["squash", "base"]).stderr, said);
    assert_eq!(site.well(&["squash", "base", "--quiet"]).stderr, "");
    let json = site.well(&["squash", "base", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_json::json!({ "name": "base", "generation": 1 }));
    assert_eq!(record(), before.0);
    same("the layers", &before.1, &times(&site.store().join("layers")));
    site.clone_of("base", "work");
    site.sh("work", "touch /data/new");
    site.refused(125, &["squash", "work"], &["changes that are not committed"]);
    site.well(&["commit", "work"]);
    assert_eq!(site.well(&["squash", "work"]).stderr, "");
    assert_eq!(site.well(&["squash", "work"]).stderr, said.replace("base", "work"));
}

fn an_archive_whose_program_is_missing_names_the_package(place: &Place) {
    let site = with_base(place);
    let tar = place.path("root.tar.lz4");
    fs::write(&tar, b"\x04\x22\x4d\x18 and no more").unwrap();
    let mut import = site.tree(&["import", "new", tar.to_str().unwrap()]);
    let done = process::run(import.env("PATH", place.path("empty")), limit()).unwrap();
    assert_eq!(done.status.code(), Some(125), "{done:?}");
    let why = "root.tar.lz4: lz4 is not installed; it is in the package lz4";
    assert!(done.stderr.contains(why), "{done:?}");
    assert!(!site.well(&["list"]).stdout.contains("new"));
}

fn a_source_that_does_not_exist_gets_the_command_that_works(place: &Place) {
    let site = with_base(place);
    let url = "https://example.org/root.tar";
    let tree = format!("synconce tree --store {}", site.store().display());
    let hint = format!("hint: curl --location {url} | {tree} import new -\n");
    site.refused(125, &["import", "new", url], &["cannot open https://example.org", &hint]);
    let mut import = site.tree(&["import", "source", "new"]);
    let done = process::run(import.current_dir(place.path("")), limit()).unwrap();
    assert_eq!(done.status.code(), Some(125), "{done:?}");
    let hint = format!(
        "synconce: cannot open new: No such file or directory\n\
         synconce: hint: the name of the tree comes first: {tree} import new source\n"
    );
    assert_eq!(done.stderr, hint);
    let path = place.text("source");
    let swapped = site.ends(&["import", &path, "new"]);
    assert_eq!(swapped.status.code(), Some(125), "{swapped:?}");
    assert!(swapped.stderr.contains("is no name of a tree"), "{swapped:?}");
    let said = format!(
        "hint: the name of the tree comes first: synconce tree --store {} import new {path}\n",
        site.store().display()
    );
    assert!(swapped.stderr.ends_with(&said), "{swapped:?}");
    let both = site.ends(&["import", "/none", "/none"]);
    assert!(!both.stderr.contains("hint"), "{both:?}");
    let plain = site.ends(&["import", "new", "/none"]);
    assert!(!plain.stderr.contains("hint"), "{plain:?}");
}

fn a_run_that_cannot_begin_names_the_option_and_not_the_store(place: &Place) {
    let site = with_base(place);
    let from = ["run", "--from", "base"];
    for (words, code, said) in [
        (
            &["--user", "build", "id"][..],
            125,
            "cannot use --user build: the tree has no user build\n",
        ),
        (
            &["--user", "root:build", "id"],
            125,
            "cannot use --user root:build: the tree has no group build\n",
        ),
        (
            &["--directory", "/build", "id"],
            125,
            "cannot change to the directory of the tree /build: No such file or directory\n",
        ),
        (
            &["echo a b"],
            127,
            "cannot execute echo a b: No such file or directory\n\
             synconce: hint: leave the quotes out: echo a b\n",
        ),
        (
            &["cd / && id"],
            127,
            "cannot execute cd / && id: No such file or directory\n\
             synconce: hint: a shell does it: sh -c 'cd / && id'\n",
        ),
        (&[""], 127, "cannot execute '': No such file or directory\n"),
        (&["none"], 127, "cannot execute none: No such file or directory\n"),
        (&["no command", "x"], 127, "cannot execute no command: No such file or directory\n"),
    ] {
        let ended = site.ends(&[&from, words].concat());
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert_eq!(ended.stderr, format!("synconce: {said}"));
    }
}

fn a_run_is_held_unless_that_is_not_wanted(place: &Place) {
    let site = with_base(place);
    let script = "grep ^Seccomp: /proc/self/status; echo ${SYNCONCE_RUN:+held}";
    let run = ["run", "--from", "base", "--", "/bin/sh", "-c", script];
    let held = site.well(&run).stdout;
    assert_eq!(held, "Seccomp:\t2\nheld\n");
    let bare = site.well(&[&["run", "--no-hold"], &run[1..]].concat()).stdout;
    assert_eq!(bare, "Seccomp:\t0\n\n");
}

fn a_run_begins_in_the_directory_of_its_option(place: &Place) {
    let site = with_base(place);
    let run = |at: &[&str]| {
        let run = [&["run", "--from", "base"], at, &["--", "/bin/pwd"]].concat();
        site.ends(&run)
    };
    assert_eq!(run(&[]).stdout, "/\n");
    assert_eq!(run(&["--directory", "/data/far"]).stdout, "/data/far\n");
    let missing = run(&["--directory", "/data/nowhere"]);
    assert_eq!((missing.status.code(), &missing.stdout[..]), (Some(125), ""), "{missing:?}");
    assert!(missing.stderr.contains("/data/nowhere"), "{missing:?}");
}

fn differences_can_have_any_name(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    site.sh("clone", "touch \"/data/two\nlines\" /data/one; rm /data/file; chmod 700 /");
    site.well(&["commit", "clone"]);
    let listed = site.ends(&["diff", "--null", "base", "clone"]);
    assert_eq!(listed.status.code(), Some(1), "{listed:?}");
    let mut lines: Vec<_> = listed.stdout.split_terminator('\0').collect();
    assert_eq!(lines[0], "C .");
    lines.retain(|line| !line.starts_with('C'));
    assert_eq!(lines, ["D data/file", "A data/one", "A data/two\nlines"]);
}

fn a_place_that_cannot_be_bound_is_named_with_the_reason(place: &Place) {
    let site = Site::plain(place);
    site.import("base", &roots::small(place, "source"));
    place.write("file", "");
    let (file, directory) = (place.text("file"), place.text(""));
    for (from, to, why) in [
        (&directory, "/data/file", "cannot mount, in the tree, on /data/file: not a directory"),
        (&file, "/data", "cannot mount, in the tree, on /data: is a directory"),
        (&"/none".to_owned(), "/data", ": cannot find /none: no such file or directory"),
        (&directory, "/..", "nothing can be shown at the root itself"),
        (&directory, "/./../", "nothing can be shown at the root itself"),
    ] {
        let bind = format!("{from}:{to}");
        site.refused(125, &["run", "--from", "base", "--bind", &bind, "/bin/true"], &[why]);
    }
}

fn the_statistics_of_a_run_have_the_commit_of_its_tree(place: &Place) {
    let site = Site::plain(place);
    site.import("base", &roots::small(place, "source"));
    let run = ["run", "--from", "base", "--stats", "--commit", "new", "/bin/sh", "-c"];
    let made = site.well(&[&run[..], &["echo x >/data/x"]].concat());
    let line = made.stderr.lines().find(|line| line.starts_with("commit "));
    assert!(line.is_some_and(|line| line.starts_with("commit of the tree new ")), "{made:?}");
    let again = ["run", "--from", "new", "--stats", "--commit", "new", "/bin/sh", "-c", "exit 1"];
    let failed = site.ends(&again);
    assert!(failed.stderr.contains("commit none: the command failed\n"), "{failed:?}");
    let open = site.well(&["run", "--stats", "new", "/bin/true"]);
    assert!(
        open.stderr.contains("commit none: it was not asked for; no sync was held\n"),
        "{open:?}"
    );
}

fn a_directory_that_is_no_store_is_named_as_that(place: &Place) {
    for name in ["full", "empty"] {
        fs::create_dir(place.path(name)).unwrap();
    }
    place.write("full/file", "");
    let source = roots::small(place, "source");
    let ends = |name: &str, words: &[&str]| {
        let mut command = place.synconce(&["tree"]);
        process::run(command.env("SYNCONCE_TREES", place.path(name)).args(words), limit()).unwrap()
    };
    for name in ["full", "empty"] {
        let listed = ends(name, &["list"]);
        assert_eq!(listed.status.code(), Some(125), "{listed:?}");
        let why = format!("cannot open the store {}: it is no store\n", place.text(name));
        assert!(listed.stderr.contains(&why), "{listed:?}");
        let free = if name == "empty" { place.text(name) } else { place.text("full/trees") };
        let hint = format!("hint: `synconce tree init {free}` makes a store\n");
        assert!(listed.stderr.ends_with(&hint), "{listed:?}");
    }
    let source = source.to_str().unwrap();
    assert_eq!(ends("full", &["import", "base", source]).status.code(), Some(125));
    assert!(ends("empty", &["import", "base", source]).status.success());
}
