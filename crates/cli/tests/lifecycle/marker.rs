//! The marker: durable before the first held call, gone after the commit.

use rustix::mount::{MountFlags, mount};
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{
    Place, StartedCommand, Trace, binary, eventually, finish, isolated, perl,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

/// Runs `script` in a shell under a hold and strace; returns the trace.
fn trace(place: &Place, options: &[&str], script: &str) -> Trace {
    let words = [&[binary(), "run"], options, &["--", "sh", "-c", script]].concat();
    Trace::run(place, &words)
}

#[test]
fn the_marker_is_durable_before_the_first_call_is_held_and_removed_after_the_commit() {
    isolated(|place| {
        place.write("data", "x");
        let trace = trace(place, &[], "sync data; ls state/runs > seen");
        assert_eq!(place.read("seen").matches(".json\n").count(), 1);
        let data = format!("{}> <unfinished", place.text("data"));
        let held = trace.expect(0, &["fsync(", &data]);
        // The public file, then both names, then the private file, then their directory.
        let content = trace.expect(0, &["fsync(", "/state/runs/#"]);
        let private = trace.expect(content, &["linkat(", ".private"]);
        let public = trace.expect(private, &["linkat(", "/state/runs>", ".json"]);
        let other = trace.expect(public, &["fsync(", "/state/runs/#"]);
        let entry = trace.expect(other, &["fsync(", "/state/runs>"]);
        // The directories were new: each parent has a new name to be made durable.
        let parent = trace.expect(entry, &["fsync(", "/state>"]);
        let answer = trace.expect(parent, &["SECCOMP_IOCTL_NOTIF_SEND"]);
        let done = trace.expect_resumed(held, &["fsync resumed", "= 0"]);
        assert!(held < content && answer < done, "{held} {content} {answer} {done}");
        assert_eq!(trace.find(0, &["SECCOMP_IOCTL_NOTIF_SEND"]), Some(answer), "the first answer");

        let commit = trace.expect(done, &["syncfs("]);
        let removed = trace.expect(commit, &["unlinkat(", "/state/runs>", ".json"]);
        assert_eq!(trace.find(removed, &["syncfs("]), None, "nothing is committed after that");
        trace.expect(removed, &["fsync(", "/state/runs>"]);
        assert_eq!(trace.count(&["unlinkat(", ".json"]), 1);
    });
}

#[test]
fn a_sync_while_the_disk_of_the_marker_is_frozen_is_held() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
        let point = rig.path().display();
        // The disk stays frozen until the test has seen the end of the sync.
        let script = format!(
            "fsfreeze -f {point}; ls {point}/runs >listed; sync data; : >synced
             until [ -e thaw ]; do sleep 0.01; done; fsfreeze -u {point}"
        );
        place.write("data", "x");
        let mut run = place.held(&["--stats", "--json"], &["sh", "-ec", &script]);
        let run = StartedCommand::new(run.env("SYNCONCE_STATE_DIR", rig.path()));
        eventually("the sync has ended", || place.path("synced").exists());
        place.write("thaw", "");
        assert!(run.end().success(), "{}", run.text());
        // A marker that is not there by then could be written only after the thaw. A call that
        // waits five seconds for its marker passes.
        assert_eq!(place.read("listed").matches(".json\n").count(), 1, "{}", run.text());
        let counts: serde_json::Value = serde_json::from_str(run.text().trim()).expect("JSON");
        assert_eq!(counts["calls"]["fsync"]["held"], 1, "{counts}");
        assert_eq!(counts["calls"]["fsync"]["passed"], 0, "{counts}");
        rig.down().unwrap();
    });
}

#[test]
fn a_command_that_never_syncs_pays_for_no_marker() {
    isolated(|place| {
        let trace = trace(place, &[], "ls state/runs; : > data; mv data moved");
        assert_eq!(trace.count(&["fsync("]) + trace.count(&["fdatasync("]), 0);
        assert_eq!(trace.count(&["linkat("]), 0);
        assert!(trace.count(&["syncfs("]) > 0, "it is committed all the same");
        let run = place.sh("ls state/runs | grep -c json");
        assert_eq!(run.stdout, "0\n");
    });
}

