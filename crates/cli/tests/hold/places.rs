//! What becomes of the place of a held file between a crash and the recovery.

use crate::after_crash::crash;
use crate::support::{Fixture, sh};
use std::fs;
use synconce_testkit::harness::{Place, finish, isolated};

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

#[test]
fn a_disk_that_was_made_anew_since_never_had_the_files() {
    isolated(|place| {
        let (fixture, at) = crashed(place, "wipe");
        // In the second of the start it would be unknown which of both came first.
        let marker = place.path("state/holds/t.json");
        let text = fs::read_to_string(&marker).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        record["started"] = "2026-01-02T03:04:05Z".into();
        fs::write(&marker, record.to_string()).unwrap();
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
