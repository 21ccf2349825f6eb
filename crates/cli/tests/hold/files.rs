//! What is held, and what is not.

use crate::support::{HoldOnRig, end, hold, with_hold};
use std::fs;
use std::io::ErrorKind;
use synconce_testkit::harness::{isolated, without_foreign_syncs};

#[test]
fn syncs_of_held_files_reach_no_disk_until_the_hold_stops() {
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        let fixture = HoldOnRig::new(place, "");
        fixture.ok("start");
        let before = fixture.flushes();
        let held = [fixture.file(), fixture.directory().join("new")];
        for path in &held {
            assert_eq!(fixture.write(path, 200).status.code(), Some(0));
        }
        // The journal may commit by itself, every five seconds.
        let during = fixture.flushes() - before;
        assert!(during < 60, "{during} flushes for 1,200 syncs");
        let before = fixture.flushes();
        fixture.ok("stop");
        assert!(fixture.flushes() > before, "the files are made durable");
        for path in &held {
            assert!(fs::read_to_string(path).unwrap().starts_with("      199"), "{path:?}");
        }
        let before = fixture.flushes();
        fixture.write(&held[0], 20);
        assert!(fixture.flushes() - before >= 40, "the syncs are real again");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn other_files_of_the_same_disk_and_of_the_same_process_have_real_syncs() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let before = fixture.flushes();
        fixture.write(&fixture.rig.path().join("other"), 20);
        assert!(fixture.flushes() - before >= 40);
        fixture.ok("stop");
    });
}

#[test]
fn a_held_directory_is_a_file_system_of_its_own_and_it_is_said() {
    with_hold("", |place, fixture| {
        let (disk, held) = (fixture.rig.path(), fixture.directory());
        let shown = held.display().to_string();
        assert_eq!(fixture.hold("start").stderr, "", "no subdirectory");
        fixture.ok("stop");
        fs::create_dir(held.join("below")).unwrap();
        fs::write(held.join("below/data"), "").unwrap();
        fs::write(disk.join("outside"), "").unwrap();
        let started = fixture.hold("start");
        assert_eq!(started.status.code(), Some(0), "{}", started.stderr);
        let said = format!("{shown} is a file system of its own while held");
        assert_eq!(started.stderr.matches(&said).count(), 1, "{}", started.stderr);
        assert_eq!(started.stderr.lines().count(), 1, "{}", started.stderr);
        let status = hold(place, &["status", "./t.toml"]).stdout;
        assert_eq!(status.matches("a held directory is skipped by tar").count(), 1, "{status}");
        let crosses = ErrorKind::CrossesDevices;
        let renamed = fs::rename(disk.join("outside"), held.join("inside"));
        assert_eq!(renamed.unwrap_err().kind(), crosses);
        let linked = fs::hard_link(held.join("below/data"), disk.join("link"));
        assert_eq!(linked.unwrap_err().kind(), crosses);
        let shown = disk.display();
        for script in [
            format!("tar -C {shown} --one-file-system -c . | tar -t"),
            format!("rsync -rx {shown}/ copied && cd copied && find ."),
            format!("cd {shown} && find . -xdev"),
        ] {
            let listed = place.bare(&["sh", "-c", &script]);
            let printed = (listed.status.code(), listed.stderr.as_str());
            assert_eq!(printed, (Some(0), ""), "{script}");
            assert!(listed.stdout.contains("./outside"), "{script}: {}", listed.stdout);
            assert!(!listed.stdout.contains("below"), "{script}: {}", listed.stdout);
        }
        fixture.ok("stop");
        let status = hold(place, &["status", "./t.toml"]).stdout;
        assert!(!status.contains("a held directory"), "{status}");
        fs::rename(disk.join("outside"), held.join("inside")).unwrap();
    });
}

#[test]
fn a_hold_leaves_nothing_behind() {
    with_hold("", |place, fixture| {
        let at_first = fixture.everything();
        fixture.ok("start");
        let below = fixture.directory().join("made/below");
        fs::create_dir_all(&below).unwrap();
        fs::rename(fixture.directory().join("made"), fixture.directory().join("moved")).unwrap();
        assert!(fixture.everything() != at_first, "the hold has directories of its own");
        fs::remove_dir_all(fixture.directory().join("moved")).unwrap();
        fs::create_dir(fixture.directory().join("kept")).unwrap();
        fixture.ok("stop");
        fs::remove_dir(fixture.directory().join("kept")).unwrap();
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(place.bare(&["ls", "state/holds"]).stdout, "");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("meta.db") && !mounts.contains("databases"), "{mounts}");
    });
}

#[test]
fn directories_that_were_made_under_the_hold_have_no_attributes_of_it_afterwards() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        fs::create_dir_all(fixture.directory().join("made/below")).unwrap();
        fixture.ok("stop");
        let everything = fixture.everything();
        assert!(everything.contains("made/below") && !everything.contains("trusted."));
    });
}