#[test]
fn an_open_whose_o_sync_is_taken_away_counts_as_a_hold() {
    isolated(|place| {
        let script = "dd if=/dev/zero of=data oflag=sync bs=1 count=1 2>/dev/null; ls state/runs | grep -c json";
        assert_eq!(place.sh(script).stdout, "1\n");
    });
}

#[test]
fn a_run_for_another_root_keeps_a_marker_inside_it_and_leaves_no_trace() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        place.write("data", "x");
        let script = "sync data; ls state/runs root/var/lib/synconce/runs";
        let run = place.run(&["--root", &place.text("root")], &["sh", "-c", script]);
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout.matches(".json").count(), 2, "{run:?}");
        assert_eq!(fs::read_dir(place.path("root")).unwrap().count(), 0, "no trace");

        fs::create_dir_all(place.path("root/var/lib/other")).unwrap();
        assert!(place.run(&["--root", "root"], &["sync", "data"]).status.success());
        assert_eq!(fs::read_dir(place.path("root/var/lib")).unwrap().count(), 1);
    });
}

#[test]
fn an_interrupted_run_for_another_root_is_found_from_another_machine() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        let words = perl("sync_file('data'); kill 'KILL', getppid; sleep 1;");
        let root = place.text("root");
        assert_eq!(place.run(&["--root", &root], &words).status.code(), Some(125));
        // The other machine has the target's disk, and a state directory of its own.
        fs::remove_dir_all(place.path("state")).unwrap();
        assert!(place.status(&[]).status.success());
        let found = place.status(&["--root", &root]);
        assert_eq!(found.status.code(), Some(4), "{found:?}");
        let id = found.stdout.split(' ').next().unwrap();
        assert!(place.status(&["--root", &root, "--clear", id]).status.success());
        assert!(place.status(&["--root", &root]).status.success());
    });
}

/// Asserts that the run failed before the command started, and named `at`.
fn assert_refused(place: &Place, run: &Finished, at: &str) {
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    assert!(run.stderr.starts_with("synconce: cannot "), "{run:?}");
    assert!(run.stderr.contains(at), "{run:?}");
    assert!(!place.path("started").exists(), "the command did not start");
    assert!(place.run_files().is_empty());
}

fn run_with_state(place: &Place, state: &Path) -> Finished {
    let mut run = place.held(&[], &["touch", "started"]);
    finish(run.env("SYNCONCE_STATE_DIR", state))
}

#[test]
fn a_state_directory_that_cannot_be_written_is_found_before_the_command_starts() {
    isolated(|place| {
        let file = place.write("file", "not a directory\n");
        assert_refused(place, &run_with_state(place, &file), "/file");
        assert_refused(place, &run_with_state(place, &file.join("below")), "/file/below");

        fs::create_dir_all(place.path("read-only")).unwrap();
        mount("none", place.path("read-only"), "tmpfs", MountFlags::RDONLY, None).unwrap();
        let run = run_with_state(place, &place.path("read-only"));
        assert_refused(place, &run, "read-only/runs: Read-only file system");
        assert!(run.stderr.contains("hint: the marker needs a writable disk"), "{run:?}");
    });
}

#[test]
fn a_full_disk_is_found_before_the_command_starts() {
    isolated(|place| {
        let rig = Rig::builder().size(16 << 20).up().unwrap();
        fs::create_dir_all(rig.path().join("state/runs")).unwrap();
        // The second filler takes what the first one had reserved and not used.
        let fillers = ["one", "two"].map(|name| rig.path().join(name));
        for filler in &fillers {
            let mut dd = place.command("dd");
            dd.args(["if=/dev/zero", "bs=1k", "conv=fsync"])
                .arg(format!("of={}", filler.display()));
            assert!(finish(&mut dd).stderr.contains("No space left"));
        }
        let run = run_with_state(place, &rig.path().join("state"));
        assert_refused(place, &run, "No space left on device");
        assert!(run.stderr.contains("/state/runs: "), "{run:?}");
        fillers.iter().for_each(|filler| fs::remove_file(filler).unwrap());
        assert!(run_with_state(place, &rig.path().join("state")).status.success());
        rig.down().unwrap();
    });
}

