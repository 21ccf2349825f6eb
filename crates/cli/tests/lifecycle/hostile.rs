//! What a user can do to the markers, pointers and messages of others.

use super::machine::{ALICE, BOB, interrupt, machine, pointers, status, synconce};
use super::support::{Started, eventually, finish, isolated};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

const REGISTRY: &str = "/var/lib/synconce/directories";

#[test]
fn a_user_who_locks_the_public_file_of_roots_marker_does_not_hide_the_run() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, 0, None);
        let script = "use Fcntl ':flock'; open(my $file, '<', $ARGV[0]) or die; \
                      flock($file, LOCK_EX | LOCK_NB) or die; print \"locked\\n\"; sleep 600;";
        let mut lock = place.command("setpriv");
        let user = BOB.to_string();
        lock.args(["--reuid", &user, "--regid", &user, "--clear-groups", "perl", "-e"]);
        let path = format!("/var/lib/synconce/runs/{id}.json");
        let lock =
            Started::new(lock.args(["use IO::Handle; STDOUT->autoflush(1);", "-e", script, &path]));
        eventually("it is locked", || lock.text().contains("locked"));
        let seen = status(place, 0, &[]);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("{id} interrupted")), "{seen:?}");
        let run = finish(&mut synconce(place, 0, &["run", "--", "true"]));
        assert!(run.stderr.contains("an earlier run was interrupted"), "{run:?}");
        assert!(status(place, 0, &["--clear", &id]).status.success());
    });
}

#[test]
fn a_line_break_in_a_pointer_begins_no_line_of_its_own() {
    isolated(|place| {
        machine(place);
        interrupt(place, 0, None);
        let text = r#"{"version":1,"directory":"/none\nsynconce: hint: type this",
            "file_system":{"mount_point":"/m\nsynconce: or this","type":"ext4","source":"a"}}"#;
        let path = Path::new(REGISTRY).join("forged.json");
        fs::write(&path, text).unwrap();
        chown(&path, Some(BOB), Some(BOB)).unwrap();
        let seen = status(place, 0, &[]);
        assert!(seen.stderr.contains("cannot look at /none"), "{seen:?}");
        let begins = |line: &&str| {
            line.starts_with("synconce: hint: type") || line.starts_with("synconce: or")
        };
        assert_eq!(seen.stderr.lines().filter(begins).count(), 0, "{seen:?}");
    });
}

#[test]
fn a_users_flood_of_the_registry_hides_no_other_users_directory() {
    isolated(|place| {
        machine(place);
        interrupt(place, 0, None);
        let alice = interrupt(place, ALICE, Some(&place.path("alice/state")));
        for number in 0..12_000 {
            let path = Path::new(REGISTRY).join(format!(".hidden-{number}"));
            fs::write(&path, "").unwrap();
            chown(&path, Some(BOB), Some(BOB)).unwrap();
        }
        for number in 0..2_000 {
            let path = Path::new(REGISTRY).join(format!("{number}.json"));
            fs::write(&path, "").unwrap();
            chown(&path, Some(BOB), Some(BOB)).unwrap();
        }
        let seen = status(place, 0, &[]);
        assert!(seen.stdout.contains(&format!("{alice} interrupted")), "{seen:?}");
        assert!(seen.stderr.contains("cannot read 2000 files"), "{seen:?}");
    });
}

#[test]
fn a_file_of_root_that_was_moved_to_where_a_pointer_is_to_be_keeps_its_mode() {
    isolated(|place| {
        machine(place);
        let state = place.path("state-of-root");
        let run = || {
            let mut run = synconce(place, 0, &["run", "--", "sync"]);
            assert!(finish(run.env("SYNCONCE_STATE_DIR", &state)).status.success());
        };
        run();
        let pointer = pointers().remove(0);
        fs::remove_file(&pointer).unwrap();
        fs::write(&pointer, "secret").unwrap();
        fs::set_permissions(&pointer, fs::Permissions::from_mode(0o600)).unwrap();
        run();
        assert_eq!(fs::read_to_string(&pointer).unwrap(), "secret");
        assert_eq!(fs::metadata(&pointer).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(pointers().len(), 2, "the directory is registered by another name");
    });
}

#[test]
fn a_registry_that_root_makes_is_open_whatever_the_umask_is() {
    isolated(|place| {
        machine(place);
        let state = place.text("state-of-root");
        for again in [false, true] {
            if again {
                fs::set_permissions(REGISTRY, fs::Permissions::from_mode(0o755)).unwrap();
            }
            let run = synconce(place, 0, &["run", "--", "sync"]);
            let mut command = place.command("sh");
            command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(run.get_program());
            command.args(run.get_args()).env("SYNCONCE_STATE_DIR", &state);
            command.env_remove("SYNCONCE_REGISTRY_DIR");
            assert!(finish(&mut command).status.success());
            let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
            assert_eq!((mode("/var/lib/synconce"), mode(REGISTRY)), (0o755, 0o1777));
        }
    });
}

#[test]
fn without_a_state_directory_status_says_so() {
    isolated(|place| {
        machine(place);
        let mut status = synconce(place, BOB, &["status"]);
        let seen = finish(status.env_remove("HOME"));
        assert_eq!(seen.status.code(), Some(125), "{seen:?}");
        assert!(seen.stderr.contains("cannot find a state directory"), "{seen:?}");
    });
}
