//! What keeps a slip from harm: protected bases, open work that `remove` keeps, and the ways back.

use crate::roots;
use crate::site::{Site, limit, same};
use crate::verbs::{NEEDS, names, set, waiting, with_base};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::Path;
use synconce_testkit::harness::{Place, binary, trial};
use synconce_testkit::process;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_run_in_an_imported_tree_is_refused_with_the_command_that_works, &NEEDS),
        trial(a_protected_tree_gets_generations_and_nothing_else, &NEEDS),
        trial(a_run_that_makes_the_next_generation_is_disturbed_by_no_other, &NEEDS),
        trial(a_tree_is_protected_only_while_nothing_changes_it, &NEEDS),
        trial(open_work_is_shown_and_thrown_away, &NEEDS),
        trial(a_tree_with_open_work_is_removed_only_by_force, &NEEDS),
        trial(a_renamed_tree_is_the_same_tree, &NEEDS),
        trial(a_rename_replaces_nothing_and_loses_nothing, &NEEDS),
        trial(what_is_accepted_in_a_clone_is_accepted_in_its_protected_base, &NEEDS),
        trial(no_export_goes_into_a_store, &NEEDS),
        trial(an_export_to_a_place_of_another_user_follows_no_link_of_that_user, &NEEDS),
        trial(no_store_is_made_in_a_store, &NEEDS),
        trial(what_is_no_layer_is_named_and_stays, &NEEDS),
    ]
}

/// Returns the entry of the tree `name` in `list --json`.
fn listed(site: &Site<'_>, name: &str) -> Value {
    let list: Value = serde_json::from_str(&site.well(&["list", "--json"]).stdout).unwrap();
    list.as_array().unwrap().iter().find(|tree| tree["name"] == name).unwrap().clone()
}

/// Expects that `tree WORDS` is refused; returns what its hint quotes, without the store.
fn hints(site: &Site<'_>, words: &[&str], why: &str) -> Vec<String> {
    let ended = site.ends(words);
    assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
    let (first, hint) = ended.stderr.split_once('\n').unwrap();
    assert_eq!(first, format!("synconce: {why}"), "{words:?}");
    assert!(hint.starts_with("synconce: hint: ") && hint.lines().count() == 1, "{ended:?}");
    let store = format!("--store {} ", site.store().display());
    let quoted = hint.split('`').skip(1).step_by(2);
    quoted.map(|command| command.replace(&store, "")).collect()
}

fn a_run_in_an_imported_tree_is_refused_with_the_command_that_works(place: &Place) {
    let site = with_base(place);
    let why = "cannot run in base: it is a protected base";
    let unprotect = "synconce tree unprotect base";
    for (words, command) in [
        (&["run", "base"][..], "run --from base"),
        // The words of a command and the values of variables may be secrets.
        (&["run", "base", "sh", "-c", "echo secret"], "run --from base -- COMMAND"),
        (&["run", "base", "--user", "1", "--", "id"], "run --from base --user 1 -- COMMAND"),
        (&["run", "--user", "0", "--", "base", "id"], "run --user 0 --from base -- COMMAND"),
        (&["run", "base", "--setenv", "A=secret", "id"], "run --from base ... -- COMMAND"),
    ] {
        let command = format!("synconce tree {command}");
        assert_eq!(hints(&site, words, why), [&command, unprotect], "{words:?}");
    }
    // The command of the hint works when it is typed.
    let hint = site.ends(&["run", "base", "echo", "a b", "$x"]).stderr;
    let command = hint.split('`').nth(1).unwrap().replacen("synconce", binary(), 1);
    let command = command.replace("COMMAND", "echo 'a b' '$x'");
    assert_eq!(place.bare(&["sh", "-c", &command]).stdout, "a b $x\n", "{hint}");
    // What keeps nothing needs no clone.
    site.well(&["run", "--discard", "base", "touch", "/data/new"]);
    site.clone_of("base", "work");
    assert_eq!(site.sh("work", "test ! -e /data/new; touch /data/new"), "");
    fs::create_dir(place.path("point")).unwrap();
    let point = place.text("point");
    let clone = "synconce tree clone base NEW";
    let why = "cannot mount base: it is a protected base";
    let quoted = hints(&site, &["mount", "base", &point], why);
    assert_eq!(quoted, [clone, unprotect]);
    site.content("base");
}

