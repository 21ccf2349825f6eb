//! Holds that cannot start or stop, and what is left of them.

use crate::support::{configure, end, failed, hide_systemd, hold, sh, show_systemd, with_hold};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use synconce_testkit::harness::{StartedCommand, binary, eventually, finish};

#[test]
fn a_file_that_a_process_has_open_is_not_taken_into_a_hold() {
    with_hold("unit = \"some.service\"\n", |place, fixture| {
        show_systemd(place);
        let at_first = fixture.everything();
        for path in [fixture.file(), fixture.directory().join("new")] {
            let process = fixture.open(&path);
            fixture.fails("start", &["in use by s", "hint: systemctl stop some.service"]);
            end(process);
        }
        fs::remove_file(fixture.directory().join("new")).unwrap();
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn without_systemd_the_hint_of_a_stop_names_the_processes_and_not_the_unit() {
    with_hold("unit = \"some.service\"\n", |place, fixture| {
        hide_systemd(place);
        fixture.ok("start");
        let process = fixture.open(&fixture.directory().join("new"));
        let hint = format!("hint: stop the daemon; or: kill {}", process.pid());
        fixture.fails("stop", &["in use by s", &hint]);
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn a_hold_with_an_open_file_stays_whole_when_its_stop_is_refused() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let process = fixture.open(&fixture.directory().join("new"));
        fixture.fails("stop", &["in use by s"]);
        assert_eq!(fixture.state(), "held");
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn two_holds_never_have_the_same_file() {
    with_hold("", |place, fixture| {
        fixture.configure("second", "");
        fixture.ok("start");
        failed(
            hold(place, &["start", "./second.toml"]),
            &["it is in the hold t", "hint: synconce hold stop t\n"],
        );
        fixture.ok("stop");
    });
}

#[test]
fn an_interrupted_hold_with_the_same_file_is_to_be_recovered_and_not_stopped() {
    with_hold("", |place, fixture| {
        fixture.configure("second", "");
        fixture.ok("start");
        fixture.ok("stop");
        // The marker of the hold, of another boot.
        fixture.ok("start");
        let marker = place.read("state/holds/t.json");
        fixture.ok("stop");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        place.write("state/holds/t.json", &marker.replace(boot.trim(), "another"));
        failed(
            hold(place, &["start", "./second.toml"]),
            &["it is in the hold t", "hint: synconce hold recover t\n"],
        );
    });
}

#[test]
fn two_starts_at_once_make_one_hold() {
    with_hold("", |place, fixture| {
        let script = "for turn in 1 2 3 4; do \"$0\" hold start ./t.toml & done; wait";
        let binary = binary();
        let all = finish(place.command("sh").args(["-c", script, binary]));
        assert_eq!(all.status.code(), Some(0), "{}", all.stderr);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(mounts.matches("meta.db rw").count(), 1, "{mounts}");
        fixture.ok("stop");
    });
}

#[test]
fn two_names_of_one_directory_that_start_at_once_make_one_hold() {
    with_hold("", |place, fixture| {
        for name in ["one", "two"] {
            configure(place, name, "", &fixture.directory());
        }
        // A tracer stops the first start before its marker is there.
        let intact = place.path("state/holds/one.intact").display().to_string();
        let stop = "inject=openat:signal=SIGSTOP:when=1";
        let mut strace = place.command("strace");
        strace.args(["-f", "-o", "calls", "-P", &intact, "-e", "trace=openat", "-e", stop]);
        let one = StartedCommand::new(strace.args([binary(), "hold", "start", "./one.toml"]));
        let calls = || fs::read_to_string(place.path("calls")).unwrap_or_default();
        eventually("the first start is stopped", || calls().contains("stopped by SIGSTOP"));
        let two = StartedCommand::new(&mut place.synconce(&["hold", "start", "./two.toml"]));
        let said = format!(
            "waiting for the lock of the disk of {}, which synconce (pid ",
            fixture.directory().display()
        );
        eventually("the second start waits or ends", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", two.pid())).unwrap();
            two.text().contains(&said) || stat.contains(") Z ")
        });
        let calls = calls();
        let (pid, _) = calls.split_once(' ').expect("the id of the process");
        sh(place, &format!("kill -CONT {pid}"));
        assert_eq!(two.end().code(), Some(125), "{}", two.text());
        assert!(two.text().contains("it is in the hold one"), "{}", two.text());
        for verb in ["start", "stop"] {
            let finished = hold(place, &[verb, "./one.toml"]);
            assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
        }
        // The tracer follows the guard, which the stop has ended.
        assert_eq!(one.end().code(), Some(0), "{}", one.text());
    });
}

#[test]
fn a_stop_beside_a_start_in_one_directory_fails_neither() {
    with_hold("", |place, fixture| {
        for name in ["one", "two"] {
            let held = fixture.rig.path().join(name);
            fs::create_dir(&held).unwrap();
            configure(place, name, "", &held);
        }
        let verb = |verb: &str, name: &str| {
            let finished = hold(place, &[verb, &format!("./{name}.toml")]);
            assert_eq!(finished.status.code(), Some(0), "{verb} {name}: {}", finished.stderr);
        };
        let shared = fixture.rig.path().join(".synconce-hold");
        // Stops the start after each of its looks at the directory that the holds share.
        let stopped_at = |call: &str, look: u32| {
            verb("start", "two");
            sh(place, "rm -f calls");
            let stop = format!("inject={call}:signal=SIGSTOP:when={look}");
            let mut strace = place.command("strace");
            strace.args(["-f", "-o", "calls", "-P", ".synconce-hold"]);
            strace.args(["-e", &format!("trace={call}"), "-e", &stop]);
            let one = StartedCommand::new(strace.args([binary(), "hold", "start", "./one.toml"]));
            let calls = || place.read("calls");
            let is_stopped = || calls().contains("stopped by SIGSTOP");
            // The first call is of the start. The tracer goes on with the guard.
            let pid = |line: &str| line.split(' ').next().map(str::to_owned);
            let has_ended = || {
                let (calls, ended) = (calls(), " +++ exited with ");
                let is_of_start = |line: &str| pid(line) == pid(&calls);
                calls.lines().any(|line| line.contains(ended) && is_of_start(line))
            };
            eventually("the start is stopped or has ended", || is_stopped() || has_ended());
            let was_stopped = is_stopped();
            if was_stopped {
                verb("stop", "two");
                sh(place, &format!("kill -CONT {}", pid(&calls()).expect("the id of the process")));
            }
            verb("start", "one");
            verb("stop", "one");
            // The tracer follows the guard, which the stop has ended.
            assert_eq!(one.end().code(), Some(0), "{call} {look}: {}", one.text());
            verb("stop", "two");
            assert!(!shared.exists(), "{call} {look}");
            was_stopped
        };
        let looks = ["mkdirat", "openat"]
            .map(|call| (1..).take_while(|look| stopped_at(call, *look)).count());
        assert!(looks[0] > 0 && looks[1] > 2, "{looks:?} looks");
    });
}

#[test]
fn every_user_may_enter_the_directory_of_run_files_whatever_the_umask_of_a_start_is() {
    with_hold("", |place, fixture| {
        sh(place, "rm -rf runtime");
        let start = format!("umask 077; '{}' hold start ./t.toml", binary());
        sh(place, &start);
        assert_eq!(sh(place, "stat --format %a runtime runtime/holds"), "755\n755\n");
        fixture.ok("stop");
    });
}

#[test]
fn a_directory_of_run_files_that_exists_keeps_its_mode_and_may_be_a_link() {
    with_hold("", |place, fixture| {
        sh(place, "rm -rf runtime; mkdir --mode 1777 elsewhere; ln -s elsewhere runtime");
        fixture.ok("start");
        fixture.ok("stop");
        assert_eq!(sh(place, "stat --format %a elsewhere elsewhere/holds"), "1777\n755\n");
    });
}

#[test]
fn the_file_below_is_locked_against_a_daemon_without_the_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let file = fixture.file().display().to_string();
        // Another mount namespace, in which the hold was unmounted.
        let script = "umount \"$0\" && flock --nonblock \"$0\" true";
        let without = ["unshare", "--mount", "sh", "-c", script, &file];
        assert_eq!(place.bare(&without).status.code(), Some(1), "locked");
        assert_eq!(place.bare(&["flock", "--nonblock", &file, "true"]).status.code(), Some(0));
        assert_eq!(fixture.status().0["guarded"], true);
        fixture.ok("stop");
        assert_eq!(place.bare(&["flock", "--nonblock", &file, "true"]).status.code(), Some(0));
    });
}

#[test]
fn a_hold_whose_guard_was_killed_goes_on_and_gets_a_new_one_while_the_daemon_runs() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process = fixture.open(&fixture.file());
        assert_eq!(place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]).status.code(), Some(0));
        eventually("the guard has ended", || fixture.status().0["guarded"] == false);
        let before = fixture.flushes();
        fixture.write(&fixture.file(), 50);
        assert!(fixture.flushes() - before < 40, "the mounts need no process");
        fixture.ok("start");
        assert_eq!(fixture.status().0["guarded"], true);
        let file = fixture.file().display().to_string();
        let script = "umount \"$0\" && flock --nonblock \"$0\" true";
        let without = ["unshare", "--mount", "sh", "-c", script, &file];
        assert_eq!(place.bare(&without).status.code(), Some(1), "locked");
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn what_is_missing_is_made_and_a_bad_file_changes_nothing() {
    with_hold("", |place, fixture| {
        fs::remove_file(fixture.file()).unwrap();
        fs::remove_dir(fixture.directory()).unwrap();
        fixture.ok("start");
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        assert!(fixture.file().is_file() && fixture.directory().is_dir());
        for (text, said) in [
            ("[[hold]]\npath = \"/proc/sys/x\"\nkind = \"bolt\"\n", "/proc/sys/x"),
            ("[[hold]]\npath = \"x\"\nkind = \"bolt\"\n", "absolute"),
            ("unit = 3\n", "line 1"),
        ] {
            place.write("t.toml", text);
            fixture.fails("start", &[said]);
        }
        failed(hold(place, &["start", "absent"]), &["/etc/synconce/hold.d/absent.toml"]);
    });
}

