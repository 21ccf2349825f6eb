//! What root's `status` shows of other users and of other directories, also if these users planted
//! files there; and what a user's `status` shows of root.

use super::foreign::mount_silent;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::{Place, binary, finish, isolated, perl};
use synconce_testkit::process::Finished;

pub(super) const ALICE: u32 = 64121;
pub(super) const BOB: u32 = 64122;

/// Turns this mount namespace into a machine with two users, on which synconce never ran.
pub(super) fn machine(place: &Place) {
    mount("none", "/var/lib", "tmpfs", MountFlags::empty(), None).unwrap();
    let mut passwd = "root:x:0:0:root:/root:/bin/sh\n".to_owned();
    for (name, user) in [("alice", ALICE), ("bob", BOB)] {
        let home = place.path(name);
        fs::create_dir(&home).unwrap();
        chown(&home, Some(user), Some(user)).unwrap();
        passwd += &format!("{name}:x:{user}:{user}::{}:/bin/sh\n", home.display());
    }
    let passwd = place.write("passwd", &passwd);
    mount(&passwd, "/etc/passwd", "", MountFlags::BIND, None).unwrap();
    for name in [".", "runtime"] {
        fs::create_dir_all(place.path(name)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o1777)).unwrap();
    }
}

/// Returns the command `synconce WORDS` as `user`, with the directories that are usual on a
/// machine.
pub(super) fn synconce(place: &Place, user: u32, words: &[&str]) -> Command {
    let mut command = match user {
        0 => place.command(binary()),
        _ => {
            let mut command = place.command("setpriv");
            let user = user.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups", binary()]);
            command
        }
    };
    let home = if user == ALICE { "alice" } else { "bob" };
    command.args(words).env("HOME", place.path(home)).current_dir(place.path(home));
    for variable in ["SYNCONCE_STATE_DIR", "SYNCONCE_REGISTRY_DIR", "XDG_STATE_HOME"] {
        command.env_remove(variable);
    }
    command
}

pub(super) fn status(place: &Place, user: u32, words: &[&str]) -> Finished {
    finish(synconce(place, user, &["status"]).args(words))
}

/// The command of a run that is cut short, on one line.
fn words() -> [String; 3] {
    let [perl, option, script] = perl("sync_file(\"data$<\"); kill 'KILL', getppid; sleep 1;");
    [perl, option, script.replace('\n', " ")]
}

/// Leaves an interrupted run of `user`, with the state directory `state` if there is one;
/// returns the id of the run.
pub(super) fn interrupt(place: &Place, user: u32, state: Option<&Path>) -> String {
    let mut run = synconce(place, user, &["run", "--"]);
    run.args(words()).env("SYNCONCE_RUNTIME_DIR", place.path("runtime").join(user.to_string()));
    if let Some(state) = state {
        run.env("SYNCONCE_STATE_DIR", state);
    }
    let run = finish(&mut run);
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    let mut status = synconce(place, user, &["status", "--json"]);
    if let Some(state) = state {
        status.env("SYNCONCE_STATE_DIR", state);
    }
    let text = finish(&mut status).stdout;
    let runs: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut runs = runs.as_array().unwrap().iter().filter(|run| run["run"]["user"] == user);
    runs.next_back().unwrap()["id"].as_str().unwrap().to_owned()
}

/// Returns the pointers in the machine's registry.
pub(super) fn pointers() -> Vec<PathBuf> {
    synconce_testkit::harness::files(Path::new("/var/lib/synconce/directories"), "json")
}

#[test]
fn roots_status_finds_the_interrupted_runs_of_every_user_and_of_other_directories() {
    isolated(|place| {
        machine(place);
        // There is no registry yet: alice's run is found by her home.
        let alice = interrupt(place, ALICE, None);
        assert!(!Path::new("/var/lib/synconce").exists(), "no user makes it");
        let elsewhere = place.path("elsewhere");
        let root = interrupt(place, 0, Some(&elsewhere));
        let registry = fs::metadata("/var/lib/synconce/directories").unwrap();
        assert_eq!(registry.permissions().mode() & 0o7777, 0o1777);
        // Bob's directory is found by his pointer alone.
        let bob = interrupt(place, BOB, Some(&place.path("bob/state")));
        assert_eq!(pointers().len(), 2);

        let seen = status(place, 0, &[]);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert_eq!(seen.stderr, "");
        for (id, of) in [(&alice, "of alice,"), (&bob, "of bob,"), (&root, "interrupted perl")] {
            let at = seen
                .stdout
                .find(&format!("{id} interrupted perl "))
                .unwrap_or_else(|| panic!("{id}: {seen:?}"));
            assert!(seen.stdout[at..].contains(of), "{of} {seen:?}");
        }
        assert_eq!(seen.stdout.matches(" interrupted ").count(), 3, "{seen:?}");
        let to_type = seen.stdout.matches("synconce run -- perl").count();
        assert_eq!(to_type, 1, "no word of a user is for root to type: {seen:?}");
        for id in [&alice, &bob, &root] {
            let cleared = status(place, 0, &["--clear", id]);
            assert!(cleared.status.success(), "{cleared:?}");
        }
        let seen = status(place, 0, &[]);
        assert!(seen.status.success() && seen.stdout.is_empty(), "{seen:?}");
        assert_eq!(status(place, ALICE, &[]).stdout, "");
        assert_eq!(status(place, 0, &["--clear", &alice]).status.code(), Some(125));
    });
}

