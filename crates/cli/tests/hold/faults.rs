//! Full and failing disks, and file systems that go away.

use crate::crashes::{crash, unmount_below};
use crate::support::{HoldOnRig, end, hold, sh, stays, with_hold};
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_testkit::harness::{Place, binary, finish, isolated, isolated_alone};
use synconce_testkit::rig::{FsKind, Rig};

/// Fills the disk, and uses up its inodes.
fn fill(place: &Place, fixture: &HoldOnRig<'_>) {
    let at = fixture.rig.path().display();
    let fill = format!("cat /dev/zero >{at}/full; while : >{at}/full-$((i+=1)); do :; done; :");
    place.bare(&["bash", "-c", &fill]);
}

#[test]
fn a_recovery_on_a_full_disk_names_the_disk_and_is_repeated_once_there_is_space() {
    isolated(|place| {
        let rig = Rig::builder().size(24 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "after_crash = \"wipe\"\n");
        let at = fixture.rig.path().display().to_string();
        for then in ["recover --keep", "recover"] {
            fixture.ok("start");
            fill(place, &fixture);
            crash(&fixture);
            let hint = format!("hint: df -h {at}, and free space there");
            fixture.fails("recover", &["No space left on device", &hint]);
            assert_eq!(fixture.state(), "interrupted");
            // Nothing was moved.
            assert_eq!(hold(place, &["restore"]).stdout, "no files are set aside\n");
            let shown = fixture.hold("status").stdout;
            assert!(!shown.contains("set aside after a crash"), "{shown}");
            if then == "recover" {
                sh(place, &format!("rm {at}/full*"));
            }
            fixture.ok(then);
            assert_eq!(fixture.state(), "off");
            assert_eq!(fixture.file().exists(), then != "recover");
            sh(place, &format!("rm -f {at}/full*"));
        }
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_full_disk_refuses_the_start_and_keeps_nothing() {
    isolated(|place| {
        let rig = Rig::builder().size(24 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "");
        fill(place, &fixture);
        let at_first = fixture.everything();
        fixture.fails("start", &["No space left on device"]);
        assert_eq!(fixture.everything(), at_first);
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_disk_that_is_full_fails_the_daemons_write_and_nothing_of_the_hold() {
    isolated(|place| {
        let rig = Rig::builder().size(24 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "");
        fixture.ok("start");
        let file = fs::File::options().append(true).open(fixture.file()).unwrap();
        let piece = [b'a'; 65536];
        let full = std::iter::repeat_with(|| std::io::Write::write_all(&mut &file, &piece));
        let error = full.take(1000).find_map(Result::err).expect("the disk has 24 MiB");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
        file.sync_all().unwrap();
        let written = file.metadata().unwrap().len();
        drop(file);
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        assert_eq!(fs::metadata(fixture.file()).unwrap().len(), written);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_write_back_error_ends_the_hold_and_is_named() {
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").passthrough(false);
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "");
        fixture.ok("start");
        let file = fs::File::options().write(true).open(fixture.file()).unwrap();
        std::io::Write::write_all(&mut &file, &[b'a'; 65536]).unwrap();
        fixture.rig.disk().fail_writes(true).unwrap();
        let below = fs::File::open(fixture.rig.path()).unwrap();
        assert!(rustix::fs::syncfs(&below).is_err(), "the data are lost");
        fixture.rig.disk().fail_writes(false).unwrap();
        let error = file.sync_all().expect_err("the daemon's next sync");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        let (status, code) = fixture.status();
        assert_eq!((status["state"].as_str(), code), (Some("failed"), Some(4)));
        drop((file, below));
        fixture.fails("stop", &["the disk lost writes", "hint: synconce hold recover t"]);
        assert_eq!(fixture.state(), "interrupted");
        fixture.fails("start", &[]);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_journal_that_its_own_timer_aborted_fails_the_stop() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=1").passthrough(false);
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "");
        fixture.ok("start");
        let made = fixture.directory().join("made");
        fixture.rig.abort_journal(|| fs::create_dir(made).unwrap()).unwrap();
        fixture.fails("stop", &["the disk lost writes"]);
        fixture.rig.disk().recover().unwrap();
        assert_eq!(fixture.state(), "interrupted");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_file_system_that_was_unmounted_during_the_hold_is_in_doubt() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        unmount_below(fixture);
        assert_eq!(fixture.state(), "interrupted");
        fixture.fails("start", &["was unmounted"]);
    });
}

#[test]
fn a_file_of_another_overlay_with_the_same_device_is_not_of_the_hold() {
    // The kernel gives the lowest number that is free. Another test could take the number, or free
    // many lower ones. An overlay can take several: its own first, then some for its layers.
    isolated_alone(|place| {
        let fixture = HoldOnRig::new(place, "");
        fixture.ok("start");
        let device = fs::metadata(fixture.directory()).unwrap().dev();
        unmount_below(&fixture);
        let script = format!(
            "mkdir lower other; : >lower/file; number=\n\
             until [ \"$number\" = {device} ]; do\n\
             mkdir $((n += 1)); mount -t tmpfs other $n; number=$(stat --format %d $n)\n\
             done\n\
             umount $n; mount -t overlay -o lowerdir=lower:other other $n\n\
             [ $(stat --format %d $n) = {device} ]\n\
             exec 3<$n/file; umount --lazy $n"
        );
        let process = stays(place, &["sh"], &script);
        assert_eq!(fixture.state(), "interrupted");
        let refused = fixture.hold("start");
        assert!(refused.stderr.contains("was unmounted"), "{}", refused.stderr);
        end(process);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_hold_that_somebody_unmounted_is_whole_again_after_the_next_start() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let file = fixture.file().display().to_string();
        assert_eq!(place.bare(&["umount", &file]).status.code(), Some(0));
        let (status, _) = fixture.status();
        assert_eq!(status["missing"][0], file);
        fixture.ok("start");
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
    });
}

#[test]
fn a_limit_of_file_sizes_is_named() {
    with_hold("", |place, fixture| {
        let binary = binary();
        let script = format!("(ulimit -f 0; '{binary}' hold start ./t.toml 2>&1) | cat");
        let started = finish(place.command("bash").args(["-c", &script]));
        assert!(started.stdout.contains("cannot write"), "{started:?}");
        assert!(started.stdout.contains("File too large"), "{started:?}");
        assert_eq!(place.bare(&["ls", "-A", "state/holds"]).stdout, "");
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_disk_that_was_shut_down_under_the_hold_is_let_go_by_the_stop() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Xfs).size(512 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "");
        fixture.ok("start");
        let process = fixture.open(&fixture.file());
        let shutdown =
            ["xfs_io", "-x", "-c", "shutdown", &fixture.rig.path().display().to_string()];
        assert_eq!(place.bare(&shutdown).status.code(), Some(0));
        let (status, code) = fixture.status();
        assert_eq!((status["state"].as_str(), code), (Some("failed"), Some(4)));
        let reason = status["reason"].as_str().expect("a reason");
        assert!(reason.contains("the disk lost writes"), "{reason}");
        fixture.fails("stop", &["in use by sh"]);
        end(process);
        fixture.fails("stop", &["the disk lost writes", "hint: synconce hold recover t"]);
        // Nothing keeps the disk, and the marker stays.
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        assert_eq!(fixture.state(), "interrupted");
        fixture.rig.down().unwrap();
    });
}
