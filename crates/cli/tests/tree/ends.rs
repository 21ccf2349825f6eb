//! Mounts that a command in a tree makes, and how they end: as without a hold.

use crate::site::Site;
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use std::fs;
use synconce_testkit::harness::{Place, eventually, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial(a_mount_of_a_run_ends_as_without_a_hold, &NEEDS)]
}

/// Ways to write to the disk `/device` and to end its mount. In the command of a namespace, `put` is
/// not known.
const WAYS: [(&str, &str); 10] = [
    ("umount", "mount /device /mnt; put data /mnt/file; umount /mnt"),
    ("umount, lazy", "mount /device /mnt; put data /mnt/file; umount -l /mnt"),
    (
        "umount, lazy, and a sync after it",
        "mount /device /mnt; put data /mnt/file; exec 3>/mnt/late; umount -l /mnt
         echo late >&3; sync /proc/self/fd/3; exec 3>&-",
    ),
    ("umount, forced", "mount /device /mnt; put data /mnt/file; umount -f /mnt"),
    ("the end of the run", "mount /device /mnt; put data /mnt/file"),
    (
        "the end of a namespace",
        "unshare -m sh -c 'mount /device /mnt; echo data >/mnt/file; sync /mnt/file'",
    ),
    (
        "a killed namespace",
        "{ unshare -m sh -c 'mount /device /mnt; echo data >/mnt/file; sync /mnt/file
         kill -9 $$'; } 2>/dev/null || true",
    ),
    (
        "covered",
        "mount /device /mnt; put data /mnt/file; mount -o bind /data /mnt; umount -l /mnt
         umount -l /mnt",
    ),
    (
        "below a lazy umount",
        "mount -t tmpfs none /tmp; mkdir /tmp/at; mount /device /tmp/at; put data /tmp/at/file
         umount -l /tmp",
    ),
    ("read-only", "mount /device /mnt; put data /mnt/file; mount -o remount,ro /mnt; umount /mnt"),
];

/// Defines `put`, and what busybox has beside the names in the tree.
const PUT: &str = "put() { echo \"$1\" >\"$2\" && sync \"$2\"; }
    for name in umount unshare; do ln -s busybox /bin/$name; done\n";

/// Shows what is in the image after the run.
const SHOW: &str = "cp --sparse=always image copy && mkdir shown && mount -o loop copy shown &&
    { tail -n +1 shown/file shown/late 2>/dev/null; umount shown; rmdir shown; rm copy; }";

/// Goes a way in a run with `options`. Returns how the run ends, and what is in the image.
fn go(site: &Site<'_>, options: &[&str], commands: &str) -> (Option<i32>, String, String) {
    let set_up = "truncate -s 64M image && mkfs.ext4 -qF image && losetup --find --show image";
    let device = site.place.bare(&["sh", "-c", set_up]).stdout;
    let device = device.trim();
    let script = format!("{PUT}{commands}");
    let bind = format!("{device}:/device");
    let words = ["--bind", &bind, "--", "/bin/sh", "-ec", &script];
    let run = site.ends(&[&["run", "--from", "base"], options, &words].concat());
    site.place.bare(&["losetup", "--detach", device]);
    // The end of a mount namespace lets go of its mounts a moment after its last process.
    let image = || site.place.bare(&["losetup", "--associated", "image"]).stdout;
    eventually("the device is free", || image().is_empty());
    let shown = site.place.bare(&["sh", "-c", SHOW]).stdout;
    fs::remove_file(site.place.path("image")).unwrap();
    (run.status.code(), run.stderr, shown)
}

fn a_mount_of_a_run_ends_as_without_a_hold(place: &Place) {
    let site = with_base(place);
    for (name, commands) in WAYS {
        let bare = go(&site, &["--no-hold"], commands);
        assert_eq!((bare.0, bare.1.as_str()), (Some(0), ""), "{name}: {bare:?}");
        assert!(bare.2.contains("data"), "{name}: {bare:?}");
        let held = go(&site, &["--json"], commands);
        assert_eq!((held.0, &held.2), (bare.0, &bare.2), "{name}: {held:?}");
        assert!(!held.1.contains("synconce"), "{name}: {held:?}");
        let json: serde_json::Value = serde_json::from_str(&held.1).expect("JSON");
        assert!(json["calls"]["fsync"]["held"].as_u64() > Some(0), "{name}: {held:?}");
    }
}
