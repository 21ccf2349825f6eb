//! What a path of `--only` and `--except` names, and the commit beside real syncs.

use super::rules::{check, clean, rig};
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{finish, isolated, perl};
use synconce_testkit::rig::FsKind;

#[test]
fn rules_are_paths_globs_links_and_files_that_come_later() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        let both = "sync_file('db/x.sqlite'); sync_file('db/x.log'); sync_file('other/x.sqlite');";
        let within = |path: &str| rig.path().join(path).to_str().unwrap().to_owned();
        let disk = rig.path().to_str().unwrap();
        for (options, script, counts) in [
            (vec!["--except", "db/*.sqlite"], both, [2, 1]),
            (vec!["--except", &within("db/*.sqlite")], both, [2, 1]),
            (vec!["--only", "*/*.sqlite"], both, [2, 1]),
            (vec!["--only", "db", "--except", "db/*.sqlite"], both, [1, 2]),
            (vec!["--only", "db/x.log", "--only", "other"], both, [2, 1]),
            (vec!["--except", "./mnt/../db/x.log"], both, [2, 1]),
            (vec!["--except", "db/later"], "sync_file('db/later'); sync_file('db/x');", [1, 1]),
            (
                vec!["--except", "db/later"],
                "mkdir 'db/later'; sync_file('db/later/file'); sync_file('db/latest');",
                [1, 1],
            ),
            (vec!["--except", r"db/\*"], "sync_file('db/*'); sync_file('db/x');", [1, 1]),
            (vec!["--only", disk, "--except", "db"], both, [1, 2]),
            (vec!["--only", "/"], both, [3, 0]),
            (vec!["--except", "**/*.sqlite"], both, [1, 2]),
            (vec!["--only", "db/**"], both, [2, 1]),
            (
                vec!["--only", "db/**/*.sqlite"],
                "sync_file('db/x.sqlite'); sync_file('db/sub/x.sqlite'); sync_file('db/sub/x');",
                [2, 1],
            ),
        ] {
            check(place, &rig, &options, script, counts);
        }
        // A link: its target counts. The link itself is on another disk.
        std::os::unix::fs::symlink(rig.path().join("db"), place.path("link")).unwrap();
        check(place, &rig, &["--except", &place.text("link")], both, [1, 2]);
        std::os::unix::fs::symlink(rig.path().join("db/new"), place.path("dangling")).unwrap();
        let new = "sync_file('db/new'); sync_file('db/x');";
        check(place, &rig, &["--except", &place.text("dangling")], new, [1, 1]);
        rig.down().unwrap();
    });
}

#[test]
fn a_disk_that_is_mounted_below_a_rule_belongs_to_it() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        let above = rig.path().parent().unwrap().to_str().unwrap().to_owned();
        check(place, &rig, &["--except", &above], "sync_file('other/a');", [0, 1]);
        // Also one that is mounted during the run.
        let later = place.path("later");
        fs::create_dir_all(later.join("point")).unwrap();
        let script = format!(
            "run('mount', '--bind', 'other', '{0}'); sync_file('{0}/a'); run('umount', '{0}');",
            later.join("point").display()
        );
        check(place, &rig, &["--except", later.to_str().unwrap()], &script, [0, 1]);
        // A wildcard before or below the mount point.
        let files = "sync_file('other/a'); sync_file('other/b'); sync_file('db/a');";
        for (pattern, counts) in [("*/other", [1, 2]), ("**/a", [1, 2]), ("*/other/**/a", [2, 1])] {
            check(place, &rig, &["--except", &format!("{above}/{pattern}")], files, counts);
        }
        let script = script.replace("run('umount'", "sync_file('MOUNT/b'); run('umount'");
        let script = script.replace("MOUNT", later.join("point").to_str().unwrap());
        for pattern in ["*/a", "**/a"] {
            let pattern = later.join(pattern);
            check(place, &rig, &["--except", pattern.to_str().unwrap()], &script, [1, 1]);
        }
        rig.down().unwrap();
    });
}

#[test]
fn the_commit_covers_what_was_held_beside_real_syncs() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        clean(&rig);
        let script = "sync_file('db/a'); sync_file('other/a'); open(my $d, '<', 'db'); $d->sync;";
        let words = perl(script);
        let options = ["--stats", "--json", "--except", "db"];
        let ran = finish(place.held(&options, &words).current_dir(rig.path()));
        let committed = synconce_testkit::harness::committed(&ran.stderr);
        assert!(committed.contains(&(rig.path().to_owned(), true)), "{ran:?}");
        let only_real = "sync_file('db/a');";
        let words = perl(only_real);
        let ran = finish(place.held(&options, &words).current_dir(rig.path()));
        assert_eq!(synconce_testkit::harness::committed(&ran.stderr), [], "{ran:?}");
        assert!(Path::new(rig.path()).exists());
        rig.down().unwrap();
    });
}
