//! A container whose processes are killed while the kernel goes on: its mounts end, and the file
//! system of its volume stays mounted on the host.

use crate::support::{HoldOnRig, configure, end, failed, sh, stays};
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::{Place, binary, eventually, isolated};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{FsKind, Rig};

/// A container with processes and mounts of its own, in which the volume is mounted.
const CONTAINER: [&str; 8] = [
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--mount-proc",
    "--propagation=private",
    "sh",
];

/// Returns a hold of the volume of a container; `script` mounts the volume.
fn volume(place: &Place, fs: FsKind) -> (HoldOnRig<'_>, String) {
    let rig = Rig::builder().fs(fs).size(512 << 20).passthrough(false).up().unwrap();
    let fixture = HoldOnRig::on(place, rig, "");
    let point = place.path("volume");
    fs::create_dir(&point).unwrap();
    let (point, disk) = (point.display(), fixture.rig.path().display());
    configure(place, "t", "after_crash = \"wipe\"", &place.path("volume/databases"));
    let script = format!("mount --bind {disk} {point}; umount --lazy {disk}; cd .");
    (fixture, script)
}

/// Starts the hold in a container that writes, and kills all its processes.
fn killed(fixture: &HoldOnRig<'_>, mount: &str) {
    let write = "echo old >volume/databases/data; sync volume/databases/data";
    let script = format!("{mount}; {} hold start ./t.toml; {write}", binary());
    let container = stays(fixture.place, &CONTAINER, &script);
    let children = format!("/proc/{0}/task/{0}/children", container.pid());
    let first = fs::read_to_string(children).unwrap();
    let namespace = format!("/proc/{}/ns/mnt", first.trim());
    assert!(fs::read_link(&namespace).is_ok(), "the first process is {first}");
    end(container);
    eventually("the container has ended", || fs::read_link(&namespace).is_err());
    // The directory for locks of a container is in memory.
    fs::remove_dir_all(fixture.place.path("runtime")).unwrap();
}

/// Runs `script` in the next container.
fn next(fixture: &HoldOnRig<'_>, mount: &str, script: &str) -> Finished {
    let script = format!("{mount}; {}", script.replace("synconce", binary()));
    fixture.place.bare(&[&CONTAINER[..], &["-ec", &script]].concat())
}

fn data(fixture: &HoldOnRig<'_>) -> PathBuf {
    fixture.directory().join("data")
}

#[test]
fn the_kill_of_a_container_costs_nothing() {
    isolated(|place| {
        for fs in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let (fixture, mount) = volume(place, fs);
            killed(&fixture, &mount);
            let recovered = next(&fixture, &mount, "synconce hold recover ./t.toml");
            assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
            let verbs = "synconce hold start ./t.toml; cat volume/databases/data; \
                         synconce hold stop ./t.toml";
            let again = next(&fixture, &mount, verbs);
            assert_eq!(
                (again.status.code(), again.stdout.as_str()),
                (Some(0), "old\n"),
                "{again:?}"
            );
            assert!(!fixture.everything().contains(".synconce"), "{}", fixture.everything());
            assert_eq!(fixture.state(), "off");
            fixture.rig.down().unwrap();
            fs::remove_dir(place.path("volume")).unwrap();
        }
    });
}

#[test]
fn an_unmount_after_the_kill_of_a_container_leaves_the_hold_interrupted() {
    isolated(|place| {
        for fs in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let (fixture, mount) = volume(place, fs);
            killed(&fixture, &mount);
            let marker = place.read("state/holds/t.json");
            let marker: serde_json::Value = serde_json::from_str(&marker).expect("JSON");
            let directory = &marker["file_systems"][0]["super_block"]["directory"];
            let directory = PathBuf::from(directory.as_str().expect("a path"));
            assert!(directory.exists(), "mounted");
            fixture.rig.unmount().unwrap();
            // The mounts of killed processes end a moment later.
            eventually("the last unmount", || !directory.exists());
            fixture.rig.mount().unwrap();
            let recovered = next(&fixture, &mount, "synconce hold recover ./t.toml");
            assert_eq!(recovered.status.code(), Some(0), "{recovered:?}");
            let said = "a file system was unmounted while its files were held";
            assert!(recovered.stderr.contains(said), "{recovered:?}");
            assert!(!data(&fixture).exists());
            fixture.rig.down().unwrap();
            fs::remove_dir(place.path("volume")).unwrap();
        }
    });
}

#[test]
fn without_sysfs_nothing_is_set_aside_unasked_after_the_kill_of_a_container() {
    isolated(|place| {
        let (fixture, mount) = volume(place, FsKind::Ext4);
        killed(&fixture, &mount);
        let recover = "umount --recursive /sys; synconce hold recover ./t.toml";
        failed(
            next(&fixture, &mount, recover),
            &["nothing shows whether", "hold recover t --keep", "hold recover t --wipe"],
        );
        assert_eq!(fs::read_to_string(data(&fixture)).unwrap(), "old\n");
        let kept = next(&fixture, &mount, &format!("{recover} --keep"));
        assert_eq!(kept.status.code(), Some(0), "{kept:?}");
        assert_eq!(fs::read_to_string(data(&fixture)).unwrap(), "old\n");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_hold_whose_volume_is_elsewhere_is_not_over() {
    isolated(|place| {
        let (fixture, mount) = volume(place, FsKind::Ext4);
        killed(&fixture, &mount);
        sh(place, "mkdir volume/databases");
        for verb in ["start", "stop"] {
            let said = "cannot find the file system that was mounted on";
            failed(next(&fixture, "cd .", &format!("synconce hold {verb} ./t.toml")), &[said]);
        }
        let stopped = next(&fixture, &mount, "synconce hold stop ./t.toml");
        assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
        assert_eq!(fs::read_to_string(data(&fixture)).unwrap(), "old\n");
        fixture.rig.down().unwrap();
    });
}

/// As systemd-nspawn and LXC do.
const OWN_BOOT: &str = "cat /proc/sys/kernel/random/uuid >id
     mount --bind id /proc/sys/kernel/random/boot_id";

#[test]
fn the_kill_of_a_container_with_a_boot_id_of_its_own_costs_nothing() {
    isolated(|place| {
        let (fixture, mount) = volume(place, FsKind::Ext4);
        let mount = format!("{mount}; {OWN_BOOT}");
        killed(&fixture, &mount);
        // The kernel refuses a procfs of its own.
        let refuse = "strace -f -qq -o calls -e trace=fsopen -e inject=fsopen:error=EPERM";
        for verb in ["recover", "recover --keep", "start", "stop", "restore"] {
            let said = "cannot mount a procfs to read /proc/sys/kernel/random/boot_id: ";
            let hint = "nsenter --mount --pid --target PID, with";
            let verb = format!("{refuse} synconce hold {verb} ./t.toml");
            failed(next(&fixture, &mount, &verb), &[said, hint]);
        }
        let recovered = next(&fixture, &mount, "synconce hold recover ./t.toml");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        assert_eq!(fs::read_to_string(data(&fixture)).unwrap(), "old\n");
        // The note beside the files shows the same.
        place.remove("state/holds/t.json");
        let verbs = "synconce hold recover ./t.toml; synconce hold start ./t.toml
                     cat volume/databases/data
                     strace -f -qq -o calls -e trace=fsopen -e inject=fsopen:error=EPERM \
                         synconce hold status ./t.toml
                     synconce hold stop ./t.toml";
        let again = next(&fixture, &mount, verbs);
        assert_eq!(again.status.code(), Some(0), "{again:?}");
        assert!(again.stdout.starts_with("old\n") && again.stdout.contains(" held "), "{again:?}");
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}
