//! The verbs themselves: errors first, then what each verb leaves.

use crate::roots;
use crate::site::{Site, limit, same, times};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use synconce_testkit::harness::{Need, trial};
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually};
use synconce_testkit::process;

pub const NEEDS: [Need; 1] = [Need::File("/bin/busybox", "busybox-static")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_missing_tree_is_reported_by_its_name, &NEEDS),
        trial(bad_names_are_refused_and_nothing_is_made, &NEEDS),
        trial(a_directory_without_a_store_is_an_error, &NEEDS),
        trial(what_is_no_source_leaves_no_tree, &NEEDS),
        trial(a_name_that_is_taken_stays_what_it_is, &NEEDS),
        trial(a_clone_of_a_clone_is_a_tree_of_its_own, &NEEDS),
        trial(clones_go_on_without_their_base, &NEEDS),
        trial(lists_show_every_tree_with_its_state, &NEEDS),
        trial(a_base_is_replaced_while_its_clones_keep_theirs, &NEEDS),
        trial(a_mounted_tree_is_written_to_and_kept_or_not, &NEEDS),
        trial(damage_is_found_and_named, &NEEDS),
    ]
}

/// Makes a store with the tree `base`.
pub fn with_base(place: &Place) -> Site<'_> {
    let site = Site::plain(place);
    site.import("base", &roots::small(place, "source"));
    site
}

/// Returns the names in `tree list --json`.
pub fn names(site: &Site<'_>) -> BTreeSet<String> {
    let listed = site.well(&["list", "--json"]);
    let value: Value = serde_json::from_str(&listed.stdout).unwrap();
    let trees = value.as_array().or_else(|| value["trees"].as_array());
    let trees = trees.unwrap_or_else(|| panic!("{listed:?}"));
    trees.iter().map(|tree| tree["name"].as_str().unwrap().to_owned()).collect()
}

pub fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn a_missing_tree_is_reported_by_its_name(place: &Place) {
    let site = with_base(place);
    let to = site.fresh("to");
    fs::create_dir(&to).unwrap();
    let to = to.to_str().unwrap();
    let new = site.fresh("new");
    let words: [&[&str]; 15] = [
        &["clone", "missing", "clone"],
        &["run", "missing", "--", "true"],
        &["run", "--from", "missing", "--", "true"],
        &["run", "--from", "missing", "--commit", "new", "--", "true"],
        &["mount", "missing", to],
        &["umount", "missing"],
        &["commit", "missing"],
        &["diff", "missing"],
        &["diff", "missing", "base"],
        &["diff", "base", "missing"],
        &["export", "missing"],
        &["export", "missing", new.to_str().unwrap()],
        &["squash", "missing"],
        &["remove", "missing"],
        &["verify", "missing"],
    ];
    for words in words {
        site.refused(125, words, &["missing"]);
    }
    assert!(!new.exists());
    assert_eq!(names(&site), set(&["base"]));
    site.well(&["fsck"]);
}

fn bad_names_are_refused_and_nothing_is_made(place: &Place) {
    let site = with_base(place);
    let source = place.text("source");
    let before = times(&site.dir.join("store"));
    let long = "n".repeat(300);
    for bad in ["../x", "", "a/b", "/", ".", "..", "/tmp/x", "two\nlines", &long, ".hidden/../x"] {
        for words in [
            &["import", bad, &source][..],
            &["clone", "base", bad],
            &["run", "--from", "base", "--commit", bad, "--", "/bin/true"],
        ] {
            let finished = site.ends(words);
            assert_eq!(finished.status.code(), Some(125), "{words:?}: {finished:?}");
            // The parser of arguments prints the error, or the store.
            let is_told =
                ["synconce: ", "error: "].iter().any(|it| finished.stderr.starts_with(it));
            assert!(is_told, "{words:?}: {finished:?}");
        }
        for words in [&["remove", bad][..], &["verify", bad], &["commit", bad]] {
            let finished = site.ends(words);
            assert_eq!(finished.status.code(), Some(125), "{words:?}: {finished:?}");
        }
    }
    assert_eq!(names(&site), set(&["base"]));
    assert!(!place.path("x").exists() && !site.dir.join("x").exists());
    // Only times of lock files and directories may differ.
    let after = times(&site.dir.join("store"));
    assert!(after.entries.keys().eq(before.entries.keys()), "{:?}", after.entries.keys());
}

