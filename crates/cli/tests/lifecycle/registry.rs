//! The registry by which root's `status` finds state directories.

use super::other_users::{ALICE, BOB, interrupt, machine, pointers, status, synconce};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{finish, isolated};

#[test]
fn a_state_directory_is_registered_once_and_no_run_fails_for_it() {
    isolated(|place| {
        machine(place);
        let run = |user, state: &str| {
            let mut run = synconce(place, user, &["run", "--", "sync", "data"]);
            fs::write(place.path(if user == ALICE { "alice/data" } else { "bob/data" }), "")
                .unwrap();
            let run = finish(run.env("SYNCONCE_STATE_DIR", place.path(state)));
            assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
        };
        run(ALICE, "alice/state");
        assert_eq!(pointers().len(), 0, "no user makes the registry");
        run(0, "elsewhere");
        run(ALICE, "alice/state");
        run(ALICE, "alice/state");
        run(BOB, "bob/state");
        let made = pointers();
        assert_eq!(made.len(), 3, "{made:?}");
        // Another user takes the names of the pointers first.
        for path in &made {
            fs::remove_file(path).unwrap();
            fs::write(path, "{}").unwrap();
            chown(path, Some(1), Some(1)).unwrap();
        }
        run(ALICE, "alice/state");
        assert_eq!(pointers().len(), 4);
        let (own, taken): (Vec<_>, Vec<_>) =
            pointers().into_iter().partition(|path| fs::metadata(path).unwrap().uid() == ALICE);
        assert_eq!(own.len(), 1, "{own:?}");
        // Another user takes every name that can be guessed.
        fs::remove_file(&own[0]).unwrap();
        let names = |path: &&PathBuf| {
            path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{ALICE}-"))
        };
        let guess = taken.iter().find(names).unwrap().to_str().unwrap().strip_suffix("0.json");
        for number in 1..40 {
            let path = format!("{}{number}.json", guess.unwrap());
            fs::write(&path, "{}").unwrap();
            chown(&path, Some(1), Some(1)).unwrap();
        }
        run(ALICE, "alice/state");
        run(ALICE, "alice/state");
        assert_eq!(pointers().len(), 3 + 39 + 1);
        fs::set_permissions("/var/lib/synconce/directories", fs::Permissions::from_mode(0o000))
            .unwrap();
        run(BOB, "bob/other");
        assert_eq!(pointers().len(), 3 + 39 + 1);
    });
}

#[test]
fn a_pointer_goes_when_its_directory_was_removed_and_stays_while_its_disk_is_away() {
    isolated(|place| {
        machine(place);
        fs::create_dir(place.path("disk")).unwrap();
        mount("disk-of-bob", place.path("disk"), "tmpfs", MountFlags::empty(), None).unwrap();
        fs::set_permissions(place.path("disk"), fs::Permissions::from_mode(0o1777)).unwrap();
        interrupt(place, 0, None);
        let bob = interrupt(place, BOB, Some(&place.path("disk/state")));
        assert_eq!(pointers().len(), 1);
        assert!(status(place, 0, &[]).stdout.contains(&bob));

        // The disk is away: another mount is in its place, as after a boot without the disk.
        let disk = place.path("disk");
        let away = place.path("away");
        fs::create_dir(&away).unwrap();
        mount(&disk, &away, "", MountFlags::BIND, None).unwrap();
        unmount(&disk, UnmountFlags::empty()).unwrap();
        let seen = status(place, 0, &[]);
        let message = format!(
            "cannot look at {}/state: disk-of-bob (tmpfs) is not mounted at {}\n",
            disk.display(),
            disk.display()
        );
        assert!(seen.stderr.contains(&message), "{seen:?}");
        assert!(seen.stderr.contains(&format!("rm {}", pointers()[0].display())), "{seen:?}");
        // A `--clear` looks at all directories several times, and says this once.
        let other = interrupt(place, ALICE, None);
        let cleared = status(place, 0, &["--clear", &other]);
        let wanted = format!("{}synconce: cleared {other}\n", seen.stderr);
        assert_eq!(cleared.stderr, wanted, "{cleared:?}");

        mount(&away, &disk, "", MountFlags::BIND, None).unwrap();
        assert!(status(place, 0, &[]).stdout.contains(&bob));
        fs::remove_dir_all(place.path("disk/state")).unwrap();
        let seen = status(place, 0, &[]);
        assert!(!seen.stdout.contains(&bob) && seen.stderr.is_empty(), "{seen:?}");
        assert_eq!(pointers().len(), 1, "that of alice");
    });
}

#[test]
fn roots_status_finds_a_state_directory_whose_name_is_not_utf8() {
    isolated(|place| {
        machine(place);
        interrupt(place, 0, None);
        let state = place.path("bob").join(OsStr::from_bytes(b"st\xffte"));
        let bob = interrupt(place, BOB, Some(&state));
        assert_eq!(pointers().len(), 1);
        let seen = status(place, 0, &[]);
        assert!(seen.stdout.contains(&bob) && seen.stderr.is_empty(), "{seen:?}");
        // A missing directory whose disk is mounted was removed.
        fs::remove_dir_all(&state).unwrap();
        let seen = status(place, 0, &[]);
        assert!(!seen.stdout.contains(&bob) && pointers().is_empty(), "{seen:?}");
    });
}

#[test]
fn a_registry_full_of_invalid_entries_gives_one_notice_and_hides_nothing() {
    isolated(|place| {
        machine(place);
        interrupt(place, 0, None);
        let bob = interrupt(place, BOB, Some(&place.path("bob/state")));
        let registry = Path::new("/var/lib/synconce/directories");
        let pointer = fs::read_to_string(&pointers()[0]).unwrap();
        for number in 0..300 {
            let path = registry.join(format!("rubbish-{number}.json"));
            fs::write(&path, &pointer[..number % pointer.len()]).unwrap();
            chown(&path, Some(ALICE), Some(ALICE)).unwrap();
        }
        symlink(&pointers()[0], registry.join("link.json")).unwrap();
        mknodat(CWD, registry.join("pipe.json"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        // A pointer of alice's to a directory that she may not read: root's `status` reads it
        // with her rights.
        let secret = place.path("secret");
        fs::create_dir_all(secret.join("runs")).unwrap();
        fs::write(secret.join("runs/root-only.json"), "{}").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
        let path = registry.join("hers.json");
        fs::write(&path, pointer.replace(&place.text("bob/state"), secret.to_str().unwrap()))
            .unwrap();
        chown(&path, Some(ALICE), Some(ALICE)).unwrap();

        let seen = status(place, 0, &[]);
        assert!(seen.stdout.contains(&format!("{bob} interrupted perl")), "{seen:?}");
        assert!(!seen.stdout.contains("root-only"), "{seen:?}");
        assert!(
            seen.stderr.contains("cannot read 302 files in /var/lib/synconce/directories\n"),
            "{seen:?}"
        );
        assert!(
            seen.stderr
                .contains(&format!("cannot look at {}: Permission denied", secret.display())),
            "{seen:?}"
        );
        assert_eq!(seen.stderr.lines().count(), 2, "{seen:?}");
    });
}