#[test]
fn a_data_directory_of_dockerd_on_a_private_mount_is_refused_with_the_command_that_helps() {
    with_hold("", |place, fixture| {
        let root = fixture.rig.path().display().to_string();
        fixture.configure("t", &format!("docker_root = \"{root}\"\n"));
        let at_first = fixture.everything();
        let help = format!("mount --make-shared {root}");
        fixture.fails("start", &[&format!("hint: {help}\n")]);
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(place.bare(&["sh", "-c", &help]).status.code(), Some(0));
        fixture.ok("start");
        fixture.ok("stop");
    });
}

#[test]
fn other_settings_are_refused_while_the_hold_is_in_force() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        fixture.configure("t", "after_crash = \"wipe\"\n");
        fixture.fails("start", &["hint: synconce hold stop t\n"]);
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        fixture.ok("start");
        fixture.ok("stop");
    });
}

#[test]
fn a_file_that_cannot_be_read_hides_no_other_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        place.write("state/holds/bad.json", "{");
        for words in [&["hold", "status"][..], &["status"]] {
            let shown = finish(&mut place.synconce(words));
            assert_eq!(shown.status.code(), Some(125), "{shown:?}");
            assert!(shown.stdout.contains("held") && shown.stderr.contains("bad.json"));
        }
        fs::remove_file(place.path("state/holds/bad.json")).unwrap();
        fixture.ok("stop");
    });
}