fn a_directory_without_a_store_is_an_error(place: &Place) {
    fs::create_dir(place.path("empty")).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    place.write("other/file", "other\n");
    place.write("file", "no directory\n");
    let ends =
        |words: &[&str]| process::run(place.synconce(&["tree"]).args(words), limit()).unwrap();
    for name in ["empty", "other", "file", "nowhere"] {
        let path = place.text(name);
        for verb in [&["list"][..], &["clone", "a", "b"], &["gc"], &["fsck"], &["remove", "a"]] {
            let finished = ends(&[&["--store", &path][..], verb].concat());
            // For `fsck` the error may count as a fault.
            let code = finished.status.code();
            assert!(code == Some(125) || verb == ["fsck"] && code == Some(1), "{finished:?}");
            assert!(finished.stderr.contains(&path), "{verb:?}: {finished:?}");
            let hint = match name {
                "other" => Some(format!("hint: `synconce tree init {path}/trees` makes a store\n")),
                "empty" => Some(format!("hint: `synconce tree init {path}` makes a store\n")),
                _ => None,
            };
            assert!(hint.is_none_or(|hint| finished.stderr.ends_with(&hint)), "{finished:?}");
        }
    }
    // A directory with other files is not made a store, and the files are unchanged.
    assert_eq!(ends(&["init", &place.text("other")]).status.code(), Some(125));
    assert_eq!(ends(&["init", &place.text("file")]).status.code(), Some(125));
    assert_eq!(place.read("other/file"), "other\n");
    assert_eq!(fs::read_dir(place.path("other")).unwrap().count(), 1);
    // A second `init` changes nothing.
    for _ in 0..2 {
        let made = ends(&["init", &place.text("empty")]);
        assert!(made.status.success(), "{made:?}");
    }
    // The store can be named by the variable, too.
    let mut listing = place.synconce(&["tree", "list", "--json"]);
    let listed = process::run(listing.env("SYNCONCE_TREES", place.path("empty")), limit()).unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

fn what_is_no_source_leaves_no_tree(place: &Place) {
    let site = Site::plain(place);
    let text = place.write("text", &"this is no tar\n".repeat(1000));
    let cut = place.path("cut.tar");
    roots::small(place, "source");
    let tar = place.bare(&["tar", "-cf", cut.to_str().unwrap(), "-C", "source", "."]);
    assert!(tar.status.success(), "{tar:?}");
    fs::File::options().write(true).open(&cut).unwrap().set_len(300_000).unwrap();
    let compressed = place.bare(&["sh", "-c", "gzip -c cut.tar | head -c 20000 >cut.tar.gz"]);
    assert!(compressed.status.success(), "{compressed:?}");
    let bad = place.path("cut.tar.gz");
    place.write("nothing", "");
    let nothing = place.path("nothing");
    let nowhere = place.path("nowhere");
    for source in [&text, &cut, &bad, &nothing, &nowhere, &"/dev/null".into()] {
        let source = source.to_str().unwrap();
        site.refused(125, &["import", "new", source], &[source]);
        assert_eq!(names(&site), set(&[]), "{source}");
    }
    // Standard input is empty.
    site.refused(125, &["import", "new", "-"], &[]);
    assert_eq!(names(&site), set(&[]));
    site.well(&["fsck"]);
    site.well(&["gc", "--wait"]);
    let left = fs::read_dir(site.store().join("layers")).unwrap().count();
    assert_eq!(left, 0, "layers of imports that failed");
    // From standard input, with every compression.
    for (name, program) in [("plain", "cat"), ("gz", "gzip"), ("xz", "xz"), ("zst", "zstd -q")] {
        let script =
            format!("tar -c -C source . | {program} | \"$0\" tree --store \"$1\" import {name} -");
        let mut import = place.command("bash");
        import.args(["-ec", &format!("set -o pipefail; {script}"), binary()]).arg(site.store());
        let imported = process::run(&mut import, limit()).unwrap();
        assert!(imported.status.success(), "{imported:?}");
    }
    let wanted = site.content("plain");
    for name in ["gz", "xz", "zst"] {
        same(name, &wanted, &site.content(name));
    }
}

fn a_name_that_is_taken_stays_what_it_is(place: &Place) {
    let site = with_base(place);
    let wanted = site.content("base");
    site.clone_of("base", "clone");
    site.sh("clone", "echo mine >/data/mine");
    let (mine, layers) = (site.content("clone"), site.layers());
    site.refused(125, &["import", "clone", &place.text("source")], &["clone"]);
    site.refused(125, &["clone", "base", "clone"], &["clone"]);
    site.refused(125, &["clone", "base", "base"], &["base"]);
    site.refused(125, &["commit", "clone", "--as", "base"], &["base"]);
    same("the clone", &mine, &site.content("clone"));
    same("the base", &wanted, &site.content("base"));
    site.assert_unchanged("what was refused", "base", &layers);
    // After the removal of a tree its name is free, and a new tree of that name is another
    // tree.
    site.remove("clone");
    site.refused(125, &["remove", "clone"], &["clone"]);
    site.clone_of("base", "clone");
    same("the new clone", &wanted, &site.content("clone"));
    // A generated name is printed, and differs each time.
    let made: Vec<_> =
        (0..2).map(|_| site.well(&["clone", "base"]).stdout.trim_end().to_owned()).collect();
    assert_ne!(made[0], made[1]);
    assert_eq!(names(&site), set(&["base", "clone", &made[0], &made[1]]));
}

fn a_clone_of_a_clone_is_a_tree_of_its_own(place: &Place) {
    let site = with_base(place);
    let mut before = "base".to_owned();
    let mut contents = vec![site.content("base")];
    for generation in 1..=12 {
        let name = format!("generation-{generation}");
        site.clone_of(&before, &name);
        let script = format!(
            "echo {generation} >>/data/log; rm -f /data/file; \
                              mkdir /data/{generation}; echo {generation} >/data/file"
        );
        site.sh(&name, &script);
        site.refused(125, &["clone", &name, "other"], &[&name, "not committed"]);
        site.well(&["commit", &name]);
        contents.push(site.content(&name));
        before = name;
    }
    let log: String = (1..=12).map(|generation| format!("{generation}\n")).collect();
    assert_eq!(site.sh("generation-12", "cat /data/log"), log);
    same("the base", &contents[0], &site.content("base"));
    for (generation, wanted) in contents.iter().enumerate().skip(1) {
        let name = format!("generation-{generation}");
        same(&name, wanted, &site.content(&name));
        let verified = site.ends(&["verify", &name]);
        assert!(verified.status.success(), "{verified:?}");
    }
    site.well(&["squash", "generation-12"]);
    same("squashed", &contents[12], &site.content("generation-12"));
    same("what it stood on", &contents[11], &site.content("generation-11"));
}

fn clones_go_on_without_their_base(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "one");
    site.sh("one", "echo one >/data/one");
    site.well(&["commit", "one"]);
    site.clone_of("one", "two");
    let (one, two) = (site.content("one"), site.content("two"));
    site.well(&["remove", "base", "--wait"]);
    site.well(&["gc", "--wait"]);
    same("a clone without its base", &one, &site.content("one"));
    assert_eq!(site.sh("one", "cat /data/one; cat /data/other | head -n 1"), "one\nanother\n");
    site.well(&["remove", "one", "--wait"]);
    site.well(&["gc", "--wait"]);
    same("a clone of a clone", &two, &site.content("two"));
    site.well(&["fsck"]);
    site.well(&["remove", "two", "--wait"]);
    site.well(&["gc", "--wait"]);
    for directory in ["layers", "sessions", "trash"] {
        let left = fs::read_dir(site.store().join(directory)).unwrap().count();
        assert_eq!(left, 0, "{directory} is empty when there are no trees");
    }
    let import = format!("synconce tree --store {} import NAME SOURCE", site.store().display());
    let listed = site.well(&["list"]);
    assert!(listed.stderr.ends_with(&format!("hint: `{import}` makes one\n")), "{listed:?}");
}

