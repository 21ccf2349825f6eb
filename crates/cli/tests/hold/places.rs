//! What becomes of the place of a held file between a crash and the recovery.

use crate::after_crash::crash;
use crate::support::{Fixture, sh};
use std::fs;
use synconce_testkit::harness::{Place, finish, isolated};
use synconce_testkit::rig::{FsKind, Rig};

/// A change of a place, and what the recovery says of it.
struct Change {
    name: &'static str,
    /// Shell commands; `$at` is the mount point of the held files.
    change: &'static str,
    undo: &'static str,
    said: &'static str,
}

const MISSING: &str = "was held, and is not there";
const ANOTHER: &str = "is not the file that was held";

const CHANGES: [Change; 8] = [
    Change {
        name: "a spare disk with files of these names",
        change: "mount -o loop spare $at; cp -r kept/. $at",
        undo: "umount $at",
        said: ANOTHER,
    },
    Change {
        name: "a spare disk without files",
        change: "mount -o loop spare $at; rm -rf $at/databases $at/meta.db",
        undo: "umount $at",
        said: MISSING,
    },
    Change {
        name: "a directory that was renamed",
        change: "mv $at/databases $at/renamed",
        undo: "mv $at/renamed $at/databases",
        said: MISSING,
    },
    Change {
        name: "a directory that was moved, and made anew",
        change: "mv $at/databases $at/moved; mkdir $at/databases",
        undo: "rmdir $at/databases; mv $at/moved $at/databases",
        said: ANOTHER,
    },
    Change {
        name: "a file that was replaced by its backup",
        change: "mv $at/meta.db $at/held; cp -a $at/held $at/meta.db",
        undo: "mv $at/held $at/meta.db",
        said: ANOTHER,
    },
    Change {
        name: "a file that was removed",
        change: "mv $at/meta.db $at/gone",
        undo: "mv $at/gone $at/meta.db",
        said: MISSING,
    },
    Change {
        name: "a directory that a mount covers",
        change: "mount --bind kept/databases $at/databases",
        undo: "umount $at/databases",
        said: ANOTHER,
    },
    Change {
        name: "a disk that is mounted in another place",
        change: "mkdir -p elsewhere; mount --bind $at elsewhere; umount $at",
        undo: "mount --bind elsewhere $at; umount elsewhere",
        said: "is not mounted now",
    },
];

/// Makes a hold on a disk of its own and crashes it; makes a spare disk before. Returns the hold
/// and a prefix for shell commands.
fn crashed<'a>(place: &'a Place, after_crash: &str) -> (Fixture<'a>, String) {
    sh(place, "rm -rf spare kept; truncate -s 64M spare; mkfs.ext4 -q spare");
    sh(place, "mkdir -p kept/databases; echo other >kept/meta.db");
    let fixture = Fixture::new(place, &format!("after_crash = \"{after_crash}\"\n"));
    fixture.ok("start");
    fs::write(fixture.file(), "old").unwrap();
    crash(&fixture);
    let at = format!("at='{}'; ", fixture.rig.path().display());
    (fixture, at)
}

