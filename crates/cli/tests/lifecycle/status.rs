//! `synconce status`

use std::fs;
use std::os::unix::fs::PermissionsExt;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, finish, isolated, perl,
};

fn json(place: &Place) -> Vec<serde_json::Value> {
    serde_json::from_str(&place.status(&["--json"]).stdout).unwrap()
}

/// Leaves an interrupted run; returns its id.
fn interrupt(place: &Place) -> String {
    let run =
        place.run(&[], &perl("sync_file('data'); kill 'KILL', getppid; wait_for('state/runs');"));
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    eventually("it is found", || place.status(&[]).status.code() == Some(4));
    let runs = json(place);
    let found = runs.iter().find(|run| run["state"] == "interrupted").expect("it is listed");
    found["id"].as_str().unwrap().to_owned()
}

#[test]
fn status_has_no_output_where_no_run_was_made() {
    isolated(|place| {
        let status = place.status(&[]);
        assert!(status.status.success());
        assert_eq!(status.stdout, "");
        assert_eq!(json(place), Vec::<serde_json::Value>::new());
        assert!(!place.path("state").exists(), "looking makes nothing");
    });
}

#[test]
fn runs_in_flight_are_listed_whether_or_not_they_held_anything() {
    isolated(|place| {
        place.write("data", "x");
        let wait = "until [ -e stop ]; do sleep 0.01; done";
        let runs = [place.start(wait), place.start(&format!("sync data; touch synced; {wait}"))];
        eventually("both run", || place.run_files().len() == 2 && place.path("synced").exists());
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(3), "{status:?}");
        assert_eq!(status.stdout.matches(" in-flight sh -c ").count(), 2, "{status:?}");
        assert_eq!(
            status
                .stdout
                .matches(&format!(" in {}\n", place.text("").trim_end_matches('/')))
                .count(),
            2
        );
        let listed = json(place);
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|run| run["state"] == "in-flight" && run["run"]["user"] == 0));
        assert_ne!(listed[0]["id"], listed[1]["id"]);

        let id = listed[1]["id"].as_str().unwrap();
        let refused = place.status(&["--clear", id]);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        place.write("stop", "");
        assert!(runs.iter().all(|run| run.end().success()));
        let status = place.status(&[]);
        assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
    });
}

#[test]
fn an_interrupted_run_outweighs_one_in_flight() {
    isolated(|place| {
        let id = interrupt(place);
        let run = place.start("until [ -e stop ]; do sleep 0.01; done");
        eventually("it runs", || place.run_files().len() == 1);
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(4));
        assert!(status.stdout.contains(&format!("{id} interrupted perl ")), "{status:?}");
        assert!(status.stdout.contains(" in-flight sh "), "{status:?}");
        assert!(place.status(&["--clear", &id]).status.success());
        assert_eq!(place.status(&[]).status.code(), Some(3));
        place.write("stop", "");
        assert!(run.end().success());
    });
}

#[test]
fn a_run_that_is_made_again_does_not_make_the_interrupted_one_forgotten() {
    isolated(|place| {
        let id = interrupt(place);
        place.write("data", "x");
        assert!(place.run(&[], &["sync", "data"]).status.success());
        assert_eq!(place.status(&[]).status.code(), Some(4));
        assert_eq!(json(place)[0]["id"], id.as_str());
    });
}

#[test]
fn a_damaged_marker_is_an_interrupted_run_still() {
    isolated(|place| {
        let id = interrupt(place);
        let path = place.markers().remove(0);
        let text = fs::read(&path).unwrap();
        for content in [&b""[..], &text[..40], b"\0\0\0\0", b"{}", b"[]", &[0xff; 4096]] {
            fs::write(&path, content).unwrap();
            let status = place.status(&[]);
            assert_eq!(status.status.code(), Some(4), "{content:?} {status:?}");
            assert!(status.stdout.contains("its marker is damaged"), "{status:?}");
            // Root is the user, and may see all that is there.
            let unknown = "interrupted (its command is not known)\n";
            assert!(status.stdout.contains(unknown), "{status:?}");
            let listed = json(place);
            assert_eq!(
                (listed[0]["id"].as_str(), &listed[0]["run"]),
                (Some(id.as_str()), &serde_json::Value::Null)
            );
        }
        assert!(place.status(&["--clear", &id]).status.success());
        assert!(place.status(&[]).status.success());
    });
}