#[test]
fn a_user_without_a_home_gets_an_error_before_the_command_starts() {
    isolated(|place| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o777)).unwrap();
        let mut run = place.command("setpriv");
        run.args(["--reuid", "64121", "--regid", "64121", "--clear-groups"])
            .args([binary(), "run", "--", "touch", "started"])
            .env_remove("SYNCONCE_STATE_DIR")
            .env_remove("XDG_STATE_HOME")
            .env_remove("HOME");
        assert_refused(place, &finish(&mut run), "neither XDG_STATE_HOME nor HOME is set");
        run.env("HOME", place.path("."));
        assert!(finish(&mut run).status.success());
        assert!(place.path("started").exists() && place.path(".local/state/synconce").exists());
    });
}

#[test]
fn a_marker_that_cannot_be_made_durable_means_that_nothing_is_held() {
    isolated(|place| {
        // The command replaces the state directory by a file before the first sync.
        let words =
            perl("system 'rm -r state; : >state'; print sync_file('data'), \"\\n\"; sleep 20;");
        let run = place.run(&["--stats", "--json"], &words);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        assert!(run.stderr.contains("cannot create "), "{run:?}");
        assert!(run.stderr.contains("no sync was held, and the command was asked to end"));
        let stats = run.stderr.lines().find(|line| line.starts_with('{')).unwrap();
        let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
        assert_eq!(stats["calls"].as_object().map(serde_json::Map::len), Some(0), "{stats}");
        place.remove("state");
        assert!(place.status(&[]).status.success(), "nothing was held");
    });
}

#[test]
fn a_disk_that_fails_under_the_marker_means_that_nothing_is_held() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        fs::create_dir_all(rig.path().join("state/runs")).unwrap();
        let words = perl(
            "say_to('before', 1); wait_for('go'); say_to('after', hold()); \
                          sync_file('data'); sleep 20; say_to('late', 1);",
        );
        let mut run = place.held(&["--commit-only", "/"], &words);
        let run = StartedCommand::new(run.env("SYNCONCE_STATE_DIR", rig.path().join("state")));
        place.wait_for("before");
        rig.disk().fail_flushes(1_000_000).unwrap();
        place.write("go", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        assert!(run.text().contains("cannot sync a marker in "), "{}", run.text());
        assert!(!place.path("late").exists());
        rig.disk().fail_flushes(0).unwrap();
    });
}

#[test]
fn a_marker_goes_with_a_killed_supervisor_only_when_it_was_never_engaged() {
    isolated(|place| {
        let run = StartedCommand::new(
            &mut place.held(&[], &perl("kill 'KILL', getppid; wait_for('stop');")),
        );
        eventually("the supervisor is gone", || place.status(&[]).stdout.is_empty());
        place.write("stop", "");
        assert_eq!(run.end().code(), Some(125));
        assert!(place.markers().is_empty());
    });
}

#[test]
fn the_disk_of_the_marker_can_be_remounted_read_only() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        let state = rig.path().join("state");
        place.write("data", "x");
        let run = |script: &str| {
            let script =
                format!("sync data && {}", script.replace("RIG", rig.path().to_str().unwrap()));
            let mut run = place.held(&[], &["sh", "-c", &script]);
            finish(run.env("SYNCONCE_STATE_DIR", &state))
        };
        let back = run("mount -o remount,ro RIG && mount -o remount,rw RIG");
        assert!(back.status.success() && back.stderr.is_empty(), "{back:?}");
        let left = run("mount -o remount,ro RIG");
        assert_eq!(left.status.code(), Some(125), "{left:?}");
        assert!(left.stderr.contains("everything is durable, but cannot remove "), "{left:?}");
        assert!(left.stderr.contains("Read-only file system"), "{left:?}");
        let mut status = place.synconce(&["status"]);
        let status = finish(status.env("SYNCONCE_STATE_DIR", &state));
        assert_eq!(status.status.code(), Some(4), "{status:?}");
        rig.down().unwrap();
    });
}

