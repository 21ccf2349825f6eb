//! Copies of the overlays of a hold in mount namespaces that do not receive the unmount: a stop
//! unmounts those that nothing uses.

use crate::support::{HoldOnRig, end, refused, sh, stays, with_hold};
use std::fs;
use std::time::{Duration, Instant};
use synconce_testkit::harness::{Place, StartedCommand, a_few_times, binary, eventually, isolated};
use synconce_testkit::rig::{FsKind, Rig};

/// Starts a shell in a mount namespace that receives no mounts and unmounts.
const PRIVATE: [&str; 5] = ["unshare", "--mount", "--propagation", "private", "sh"];

/// Returns what `script` prints in the mount namespace of `process`.
fn there(place: &Place, process: &StartedCommand, script: &str) -> String {
    sh(place, &format!("nsenter --mount --target {} sh -ec '{script}'", process.pid()))
}

/// Returns how many overlays of holds are mounted in the namespace of `process`.
fn copies(place: &Place, process: &StartedCommand) -> usize {
    let mounts = there(place, process, "cat /proc/self/mountinfo");
    mounts.lines().filter(|line| line.contains(" - overlay synconce ")).count()
}

/// Returns what the message says of a mount in the namespace of `process`.
fn named(process: &StartedCommand) -> String {
    format!("in the mount namespace of sleep (pid {})", process.pid())
}

#[test]
fn an_idle_copy_in_a_private_namespace_is_unmounted_by_the_stop() {
    with_hold("", |place, fixture| {
        let data = fixture.directory().join("data");
        let mut rounds = 0;
        let stops_at_once = || {
            rounds += 1;
            let text = format!("the data of round {rounds}");
            fixture.ok("start");
            let process = stays(place, &PRIVATE, ":");
            assert_eq!(copies(place, &process), 2);
            fs::write(&data, &text).unwrap();
            let (flushes, began) = (fixture.flushes(), Instant::now());
            fixture.ok("stop");
            let time = began.elapsed();
            assert!(fixture.flushes() > flushes, "the files are made durable");
            let device = fixture.rig.device().display();
            let grep = format!("dd if={device} iflag=direct bs=1M status=none | grep -c '{text}'");
            assert_ne!(sh(place, &grep), "0\n");
            assert!(!place.path("state/holds/t.json").exists());
            assert_eq!(fixture.state(), "off");
            assert_eq!(copies(place, &process), 0);
            // The disk is mounted there still, so the path leads to the same file.
            assert_eq!(there(place, &process, &format!("cat {}", data.display())), text);
            end(process);
            // A stop waits three seconds for what is in use.
            time < Duration::from_secs(2)
        };
        assert!(a_few_times(stops_at_once), "the stop does not wait");
    });
}

/// Checks that the stop leaves a copy at `point` in the namespace of `process`, says so, and that
/// nothing can be written there.
fn left_read_only(fixture: &HoldOnRig<'_>, process: &StartedCommand, point: &str) {
    let place = fixture.place;
    let stopped = fixture.hold("stop");
    assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
    let name = named(process);
    let said =
        format!("has ended; {point} stays mounted read-only {name}, until its processes end\n");
    assert!(stopped.stderr.contains(&said), "{said}: {}", stopped.stderr);
    assert_eq!(fixture.state(), "off");
    assert!(!place.path("state/holds/t.json").exists());
    assert!(!fixture.everything().contains(".synconce"), "{}", fixture.everything());
    assert_ne!(copies(place, process), 0);
    let write = format!("touch {point}/other 2>&1 || exit 0; exit 1");
    assert!(there(place, process, &write).contains("Read-only file system"));
}

#[test]
fn a_copy_with_a_writer_keeps_the_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let held = fixture.directory().display().to_string();
        let mapping = format!(
            "exec python3 -c \"import mmap, os, time; file = os.open('{held}/new', os.O_RDWR); \
             mapped = mmap.mmap(file, 1); os.close(file); print('ready', flush=True); \
             time.sleep(600)\""
        );
        fs::write(fixture.directory().join("new"), "new").unwrap();
        for (script, name) in [(format!("exec 3>{held}/new"), "sleep"), (mapping, "python3")] {
            let process = stays(place, &PRIVATE, &script);
            refused(fixture, &[&format!("in use by {name} (pid {})", process.pid())]);
            assert_eq!(fixture.state(), "held");
            assert_eq!(copies(place, &process), 2);
            // The hold goes on as before, also where no file was open.
            fs::write(fixture.file(), "new").unwrap();
            there(place, &process, &format!("echo new >{held}/new"));
            end(process);
        }
        fixture.ok("stop");
    });
}