fn a_protected_tree_gets_generations_and_nothing_else(place: &Place) {
    let site = with_base(place);
    assert_eq!(listed(&site, "base")["protected"], true);
    assert!(site.well(&["list"]).stdout.contains("base  protected  1 "));
    site.keep("base", "base", &["/bin/sh", "-c", "echo new >/data/new"]);
    site.well(&["squash", "base"]);
    assert_eq!(
        (&listed(&site, "base")["generation"], site.from("base", "cat /data/new")),
        (&3.into(), "new\n".to_owned())
    );
    site.refused(125, &["run", "base", "true"], &["it is a protected base"]);
    // What is made of a base is no base.
    site.clone_of("base", "work");
    site.keep("base", "made", &["/bin/true"]);
    site.well(&["unprotect", "base"]);
    site.well(&["commit", "base", "--as", "saved"]);
    for name in ["work", "made", "base", "saved"] {
        assert_eq!(listed(&site, name)["protected"], false, "{name}");
        site.sh(name, "touch /data/changed");
        site.well(&["commit", name]);
        site.well(&["protect", name]);
        site.well(&["protect", name]);
        site.refused(125, &["run", name, "true"], &["it is a protected base"]);
    }
    for words in [["protect", "none"], ["unprotect", "none"]] {
        site.refused(125, &words, &["none: no such tree"]);
    }
    // A base is protected from changes, not from its removal.
    site.well(&["remove", "base"]);
    site.well(&["fsck"]);
}