#[test]
fn a_tree_deeper_than_a_path_and_than_the_limit_of_descriptors_is_cleaned() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let script = format!(
            "cd '{}'; for level in $(seq 700); do mkdir deepdeep; cd deepdeep; done; mkdir last",
            fixture.directory().display()
        );
        assert!(place.bare(&["sh", "-c", &script]).status.success());
        let stop = "ulimit -n 40; exec \"$@\"";
        let program = synconce_testkit::harness::binary();
        let words = ["sh", "-c", stop, "sh", program, "hold", "stop", "./t.toml"];
        let stopped = place.bare(&words);
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        let script = format!(
            "cd '{}'; for level in $(seq 700); do cd deepdeep; done; getfattr -d -m - . last",
            fixture.directory().display()
        );
        let left = place.bare(&["sh", "-c", &script]);
        assert_eq!((left.status.code(), left.stdout.as_str()), (Some(0), ""), "{}", left.stderr);
    });
}

#[test]
fn a_held_path_keeps_the_attributes_of_its_mount() {
    with_hold("", |place, fixture| {
        let flags = "remount,bind,nosuid,nodev,noexec,noatime,nodiratime";
        let disk = fixture.rig.path().display().to_string();
        assert!(place.bare(&["mount", "-o", flags, &disk]).status.success());
        fixture.ok("start");
        for path in [fixture.file(), fixture.directory()] {
            let words = ["findmnt", "-n", "-o", "VFS-OPTIONS", "--mountpoint"];
            let path = path.display().to_string();
            let found = place.bare(&[&words[..], &[&path]].concat()).stdout;
            assert_eq!(found.trim(), "rw,nosuid,nodev,noexec,noatime,nodiratime", "{path}");
        }
        fixture.ok("stop");
    });
}

#[test]
fn whatever_the_umask_is_nobody_else_writes_the_files_in_memory() {
    with_hold("", |place, fixture| {
        let program = synconce_testkit::harness::binary();
        let script = "umask 0; exec \"$@\"";
        let words = ["sh", "-c", script, "sh", program, "hold", "start", "./t.toml"];
        assert_eq!(place.bare(&words).status.code(), Some(0));
        let found =
            place.bare(&["sh", "-c", "find \"$SYNCONCE_RUNTIME_DIR\" -perm /022 ! -type l"]);
        assert_eq!(found.stdout, "");
        fixture.ok("stop");
    });
}

#[test]
fn starting_and_stopping_twice_changes_nothing() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let again = fixture.hold("start");
        assert_eq!(again.status.code(), Some(0));
        assert!(again.stderr.contains("held already"), "{}", again.stderr);
        assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
        fixture.ok("stop");
        let again = fixture.hold("stop");
        assert_eq!(again.status.code(), Some(0));
        assert!(again.stderr.contains("not in force"), "{}", again.stderr);
    });
}

#[test]
fn a_directory_above_that_is_a_link_is_followed() {
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        let fixture = HoldOnRig::new(place, "");
        let link = place.path("link");
        std::os::unix::fs::symlink(fixture.rig.path(), &link).unwrap();
        let path = link.join("meta.db");
        let text = format!("[[hold]]\npath = \"{}\"\nkind = \"bolt\"\n", path.display());
        place.write("t.toml", &text);
        fixture.ok("start");
        assert_eq!(fixture.state(), "held");
        let before = fixture.flushes();
        fixture.write(&fixture.file(), 50);
        assert!(fixture.flushes() - before < 40);
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_process_that_opened_a_file_with_o_dsync_is_named_by_status() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let path = fixture.directory().join("log");
        let program = format!(
            "import os, time\n\
             file = os.open('{}', os.O_RDWR | os.O_CREAT | os.O_DSYNC)\n\
             open('opened', 'w').write('1\\n')\n\
             time.sleep(600)\n",
            path.display()
        );
        let mut command = place.command("python3");
        let process =
            synconce_testkit::harness::StartedCommand::new(command.args(["-c", &program]));
        place.wait_for("opened");
        let (status, code) = fixture.status();
        assert_eq!(code, Some(0));
        assert_eq!(status["synced_at_open"][0]["name"], "python3");
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn every_field_of_the_json_is_documented() {
    with_hold("", |_, fixture| {
        let page = include_str!("../../../../docs/hold.md");
        let (status, _) = fixture.status();
        for field in status.as_object().expect("an object").keys() {
            assert!(page.contains(&format!("\n| `{field}` | ")), "{field}");
        }
    });
}

#[test]
fn the_list_of_holds_has_all_in_force() {
    with_hold("cost = \"one import\"\nafter_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        let shown = hold(place, &["status"]);
        assert_eq!(shown.status.code(), Some(0));
        assert!(shown.stdout.contains("held") && shown.stdout.contains("one import"));
        let shown = place.status(&[]);
        assert_eq!(shown.status.code(), Some(0), "a hold in force is no run in flight");
        assert!(shown.stdout.contains("hold t"), "{}", shown.stdout);
        let shown = place.status(&["--json"]);
        assert_eq!(shown.status.code(), Some(0));
        let listed: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
        let found = &listed[0];
        assert_eq!((&found["id"], &found["state"]), (&"t".into(), &"held".into()), "{listed}");
        assert_eq!(found["hold"], fixture.status().0);
        assert!(found["run"].is_null() && found["owner"] == 0, "{listed}");
        assert_eq!(found["advice"].as_array().map(Vec::len), Some(0), "{listed}");
        fixture.ok("stop");
        assert!(!place.status(&[]).stdout.contains("hold t"));
        assert_eq!(place.status(&["--json"]).stdout, "[]\n");
    });
}