#[test]
fn no_file_but_the_held_one_is_set_aside_and_none_is_forgotten() {
    isolated(|place| {
        for after_crash in ["wipe", "refuse"] {
            let (fixture, at) = crashed(place, after_crash);
            for Change { name, change, undo, said } in CHANGES {
                sh(place, &format!("{at}{change}"));
                let before = fixture.everything();
                let refused = fixture.hold("recover");
                assert_eq!(refused.status.code(), Some(125), "{name}: {}", refused.stderr);
                assert!(refused.stderr.contains(said), "{name}: {}", refused.stderr);
                assert_eq!(fixture.everything(), before, "{name}");
                assert_eq!(fixture.state(), "interrupted", "{name}");
                sh(place, &format!("{at}{undo}"));
            }
            let words = ["hold", "recover", "./t.toml", "--wipe"];
            let recovered = finish(&mut place.synconce(&words));
            assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
            assert!(!fixture.file().exists() && !fixture.directory().exists());
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn a_backup_is_used_by_the_operators_word_and_never_set_aside() {
    isolated(|place| {
        let (fixture, at) = crashed(place, "wipe");
        sh(place, &format!("{at}rm $at/meta.db; echo backup >$at/meta.db"));
        let decided = |decision| {
            let words = ["hold", "recover", "./t.toml", decision];
            finish(&mut place.synconce(&words))
        };
        let refused = decided("--wipe");
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        assert!(refused.stderr.contains("recover t --keep"), "{}", refused.stderr);
        let kept = decided("--keep");
        assert_eq!(kept.status.code(), Some(0), "{}", kept.stderr);
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "backup\n");
        fixture.rig.down().unwrap();
    });
}

/// Changes the marker.
pub fn edit(place: &Place, change: impl FnOnce(&mut serde_json::Value)) {
    let marker = place.path("state/holds/t.json");
    let text = fs::read_to_string(&marker).unwrap();
    let mut record = serde_json::from_str(&text).expect("JSON");
    change(&mut record);
    fs::write(&marker, record.to_string()).unwrap();
}

#[test]
fn a_disk_that_was_made_anew_since_never_had_the_files() {
    isolated(|place| {
        let (fixture, at) = crashed(place, "wipe");
        // In the second of the start it would be unknown which of both came first.
        edit(place, |record| record["started"] = "2026-01-02T03:04:05Z".into());
        fixture.rig.unmount().unwrap();
        sh(place, &format!("{at}mount -o loop spare $at"));
        let recovered = fixture.hold("recover");
        assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
        let said = "no file was there to be set aside";
        assert!(recovered.stderr.contains(said), "{}", recovered.stderr);
        assert_eq!(fixture.state(), "off");
        // The first disk comes back: its files are not used unchecked.
        sh(place, &format!("{at}umount $at"));
        fixture.rig.mount().unwrap();
        let refused = fixture.hold("start");
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        assert!(refused.stderr.contains("its marker is lost"), "{}", refused.stderr);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_disk_without_even_the_directory_is_recovered_too() {
    isolated(|place| {
        sh(place, "truncate -s 64M spare; mkfs.ext4 -q spare");
        let fixture = Fixture::new(place, "");
        let held = fixture.rig.path().join("a/b/held");
        let settings = "after_crash = \"wipe\"\n[[hold]]\nkind = \"other\"\npath = ";
        place.write("t.toml", &format!("{settings}\"{}\"\n", held.display()));
        fixture.ok("start");
        crash(&fixture);
        place.bare(&["umount", &held.display().to_string()]);
        edit(place, |record| record["started"] = "2026-01-02T03:04:05Z".into());
        fixture.rig.unmount().unwrap();
        let at = fixture.rig.path().display().to_string();
        sh(place, &format!("mount -o loop spare {at}"));
        fixture.ok("recover");
        assert_eq!(fixture.state(), "off");
        sh(place, &format!("umount {at}"));
        fixture.rig.mount().unwrap();
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_recovery_that_was_killed_after_its_renames_goes_on() {
    isolated(|place| {
        let (fixture, _) = crashed(place, "wipe");
        let marker = place.path("state/holds/t.json");
        let text = fs::read_to_string(&marker).unwrap();
        fixture.ok("recover");
        // As if the process had been killed before the marker was removed.
        fs::write(&marker, text).unwrap();
        fixture.ok("recover");
        assert_eq!(fixture.state(), "off");
        fixture.ok("start");
        fs::write(fixture.directory().join("data"), "new").unwrap();
        fixture.ok("settle");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn the_copy_of_a_held_directory_is_no_reason_to_set_files_aside() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        let at = fixture.rig.path().display().to_string();
        // As a backup of the whole disk does. A held path is a file system of its own.
        sh(place, &format!("mkdir backup; cp -a --one-file-system {at}/. backup/"));
        fixture.ok("stop");
        sh(place, &format!("rm -rf {at}/.synconce-hold; cp -a backup/.synconce-hold {at}/"));
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        let asked = fixture.hold("recover");
        assert_eq!(asked.status.code(), Some(125), "{}", asked.stderr);
        assert!(asked.stderr.contains("recover t --keep"), "{}", asked.stderr);
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_backup_without_hard_links_is_used_after_the_command_of_the_hint() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(&fixture);
        let at = fixture.rig.path().display().to_string();
        sh(place, &format!("cd {at}; cp -r .synconce-hold new; rm -r .synconce-hold"));
        sh(place, &format!("mv {at}/new {at}/.synconce-hold; rm state/holds/t.json"));
        let keep = || finish(&mut place.synconce(&["hold", "recover", "./t.toml", "--keep"]));
        let refused = keep();
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        assert!(refused.stderr.contains("it has entries that no hold made"), "{}", refused.stderr);
        sh(place, refused.stderr.split_once("hint: ").expect("a hint").1);
        let kept = keep();
        assert_eq!(kept.status.code(), Some(0), "{}", kept.stderr);
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn files_that_were_restored_under_the_same_identity_are_not_set_aside_unasked() {
    isolated(|place| {
        for kind in [FsKind::Ext4, FsKind::Btrfs] {
            let rig = Rig::builder().fs(kind).size(512 << 20).passthrough(false).up().unwrap();
            let fixture = Fixture::on(place, rig, "");
            let at = fixture.rig.path().join("root");
            let (root, held) = (at.display().to_string(), at.join("databases"));
            let settings = "after_crash = \"wipe\"\n[[hold]]\nkind = \"other\"\npath = ";
            place.write("t.toml", &format!("{settings}\"{}\"\n", held.display()));
            let (make, save, restore) = match kind {
                // A snapshot has the inode numbers and the times of birth.
                FsKind::Btrfs => (
                    format!("btrfs subvolume create {root}"),
                    format!("btrfs subvolume snapshot {root} {root}.old"),
                    format!("mv {root} {root}.new; btrfs subvolume snapshot {root}.old {root}"),
                ),
                _ => (
                    format!("mkdir {root}"),
                    format!("cp -a {root} old"),
                    format!("cp -a old/. {root}/; rm -rf {root}/.synconce-hold"),
                ),
            };
            sh(place, &format!("{make}; mkdir {root}/databases; echo old >{root}/databases/data"));
            sh(place, &format!("rm -rf old; {save}"));
            fixture.ok("start");
            fs::write(held.join("data"), "new").unwrap();
            place.bare(&["umount", &held.display().to_string()]);
            crash(&fixture);
            sh(place, &restore);
            let refused = fixture.hold("recover");
            assert_eq!(refused.status.code(), Some(125), "{kind:?}: {}", refused.stderr);
            let said = "is gone: a snapshot or a backup may have been restored";
            assert!(refused.stderr.contains(said), "{kind:?}: {}", refused.stderr);
            assert!(refused.stderr.contains("hold recover t --keep"), "{}", refused.stderr);
            assert_eq!(fs::read_to_string(held.join("data")).unwrap(), "old\n");
            assert_eq!(fixture.state(), "interrupted");
            let words = ["hold", "recover", "./t.toml", "--keep"];
            let kept = finish(&mut place.synconce(&words));
            assert_eq!(kept.status.code(), Some(0), "{}", kept.stderr);
            fixture.ok("start");
            assert_eq!(fs::read_to_string(held.join("data")).unwrap(), "old\n");
            fixture.ok("stop");
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn a_crash_after_the_marks_were_removed_is_recovered_by_the_file_of_the_hold() {
    isolated(|place| {
        let (fixture, _) = crashed(place, "wipe");
        // As a stop or a recovery that was cut short leaves them.
        fs::remove_dir_all(fixture.rig.path().join(".synconce-hold")).unwrap();
        edit(place, |record| record["ending"] = true.into());
        fixture.ok("recover");
        assert!(!fixture.file().exists() && !fixture.directory().exists());
        fixture.rig.down().unwrap();
    });
}

#[test]
fn what_a_changed_link_leads_to_is_not_set_aside() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let at = fixture.rig.path().display().to_string();
        let settings = format!(
            "after_crash = \"wipe\"\nset_aside = [\"{at}/data/*\"]\n[[hold]]\nkind = \"other\"\n\
             path = \"{at}/databases\"\n"
        );
        place.write("t.toml", &settings);
        sh(place, &format!("cd {at}; mkdir then now; touch then/a now/b; ln -s then data"));
        fixture.ok("start");
        crash(&fixture);
        sh(place, &format!("ln -sfn now {at}/data"));
        let before = fixture.everything();
        for decision in [&[][..], &["--wipe"]] {
            let words = [&["hold", "recover", "./t.toml"], decision].concat();
            let refused = finish(&mut place.synconce(&words));
            assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
            let said = format!("{at}/data/* led to {at}/then/* when the hold started");
            assert!(refused.stderr.contains(&said), "{}", refused.stderr);
            assert_eq!(fixture.everything(), before);
        }
        sh(place, &format!("ln -sfn then {at}/data"));
        fixture.ok("recover");
        assert!(!fixture.everything().contains("/then/a"), "{}", fixture.everything());
        assert!(fixture.everything().contains("/now/b"));
        fixture.rig.down().unwrap();
    });
}