/// Starts a run with `words` that waits for `talk/go` and then does `script`; returns once the
/// run has begun.
pub fn waiting(site: &Site<'_>, words: &[&str], script: &str) -> StartedCommand {
    let place = site.place;
    fs::create_dir_all(place.path("talk")).unwrap();
    for file in ["talk/ready", "talk/go"] {
        let _ = fs::remove_file(place.path(file));
    }
    let bind = format!("{}:/mnt", place.text("talk"));
    let script =
        format!("echo yes >/mnt/ready; until [ -e /mnt/go ]; do sleep 0.02; done; {script}");
    let own = ["--bind", &bind, "--", "/bin/sh", "-c", &script];
    let started = StartedCommand::new(&mut site.tree(&[&["run"], words, &own].concat()));
    eventually("the command in the tree has begun", || {
        assert!(started.wait(std::time::Duration::ZERO).unwrap().is_none(), "{}", started.text());
        place.read("talk/ready") == "yes\n"
    });
    started
}

fn lists_show_every_tree_with_its_state(place: &Place) {
    let site = Site::plain(place);
    let empty = site.well(&["list"]);
    assert!(empty.stdout.lines().count() <= 1, "{empty:?}");
    assert_eq!(names(&site), set(&[]));
    site.import("base", &roots::small(place, "source"));
    site.clone_of("base", "clone");
    site.sh("clone", "dd if=/dev/zero of=/data/large bs=1048576 count=3 2>/dev/null");
    let listed = site.well(&["list"]);
    for name in ["base", "clone"] {
        let lines = listed.stdout.lines().filter(|line| line.split_whitespace().any(|w| w == name));
        assert!(lines.count() >= 1, "{listed:?}");
    }
    assert_eq!(listed.stderr, "");
    assert_eq!(names(&site), set(&["base", "clone"]));
    let run = waiting(&site, &["clone"], "");
    assert_eq!(names(&site), set(&["base", "clone"]));
    place.write("talk/go", "");
    assert!(run.end().success());
}

