//! What a user can do to the markers, pointers and messages of other users.

use super::other_users::{ALICE, BOB, interrupt, machine, pointers, status, synconce};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Place, StartedCommand, eventually, finish, isolated};

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
        let lock = StartedCommand::new(lock.args([
            "use IO::Handle; STDOUT->autoflush(1);",
            "-e",
            script,
            &path,
        ]));
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
fn without_a_state_directory_status_prints_the_reason() {
    isolated(|place| {
        machine(place);
        let mut status = synconce(place, BOB, &["status"]);
        let seen = finish(status.env_remove("HOME"));
        assert_eq!(seen.status.code(), Some(125), "{seen:?}");
        let wanted = "synconce: cannot find a state directory: neither XDG_STATE_HOME nor HOME is set\n\
                      synconce: hint: SYNCONCE_STATE_DIR names a directory for the marker\n";
        assert_eq!(seen.stderr, wanted);
    });
}

/// Starts a process of `user` with the run `id` in its environment.
fn process_of(place: &Place, user: u32, id: &str) -> StartedCommand {
    let user = user.to_string();
    let mut sleep = place.command("setpriv");
    sleep.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sleep", "600"]);
    let started = StartedCommand::new(sleep.env("SYNCONCE_RUN", id));
    let name = format!("/proc/{}/comm", started.pid());
    eventually("it sleeps", || fs::read(&name).is_ok_and(|it| it == b"sleep\n"));
    started
}

/// Gives `user` a marker with the content and the name of alice's `id`; returns its path.
fn forge(place: &Place, user: u32, id: &str) -> PathBuf {
    let name = format!(".local/state/synconce/runs/{id}.json");
    let (from, to) = (place.path("alice").join(&name), place.path("bob").join(&name));
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, &to).unwrap();
    for path in to.ancestors().take_while(|path| *path != place.path("bob")) {
        chown(path, Some(user), Some(user)).unwrap();
    }
    to
}

#[test]
fn two_users_with_one_id_hide_neither_run_nor_process_of_each_other() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, ALICE, None);
        let forged = forge(place, BOB, &id);
        let processes = [ALICE, BOB].map(|user| (user, process_of(place, user, &id)));
        let json = status(place, 0, &["--json"]).stdout;
        let runs: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(runs.len(), 2, "{json}");
        for (user, process) in &processes {
            let run = runs.iter().find(|run| run["owner"] == *user).expect("the run of each");
            let pids: Vec<_> = run["running"].as_array().unwrap().iter().collect();
            assert_eq!(pids.len(), 1, "{json}");
            assert_eq!(pids[0]["pid"], process.pid(), "{json}");
        }

        // The command that was printed for one of the runs does not clear the other.
        let refused = status(place, 0, &["--clear", &id]);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(refused.stderr.contains("alice, bob"), "{refused:?}");
        assert!(forged.exists());
        let cleared = status(place, ALICE, &["--clear", &id]);
        assert!(cleared.status.success(), "{cleared:?}");
        assert!(forged.exists());
        assert!(status(place, 0, &["--clear", &id]).status.success());
        assert!(!forged.exists());
    });
}

#[test]
fn a_users_marker_with_the_id_of_roots_run_is_shown_beside_it_and_outlives_its_clearing() {
    isolated(|place| {
        machine(place);
        interrupt(place, ALICE, None);
        let id = interrupt(place, 0, None);
        let runs = place.path("alice/.local/state/synconce/runs");
        fs::write(runs.join(format!("{id}.json")), "{}").unwrap();
        chown(runs.join(format!("{id}.json")), Some(ALICE), Some(ALICE)).unwrap();
        let seen = status(place, 0, &[]);
        assert_eq!(seen.stdout.matches(&format!("{id} interrupted")).count(), 2, "{seen:?}");
        assert!(status(place, 0, &["--clear", &id]).status.success());
        let seen = status(place, 0, &[]);
        assert_eq!(seen.stdout.matches(&format!("{id} interrupted")).count(), 1, "{seen:?}");
        assert!(seen.stdout.contains("of alice"), "{seen:?}");
    });
}

#[test]
fn a_link_in_a_target_leads_status_to_no_file_of_the_host() {
    isolated(|place| {
        for name in ["host", "target/var/lib/synconce", "other/var/lib"] {
            fs::create_dir_all(place.path(name)).unwrap();
        }
        place.write("host/daemon.json", "{}");
        symlink(place.path("host"), place.path("target/var/lib/synconce/runs")).unwrap();
        // A link of the host's root is a link within the target.
        symlink("/srv", place.path("other/var/lib/synconce")).unwrap();
        fs::create_dir_all(place.path("other/srv/runs")).unwrap();
        place.write("other/srv/runs/a.json", "{}");
        let seen = place.status(&["--root", "target"]);
        assert_eq!((seen.status.code(), seen.stdout.as_str()), (Some(0), ""), "{seen:?}");
        let cleared = place.status(&["--root", "target", "--clear", "daemon"]);
        assert_eq!(cleared.status.code(), Some(125), "{cleared:?}");
        assert!(place.path("host/daemon.json").exists());

        let seen = place.status(&["--root", "other"]);
        assert!(seen.stdout.starts_with("a interrupted"), "{seen:?}");
        let marked = "marked in other/var/lib/synconce/runs/a.json";
        assert!(seen.stdout.contains(marked), "{seen:?}");
        assert!(place.status(&["--root", "other", "--clear", "a"]).status.success());
        assert!(!place.path("other/srv/runs").exists());

        // An empty directory of that name on the host is not the target's.
        fs::create_dir_all(place.path("host/runs")).unwrap();
        let inside = place.path("linked").join(place.path("host/runs").strip_prefix("/").unwrap());
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join("a.json"), "{}").unwrap();
        fs::create_dir_all(place.path("linked/var/lib")).unwrap();
        symlink(place.path("host"), place.path("linked/var/lib/synconce")).unwrap();
        assert!(place.status(&["--root", "linked", "--clear", "a"]).status.success());
        assert!(place.path("host/runs").exists());
    });
}
