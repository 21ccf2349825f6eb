//! What a recovery does not do after an unclean end: it does not run beside another command of
//! the hold, and it does not give up files that it has not seen.

use crate::crashes::{crash, crash_at, edit};
use crate::support::{HoldOnRig, configure, end, sh, show_systemd, with_hold};
use std::fs;
use std::os::unix::fs::symlink;
use synconce_testkit::harness::{isolated, isolated_alone};
use synconce_testkit::rig::{FsKind, Rig};

#[test]
fn a_file_that_cannot_be_looked_at_is_not_missing() {
    isolated_alone(|place| {
        let rig = Rig::builder().fs(FsKind::Xfs).size(512 << 20).passthrough(false);
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(&fixture);
        // XFS shuts down when it cannot write its log.
        fixture.rig.disk().fail_writes(true).unwrap();
        fs::write(fixture.rig.path().join("other"), "").unwrap();
        let below = fs::File::open(fixture.rig.path()).unwrap();
        assert!(rustix::fs::syncfs(&below).is_err());
        drop(below);
        let at = fixture.rig.path().display();
        let hint = format!("hint: once the disk works again: umount {at} && mount {at}; then");
        for verb in ["recover", "recover --keep"] {
            fixture.fails(verb, &["Input/output error", &hint]);
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
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "");
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
        fixture.fails("start", &[]);
        fs::remove_dir(fixture.file()).unwrap();
        assert_eq!(fixture.everything(), at_first);
        fixture.fails("settle", &["has not written"]);
        fixture.ok("start");
        // What the start made is empty: a start may be killed, and no daemon has used it.
        fixture.fails("settle", &[]);
        let unused = fixture.run(&["true"]);
        assert_eq!(unused.status.code(), Some(0), "{}", unused.stderr);
        assert!(unused.stderr.contains("has not written"), "{}", unused.stderr);
        fs::write(held.join("data"), "new").unwrap();
        fixture.ok("settle");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_recovery_that_fails_on_a_read_only_disk_shows_nothing_as_set_aside() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        crash(fixture);
        // Otherwise the recovery fails earlier, when it removes what the hold left.
        let scratch = fixture.rig.path().join(".synconce-hold");
        fs::remove_dir_all(scratch).unwrap();
        edit(place, |record| record["ending"] = true.into());
        fixture.rig.remount("ro").unwrap();
        fixture.fails("recover", &["Read-only file system"]);
        assert!(place.path("state/holds/t.aside.json").exists());
        let (status, code) = fixture.status();
        assert_eq!((status["state"].as_str(), code), (Some("interrupted"), Some(4)));
        assert_eq!(status["set_aside"], serde_json::json!([]));
        fixture.rig.remount("rw").unwrap();
        fixture.ok("recover");
        assert_eq!(fixture.status().0["set_aside"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn files_that_a_daemon_without_the_hold_has_open_are_not_set_aside() {
    with_hold("after_crash = \"wipe\"\nunit = \"some.service\"\n", |place, fixture| {
        show_systemd(place);
        fixture.ok("start");
        crash(fixture);
        // The operator has started the daemon by hand.
        for path in [fixture.file(), fixture.directory().join("new")] {
            let process = fixture.open(&path);
            let at_first = fixture.everything();
            fixture.fails("recover", &["is in use by s", "  systemctl stop some.service  "]);
            assert_eq!(fixture.everything(), at_first);
            assert_eq!(fixture.state(), "interrupted");
            end(process);
        }
        fixture.ok("recover");
        assert!(!fixture.file().exists());
    });
}

/// Replaces the notes beside the held paths, or removes them.
fn note(fixture: &HoldOnRig<'_>, boot: Option<&str>) {
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
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        let data = fixture.directory().join("data");
        fixture.ok("start");
        fs::write(&data, "old").unwrap();
        crash(fixture);
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
        crash(fixture);
        place.remove("state/holds/t.json");
        note(fixture, None);
        assert_eq!(fixture.state(), "interrupted");
        fixture.fails("start", &[]);
        for _again in 0..2 {
            let said = "its marker is lost, and nothing shows";
            fixture.fails("recover", &[said, "hold recover t --keep"]);
            fixture.fails("start", &[said]);
            assert_eq!(fs::read_to_string(&data).unwrap(), "old");
        }
        fixture.ok("recover --keep");
        fixture.ok("start");
        fixture.ok("stop");
    });
}

#[test]
fn a_hold_whose_marker_is_lost_is_recovered_before_it_starts() {
    isolated(|place| {
        for after_crash in ["wipe", "refuse"] {
            let fixture = HoldOnRig::new(place, &format!("after_crash = \"{after_crash}\"\n"));
            fixture.ok("start");
            fs::write(fixture.file(), "old").unwrap();
            crash(&fixture);
            // As on a machine that was installed anew, or in a container that was made anew.
            place.remove("state/holds/t.json");
            note(&fixture, Some("another"));
            for _again in 0..2 {
                assert_eq!(fixture.state(), "interrupted");
                fixture.fails("start", &["its marker is lost", "hint: synconce hold recover t\n"]);
            }
            if after_crash == "refuse" {
                let decide = ["hold recover t --keep", "hold recover t --wipe"];
                fixture.fails("recover", &[&["its marker is lost"], &decide[..]].concat());
                fixture.fails("start", &["its marker is lost ("]);
                assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
            }
            let verb = if after_crash == "wipe" { "recover" } else { "recover --wipe" };
            let recovered = fixture.ok(verb);
            assert!(recovered.contains("its marker is lost; the files are set aside"));
            assert!(!fixture.file().exists() && !fixture.directory().exists());
            fixture.ok("start");
            fixture.ok("stop");
            assert_eq!(fixture.state(), "off");
            fixture.rig.down().unwrap();
        }
    });
}

/// The mark of the hold is beside a held subvolume, so no snapshot of the subvolume lacks it.
#[test]
fn a_snapshot_in_the_place_of_a_held_subvolume_is_not_set_aside_unasked() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Btrfs).size(512 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "");
        let held = fixture.rig.path().join("data");
        let at = held.display();
        configure(place, "t", "after_crash = \"wipe\"", &held);
        sh(place, &format!("btrfs subvolume create {at}; echo old >{at}/data"));
        sh(place, &format!("btrfs subvolume snapshot {at} {at}.old"));
        fixture.ok("start");
        fs::write(held.join("data"), "new").unwrap();
        crash_at(place, std::slice::from_ref(&held));
        sh(place, &format!("mv {at} {at}.new; btrfs subvolume snapshot {at}.old {at}"));
        fixture.fails("recover", &["is not the file that was held", "hold recover t --keep"]);
        assert_eq!(fs::read_to_string(held.join("data")).unwrap(), "old\n");
        // A subvolume keeps its number when it is renamed.
        sh(place, &format!("btrfs subvolume delete {at}; mv {at}.new {at}"));
        fixture.ok("recover");
        assert!(!held.exists());
        fixture.rig.down().unwrap();
    });
}