fn a_base_is_replaced_while_its_clones_keep_theirs(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let run = waiting(&site, &["clone"], "cat /data/file | wc -c; ls /data");
    let old = site.content("base");
    site.keep("base", "base", &["/bin/sh", "-c", "echo new >/data/new; rm /data/file"]);
    let new = site.content("base");
    assert!(new.entries.contains_key("data/new") && !new.entries.contains_key("data/file"));
    site.well(&["gc", "--wait"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert!(run.text().starts_with("65536\n") && !run.text().contains("new"), "{}", run.text());
    same("the clone of the old one", &old, &site.content("clone"));
    site.well(&["fsck"]);
}

fn a_mounted_tree_is_written_to_and_kept_or_not(place: &Place) {
    let site = with_base(place);
    let before = site.layers();
    let point = place.path("point");
    fs::create_dir(&point).unwrap();
    let at = point.to_str().unwrap();
    site.clone_of("base", "clone");
    site.well(&["mount", "clone", at]);
    fs::write(point.join("data/new"), "by mount\n").unwrap();
    fs::remove_file(point.join("data/file")).unwrap();
    site.refused(125, &["run", "clone", "--", "/bin/true"], &["clone"]);
    site.refused(125, &["remove", "clone"], &["clone"]);
    site.well(&["umount", at]);
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
    let changes = site.diff("base", "clone");
    for change in [('A', "data/new"), ('D', "data/file")] {
        assert!(changes.contains(&(change.0, change.1.to_owned())), "{changes:?}");
    }
    let kept = site.content("clone");
    site.well(&["mount", "clone", at]);
    fs::write(point.join("data/discarded"), "x").unwrap();
    site.well(&["umount", "clone", "--discard"]);
    same("a discarded mount", &kept, &site.content("clone"));
    site.well(&["mount", "clone", at, "--read-only"]);
    let error = fs::write(point.join("data/x"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    site.well(&["umount", "clone"]);
    site.refused(125, &["umount", at], &[at]);
    site.refused(125, &["mount", "clone", &place.text("nowhere")], &["nowhere"]);
    site.assert_unchanged("mounts", "base", &before);
}

fn damage_is_found_and_named(place: &Place) {
    let site = with_base(place);
    site.well(&["verify", "base"]);
    let layers = fs::read_dir(site.store().join("layers")).unwrap();
    let tree = layers.map(|layer| layer.unwrap().path().join("tree")).next().unwrap();
    // A changed file is reported by its directory: fingerprints are of directories.
    let removed = || {
        let damaged = site.ends(&["verify", "base"]);
        assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
        let lines = damaged.stdout.lines().chain(damaged.stderr.lines());
        let named =
            lines.filter_map(|line| line.split_once(" has changed since")?.0.rsplit_once("/tree"));
        named.map(|(_, path)| path.trim_start_matches('/').to_owned()).collect::<BTreeSet<_>>()
    };
    let file = tree.join("data/directory/inner");
    let (meta, content) = (fs::metadata(&file).unwrap(), fs::read(&file).unwrap());
    fs::write(&file, vec![b'x'; content.len()]).unwrap();
    assert_eq!(removed(), set(&["data/directory"]));
    // Restoring the content and the time of a file does not hide the change: the inode's
    // change time cannot be set.
    fs::write(&file, content).unwrap();
    let opened = fs::File::options().write(true).open(&file).unwrap();
    opened.set_modified(meta.modified().unwrap()).unwrap();
    assert_eq!(removed(), set(&["data/directory"]));
    fs::remove_file(tree.join("data/far/hard")).unwrap();
    fs::write(tree.join("etc/more"), "").unwrap();
    let all = removed();
    assert!(all.is_superset(&set(&["data/directory", "data/far", "etc"])), "{all:?}");
    // A torn record.
    fs::write(site.store().join("trees/torn.json"), "{\"na").unwrap();
    let faults = site.ends(&["fsck"]);
    assert_eq!(faults.status.code(), Some(1), "{faults:?}");
    assert!(format!("{}{}", faults.stdout, faults.stderr).contains("torn"), "{faults:?}");
    let json = site.ends(&["fsck", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    serde_json::from_str::<Value>(&json.stdout).unwrap();
}