#[test]
fn a_marker_is_never_where_its_own_hold_or_another_one_would_hold_it() {
    with_hold("", |place, fixture| {
        let inside = fixture.directory().join("state");
        let start = |directory: &Path, name: &str| {
            let mut command = place.synconce(&["hold", "start", name]);
            finish(command.env("SYNCONCE_STATE_DIR", directory))
        };
        failed(start(&inside, "./t.toml"), &["the markers of holds are in it"]);
        assert_eq!(fixture.state(), "off");
        fixture.ok("start");
        let other = fixture.rig.path().join("other.db");
        let text = format!("[[hold]]\npath = \"{}\"\nkind = \"bolt\"\n", other.display());
        place.write("other.toml", &text);
        failed(start(&inside, "./other.toml"), &["which has the markers, are held"]);
        fixture.ok("stop");
    });
}

#[test]
fn a_hold_in_a_run_is_refused_and_a_marker_in_memory_is_said() {
    with_hold("", |place, fixture| {
        let program = binary();
        failed(
            place.run(&[], &[program, "hold", "start", "./t.toml"]),
            &["start it outside of the run"],
        );
        assert_eq!(fixture.state(), "off");
        let memory = place.path("memory");
        fs::create_dir(&memory).unwrap();
        let words = ["mount", "-t", "tmpfs", "memory", memory.to_str().unwrap()];
        assert_eq!(place.bare(&words).status.code(), Some(0));
        for verb in ["start", "stop"] {
            let mut command = place.synconce(&["hold", verb, "./t.toml"]);
            let done = finish(command.env("SYNCONCE_STATE_DIR", &memory));
            assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
            assert_eq!(done.stderr.contains("the marker is in memory"), verb == "start");
        }
    });
}

#[test]
fn nothing_is_removed_through_a_link_with_the_name_of_the_directory_of_the_hold() {
    with_hold("", |_, fixture| {
        let other = fixture.rig.path().join("other");
        fs::create_dir_all(other.join("meta.db")).unwrap();
        fs::write(other.join("meta.db/data"), "data").unwrap();
        symlink(&other, fixture.rig.path().join(".synconce-hold")).unwrap();
        let at_first = fixture.everything();
        fixture.fails("start", &["/.synconce-hold: root did not make"]);
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_user_of_the_file_is_seen_whatever_its_name_is() {
    with_hold("", |place, fixture| {
        let file = fixture.file().display().to_string();
        // prctl(2), PR_SET_NAME, takes any bytes; these are no UTF-8.
        let script =
            "printf '\\377x' >/proc/$$/comm; exec 3<>\"$0\"; mkfifo end; echo >ready; read x <end";
        let process = StartedCommand::new(place.command("sh").args(["-c", script, &file]));
        place.wait_for("ready");
        fixture.fails("start", &[&format!("in use by \u{fffd}x (pid {})", process.pid())]);
        end(process);
        fixture.ok("start");
        fixture.ok("stop");
    });
}
