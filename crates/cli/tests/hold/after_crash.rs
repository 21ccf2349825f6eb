//! What a recovery does not do after an unclean end: it does not run beside another command of
//! the hold, and it does not give up files that it has not seen.

use crate::places::edit;
use crate::recovery::interrupted;
use crate::support::{Fixture, end};
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use synconce_testkit::harness::{
    Place, Started, children, eventually, finish, isolated, isolated_alone,
};
use synconce_testkit::rig::{FsKind, Rig};

/// Runs `verb` while another command has the lock of the hold; `unchanged` is true until the
/// lock is released.
fn waits(fixture: &Fixture<'_>, verb: &str, unchanged: impl Fn() -> bool) {
    let lock = fs::File::open(fixture.place.path("runtime/holds/t.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let process = Started::new(&mut fixture.place.synconce(&["hold", verb, "./t.toml"]));
    // /proc/locks names each process that waits (proc_locks(5)): the child does the work.
    let is_child =
        |word: &str| children(process.pid()).iter().any(|(pid, _)| *word == pid.to_string());
    let is_waiting =
        |line: &str| line.contains("-> FLOCK") && line.split_whitespace().any(is_child);
    eventually("it waits for the lock", || {
        fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting)
    });
    assert!(unchanged(), "{verb}");
    drop(lock);
    assert_eq!(process.end().code(), Some(0), "{verb}: {}", process.text());
    assert!(!unchanged(), "{verb}");
}

#[test]
fn recover_and_settle_wait_for_other_commands_of_the_hold() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        interrupted(&fixture, "old");
        waits(&fixture, "recover", || fixture.file().exists());
        fixture.ok("start");
        fs::write(fixture.directory().join("data"), "new").unwrap();
        waits(&fixture, "settle", || fixture.everything().contains(".synconce-aside"));
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

/// Takes the overlays of the hold away, and gives the marker the boot of another day.
pub fn crash(fixture: &Fixture<'_>) {
    crash_at(fixture.place, &[fixture.file(), fixture.directory()]);
}

/// Does so for a hold of `held` with the name `t`.
pub fn crash_at(place: &Place, held: &[PathBuf]) {
    for path in held {
        place.bare(&["umount", &path.display().to_string()]);
    }
    place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]);
    let marker = place.path("state/holds/t.json");
    let mut record: serde_json::Value =
        serde_json::from_slice(&fs::read(&marker).unwrap()).expect("JSON");
    record["boot"] = "another".into();
    fs::write(&marker, record.to_string()).unwrap();
}