#[test]
fn what_cannot_be_looked_at_is_not_taken_for_nothing() {
    isolated(|place| {
        fs::create_dir(place.path("state")).unwrap();
        place.write("state/runs", "not a directory\n");
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(125), "{status:?}");
        assert!(status.stderr.contains("cannot read "), "{status:?}");
        fs::remove_file(place.path("state/runs")).unwrap();
        // A file that cannot be read may have been a marker.
        fs::create_dir_all(place.path("state/runs")).unwrap();
        std::os::unix::fs::symlink("nowhere", place.path("state/runs/x.json")).unwrap();
        assert_eq!(place.status(&[]).status.code(), Some(4));
    });
}

#[test]
fn clearing_needs_the_name_of_an_interrupted_run() {
    isolated(|place| {
        let id = interrupt(place);
        for wrong in ["", ".", "../runs", "no-such-run", &id[1..]] {
            let refused = place.status(&["--clear", wrong]);
            assert_eq!(refused.status.code(), Some(125), "{wrong}: {refused:?}");
            assert!(refused.stderr.contains("there is no run"), "{refused:?}");
        }
        assert_eq!(place.markers().len(), 1);
        assert!(place.status(&["--clear", &id]).status.success());
    });
}

#[test]
fn an_interrupted_run_is_shown_with_its_command_and_how_to_repeat_it() {
    isolated(|place| {
        let program = place.write("apt-get", "#!/bin/sh\nsync data\nkill -9 $PPID\nsleep 1\n");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        place.write("data", "x");
        let run = place.run(&[], &["env", "./apt-get", "install", "a b"]);
        assert_eq!(run.status.code(), Some(125));
        eventually("it is found", || place.status(&[]).status.code() == Some(4));
        let status = place.status(&[]).stdout;
        assert!(status.contains("    synconce run -- env ./apt-get install 'a b'\n"), "{status}");
        assert!(status.contains("    synconce status --mend 2"), "{status}");
        let record = &json(place)[0]["run"];
        assert_eq!(record["command"][3], "a b");
        assert_eq!(record["directory"].as_str().map(|dir| format!("{dir}/")), Some(place.text("")));
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(record["boot"], boot.trim());
        assert!(record["started"].as_str().unwrap().ends_with('Z'));
        assert!(
            record["file_systems"].as_array().unwrap().iter().any(|one| one["mount_point"] == "/")
        );
    });
}

/// As where a container and its host share a volume with the state directory.
#[test]
fn a_run_in_another_root_is_not_repeated_or_mended_in_this_one() {
    isolated(|place| {
        let program = place.write("apt-get", "#!/bin/sh\nsync data\nkill -9 $PPID\nsleep 1\n");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        place.write("data", "x");
        let script = "mkdir upper work root; mount -t tmpfs layers upper
            mkdir upper/upper upper/work
            mount -t overlay -o lowerdir=/,upperdir=upper/upper,workdir=upper/work root root
            for shared in /proc /run \"$PWD\"; do mount --rbind $shared root$shared; done";
        assert!(place.sh(script).status.success());
        let within = |words: &[&str]| {
            let inside = "cd \"$0\" && exec \"$@\"";
            let directory = place.text("");
            let mut command = place.command("chroot");
            command.args(["root", "sh", "-c", inside, &directory, binary()]);
            finish(command.args(words))
        };
        let run = within(&["run", "--commit-only", ".", "--", "./apt-get", "install", "a"]);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        eventually("it is found", || place.status(&[]).status.code() == Some(4));
        let status = place.status(&[]).stdout;
        assert!(status.contains("  it ran in another root than this one, such as"), "{status}");
        assert!(!status.contains("--mend"), "{status}");
        let id = status.split(' ').next().unwrap();
        let mend = place.status(&["--mend", id]);
        assert_eq!(mend.status.code(), Some(125), "{mend:?}");
        let refusal = format!("synconce: cannot mend {id}: it ran in another root than this one");
        assert!(mend.stderr.starts_with(&refusal), "{mend:?}");
        let there = within(&["status"]).stdout;
        assert!(there.contains(&format!("    synconce status --mend {id}\n")), "{there}");
    });
}

