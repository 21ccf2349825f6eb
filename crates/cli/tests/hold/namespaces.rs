//! Verbs and writers that see other mounts than the hold: bind mounts, and mount namespaces.

use crate::crashes::take_away;
use crate::support::{HoldOnRig, configure, end, failed, sh, stays, with_hold};
use std::fs;
use synconce_testkit::harness::{StartedCommand, binary, eventually, finish, isolated};

#[test]
fn a_file_that_is_open_through_a_bind_mount_or_another_namespace_is_not_taken_into_a_hold() {
    with_hold("", |place, fixture| {
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
            fixture.fails("start", &[&format!("in use by sh (pid {})", process.pid())]);
            end(process);
        }
        let script = "mount -t tmpfs none \"$0\"; mount --bind \"$1\" \"$0\"; umount \"$1\"; \
                      exec 3<>\"$0/old\"; echo >ready; exec sleep 600";
        let away = fixture.rig.path().join("away");
        fs::create_dir(&away).unwrap();
        let [away, held] = [away, held].map(|path| path.display().to_string());
        let words = ["--mount", "sh", "-c", script, &away, &held];
        let process = StartedCommand::new(place.command("unshare").args(words));
        place.wait_for("ready");
        fixture.fails("start", &["in use by sleep"]);
        end(process);
        fs::remove_dir(away).unwrap();
        assert_eq!(fixture.everything(), at_first);
        let unbind = place.bare(&["umount", &copy.display().to_string()]);
        assert_eq!(unbind.status.code(), Some(0));
    });
}

#[test]
fn a_program_that_reads_for_a_moment_does_not_fail_the_start() {
    with_hold("", |place, fixture| {
        let process = fixture.open(&fixture.file());
        let start = StartedCommand::new(&mut place.synconce(&["hold", "start", "./t.toml"]));
        // The lock of the verb is taken before the look at the files.
        eventually("the start has begun", || place.path("runtime/holds/t.lock").exists());
        end(process);
        assert_eq!(start.end().code(), Some(0), "{}", start.text());
        fixture.ok("stop");
    });
}

#[test]
fn a_verb_in_an_older_mount_namespace_takes_nothing_away() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        let script = "echo >ready; exec sleep 600";
        let older =
            StartedCommand::new(place.command("unshare").args(["--mount", "sh", "-c", script]));
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
            let said = "it is mounted in the mount namespace of ";
            failed(there(verb), &[said, " synconce hold stop t\n"]);
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
            failed(alone(verb), &["in use by another process"]);
        }
        assert_eq!(fs::read_to_string(&data).unwrap(), "data");
        assert_eq!(fixture.state(), "held");
        // The other namespace has the disk, and no overlay.
        fixture.ok("stop");
        end(older);
    });
}

