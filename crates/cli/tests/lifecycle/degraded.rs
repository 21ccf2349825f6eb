//! What `status` prints if a part of the machine is missing, closed or too large.

use super::foreign::mount_silent;
use super::other_users::{ALICE, BOB, interrupt, machine, pointers, status, synconce};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Place, binary, finish, isolated};

fn own(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
}

#[test]
fn without_proc_no_pointer_is_listed_for_removal() {
    isolated(|place| {
        machine(place);
        interrupt(place, 0, None);
        interrupt(place, BOB, Some(&place.path("bob/state")));
        fs::remove_dir_all(place.path("bob/state")).unwrap();
        let status = synconce(place, 0, &["status"]);
        let mut command = place.command("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" status"]);
        command.arg(binary()).env("HOME", place.path("bob"));
        for (name, _) in status.get_envs().filter(|(_, value)| value.is_none()) {
            command.env_remove(name);
        }
        let seen = finish(&mut command);
        assert!(!seen.stderr.contains("rm "), "{seen:?}");
        assert!(seen.stderr.contains("/proc/self/mountinfo"), "{seen:?}");
        assert_eq!(pointers().len(), 1);
    });
}

#[test]
fn the_runtime_directory_of_another_user_hides_no_marker() {
    isolated(|place| {
        machine(place);
        let id = interrupt(place, ALICE, None);
        let runtime = place.path("of-bob");
        fs::create_dir_all(runtime.join("synconce")).unwrap();
        own(&runtime, BOB);
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        let look = || {
            let mut status = synconce(place, ALICE, &["status"]);
            finish(status.env_remove("SYNCONCE_RUNTIME_DIR").env("XDG_RUNTIME_DIR", &runtime))
        };
        let seen = look();
        assert_eq!(seen.status.code(), Some(4), "{seen:?}");
        assert!(seen.stdout.contains(&format!("{id} interrupted perl")), "{seen:?}");
        let expected =
            format!("synconce: cannot read the run files in {}/synconce: ", runtime.display());
        assert!(seen.stderr.starts_with(&expected), "{seen:?}");
        assert!(
            seen.stderr.contains("hint: env --unset=XDG_RUNTIME_DIR synconce status\n"),
            "{seen:?}"
        );
        // A directory that could not be read does not count as empty.
        assert!(status(place, ALICE, &["--clear", &id]).status.success());
        assert_eq!(look().status.code(), Some(125));
    });
}

#[test]
fn a_home_that_a_supplementary_group_opens_is_looked_at() {
    isolated(|place| {
        machine(place);
        let group = place.write("group", "root:x:0:\nteam:x:64200:bob,alice\n");
        mount(&group, "/etc/group", "", MountFlags::BIND, None).unwrap();
        let id = interrupt(place, ALICE, None);
        fs::create_dir(place.path("team")).unwrap();
        fs::rename(place.path("alice"), place.path("team/alice")).unwrap();
        chown(place.path("team"), Some(0), Some(64200)).unwrap();
        fs::set_permissions(place.path("team"), fs::Permissions::from_mode(0o750)).unwrap();
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let (old, new) = (place.text("alice"), place.text("team/alice"));
        fs::write("/etc/passwd", passwd.replace(&old, &new)).unwrap();
        let seen = status(place, 0, &[]);
        assert!(seen.stdout.contains(&format!("{id} interrupted perl")), "{seen:?}");
        assert_eq!(seen.stderr, "");
    });
}

#[test]
fn a_directory_with_the_name_of_a_marker_is_no_run() {
    isolated(|place| {
        fs::create_dir_all(place.path("state/runs/x.json/below")).unwrap();
        place.write("data", "x");
        let seen = place.status(&[]);
        assert_eq!((seen.status.code(), seen.stdout.as_str()), (Some(0), ""), "{seen:?}");
        let run = place.run(&[], &["sync", "data"]);
        assert_eq!(run.stderr, "", "{run:?}");
        assert_eq!(place.status(&["--clear", "x"]).status.code(), Some(125));
        assert!(place.path("state/runs/x.json/below").exists());
    });
}

/// Gives alice `count` registered state directories with 1500 files each.
fn flood(place: &Place, count: usize) {
    let bob = |path: &&PathBuf| fs::metadata(path).unwrap().uid() == BOB;
    let pointer = pointers().iter().find(bob).expect("the pointer of bob").clone();
    let text = fs::read_to_string(&pointer).unwrap();
    for number in 0..count {
        let state = place.path(&format!("alice/flood-{number}"));
        fs::create_dir_all(state.join("runs")).unwrap();
        for file in 0..1500 {
            fs::write(state.join(format!("runs/{file}")), "").unwrap();
        }
        let path = pointer.with_file_name(format!("flood-{number}.json"));
        // With fs.protected_regular, root may not write to an earlier file of alice.
        let _ = fs::remove_file(&path);
        fs::write(&path, text.replace(&place.text("bob/state"), state.to_str().unwrap())).unwrap();
        own(&path, ALICE);
    }
}

#[test]
fn a_user_with_too_many_files_is_named_and_hides_no_other() {
    isolated(|place| {
        machine(place);
        interrupt(place, 0, None);
        let alice = interrupt(place, ALICE, None);
        let bob = interrupt(place, BOB, Some(&place.path("bob/state")));
        flood(place, 2);
        assert_eq!(status(place, 0, &[]).stderr, "", "what one user may have");
        flood(place, 4);
        let seen = status(place, 0, &[]);
        for id in [&alice, &bob] {
            assert!(seen.stdout.contains(&format!("{id} interrupted")), "{seen:?}");
        }
        let named = "synconce: cannot look at all state directories of alice: \
                     they have more than 4096 files\n";
        assert_eq!(seen.stderr, named);
    });
}

#[test]
fn users_whose_directories_were_not_read_within_the_time_limit_are_named() {
    isolated(|place| {
        machine(place);
        fs::create_dir(place.path("silent")).unwrap();
        let mut passwd = fs::read_to_string("/etc/passwd").unwrap();
        for number in 0..32 {
            let home = place.text("silent/home");
            passwd += &format!("slow{number}:x:{}:1::{home}:/bin/sh\n", 1000 + number);
        }
        fs::write("/etc/passwd", passwd).unwrap();
        let device = mount_silent(&place.path("silent"));
        let seen = status(place, 0, &[]);
        let expected = |users: &str, why: &str| {
            let line = format!("cannot look at all state directories of {users}: {why}\n");
            assert!(seen.stderr.contains(&line), "{line}{seen:?}");
        };
        expected("alice, bob", "the others took 10 s");
        assert!(seen.stderr.contains("of slow0, slow1, slow2, "), "{seen:?}");
        assert!(seen.stderr.contains(" and 16 more: no answer within 5 s\n"), "{seen:?}");
        drop(device);
        unmount(place.path("silent"), UnmountFlags::DETACH).unwrap();
    });
}