#[test]
fn a_copy_that_cannot_be_unmounted_is_left_read_only() {
    isolated(|place| {
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let rig = Rig::builder().fs(kind).size(512 << 20).passthrough(false).up().unwrap();
            let fixture = HoldOnRig::on(place, rig, "after_crash = \"wipe\"\n");
            let held = fixture.directory().display().to_string();
            fs::create_dir(fixture.directory().join("sub")).unwrap();
            fs::write(fixture.directory().join("data"), "data").unwrap();
            // A mount inside the copy, a mount over a directory above, and readers.
            for script in [
                format!("mount -t tmpfs other {held}/sub"),
                format!("exec 3<{held}/data"),
                format!("cd {held}"),
            ] {
                fixture.ok("start");
                let process = stays(place, &PRIVATE, &script);
                let (text, data) = (format!("after {script}"), fixture.directory().join("data"));
                fs::write(&data, &text).unwrap();
                let flushes = fixture.flushes();
                left_read_only(&fixture, &process, &held);
                assert!(fixture.flushes() > flushes, "the files are made durable");
                // The next hold is another overlay, which the copy does not keep.
                fixture.ok("start");
                assert_eq!(fixture.state(), "held");
                fs::write(&data, "next").unwrap();
                fixture.ok("stop");
                assert_eq!(fs::read_to_string(&data).unwrap(), "next");
                end(process);
            }
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn a_volume_of_a_container_is_not_unmounted_and_left_read_only() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let held = fixture.directory().display().to_string();
        fs::write(fixture.directory().join("data"), "data").unwrap();
        let volume = place.text("volume");
        fs::create_dir(&volume).unwrap();
        let process = stays(place, &PRIVATE, &format!("mount --bind {held} {volume}"));
        left_read_only(fixture, &process, &volume);
        assert_eq!(there(place, &process, &format!("cat {volume}/data")), "data");
        end(process);
    });
}

#[test]
fn an_idle_copy_is_unmounted_where_every_process_has_another_root() {
    with_hold("", |place, fixture| {
        let cage = fixture.rig.path().join("cage");
        fs::create_dir(&cage).unwrap();
        // The held files are below the first root, and outside of the second.
        for root in [fixture.rig.path(), &cage] {
            fixture.ok("start");
            let program = format!(
                "import os, time\n\
                 os.chroot('{}')\n\
                 print('ready', flush=True)\n\
                 time.sleep(600)\n",
                root.display()
            );
            let words = [&PRIVATE[1..4], &["python3", "-c", &program]].concat();
            let process = StartedCommand::new(place.command("unshare").args(words));
            eventually("its root is another one", || process.text().contains("ready\n"));
            assert_eq!(copies(place, &process), 2);
            fixture.ok("stop");
            assert_eq!(fixture.state(), "off");
            assert_eq!(copies(place, &process), 0);
            end(process);
        }
    });
}

#[test]
fn a_copy_of_any_user_does_not_keep_the_hold() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        let data = fixture.directory().join("data");
        fs::write(&data, "data").unwrap();
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let words = [&user[..], &["unshare", "--user", "--map-root-user"], &PRIVATE[1..]].concat();
        let process = stays(place, &words, ":");
        let held = fixture.directory().display().to_string();
        left_read_only(fixture, &process, &held);
        let remount =
            format!("nsenter --user --mount --target {} mount -o remount,rw", process.pid());
        sh(place, &format!("! {remount} {held} 2>&1"));
        // The next boot calls `recover`.
        fixture.ok("recover");
        assert_eq!(fs::read_to_string(&data).unwrap(), "data");
        end(process);
    });
}

#[test]
fn an_idle_copy_on_a_mount_that_others_share_is_unmounted() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        // The init of a container does this: the mount below has peers, but none of them is here.
        let process = stays(place, &PRIVATE, "mount --make-rshared /");
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        assert_eq!(copies(place, &process), 0);
        end(process);
    });
}

