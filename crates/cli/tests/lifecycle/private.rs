//! The two parts of a marker and of a run file: one is public, one is for the user of the run
//! alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Place, binary, eventually, files, finish, isolated, perl};

/// A word of a command line that other users must not read.
const SECRET: &str = "correct-horse-battery";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Leaves an interrupted run, started under the umask `umask`, with SECRET in its command
/// line, its root and its working directory.
fn interrupt(place: &Place, umask: &str) {
    let script = perl(
        "sync_file('data'); say_to('synced', 1); wait_for('go'); kill 'KILL', getppid; sleep 1;",
    );
    let start = format!("umask {umask}; exec \"$0\" run --root {SECRET} -- \"$@\" {SECRET}");
    let mut run = place.command("sh");
    run.args(["-c", &start, binary()]).args(script);
    let run = synconce_testkit::harness::StartedCommand::new(&mut run);
    place.wait_for("synced");
    assert_secret_is_kept(place, &["runtime", "state", SECRET]);
    place.write("go", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
}

/// Asserts that no file in `directories` that another user can read contains SECRET.
fn assert_secret_is_kept(place: &Place, directories: &[&str]) {
    let mut grep = place.command("setpriv");
    grep.args(["--reuid", "64121", "--regid", "64121", "--clear-groups", "sh", "-c"]);
    grep.arg("find \"$@\" -name '*.json' -exec cat {} +; grep -rl \"$0\" \"$@\"").arg(SECRET);
    let seen = finish(grep.args(directories));
    assert!(seen.stdout.contains("\"started\""), "the public parts can be read: {seen:?}");
    assert!(!seen.stdout.contains("command") && !seen.stdout.contains(SECRET), "{seen:?}");
    assert!(!seen.stdout.contains(&place.text("")), "the working directory: {seen:?}");
    for directory in directories {
        let own = place.bare(&["grep", "-rl", "--", SECRET, directory]);
        assert!(own.stdout.ends_with(".private\n"), "root can read {directory}: {own:?}");
    }
}

#[test]
fn no_other_user_reads_a_password_of_a_command_line_in_a_marker_or_a_run_file() {
    isolated(|place| {
        fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        for umask in ["000", "077"] {
            let runs = format!("{SECRET}/var/lib/synconce/runs");
            for name in ["state", "runtime", SECRET] {
                let _ = fs::remove_dir_all(place.path(name));
            }
            for name in ["go", "synced"] {
                let _ = fs::remove_file(place.path(name));
            }
            fs::create_dir(place.path(SECRET)).unwrap();
            interrupt(place, umask);
            let directories = ["state", SECRET];
            assert_secret_is_kept(place, &directories);
            for directory in ["state/runs", &runs] {
                let parts = ["json", "private"].map(|it| files(&place.path(directory), it));
                assert_eq!(parts.each_ref().map(Vec::len), [1, 1], "{umask}");
                assert_eq!(parts.map(|it| mode(&it[0])), [0o644, 0o600], "{umask}");
                assert_eq!(mode(&place.path(directory)), 0o755, "{umask}");
            }
            assert_eq!(mode(&place.path("runtime")), 0o755, "{umask}");
            let status = place.status(&["--root", SECRET]);
            assert_eq!(status.stdout.matches(SECRET).count(), 4, "shown to root: {status:?}");
        }
    });
}

#[test]
fn a_marker_that_version_1_has_left_is_shown_whole_and_cleared() {
    isolated(|place| {
        fs::create_dir_all(place.path("state/runs")).unwrap();
        let id = "20260101T000000Z-00000000";
        let old = r#"{"version": 1, "id": "20260101T000000Z-00000000", "command": ["make", "all"],
            "directory": "/src", "started": "2026-01-01T00:00:00Z", "boot": "b", "user": 0,
            "supervisor": 7, "sealed": true, "root": null, "file_systems":
            [{"mount_point": "/", "type": "ext4", "source": "/dev/vda"}]}"#;
        place.write(&format!("state/runs/{id}.json"), old);
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(4), "{status:?}");
        assert!(status.stdout.contains(&format!("{id} interrupted make all\n")), "{status:?}");
        assert!(status.stdout.contains("started 2026-01-01T00:00:00Z in /src\n"), "{status:?}");
        assert!(status.stdout.contains("synconce run --sealed -- make all\n"), "{status:?}");
        assert!(place.status(&["--clear", id]).status.success());
        assert!(place.markers().is_empty());
    });
}

#[test]
fn clearing_removes_both_parts_and_a_private_part_alone_goes_with_the_next_run() {
    isolated(|place| {
        fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(place.path(SECRET)).unwrap();
        interrupt(place, "022");
        let all = |directory: &str| {
            let suffixes = ["json", "private"].into_iter();
            suffixes.flat_map(|it| files(&place.path(directory), it)).collect::<Vec<PathBuf>>()
        };
        let public = place.markers().remove(0);
        let id = public.file_stem().unwrap().to_str().unwrap().to_owned();
        let cleared = place.status(&["--root", SECRET, "--clear", &id]);
        assert!(cleared.status.success(), "{cleared:?}");
        assert_eq!(all("state/runs"), Vec::<PathBuf>::new());
        assert_eq!(all(&format!("{SECRET}/var/lib/synconce/runs")), Vec::<PathBuf>::new());

        // A kill between the removals of the two files leaves the private file, while another run
        // is in flight.
        place.remove("go");
        let alone = place.write("state/runs/20260101T000000Z-00000000.private", "{}");
        let script = "sync data; touch ready; until [ -e go ]; do sleep 0.01; done";
        place.write("data", "");
        let other = place.start(script);
        eventually("it is marked", || place.path("ready").exists());
        assert!(!alone.exists(), "removed by the run that came next");
        assert!(place.sh(":").status.success());
        assert_eq!(all("state/runs").len(), 2, "what is of a living run stays");
        assert!(place.status(&[]).stdout.contains(script), "{:?}", place.status(&[]));
        place.write("go", "");
        assert!(other.end().success());
    });
}