#[test]
fn a_disk_that_is_not_mounted_is_named_and_the_marker_stays() {
    isolated(|place| {
        for after_crash in ["wipe", "refuse"] {
            let fixture = Fixture::new(place, &format!("after_crash = \"{after_crash}\"\n"));
            fixture.ok("start");
            fs::write(fixture.file(), "old").unwrap();
            crash(&fixture);
            fixture.rig.unmount().unwrap();
            let point = fixture.rig.path().display().to_string();
            for decision in [&[][..], &["--wipe"], &["--keep"]] {
                let words = [&["hold", "recover", "./t.toml"], decision].concat();
                let refused = finish(&mut place.synconce(&words));
                assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
                let said = [format!("was mounted on {point}"), format!("mount {point}  ")];
                assert!(
                    said.iter().all(|said| refused.stderr.contains(said)),
                    "{}",
                    refused.stderr
                );
                assert_eq!(fixture.state(), "interrupted");
            }
            assert_eq!(fs::read_dir(fixture.rig.path()).unwrap().count(), 0, "nothing is made");
            fixture.rig.mount().unwrap();
            let keep = (after_crash == "refuse").then_some("--keep");
            let words = ["hold", "recover", "./t.toml"].into_iter().chain(keep);
            let recovered = finish(&mut place.synconce(&words.collect::<Vec<_>>()));
            assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
            assert_eq!(fixture.file().exists(), keep.is_some());
            assert_eq!(fixture.state(), "off");
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn a_file_that_cannot_be_looked_at_is_not_missing() {
    isolated_alone(|place| {
        let rig = Rig::builder().fs(FsKind::Xfs).size(512 << 20).passthrough(false);
        let fixture = Fixture::on(place, rig.up().unwrap(), "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(&fixture);
        // XFS shuts down when it cannot write its log.
        fixture.rig.disk().fail_writes(true).unwrap();
        fs::write(fixture.rig.path().join("other"), "").unwrap();
        let below = fs::File::open(fixture.rig.path()).unwrap();
        assert!(rustix::fs::syncfs(&below).is_err());
        drop(below);
        for decision in [&[][..], &["--keep"]] {
            let words = [&["hold", "recover", "./t.toml"], decision].concat();
            let refused = finish(&mut place.synconce(&words));
            assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
            assert!(refused.stderr.contains("Input/output error"), "{}", refused.stderr);
            assert_eq!(fixture.state(), "interrupted");
        }
        fixture.rig.disk().fail_writes(false).unwrap();
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        fixture.ok("recover");
        assert!(!fixture.file().exists());
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_start_that_fails_after_a_wipe_removes_what_it_made_so_that_nothing_is_settled() {
    isolated(|place| {
        let rig = Rig::builder().size(24 << 20).passthrough(false);
        let fixture = Fixture::on(place, rig.up().unwrap(), "");
        let held = fixture.rig.path().join("a/b/held");
        let text = format!(
            "after_crash = \"wipe\"\n[[hold]]\npath = \"{}\"\nkind = \"other\"\n\
             [[hold]]\npath = \"{}\"\nkind = \"bolt\"\n",
            held.display(),
            fixture.file().display()
        );
        place.write("t.toml", &text);
        fixture.ok("start");
        fs::write(held.join("data"), "old").unwrap();
        place.bare(&["umount", &held.display().to_string()]);
        crash(&fixture);
        // The whole tree, so that its directories are made anew.
        let marker = place.path("state/holds/t.json");
        let text = fs::read_to_string(&marker).unwrap();
        let aside =
            format!("\"set_aside\":[\"{0}/a\",\"{0}/meta.db\"]", fixture.rig.path().display());
        fs::write(&marker, text.replace("\"set_aside\":[]", &aside)).unwrap();
        fixture.ok("recover");
        let at_first = fixture.everything();
        // The second path of the hold cannot be held, so the start fails after the first.
        fs::create_dir(fixture.file()).unwrap();
        assert_eq!(fixture.hold("start").status.code(), Some(125));
        fs::remove_dir(fixture.file()).unwrap();
        assert_eq!(fixture.everything(), at_first);
        let refused = fixture.hold("settle");
        assert_eq!(refused.status.code(), Some(125));
        assert!(refused.stderr.contains("has not made"), "{}", refused.stderr);
        fixture.ok("start");
        // What the start made is empty: a start may be killed, and no daemon has used it.
        assert_eq!(fixture.hold("settle").status.code(), Some(125));
        let unused = finish(&mut place.synconce(&["hold", "run", "./t.toml", "--", "true"]));
        assert_eq!(unused.status.code(), Some(0), "{}", unused.stderr);
        assert!(unused.stderr.contains("has not made"), "{}", unused.stderr);
        fs::write(held.join("data"), "new").unwrap();
        fixture.ok("settle");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_recovery_that_fails_on_a_read_only_disk_shows_nothing_as_set_aside() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        crash(&fixture);
        // Otherwise the recovery fails earlier, when it removes what the hold left.
        let scratch = fixture.rig.path().join(".synconce-hold");
        fs::remove_dir_all(scratch).unwrap();
        edit(place, |record| record["ending"] = true.into());
        fixture.rig.remount("ro").unwrap();
        let failed = fixture.hold("recover");
        assert_eq!(failed.status.code(), Some(125), "{}", failed.stderr);
        assert!(place.path("state/holds/t.aside.json").exists(), "{}", failed.stderr);
        let (status, code) = fixture.status();
        assert_eq!((status["state"].as_str(), code), (Some("interrupted"), Some(4)));
        assert_eq!(status["set_aside"], serde_json::json!([]));
        fixture.rig.remount("rw").unwrap();
        fixture.ok("recover");
        assert_eq!(fixture.status().0["set_aside"].as_array().unwrap().len(), 1);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn files_that_a_daemon_without_the_hold_has_open_are_not_set_aside() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\nunit = \"some.service\"\n");
        fixture.ok("start");
        crash(&fixture);
        // The operator has started the daemon by hand.
        for path in [fixture.file(), fixture.directory().join("new")] {
            let process = fixture.open(&path);
            let at_first = fixture.everything();
            let refused = fixture.hold("recover");
            assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
            for said in ["is in use by s", "  systemctl stop some.service  "] {
                assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
            }
            assert_eq!(fixture.everything(), at_first);
            assert_eq!(fixture.state(), "interrupted");
            end(process);
        }
        fixture.ok("recover");
        assert!(!fixture.file().exists());
        fixture.rig.down().unwrap();
    });
}

#[test]
fn files_to_which_a_link_no_longer_leads_are_not_forgotten() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let [link, first, second] = ["cur", "v1", "v2"].map(|name| fixture.rig.path().join(name));
        fs::create_dir_all(first.join("db")).unwrap();
        fs::create_dir_all(second.join("db")).unwrap();
        symlink("v1", &link).unwrap();
        let path = link.join("db").display().to_string();
        let text =
            format!("after_crash = \"wipe\"\n[[hold]]\npath = \"{path}\"\nkind = \"other\"\n");
        place.write("t.toml", &text);
        fixture.ok("start");
        place.bare(&["umount", &first.join("db").display().to_string()]);
        crash(&fixture);
        let at_first = fixture.everything().replace(&format!("{}\n", link.display()), "");
        fs::remove_file(&link).unwrap();
        for target in [None, Some("v2")] {
            if let Some(target) = target {
                symlink(target, &link).unwrap();
            }
            for decision in [&[][..], &["--wipe"]] {
                let words = [&["hold", "recover", "./t.toml"], decision].concat();
                let refused = finish(&mut place.synconce(&words));
                assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
                let said = format!("{path} led to {}/db when", first.display());
                assert!(refused.stderr.contains(&said), "{}", refused.stderr);
                assert_eq!(fixture.state(), "interrupted");
            }
            let now = fixture.everything().replace(&format!("{}\n", link.display()), "");
            assert_eq!(now, at_first);
        }
        fs::remove_file(&link).unwrap();
        symlink("v1", &link).unwrap();
        fixture.ok("recover");
        assert!(!first.join("db").exists() && second.join("db").exists());
        fixture.rig.down().unwrap();
    });
}

/// Replaces the notes beside the held paths, or removes them.
fn note(fixture: &Fixture<'_>, boot: Option<&str>) {
    for path in ["meta.db", "databases"] {
        let note = fixture.rig.path().join(".synconce-hold").join(path).join("started");
        // The boot, and then the identity of the directory.
        let old = fs::read_link(&note).unwrap().to_str().unwrap().to_owned();
        let rest = old.split_once(' ').unwrap().1;
        fs::remove_file(&note).unwrap();
        if let Some(boot) = boot {
            symlink(format!("{boot} {rest}"), note).unwrap();
        }
    }
}

#[test]
fn without_a_stop_of_the_machine_a_lost_marker_costs_nothing() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        let data = fixture.directory().join("data");
        fixture.ok("start");
        fs::write(&data, "old").unwrap();
        crash(&fixture);
        place.remove("state/holds/t.json");
        let recovered = fixture.hold("recover");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        assert_eq!(fixture.state(), "off");
        let before = fixture.flushes();
        fixture.ok("start");
        assert!(fixture.flushes() > before, "what no marker says is made durable");
        assert_eq!(fs::read_to_string(&data).unwrap(), "old");
        fixture.ok("stop");
        // An older version left no note, so it is unknown whether the machine stopped.
        fixture.ok("start");
        crash(&fixture);
        place.remove("state/holds/t.json");
        note(&fixture, None);
        assert_eq!(fixture.state(), "interrupted");
        assert_eq!(fixture.hold("start").status.code(), Some(125));
        for _again in 0..2 {
            let refused = fixture.hold("recover");
            assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
            assert!(refused.stderr.contains("hold recover t --keep"), "{}", refused.stderr);
            assert_eq!(fs::read_to_string(&data).unwrap(), "old");
        }
        let keep = ["hold", "recover", "./t.toml", "--keep"];
        assert_eq!(finish(&mut place.synconce(&keep)).status.code(), Some(0));
        fixture.ok("start");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_hold_whose_marker_is_lost_is_recovered_before_it_starts() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(&fixture);
        // As in a container that is made anew, after a stop of the machine.
        place.remove("state/holds/t.json");
        note(&fixture, Some("another"));
        for _again in 0..2 {
            assert_eq!(fixture.state(), "interrupted");
            let refused = fixture.hold("start");
            assert_eq!(refused.status.code(), Some(125), "{}", refused.stderr);
            for said in ["its marker is lost", "hint: synconce hold recover t\n"] {
                assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
            }
        }
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        let recovered = fixture.hold("recover");
        assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
        assert!(recovered.stderr.contains("its marker is lost; the files are set aside"));
        assert!(!fixture.file().exists() && !fixture.directory().exists());
        fixture.ok("start");
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}