#[test]
fn a_start_that_repairs_the_hold_unmounts_idle_copies() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process = stays(place, &PRIVATE, ":");
        sh(place, &format!("umount {}", fixture.file().display()));
        assert_eq!(fixture.state(), "incomplete");
        fixture.ok("start");
        assert_eq!(fixture.state(), "held");
        assert_eq!(copies(place, &process), 0);
        fixture.ok("stop");
        end(process);
    });
}

/// Starts a stop that a tracer stops, kills or lets fail as `inject` says.
fn traced(fixture: &HoldOnRig<'_>, calls: &str, inject: &[&str]) -> StartedCommand {
    traced_verb(fixture, "stop", calls, inject)
}

/// As [`traced`], for `verb`.
pub fn traced_verb(
    fixture: &HoldOnRig<'_>,
    verb: &str,
    calls: &str,
    inject: &[&str],
) -> StartedCommand {
    let trace = format!("trace={calls}");
    let words = [&["-f", "-qq", "-o", "trace", "-e", &trace], inject].concat();
    let stop = [binary(), "hold", verb, "./t.toml"];
    StartedCommand::new(fixture.place.command("strace").args(words).args(stop))
}

#[test]
fn a_stop_waits_for_a_writer_in_a_copy() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process =
            stays(place, &PRIVATE, &format!("exec 3>{}/new", fixture.directory().display()));
        let stop = traced(fixture, "fsconfig", &[]);
        eventually("the overlay is busy", || {
            fs::read_to_string(place.path("trace")).is_ok_and(|text| text.contains("EBUSY"))
        });
        end(process);
        assert_eq!(stop.end().code(), Some(0), "{}", stop.text());
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_stop_looks_for_no_process_while_the_overlays_are_read_only() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let stop = traced(fixture, "fsconfig,umount2,openat", &[]);
        assert_eq!(stop.end().code(), Some(0), "{}", stop.text());
        let trace = place.read("trace");
        let (_, after) = trace.rsplit_once("FSCONFIG_CMD_RECONFIGURE").expect("a change");
        let (between, _) = after.split_once("umount2(").expect("an unmount");
        assert!(!between.contains("\"/proc/1/"), "{between}");
    });
}

#[test]
fn a_start_makes_an_overlay_writable_that_a_killed_stop_left_read_only() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let kill = "inject=umount2:error=EINTR:signal=KILL:when=1";
        assert!(!traced(fixture, "umount2", &["-e", kill]).end().success());
        let new = fixture.directory().join("new");
        assert!(fs::write(&new, "").is_err());
        let (status, _) = fixture.status();
        assert_eq!(status["state"], "incomplete");
        let reason = format!("{} can only be read", fixture.directory().display());
        assert!(status["reason"].as_str().expect("a reason").contains(&reason), "{status}");
        assert_eq!(status["advice"], "synconce hold stop t");
        fixture.ok("start");
        fs::write(&new, "new").unwrap();
        fs::write(fixture.file(), "new").unwrap();
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
    });
}

#[test]
fn a_stop_that_was_cut_short_is_repeated_whatever_reads_the_copies() {
    isolated(|place| {
        // One sync comes before the unmount.
        for (call, at) in [("syncfs", 2), ("unlink,unlinkat", 1)] {
            let fixture = HoldOnRig::new(place, "");
            fixture.ok("start");
            let held = fixture.directory().display().to_string();
            fs::write(fixture.directory().join("data"), "data").unwrap();
            let process = stays(place, &PRIVATE, &format!("exec 3<{held}/data"));
            let kill = format!("inject={call}:error=EINTR:signal=KILL:when={at}");
            assert!(!traced(&fixture, call, &["-e", &kill]).end().success());
            assert!(!sh(place, "cat /proc/self/mountinfo").contains(" - overlay synconce "));
            left_read_only(&fixture, &process, &held);
            end(process);
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn a_copy_of_an_earlier_hold_does_not_keep_a_hold_that_was_unmounted() {
    with_hold("", |place, fixture| {
        let held = fixture.directory().display().to_string();
        let data = fixture.directory().join("data");
        fs::write(&data, "data").unwrap();
        fixture.ok("start");
        let process = stays(place, &PRIVATE, &format!("exec 3<{held}/data"));
        left_read_only(fixture, &process, &held);
        for verb in ["stop", "start"] {
            fixture.ok("start");
            fs::write(&data, verb).unwrap();
            sh(place, &format!("umount {held}"));
            fixture.ok(verb);
            assert_eq!(fs::read_to_string(&data).unwrap(), verb);
        }
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        end(process);
    });
}