fn a_run_that_makes_the_next_generation_is_disturbed_by_no_other(place: &Place) {
    let site = with_base(place);
    let next = ["--from", "base", "--commit", "base"];
    let run = waiting(&site, &next, "echo 2 >/data/new");
    site.well(&["run", "--discard", "base", "touch", "/data/mine"]);
    let other = site.well(&["run", "--discard", "base", "/bin/sh", "-c", "ls /data"]);
    assert!(!other.stdout.contains("mine"), "{other:?}");
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert_eq!(site.from("base", "cat /data/new"), "2\n");
    // A second base would not be protected.
    let run = waiting(&site, &next, "echo 3 >/data/new");
    site.well(&["rename", "base", "stable"]);
    place.write("talk/go", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
    assert!(run.text().contains("the tree was renamed or removed meanwhile"), "{}", run.text());
    assert_eq!(names(&site), set(&["stable"]));
    assert_eq!(site.from("stable", "cat /data/new"), "2\n");
    site.well(&["fsck"]);
}

fn a_tree_is_protected_only_while_nothing_changes_it(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let run = waiting(&site, &["work"], "echo 1 >/data/new");
    site.refused(125, &["protect", "work"], &["it is in use by process"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    let why = "cannot protect work: it has changes that are not committed";
    let ways = ["synconce tree commit work", "synconce tree discard work"];
    assert_eq!(hints(&site, &["protect", "work"], why), ways);
    // The hint of a clone is the same.
    let why = "cannot use work: it has changes that are not committed";
    assert_eq!(hints(&site, &["clone", "work", "new"], why), ways);
    site.well(&["commit", "work"]);
    site.well(&["protect", "work"]);
}

fn open_work_is_shown_and_thrown_away(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let committed = site.content("work");
    let unchanged = site.ends(&["diff", "work"]);
    assert_eq!((unchanged.status.code(), &unchanged.stdout[..]), (Some(0), ""), "{unchanged:?}");
    assert_eq!(site.well(&["discard", "work", "--json"]).stdout.matches("false").count(), 1);
    for round in ["first", "second"] {
        site.sh("work", &format!("echo {round} >/data/{round}"));
    }
    site.sh("work", "rm /data/file");
    let shown = site.ends(&["diff", "work"]);
    let lines = "D data/file\nA data/first\nA data/second\n";
    assert_eq!((shown.status.code(), &shown.stdout[..]), (Some(1), lines), "{shown:?}");
    // A run that works in the tree keeps it.
    let run = waiting(&site, &["work"], "");
    site.refused(125, &["discard", "work"], &["it is in use by process"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert_eq!(site.well(&["discard", "work", "--json"]).stdout.matches("true").count(), 1);
    same("what was committed", &committed, &site.content("work"));
    let left = site.well(&["gc", "--wait", "--json"]);
    assert!(left.stdout.contains("\"layers\": 0"), "{left:?}");
    site.clone_of("work", "new");
    site.refused(125, &["discard", "none"], &["none: no such tree"]);
}

fn a_tree_with_open_work_is_removed_only_by_force(place: &Place) {
    let site = with_base(place);
    for name in ["work", "other"] {
        site.clone_of("base", name);
    }
    site.sh("work", "echo mine >/data/mine");
    let mine = site.content("work");
    let why = "cannot remove work: it has changes that are not committed";
    let force = ["synconce tree remove --force work"];
    assert_eq!(hints(&site, &["remove", "other", "work"], why), force);
    assert_eq!(hints(&site, &["remove", "-n", "work"], why), ["--force"]);
    same("what is open", &mine, &site.content("work"));
    assert_eq!(names(&site), set(&["base", "work"]));
    assert!(site.well(&["remove", "-nf", "work"]).stdout.starts_with("work would be removed"));
    site.well(&["remove", "-f", "work"]);
    site.refused(125, &["remove", "--force", "work"], &["work: no such tree"]);
    // Of a tree whose record cannot be read, it is not known whether it is open.
    site.clone_of("base", "damaged");
    site.sh("damaged", "echo mine >/data/mine");
    let record = site.store().join("trees/damaged.json");
    fs::write(&record, "{\"na").unwrap();
    assert_eq!(site.from("base", "echo works"), "works\n");
    let why = "cannot remove damaged: its record cannot be read";
    let force = ["synconce tree remove --force damaged"];
    assert_eq!(hints(&site, &["remove", "damaged"], why), force);
    assert!(record.exists());
    let faults = site.ends(&["fsck"]).stderr;
    assert!(faults.contains("1 fault in "), "{faults}");
    assert!(faults.contains(" remove --force NAME` removes a damaged tree"), "{faults}");
    site.well(&["remove", "--force", "damaged"]);
    site.well(&["gc", "--wait"]);
    let sound = site.well(&["fsck"]).stderr;
    assert_eq!(sound, format!("synconce: no faults in {}\n", site.store().display()));
}

fn a_renamed_tree_is_the_same_tree(place: &Place) {
    let site = with_base(place);
    site.keep("base", "base", &["/bin/sh", "-c", "echo 2 >/data/new"]);
    let wanted = site.content("base");
    let before = listed(&site, "base");
    site.clone_of("base", "work");
    let run = waiting(&site, &["--from", "base"], "cat /data/new");
    let made = site.well(&["rename", "base", "stable", "--json"]).stdout;
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made, serde_json::json!({ "name": "stable", "from": "base" }));
    assert_eq!(names(&site), set(&["stable", "work"]));
    let after = listed(&site, "stable");
    for key in ["generation", "strategy", "protected", "made", "layers"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    same("the tree", &wanted, &site.content("stable"));
    place.write("talk/go", "");
    assert!(run.end().success() && run.text().starts_with("2\n"), "{}", run.text());
    // The old name is free, and clones of the renamed tree still work.
    site.import("base", &place.path("source"));
    site.keep("stable", "stable", &["/bin/rm", "/data/new"]);
    assert_eq!(site.sh("work", "cat /data/new"), "2\n");
    assert_eq!(site.from("stable", "ls /data/new 2>&1 || true").lines().count(), 1);
    site.well(&["fsck"]);
}

fn a_rename_replaces_nothing_and_loses_nothing(place: &Place) {
    let site = with_base(place);
    site.import("other", &roots::small(place, "another"));
    site.clone_of("base", "work");
    for (words, why) in [
        (["none", "new"], "none: no such tree"),
        (["other", "base"], "cannot rename to base: a tree of this name already exists"),
        (["base", "base"], "cannot rename to base: a tree of this name already exists"),
        (["base", "../x"], "is no name of a tree"),
    ] {
        let ended = site.ends(&["rename", words[0], words[1]]);
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
    site.sh("work", "echo mine >/data/mine");
    let why = "cannot rename work: it has changes that are not committed";
    let ways = ["synconce tree commit work", "synconce tree discard work"];
    assert_eq!(hints(&site, &["rename", "work", "new"], why), ways);
    let run = waiting(&site, &["work"], "");
    site.refused(125, &["rename", "work", "new"], &["it is in use by process"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    site.well(&["commit", "work"]);
    site.well(&["rename", "work", "new"]);
    assert_eq!(site.sh("new", "cat /data/mine"), "mine\n");
    let trees = fs::read_dir(site.store().join("trees")).unwrap();
    let is_record = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    assert!(trees.map(|entry| entry.unwrap().path()).all(|path| is_record(&path)));
    assert_eq!(names(&site), set(&["base", "new", "other"]));
}

/// `--accept` changes no content of a tree, so protection does not forbid it.
fn what_is_accepted_in_a_clone_is_accepted_in_its_protected_base(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    fs::write(site.newest_layer("base").join("data/file"), "changed").unwrap();
    for tree in ["base", "work"] {
        assert_eq!(site.ends(&["verify", tree]).status.code(), Some(1), "{tree}");
    }
    let accepted = site.well(&["verify", "--accept", "work"]).stderr;
    let wanted = "synconce: accepted 1 layer of work as found now; also in base\n";
    assert!(accepted.ends_with(wanted), "{accepted}");
    site.well(&["verify", "base"]);
    assert_eq!(listed(&site, "base")["protected"], true);
    fs::write(site.newest_layer("base").join("data/file"), "changed again").unwrap();
    let accepted = site.well(&["verify", "--accept", "base"]).stderr;
    assert!(
        accepted.ends_with("accepted 1 layer of base as found now; also in work\n"),
        "{accepted}"
    );
}

fn no_export_goes_into_a_store(place: &Place) {
    let site = with_base(place);
    let link = site.fresh("link");
    symlink(site.store(), &link).unwrap();
    let missing = site.fresh("missing");
    let through = missing.join("..").join(site.store().file_name().unwrap()).join("x");
    let through = through.to_str().unwrap();
    let said = format!("cannot create {through}: No such file or directory\n");
    site.refused(125, &["export", "base", through], &[&said]);
    assert!(!missing.exists());
    for below in ["sessions/x", "trees/x.json", "new/x"] {
        for store in [&site.store(), &link] {
            let to = store.join(below);
            let why = "would be in a store, which removes what no tree needs";
            let said = format!("synconce: cannot export to {}: it {why}\n", to.display());
            let refused = site.ends(&["export", "base", to.to_str().unwrap()]);
            assert_eq!((refused.status.code(), refused.stderr), (Some(125), said));
        }
    }
    assert!(!site.store().join("new").exists());
    assert_eq!(site.well(&["fsck", "--quiet"]).stderr, "");
}

fn an_export_to_a_place_of_another_user_follows_no_link_of_that_user(place: &Place) {
    let site = with_base(place);
    let (theirs, roots) = (place.path("theirs"), place.path("roots"));
    let at = |name: &str| theirs.join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(theirs.join("empty")).unwrap();
    fs::create_dir(&roots).unwrap();
    for path in [&theirs, &theirs.join("empty")] {
        chown(path, Some(12_345), Some(12_345)).unwrap();
    }
    symlink(&roots, theirs.join("link")).unwrap();
    lchown(theirs.join("link"), Some(12_345), Some(12_345)).unwrap();
    for to in [at("link"), at("link/")] {
        let why = "link: it is a symbolic link of another user";
        site.refused(125, &["export", "base", &to], &["cannot export to", why]);
    }
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0);
    symlink(&roots, theirs.join("of-root")).unwrap();
    for to in ["empty", "new", "of-root"] {
        site.well(&["export", "base", &at(to)]);
        assert!(theirs.join(to).join("data/file").exists(), "{to}");
    }
}

fn no_store_is_made_in_a_store(place: &Place) {
    let site = with_base(place);
    let link = site.fresh("link");
    symlink(site.store(), &link).unwrap();
    fs::create_dir(site.store().join("layers/empty")).unwrap();
    for below in ["layers/x", "layers/empty", "sessions/x/y", "x"] {
        for store in [&site.store(), &link] {
            let to = store.join(below);
            let why = "it would be in a store, which removes what no tree needs";
            let said = format!("synconce: cannot make a store in {}: {why}\n", to.display());
            let refused = site.ends(&["init", to.to_str().unwrap()]);
            assert_eq!((refused.status.code(), refused.stderr), (Some(125), said));
            // An import would make this store, because it is missing.
            let mut import = site.place.synconce(&["tree", "import", "new", "source"]);
            let refused = process::run(import.env("SYNCONCE_TREES", &to), limit()).unwrap();
            assert_eq!(refused.status.code(), Some(125), "{refused:?}");
            assert!(refused.stderr.contains(why), "{refused:?}");
        }
    }
    // The kernel does not find the store behind a missing directory, and `init` makes none on the
    // way.
    let missing = site.fresh("missing");
    let to = missing.join("..").join(site.store().file_name().unwrap()).join("x");
    let refused = site.ends(&["init", to.to_str().unwrap()]);
    let said = format!("cannot make a store in {}: No such file or directory\n", to.display());
    assert_eq!(refused.stderr, format!("synconce: {said}"));
    assert!(!missing.exists() && !site.store().join("x").exists());
    fs::remove_dir(site.store().join("layers/empty")).unwrap();
    assert_eq!(site.well(&["fsck", "--quiet"]).stderr, "");
    // The store itself stays as it is.
    site.well(&["init", site.store().to_str().unwrap()]);
    site.well(&["verify", "base"]);
}

fn what_is_no_layer_is_named_and_stays(place: &Place) {
    let site = with_base(place);
    let layers = site.store().join("layers");
    fs::write(layers.join("notes"), "mine").unwrap();
    fs::create_dir(layers.join("backup")).unwrap();
    fs::write(layers.join("0123456789abcdef"), "mine").unwrap();
    site.remove("base");
    let collected = site.well(&["gc", "--wait"]);
    for stray in ["notes", "backup", "0123456789abcdef"] {
        let said = format!("{} is no layer, and stays: ", layers.join(stray).display());
        assert!(collected.stderr.contains(&said), "{collected:?}");
    }
    assert_eq!(fs::read_dir(&layers).unwrap().count(), 3);
    site.well(&["gc", "--dry-run"]);
}