#[test]
fn runs_of_two_pid_namespaces_that_share_a_runtime_directory_are_told_apart() {
    isolated(|place| {
        let start = |name: &str| {
            let script = format!("touch {name}; until [ -e stop ]; do sleep 0.01; done");
            let mut unshare = place.command("unshare");
            unshare.args(["--pid", "--fork", "--mount-proc", binary(), "run", "--", "sh", "-c"]);
            let run = StartedCommand::new(unshare.arg(script));
            eventually("it runs", || place.path(name).exists());
            run
        };
        let runs = [start("one"), start("two")];
        let listed = json(place);
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert_eq!(listed[0]["run"]["supervisor"], listed[1]["run"]["supervisor"]);
        assert!(listed.iter().all(|run| run["state"] == "in-flight"), "{listed:?}");
        place.write("stop", "");
        assert!(runs.iter().all(|run| run.end().success()));
        assert!(place.run_files().is_empty());
    });
}

#[test]
fn the_command_to_repeat_has_the_options_of_the_run() {
    isolated(|place| {
        place.write("data", "x");
        fs::create_dir(place.path("root")).unwrap();
        let options = [
            &["--root", "root", "--only", "da*", "--except", "x*"][..],
            &["--commit-all", "--commit-every", "1h", "--commit-timeout", "9"],
            &["--io-uring", "pass"],
        ]
        .concat();
        let run = place.run(&options, &["sh", "-c", "sync data; kill -9 $PPID; sleep 1"]);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        eventually("it is found", || place.status(&[]).status.code() == Some(4));
        let said = place.status(&[]).stdout;
        let wanted = "      synconce run --root root --only 'da*' --except 'x*' --commit-all \
                      --commit-every 1h --commit-timeout 9 --io-uring pass -- sh -c 'sync data;";
        assert!(said.contains(wanted), "{said}");
        let private = place.markers().remove(0).with_extension("private");
        assert!(fs::read_to_string(&private).unwrap().contains("--commit-every"));
        assert_eq!(fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o600);
    });
}

#[test]
fn the_command_to_repeat_begins_with_the_directory_of_the_run() {
    isolated(|place| {
        interrupt(place);
        let said = place.status(&[]).stdout;
        assert!(said.contains("\n      synconce run -- perl "), "{said}");
        let said = finish(place.synconce(&["status"]).current_dir("/")).stdout;
        let wanted =
            format!("\n      cd {} && synconce run -- perl ", place.text("").trim_end_matches('/'));
        assert!(said.contains(&wanted), "{said}");
    });
}

/// As flock(2) does on a file server whose lock manager does not answer.
#[test]
fn a_status_that_cannot_read_a_lock_removes_no_file_of_a_living_run() {
    isolated(|place| {
        let run = place.start(": >begun; until [ -e go ]; do sleep 0.01; done");
        eventually("the command has begun", || place.path("begun").exists());
        let files = place.run_files();
        assert_eq!(files.len(), 1, "{files:?}");
        let mut strace = place.command("strace");
        strace.args(["-f", "-o", "trace", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"]);
        let status = finish(strace.args([binary(), "status"]));
        let trace = fs::read_to_string(place.path("trace")).unwrap();
        assert!(trace.contains("ENOLCK"), "{trace}");
        assert_eq!(place.run_files(), files, "{status:?}");
        assert!(status.stdout.contains(" in-flight "), "{status:?}");
        place.write("go", "");
        assert!(run.end().success(), "{}", run.text());
    });
}

/// timeout(1) reaps no orphans, as the first process of many containers.
#[test]
fn a_status_leaves_no_process_for_the_first_process_to_reap() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        let script = "for n in $(seq 20); do $BINARY status --root root >said || exit; done; \
                      grep --no-messages --files-with-matches 'State:.Z' /proc/[0-9]*/status; true";
        let mut command = place.command("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "timeout", "60", "sh", "-c", script]);
        let ended = finish(command.env("BINARY", binary()));
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(ended.stdout, "", "zombies are left");
    });
}
