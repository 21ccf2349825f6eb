//! Verbs and writers that see other mounts than the hold: bind mounts, and mount namespaces.

use crate::support::{Fixture, end, stays};
use std::fs;
use synconce_testkit::harness::{Started, binary, eventually, finish, isolated};

#[test]
fn a_file_that_is_open_through_a_bind_mount_or_another_namespace_is_not_taken_into_a_hold() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let held = fixture.directory();
        fs::write(held.join("old"), "old").unwrap();
        let copy = fixture.rig.path().join("copy");
        fs::create_dir(&copy).unwrap();
        let bind = format!("mount --bind {} {}", held.display(), copy.display());
        assert_eq!(place.bare(&["sh", "-c", &bind]).status.code(), Some(0));
        let link = fixture.rig.path().join("link");
        fs::hard_link(fixture.file(), &link).unwrap();
        let at_first = fixture.everything();
        for path in [copy.join("old"), link] {
            let process = fixture.open(&path);
            let refused = fixture.hold("start");
            assert_eq!(refused.status.code(), Some(125), "{}", path.display());
            let said = format!("in use by sh (pid {})", process.pid());
            assert!(refused.stderr.contains(&said), "{}", refused.stderr);
            end(process);
        }
        let script = "mount -t tmpfs none \"$0\"; mount --bind \"$1\" \"$0\"; umount \"$1\"; \
                      exec 3<>\"$0/old\"; echo >ready; exec sleep 600";
        let away = fixture.rig.path().join("away");
        fs::create_dir(&away).unwrap();
        let [away, held] = [away, held].map(|path| path.display().to_string());
        let words = ["--mount", "sh", "-c", script, &away, &held];
        let process = Started::new(place.command("unshare").args(words));
        place.wait_for("ready");
        let refused = fixture.hold("start");
        assert_eq!(refused.status.code(), Some(125));
        assert!(refused.stderr.contains("in use by sleep"), "{}", refused.stderr);
        end(process);
        fs::remove_dir(away).unwrap();
        assert_eq!(fixture.everything(), at_first);
        let unbind = place.bare(&["umount", &copy.display().to_string()]);
        assert_eq!(unbind.status.code(), Some(0));
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_program_that_reads_for_a_moment_does_not_fail_the_start() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let process = fixture.open(&fixture.file());
        let start = Started::new(&mut place.synconce(&["hold", "start", "./t.toml"]));
        // The lock of the verb is taken before the look at the files.
        eventually("the start has begun", || place.path("runtime/holds/t.lock").exists());
        end(process);
        assert_eq!(start.end().code(), Some(0), "{}", start.text());
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_verb_in_an_older_mount_namespace_takes_nothing_away() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        let script = "echo >ready; exec sleep 600";
        let older = Started::new(place.command("unshare").args(["--mount", "sh", "-c", script]));
        place.wait_for("ready");
        let before = place.bare(&["readlink", "/proc/self/ns/mnt"]).stdout;
        eventually("the namespace is another one", || {
            let link = format!("/proc/{}/ns/mnt", older.pid());
            place.bare(&["readlink", &link]).stdout != before
        });
        fixture.ok("start");
        let data = fixture.directory().join("data");
        fs::write(&data, "data").unwrap();
        let there = |verb: &str| {
            let (pid, file) = (older.pid().to_string(), place.text("t.toml"));
            let words = ["--mount", "--target", &pid, binary(), "hold", verb, &file];
            finish(place.command("nsenter").args(words))
        };
        let shown = there("status");
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        assert!(shown.stdout.contains("it is mounted in the mount namespace of"), "{shown:?}");
        let recovered = there("recover");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        for verb in ["stop", "start"] {
            let refused = there(verb);
            assert_eq!(refused.status.code(), Some(125), "{verb}: {}", refused.stderr);
            let said = "it is mounted in the mount namespace of ";
            assert!(refused.stderr.contains(said), "{verb}: {}", refused.stderr);
            assert!(refused.stderr.contains(" synconce hold stop t\n"), "{}", refused.stderr);
        }
        // Processes of the hold's namespace are not in /proc there.
        let alone = |verb: &str| {
            let (pid, file) = (older.pid().to_string(), place.text("t.toml"));
            let words = ["--mount", "--target", &pid, "unshare", "--pid", "--fork", "--mount-proc"];
            let words = [&words[..], &[binary(), "hold", verb, &file]].concat();
            finish(place.command("nsenter").args(words))
        };
        let recovered = alone("recover");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        for verb in ["stop", "start"] {
            let refused = alone(verb);
            assert_eq!(refused.status.code(), Some(125), "{verb}: {}", refused.stderr);
            assert!(refused.stderr.contains("in use by another process"), "{}", refused.stderr);
        }
        assert_eq!(fs::read_to_string(&data).unwrap(), "data");
        assert_eq!(fixture.state(), "held");
        // The other namespace has the disk, and no overlay.
        fixture.ok("stop");
        end(older);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_directory_that_another_container_holds_is_not_held_again() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let path = fixture.directory().display().to_string();
        let settings = "after_crash = \"wipe\"\n[[hold]]\nkind = \"other\"\npath = ";
        place.write("t.toml", &format!("{settings}\"{path}\"\n"));
        // The other container has markers of its own.
        let script = format!(
            "export SYNCONCE_STATE_DIR=\"$PWD/state2\" SYNCONCE_RUNTIME_DIR=\"$PWD/runtime2\"\n\
             {} hold start ./t.toml",
            binary()
        );
        let words = ["unshare", "--mount", "--propagation", "private", "sh"];
        let container = stays(place, &words, &script);
        let at_first = fixture.everything();
        fixture.ok("recover");
        let refused = fixture.hold("start");
        assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
        let said = format!("cannot hold {path}: in use by another process");
        assert!(refused.stderr.contains(&said), "{}", refused.stderr);
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(fixture.state(), "off");
        // The marker is in the other container, and the disk stays mounted.
        fs::write(fixture.directory().join("data"), "data").unwrap();
        end(container);
        place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]);
        fixture.ok("recover");
        fixture.ok("start");
        assert_eq!(fs::read_to_string(fixture.directory().join("data")).unwrap(), "data");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}
