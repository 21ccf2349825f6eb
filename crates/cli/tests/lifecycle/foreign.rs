//! `status --root DIR` with a DIR that another user wrote, or that does not answer.

use super::other_users::{ALICE, interrupt, machine, status};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use synconce_testkit::harness::{Place, SYNC, finish, isolated, perl};

/// Writes a marker of root's run `id` below `root`, as an unpacked image may contain one.
fn forge(root: &Path, id: &str) -> PathBuf {
    let runs = root.join("var/lib/synconce/runs");
    fs::create_dir_all(&runs).unwrap();
    let public = format!(
        r#"{{"version": 2, "id": "{id}", "started": "2026-01-01T00:00:00Z", "boot": "b",
        "user": 0, "supervisor": 1, "sealed": false, "file_systems": []}}"#
    );
    let private = r#"{"command": ["sh", "-c", "apt-get install evil"], "directory": "/evil",
        "root": "/other"}"#;
    fs::write(runs.join(format!("{id}.private")), private).unwrap();
    let path = runs.join(format!("{id}.json"));
    fs::write(&path, public).unwrap();
    path
}

/// Returns the commands in the output of `status`: what follows "then: ", and indented lines.
fn commands(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("  then: ").or(line.strip_prefix("      ")))
        .collect()
}

#[test]
fn no_command_is_taken_from_a_marker_of_an_unknown_run_in_a_root() {
    isolated(|place| {
        let id = "20260101T000000Z-00000000";
        let marker = forge(&place.path("image"), id);
        // Another root has a marker with the same id. The forged marker names that root, and
        // `--clear` must not follow it.
        let other = forge(&place.path("other"), id);
        let private = marker.with_extension("private");
        let text = fs::read_to_string(&private).unwrap();
        fs::write(&private, text.replace("/other", &place.text("other"))).unwrap();
        let seen = place.status(&["--root", "image"]);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("{id} interrupted")), "{seen:?}");
        let clear = format!("synconce status --root image --clear {id}");
        assert_eq!(commands(&seen.stdout), [clear], "{seen:?}");
        assert!(seen.stdout.contains("does not know"), "{seen:?}");
        assert!(place.status(&["--root", "image", "--clear", id]).status.success());
        assert!(!marker.exists() && other.exists());
        assert_eq!(place.status(&["--root", "image"]).stdout, "");
    });
}

#[test]
fn a_marker_in_a_root_with_the_id_of_a_known_run_changes_no_report_of_that_run() {
    isolated(|place| {
        fs::create_dir(place.path("image")).unwrap();
        let run = place
            .run(&["--root", "image"], &perl(&format!("{SYNC} kill 'KILL', getppid; exit 0;")));
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        let before = place.status(&["--root", "image"]).stdout;
        let id = before.split(' ').next().unwrap();
        forge(&place.path("image"), id);
        let seen = place.status(&["--root", "image"]);
        assert_eq!(seen.stdout, before);
        assert!(commands(&seen.stdout)[0].starts_with("synconce run "), "{seen:?}");
    });
}

#[test]
fn a_marker_in_a_root_with_the_id_of_a_users_run_does_not_hide_that_run() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, ALICE, None);
        let marker = forge(&place.path("image"), &id);
        let image = place.text("image");
        let seen = status(place, 0, &["--root", &image]);
        assert_eq!(seen.stdout.matches(&format!("{id} interrupted")).count(), 2, "{seen:?}");
        assert!(seen.stdout.contains("  of alice, marked in "), "{seen:?}");
        assert!(status(place, 0, &["--root", &image, "--clear", &id]).status.success());
        assert!(!marker.exists());
        let seen = status(place, 0, &["--root", &image]);
        assert_eq!(seen.stdout.matches(&format!("{id} interrupted")).count(), 1, "{seen:?}");

        // Now the forged marker belongs to alice, too: one run with a marker in two places.
        chown(forge(&place.path("image"), &id), Some(ALICE), Some(ALICE)).unwrap();
        let seen = status(place, 0, &["--root", &image]);
        assert_eq!(seen.stdout.matches(&format!("{id} interrupted")).count(), 1, "{seen:?}");
    });
}

#[test]
fn a_marker_in_a_copy_of_the_root_of_a_living_run_gives_no_hint_about_its_processes() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        place.write("data", "x");
        let script =
            "sync data; cp -a root copy; touch copied; until [ -e stop ]; do sleep 0.01; done";
        let words = ["sh", "-c", script];
        let run = synconce_testkit::harness::StartedCommand::new(
            &mut place.held(&["--root", "root"], &words),
        );
        synconce_testkit::harness::eventually("it is copied", || place.path("copied").exists());
        let seen = place.status(&["--root", "copy"]);
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert_eq!(seen.stdout.matches(" in-flight ").count(), 1, "{seen:?}");
        assert_eq!(seen.stdout.matches(" interrupted ").count(), 1, "{seen:?}");
        assert_eq!(seen.stdout.matches("kill ").count(), 0, "{seen:?}");
        place.write("stop", "");
        assert!(run.end().success());
    });
}

/// Mounts a FUSE file system on `point` whose server never answers, until the returned value
/// is dropped. Even root would wait for the server.
pub(super) fn mount_silent(point: &Path) -> fs::File {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    mount("none", point, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
    device
}

#[test]
fn a_root_that_does_not_answer_is_named() {
    isolated(|place: &Place| {
        let id = "20260101T000000Z-00000000";
        fs::create_dir_all(place.path("image/below")).unwrap();
        let device = mount_silent(&place.path("image"));
        for words in [&["--root", "image/below"][..], &["--root", "image", "--clear", id]] {
            let seen = finish(place.synconce(&["status"]).args(words));
            assert_eq!(seen.status.code(), Some(125), "{seen:?}");
            let named = format!("synconce: cannot look at {}: no answer within 5 s\n", words[1]);
            assert_eq!(seen.stderr, named);
        }
        drop(device);
        unmount(place.path("image"), UnmountFlags::DETACH).unwrap();
    });
}

#[test]
fn targets_of_several_runs_that_do_not_answer_are_waited_for_together() {
    isolated(|place: &Place| {
        let targets = ["first", "second", "third"];
        for target in targets {
            fs::create_dir(place.path(target)).unwrap();
            let words = perl("sync_file('data'); kill 'KILL', getppid; exit 0;");
            place.run(&["--root", target], &words);
        }
        let devices = targets.map(|target| mount_silent(&place.path(target)));
        let began = Instant::now();
        let seen = place.status(&[]);
        // Each alone takes the whole limit of 5 seconds.
        assert!(began.elapsed() < Duration::from_secs(14), "{:?}", began.elapsed());
        assert_eq!(seen.stdout.matches(" interrupted ").count(), 3, "{seen:?}");
        for target in targets {
            let at = place.text(target);
            let named = format!("cannot look at {at}: no answer within 5 s; once it answers:");
            assert!(seen.stdout.contains(&named), "{seen:?}");
        }
        drop(devices);
        for target in targets {
            unmount(place.path(target), UnmountFlags::DETACH).unwrap();
        }
    });
}
