//! Copies of the overlays of a hold in mount namespaces that do not receive the unmount: a stop
//! unmounts those that nothing uses.

use crate::support::{Fixture, end, refused, sh, stays};
use std::fs;
use std::time::{Duration, Instant};
use synconce_testkit::harness::{Place, Started, a_few_times, eventually, isolated};

/// Starts a shell in a mount namespace that receives no mounts and unmounts.
const PRIVATE: [&str; 5] = ["unshare", "--mount", "--propagation", "private", "sh"];

/// Returns what `script` prints in the mount namespace of `process`.
fn there(place: &Place, process: &Started, script: &str) -> String {
    sh(place, &format!("nsenter --mount --target {} sh -ec '{script}'", process.pid()))
}

/// Returns how many overlays of holds are mounted in the namespace of `process`.
fn copies(place: &Place, process: &Started) -> usize {
    let mounts = there(place, process, "cat /proc/self/mountinfo");
    mounts.lines().filter(|line| line.contains(" - overlay synconce ")).count()
}

/// Returns what the message says of a mount in the namespace of `process`.
fn named(process: &Started) -> String {
    format!("in the mount namespace of sleep (pid {}), on ", process.pid())
}

#[test]
fn an_idle_copy_in_a_private_namespace_is_unmounted_by_the_stop() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
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
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_copy_that_is_in_use_keeps_the_hold() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        fixture.ok("start");
        let held = fixture.directory().display().to_string();
        let process = stays(place, &PRIVATE, &format!("exec 3>{held}/new"));
        refused(&fixture, &[&format!("in use by sleep (pid {})", process.pid())]);
        assert_eq!(fixture.state(), "held");
        assert_eq!(copies(place, &process), 2);
        end(process);
        fs::create_dir(fixture.directory().join("sub")).unwrap();
        for other in [format!("{held}/sub"), held.clone()] {
            // A mount inside the copy, and one over it, which is not unmounted instead.
            let mount = format!("mount -t tmpfs other {other}");
            let process = stays(place, &PRIVATE, &mount);
            let hint = format!("nsenter --mount --target {} umount {held}\n", process.pid());
            refused(&fixture, &[&named(&process), &hint]);
            assert_eq!(fixture.state(), "held");
            let mounts = there(place, &process, "cat /proc/self/mountinfo");
            assert!(mounts.contains(" - tmpfs other "), "{mounts}");
            end(process);
        }
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_volume_of_a_container_is_not_unmounted() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        fixture.ok("start");
        let held = fixture.directory().display().to_string();
        fs::write(fixture.directory().join("data"), "data").unwrap();
        let volume = place.text("volume");
        fs::create_dir(&volume).unwrap();
        let process = stays(place, &PRIVATE, &format!("mount --bind {held} {volume}"));
        refused(&fixture, &[&named(&process), &format!(" umount {volume}\n")]);
        assert_eq!(fixture.state(), "held");
        assert_eq!(there(place, &process, &format!("cat {volume}/data")), "data");
        end(process);
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn an_idle_copy_is_unmounted_where_every_process_has_another_root() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
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
            let process = Started::new(place.command("unshare").args(words));
            eventually("its root is another one", || process.text().contains("ready\n"));
            assert_eq!(copies(place, &process), 2);
            fixture.ok("stop");
            assert_eq!(fixture.state(), "off");
            assert_eq!(copies(place, &process), 0);
            end(process);
        }
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_copy_that_is_locked_in_a_user_namespace_keeps_the_hold() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        fixture.ok("start");
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let words = [&user[..], &["unshare", "--user", "--map-root-user"], &PRIVATE[1..]].concat();
        let process = stays(place, &words, ":");
        refused(&fixture, &[&named(&process)]);
        assert_eq!(fixture.state(), "held");
        assert_eq!(copies(place, &process), 2);
        end(process);
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn an_idle_copy_on_a_mount_that_others_share_is_unmounted() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        fixture.ok("start");
        // The init of a container does this: the mount below has peers, but none of them is here.
        let process = stays(place, &PRIVATE, "mount --make-rshared /");
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        assert_eq!(copies(place, &process), 0);
        end(process);
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_start_that_repairs_the_hold_unmounts_idle_copies() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        fixture.ok("start");
        let process = stays(place, &PRIVATE, ":");
        sh(place, &format!("umount {}", fixture.file().display()));
        assert_eq!(fixture.state(), "incomplete");
        fixture.ok("start");
        assert_eq!(fixture.state(), "held");
        assert_eq!(copies(place, &process), 0);
        fixture.ok("stop");
        end(process);
        fixture.rig.down().unwrap();
    });
}