#[test]
fn a_stop_where_a_copy_of_the_hold_is_ends_nothing() {
    isolated(|place| {
        for (parent, there) in [("shared", "slave"), ("shared", "private"), ("private", "private")]
        {
            let fixture = HoldOnRig::new(place, "");
            sh(place, &format!("mount --make-{parent} {}", fixture.rig.path().display()));
            fixture.ok("start");
            let data = fixture.directory().join("data");
            let words = ["--mount", "--propagation", there, binary(), "hold", "stop", "./t.toml"];
            let refused = || {
                let said = "hint: nsenter --mount --target ";
                failed(
                    finish(place.command("unshare").args(words)),
                    &[said, " synconce hold stop t\n"],
                );
                assert_eq!(fixture.state(), "held");
                fs::write(&data, "data").unwrap();
            };
            refused();
            let reader = stays(place, &["sh"], &format!("exec 3<{}", data.display()));
            refused();
            end(reader);
            fixture.ok("stop");
            fixture.rig.down().unwrap();
        }
        // An unmount on one peer is one on all.
        let fixture = HoldOnRig::new(place, "");
        sh(place, &format!("mount --make-shared {}", fixture.rig.path().display()));
        fixture.ok("start");
        let words = ["--mount", "--propagation", "unchanged", binary(), "hold", "stop", "./t.toml"];
        let stopped = finish(place.command("unshare").args(words));
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        assert_eq!(fixture.state(), "off");
        fs::write(fixture.directory().join("data"), "data").unwrap();
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_directory_that_another_container_holds_is_not_held_again() {
    with_hold("", |place, fixture| {
        let path = fixture.directory().display().to_string();
        configure(place, "t", "after_crash = \"wipe\"", &fixture.directory());
        // The other container has markers of its own.
        let script = format!(
            "export SYNCONCE_STATE_DIR=\"$PWD/state2\" SYNCONCE_RUNTIME_DIR=\"$PWD/runtime2\"\n\
             {} hold start ./t.toml",
            binary()
        );
        let words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"];
        let words = [&words[..], &["--kill-child", "--mount-proc", "sh"]].concat();
        let container = stays(place, &words, &script);
        let at_first = fixture.everything();
        fixture.ok("recover");
        fixture.fails("start", &[&format!("cannot hold {path}: in use by another process")]);
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(fixture.state(), "off");
        // The marker is in the other container, and the disk stays mounted.
        fs::write(fixture.directory().join("data"), "data").unwrap();
        end(container);
        take_away(place, &[]);
        fixture.ok("recover");
        fixture.ok("start");
        assert_eq!(fs::read_to_string(fixture.directory().join("data")).unwrap(), "data");
        fixture.ok("stop");
    });
}

/// Starts the hold `t` in a mount namespace of its own. Returns what it says, and its exit code.
fn started_apart(fixture: &HoldOnRig<'_>, propagation: &str) -> (String, Option<i32>) {
    let words = ["--mount", "--propagation", propagation, binary(), "hold", "start", "./t.toml"];
    let finished = finish(fixture.place.command("unshare").args(words));
    (finished.stderr, finished.status.code())
}

#[test]
fn a_start_where_the_units_daemon_does_not_see_the_hold_is_refused() {
    with_hold("unit = \"other.service\"\n", |place, fixture| {
        let at_first = fixture.everything();
        // As in a unit with PrivateTmp=, which receives mounts and sends none.
        for propagation in ["private", "slave"] {
            let (said, code) = started_apart(fixture, propagation);
            assert_eq!(code, Some(125), "{said}");
            assert!(said.contains("cannot start the hold t in this mount namespace"), "{said}");
            let hint = "hint: nsenter --mount --target 1 synconce hold start t\n";
            assert!(said.contains(hint), "{said}");
            assert_eq!(fixture.everything(), at_first);
            assert_eq!(fixture.state(), "off");
        }
        // What is mounted there is mounted here, too.
        sh(place, &format!("mount --make-rshared {}", fixture.rig.path().display()));
        assert_eq!(started_apart(fixture, "unchanged").1, Some(0));
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        // A child of the hold's process sees the hold.
        let words = ["--mount", binary(), "hold", "run", "./t.toml", "--", "true"];
        let run = finish(place.command("unshare").args(words));
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        // A daemon without a unit may be started anywhere.
        fixture.configure("t", "");
        let script = format!("{} hold start ./t.toml; {0} hold stop ./t.toml", binary());
        let both = finish(place.command("unshare").args(["--mount", "sh", "-ec", &script]));
        assert_eq!(both.status.code(), Some(0), "{}", both.stderr);
        assert!(both.stderr.contains("start the daemon here\n"), "{}", both.stderr);
    });
}

#[test]
fn a_container_starts_a_hold_for_its_own_daemon() {
    with_hold("unit = \"other.service\"\n", |place, _| {
        // With the processes of the host in sight, as by `docker run --pid=host`.
        let script = format!(
            "mkdir root; mount -t tmpfs root root; for each in /*; do if [ -L $each ]; \
             then cp -a $each root; elif [ -d $each ]; then mkdir root$each; \
             mount --rbind $each root$each; fi; done; \
             exec chroot root sh -ec 'cd \"$0\"; {0} hold start ./t.toml; {0} hold stop ./t.toml' \
             \"$PWD\"",
            binary()
        );
        let words = ["--mount", "--propagation", "private", "sh", "-ec", &script];
        let both = finish(place.command("unshare").args(words));
        assert_eq!(both.status.code(), Some(0), "{}", both.stderr);
        assert!(!both.stderr.contains("start the daemon here"), "{}", both.stderr);
    });
}

#[test]
fn a_directory_that_is_mounted_without_the_hold_is_not_held() {
    with_hold("", |place, fixture| {
        let held = fixture.directory().display().to_string();
        fs::create_dir_all(fixture.directory().join("sub")).unwrap();
        let volume = place.text("a volume");
        fs::create_dir(&volume).unwrap();
        let at_first = fixture.everything();
        for (source, writable) in [("", true), ("/sub", true), ("", false)] {
            let option = if writable { "rw" } else { "ro" };
            let bind = format!(
                "mount --make-rprivate /; mount --bind {held}{source} '{volume}'; \
                 mount -o remount,bind,{option} '{volume}'"
            );
            let refused = |process: Option<&StartedCommand>| {
                let started = fixture.hold("start");
                if !writable {
                    assert_eq!(started.status.code(), Some(0), "{}", started.stderr);
                    return drop(fixture.ok("stop"));
                }
                assert_eq!(started.status.code(), Some(125), "{}", started.stderr);
                let there = process
                    .map(|one| format!(", in the mount namespace of sleep (pid {})", one.pid()));
                let there = there.unwrap_or_default();
                let said = format!("{volume} leads to its files without the hold{there}\n");
                assert!(started.stderr.contains(&said), "{said}: {}", started.stderr);
                assert!(started.stderr.contains(&format!("umount '{volume}'\n")));
            };
            let container = stays(place, &["unshare", "--mount", "sh"], &bind);
            refused(Some(&container));
            end(container);
            sh(place, &bind);
            refused(None);
            sh(place, &format!("umount '{volume}'"));
            assert_eq!(fixture.everything(), at_first);
        }
        // The overlay covers a mount that receives it, here and in a service.
        sh(place, &format!("mount --make-rshared {}", fixture.rig.path().display()));
        let slave = ["unshare", "--mount", "--propagation", "slave", "sh"];
        let service = stays(place, &slave, &format!("mount --bind {held} '{volume}'"));
        fixture.ok("start");
        let lines = "grep -c ' - overlay synconce ' /proc/self/mountinfo";
        let seen = sh(place, &format!("nsenter --mount --target {} {lines}", service.pid()));
        assert_eq!(seen, "3\n");
        fixture.ok("stop");
        end(service);
    });
}

#[test]
fn a_private_copy_of_all_mounts_is_no_reason_to_refuse() {
    with_hold("", |place, fixture| {
        let words = ["unshare", "--mount", "--propagation", "private", "sh"];
        let container = stays(place, &words, ":");
        fixture.ok("start");
        fixture.ok("stop");
        end(container);
    });
}

#[test]
fn two_names_of_one_directory_are_not_held_by_one_hold() {
    with_hold("", |place, fixture| {
        let (real, alias) = (place.text("real"), place.text("alias"));
        sh(place, &format!("mkdir -p {real}/db/inner {alias}; ln -s {real} linked"));
        sh(place, &format!("mount --bind {real} {alias}; mkdir at; mount --bind {real}/db at"));
        let held = format!("{real}/db");
        for other in [
            format!("{alias}/db"),
            format!("{alias}/db/inner"),
            place.text("linked") + "/db",
            place.text("at"),
            place.text("at/inner"),
        ] {
            let hold = |path: &str| format!("[[hold]]\npath = \"{path}\"\nkind = \"other\"\n");
            place.write("t.toml", &(hold(&held) + &hold(&other)));
            let said = format!(
                "cannot hold {other} and {held}: a link or a bind mount leads from one into the \
                 other"
            );
            fixture.fails("start", &[&said, "hint: leave one of the two paths out"]);
            assert_eq!(fixture.state(), "off");
        }
        sh(place, &format!("umount {alias} at; [ ! -e {real}/.synconce-hold ]"));
    });
}