#[test]
fn steps_that_roots_engines_held_are_shown_to_a_user_beside_the_users_own() {
    isolated(|place| {
        machine(place);
        mount("none", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        let count = |directory: &Path, engine: &str, steps: &str| {
            fs::create_dir_all(directory.join("steps")).unwrap();
            fs::write(directory.join("steps").join(engine), steps).unwrap();
        };
        count(Path::new("/run/synconce"), "docker", "...");
        count(Path::new("/run/synconce"), "podman", "..");
        let own = place.path("alice/run");
        count(&own.join("synconce"), "podman", ".");
        let status = |user, words: &[&str]| {
            let mut status = synconce(place, user, &["status"]);
            status.env_remove("SYNCONCE_RUNTIME_DIR").env("XDG_RUNTIME_DIR", &own);
            finish(status.args(words))
        };
        let seen = status(ALICE, &[]);
        let wanted = "podman: 1 build step held since the boot\n\
                      docker of root: 3 build steps held since the boot\n\
                      podman of root: 2 build steps held since the boot\n";
        assert_eq!((seen.status.code(), seen.stdout.as_str()), (Some(0), wanted), "{seen:?}");
        let json = status(ALICE, &["--json"]).stdout;
        let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
        let owners = rows.as_array().unwrap().iter().map(|row| row["owner"].as_u64());
        assert_eq!(owners.collect::<Vec<_>>(), [Some(ALICE.into()), Some(0), Some(0)], "{json}");
        // Metrics have the steps of one user only, so that each metric has one line for an engine.
        let metrics = status(ALICE, &["--format", "prometheus"]).stdout;
        assert!(metrics.contains("held_total{engine=\"podman\"} 1\n"), "{metrics}");
        assert!(!metrics.contains("docker"), "{metrics}");
        let of_root = "docker: 3 build steps held since the boot\n\
                       podman: 2 build steps held since the boot\n";
        assert_eq!(status(0, &[]).stdout, of_root);
    });
}

#[test]
fn roots_interrupted_runs_are_shown_to_a_user_and_do_not_change_the_exit_code() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, 0, None);
        let seen = status(place, ALICE, &[]);
        assert_eq!(seen.status.code(), Some(0), "{seen:?}");
        assert!(
            seen.stdout.contains(&format!(
                "{id} interrupted (a command that only its user and root may see)\n  started 20"
            )),
            "{seen:?}"
        );
        assert!(seen.stdout.contains("  of root"), "{seen:?}");
        assert!(!seen.stdout.contains("perl"), "its command line is root's: {seen:?}");
        let json = status(place, ALICE, &["--json"]).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json[0]["id"], &json[0]["owner"]), (&id.as_str().into(), &0.into()));
        assert!(json[0]["run"]["started"].is_string() && json[0]["run"]["command"].is_null());

        let refused = status(place, ALICE, &["--clear", &id]);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(refused.stderr.contains("is root's"), "{refused:?}");
        // Alice's own run counts for the exit code and is listed beside root's.
        interrupt(place, ALICE, None);
        assert_eq!(status(place, ALICE, &[]).status.code(), Some(4));
        fs::set_permissions("/var/lib/synconce", fs::Permissions::from_mode(0o700)).unwrap();
        let seen = status(place, ALICE, &[]);
        assert_eq!(seen.stdout.matches(" interrupted ").count(), 1, "{seen:?}");
        assert_eq!(seen.stderr, "");
    });
}