#[test]
fn runs_for_one_root_at_the_same_time_do_not_take_each_others_directories() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        place.write("data", "x");
        let start = |name: &str| {
            let script = format!(
                "touch {name}; until [ -e {name}-go ]; do sleep 0.01; done; sync data; \
                 ls root/var/lib/synconce/runs > {name}-seen"
            );
            let run =
                StartedCommand::new(&mut place.held(&["--root", "root"], &["sh", "-c", &script]));
            eventually("it has started", || place.path(name).exists());
            run
        };
        let runs = [start("one"), start("two")];
        for (run, name) in runs.iter().zip(["one", "two"]) {
            place.write(&format!("{name}-go"), "");
            assert!(run.end().success(), "{name}: {}", run.text());
            assert_eq!(place.read(&format!("{name}-seen")).matches(".json\n").count(), 1, "{name}");
        }
        assert_eq!(fs::read_dir(place.path("root")).unwrap().count(), 0, "no trace");
    });
}

const IN_MEMORY: &str = "synconce: the marker is in memory, at ";

fn tmpfs(at: &Path) {
    fs::create_dir_all(at).unwrap();
    mount("none", at, "tmpfs", MountFlags::empty(), None).unwrap();
}

#[test]
fn a_marker_in_memory_for_a_disk_gives_one_notice() {
    isolated(|place| {
        tmpfs(&place.path("memory"));
        place.overlay(&place.path("root"), &place.path("memory"), "");
        place.write("data", "x");
        let run = |state: &str, options: &[&str], script: &str| {
            let mut run = place.held(options, &["sh", "-c", script]);
            let run = finish(run.env("SYNCONCE_STATE_DIR", place.path(state)));
            assert!(run.status.success(), "{run:?}");
            run.stderr
        };
        for state in ["memory/state", "merged/state"] {
            for options in [&[][..], &["--sealed"], &["--root", "memory"]] {
                let notice = run(state, options, "sync data; sync data");
                assert!(notice.starts_with(IN_MEMORY), "{state} {options:?}: {notice}");
                assert_eq!(notice.lines().count(), 1, "{state} {options:?}: {notice}");
            }
            // No notice: the root is on a disk, or nothing was held, or the run has no marker.
            assert_eq!(run(state, &["--root", "root"], "sync data"), "");
            assert_eq!(run(state, &[], ": > data"), "");
            assert_eq!(run(state, &["--no-commit"], "sync data"), "");
        }
        assert_eq!(run("state", &["--root", "memory"], "sync data"), "");
    });
}

#[test]
fn a_marker_in_memory_gives_no_notice_where_no_disk_is_committed() {
    isolated(|place| {
        let root = place.path("root");
        tmpfs(&root);
        for name in ["proc", "dev", "disk"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::create_dir(place.path("disk")).unwrap();
        mount("proc", root.join("proc"), "proc", MountFlags::empty(), None).unwrap();
        mount("dev", root.join("dev"), "devtmpfs", MountFlags::empty(), None).unwrap();
        fs::copy(binary(), root.join("synconce")).unwrap();
        let run = || {
            let mut chroot = place.command("chroot");
            chroot.arg(&root).args([
                "/synconce",
                "run",
                "--sealed",
                "--",
                "/synconce",
                "--version",
            ]);
            let run = finish(chroot.env("SYNCONCE_STATE_DIR", "/state"));
            assert!(run.status.success(), "{run:?}");
            run.stderr
        };
        assert_eq!(run(), "");
        mount(place.path("disk"), root.join("disk"), "", MountFlags::BIND, None).unwrap();
        let notice = run();
        assert!(notice.starts_with(IN_MEMORY), "{notice}");
    });
}