/// Puts into alice's state directory what a user may put there to mislead root.
fn trap(place: &Place, victim: &Path) {
    let runs = place.path("alice/.local/state/synconce/runs");
    fs::create_dir_all(&runs).unwrap();
    for name in ["alice/.local", "alice/.local/state", "alice/.local/state/synconce"] {
        chown(place.path(name), Some(ALICE), Some(ALICE)).unwrap();
    }
    chown(&runs, Some(ALICE), Some(ALICE)).unwrap();
    let escape = "\u{1b}]0;owned\u{7}\u{9b}2J";
    let record = |id: &str| {
        format!(
            r#"{{"version": 2, "id": "{id}", "command": ["\u001b[2Jx", "$(touch pwned)"],
            "directory": "/\u001b[31m", "started": "\u009b2J", "boot": "b", "user": 0,
            "supervisor": 1, "sealed": false, "root": "/\u202e", "file_systems": []}}"#
        )
    };
    let own = |path: &Path| chown(path, Some(ALICE), Some(ALICE)).unwrap();
    for name in ["escape", escape, "$(reboot)"] {
        let path = runs.join(format!("{name}.json"));
        fs::write(&path, record(name)).unwrap();
        own(&path);
    }
    mknodat(CWD, runs.join("pipe.json"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    own(&runs.join("pipe.json"));
    let endless = runs.join("endless.json");
    fs::File::create(&endless).unwrap().set_len(1 << 40).unwrap();
    own(&endless);
    symlink(victim, runs.join("link.json")).unwrap();
    fs::write(runs.join("foreign.json"), record("foreign")).unwrap();
}

#[test]
fn what_a_user_puts_into_a_state_directory_neither_leads_root_elsewhere_nor_hides_others() {
    isolated(|place| {
        machine(place);
        let victim = interrupt(place, 0, Some(&place.path("elsewhere")));
        let victim_path = place.path("elsewhere/runs").join(format!("{victim}.json"));
        let bob = interrupt(place, BOB, None);
        trap(place, &victim_path);
        let seen = status(place, 0, &[]);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("{bob} interrupted perl")), "{seen:?}");
        for name in ["escape", "endless", "pipe"] {
            assert!(seen.stdout.contains(&format!("{name} interrupted ")), "{name}: {seen:?}");
        }
        assert!(!seen.stdout.contains("foreign"), "only what is hers: {seen:?}");
        let is_raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!(seen.stdout.clone() + &seen.stderr).contains(is_raw), "{seen:?}");
        assert!(seen.stdout.contains("status --clear '$(reboot)'"), "{seen:?}");
        let json = status(place, 0, &["--json"]).stdout;
        assert!(!json.contains(is_raw), "{json}");
        serde_json::from_str::<serde_json::Value>(&json).unwrap();

        // A link to the directory of another user, first for the whole state directory, then
        // for a part.
        let state = place.path("alice/.local/state");
        fs::rename(state.join("synconce"), place.path("alice/kept")).unwrap();
        symlink(place.path("elsewhere"), state.join("synconce")).unwrap();
        assert!(status(place, 0, &["--clear", "foreign"]).status.code() == Some(125));
        fs::remove_file(place.path("elsewhere").join("../alice/.local/state/synconce")).unwrap();
        fs::rename(place.path("alice/kept"), state.join("synconce")).unwrap();
        let runs = state.join("synconce/runs");
        fs::rename(&runs, place.path("alice/runs")).unwrap();
        symlink(place.path("elsewhere/runs"), &runs).unwrap();
        // Alice's link leads to a marker of root: root's `status` lists the marker once, from
        // its own place.
        let seen = status(place, 0, &[]);
        assert_eq!(seen.stdout.matches(&format!("{victim} interrupted")).count(), 1, "{seen:?}");
        assert!(victim_path.exists());
    });
}

#[test]
fn a_file_system_that_does_not_answer_is_named_and_hides_no_other_user() {
    isolated(|place| {
        machine(place);
        let bob = interrupt(place, BOB, None);
        let device = mount_silent(&place.path("alice"));
        // The pipe gets end of file, although a process is abandoned.
        let status = synconce(place, 0, &["status"]);
        let mut seen = place.command("bash");
        seen.args(["-c", "set -o pipefail; \"$0\" status | cat", binary()]);
        for (name, value) in status.get_envs() {
            match value {
                Some(value) => seen.env(name, value),
                None => seen.env_remove(name),
            };
        }
        let seen = finish(seen.current_dir("/"));
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("{bob} interrupted perl")), "{seen:?}");
        let named = "synconce: cannot look at all state directories of alice: \
                     no answer within 5 s\n";
        assert_eq!(seen.stderr, named);
        drop(device);
        unmount(place.path("alice"), UnmountFlags::DETACH).unwrap();
    });
}

#[test]
fn status_of_a_root_without_the_rights_of_other_users_prints_one_line() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, 0, None);
        let status = synconce(place, 0, &["status"]);
        let mut inside = place.command("unshare");
        inside.args(["--user", "--map-root-user"]).arg(status.get_program());
        inside.args(status.get_args()).env_remove("SYNCONCE_STATE_DIR");
        let seen = finish(&mut inside);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("{id} interrupted perl")), "its own: {seen:?}");
        let message = "synconce: cannot look at all state directories of alice, bob: ";
        assert!(seen.stderr.starts_with(message), "{seen:?}");
        assert_eq!(seen.stderr.lines().count(), 1, "{seen:?}");
    });
}

#[test]
fn at_the_limit_of_processes_status_still_says_what_to_do() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, ALICE, None);
        let user = ALICE.to_string();
        let mut command = place.command("setpriv");
        command.args([
            "--reuid",
            &user,
            "--regid",
            &user,
            "--clear-groups",
            "prlimit",
            "--nproc=1",
        ]);
        command.args([binary(), "status"]).env("HOME", place.path("alice"));
        command.env_remove("SYNCONCE_STATE_DIR").env_remove("XDG_STATE_HOME");
        let seen = finish(&mut command);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("then: synconce status --clear {id}")), "{seen:?}");
    });
}
