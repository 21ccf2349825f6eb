//! Mounts that a command in a tree makes, and how they end: as without a hold.

use crate::roots;
use crate::site::{Site, on};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use std::fs;
use synconce_testkit::harness::{Need, Place, eventually, trial};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    let needs = [&NEEDS[..], &[Need::Program("fuser", "psmisc")]].concat();
    vec![
        trial(an_ext4_of_a_run_ends_as_without_a_hold, &needs),
        trial(an_xfs_of_a_run_ends_as_without_a_hold, &on(FsKind::Xfs, &needs)),
        trial(a_btrfs_of_a_run_ends_as_without_a_hold, &on(FsKind::Btrfs, &needs)),
    ]
}

/// A way to write to the disk `/device` and to end its mount: a name and commands.
type Way = (&'static str, &'static str);

/// Ways that work on every kind of disk. The last unmount, the close of the last descriptor, the
/// end of a namespace, a freeze, or the upper directory of an overlay writes the data out. A
/// command in a namespace cannot call `put`.
const WAYS: [Way; 6] = [
    ("umount, lazy", "mount /device /mnt; put data /mnt/file; umount -l /mnt"),
    (
        "umount, lazy, and a sync after it",
        "mount /device /mnt; put data /mnt/file; exec 3>/mnt/late; umount -l /mnt
         echo late >&3; sync /proc/self/fd/3; exec 3>&-",
    ),
    ("umount, expiring", "mount /device /mnt; put data /mnt/file; expire"),
    (
        "a killed namespace",
        "{ unshare -m sh -c 'mount /device /mnt; echo data >/mnt/file; sync /mnt/file
         kill -9 $$'; } 2>/dev/null || true",
    ),
    (
        "an overlay above it, twice on one upper directory",
        "mkdir /tmp/low /tmp/over; mount /device /mnt; mkdir /mnt/u /mnt/w
         options=lowerdir=/tmp/low,upperdir=/mnt/u,workdir=/mnt/w; export options
         unshare -m sh -c 'mount -t overlay o -o $options /tmp/over; echo data >/tmp/over/file
         sync /tmp/over/file'
         mount -t overlay o -o $options /tmp/over; cmp /tmp/over/file /mnt/u/file; umount /tmp/over
         cp /mnt/u/file /mnt/file; umount -l /mnt",
    ),
    (
        "frozen and copied",
        "mount /device /mnt; put data /mnt/file; fsfreeze -f /mnt
         cp --sparse=always /images/image /images/copy; fsfreeze -u /mnt; umount /mnt",
    ),
];

/// Ways whose end does not depend on the kind of disk.
const MORE: [Way; 13] = [
    ("umount", "mount /device /mnt; put data /mnt/file; umount /mnt"),
    ("umount, forced", "mount /device /mnt; put data /mnt/file; umount -f /mnt"),
    ("the end of the run", "mount /device /mnt; put data /mnt/file"),
    (
        "the end of a namespace",
        "unshare -m sh -c 'mount /device /mnt; echo data >/mnt/file; sync /mnt/file'",
    ),
    (
        "fuser --kill",
        "mount /device /mnt; put data /mnt/file; exec 3</mnt/file; sleep 1000 & exec 3<&-
         fuser -s -k -m /mnt; ! wait $! 2>/dev/null; umount /mnt",
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
    (
        "moved",
        "mkdir /tmp/at; mount /device /mnt; put data /mnt/file; mount --move /mnt /tmp/at
         umount /tmp/at",
    ),
    (
        "a new file system on the device",
        "mount /device /mnt; put old /mnt/file; umount /mnt; mkfs.ext4 -q -F /device
         mount /device /mnt; put data /mnt/file; umount /mnt",
    ),
    (
        "a namespace that another process entered",
        "unshare -m sh -c 'echo ready; exec sleep 1000' >/tmp/is & until [ -s /tmp/is ]; do :; done
         nsenter -m -t $! sh -c 'mount /device /mnt; echo data >/mnt/file; sync /mnt/file'
         kill $!; ! wait $! 2>/dev/null",
    ),
    (
        "a namespace that a file keeps",
        "on_one_processor unshare -m sh -c ': >/tmp/kept
         unshare --mount=/tmp/kept sh -c \"mount /device /mnt; echo data >/mnt/file; sync /mnt/file\"
         umount /tmp/kept'",
    ),
    (
        "a new root",
        "unshare -m sh -c 'mount /device /mnt; echo data >/mnt/file; sync /mnt/file
         mkdir /mnt/old; cd /mnt; pivot_root . old'",
    ),
    ("read-only", "mount /device /mnt; put data /mnt/file; mount -o remount,ro /mnt; umount /mnt"),
];

/// Defines `put`, `on_one_processor` (see `lifecycle/coverage.rs`), and `expire`, which calls
/// umount2(2) with MNT_EXPIRE as `routes/ends.sh` does: the first call marks the mount and fails. A
/// path lookup of any process removes the mark.
const FUNCTIONS: &str = r#"PATH=/usr/sbin:/usr/bin:/bin
    on_one_processor() { taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') "$@"; }
    put() { echo "$1" >"$2" && sync "$2"; }
    expire() { perl -e '
        sub expire { my $path = "/mnt"; return syscall(UMOUNT2, $path, 4); }
        expire() == -1 or die; for (1 .. 100) { exit 0 if expire() == 0; } die $!'; }
"#;

/// Makes the disk of the kind `$1`, and prints its loop device.
const SET_UP: &str = "truncate -s 320M images/image && mkfs.$1 -q images/image >/dev/null &&
    losetup --find --show images/image";

/// Shows what is in the image after the run, or in the copy that the run has made.
const SHOW: &str = "cd images; [ -e copy ] || cp --sparse=always image copy
    mkdir shown && mount -o loop copy shown &&
    { tail -n +1 shown/file shown/late 2>/dev/null; umount shown; rmdir shown; rm image copy; }";

/// Goes a way in a run with `options`. Returns how the run ends, and what is in the image.
fn go(
    site: &Site<'_>,
    kind: FsKind,
    options: &[&str],
    commands: &str,
) -> (Option<i32>, String, String) {
    let set_up = site.place.bare(&["sh", "-c", SET_UP, "sh", kind.name()]);
    assert!(set_up.status.success(), "{set_up:?}");
    let device = set_up.stdout.trim();
    let functions = FUNCTIONS.replace("UMOUNT2", &libc::SYS_umount2.to_string());
    let script = format!("{functions}{commands}");
    let binds = [
        format!("{device}:/device"),
        "/usr:/usr:ro".into(),
        format!("{}:/images", site.place.text("images")),
    ];
    let binds: Vec<_> = binds.iter().flat_map(|bind| ["--bind", bind]).collect();
    let end = ["--", "/usr/bin/sh", "-ec", &script];
    let run = site.ends(&[&["run", "--from", "base"], options, &binds, &end].concat());
    site.place.bare(&["losetup", "--detach", device]);
    // The end of a mount namespace lets go of its mounts a moment after its last process.
    let image = || site.place.bare(&["losetup", "--associated", "images/image"]).stdout;
    eventually("the device is free", || image().is_empty());
    let shown = site.place.bare(&["sh", "-c", SHOW]).stdout;
    (run.status.code(), run.stderr, shown)
}

/// Goes `ways` on a disk of `kind`, without a hold and with one.
fn table(place: &Place, kind: FsKind, ways: &[Way]) {
    let source = roots::small(place, "source");
    roots::link_to_usr(&source);
    // In memory: a directory on a disk that the command may write to would be committed, and
    // nothing else held.
    let images = place.path("images");
    fs::create_dir(&images).unwrap();
    mount("none", &images, "tmpfs", MountFlags::empty(), None).unwrap();
    let site = Site::plain(place);
    site.import("base", &source);
    for (name, commands) in ways {
        let bare = go(&site, kind, &["--no-hold"], commands);
        assert_eq!((bare.0, bare.1.as_str()), (Some(0), ""), "{kind}, {name}: {bare:?}");
        assert!(bare.2.contains("data"), "{kind}, {name}: {bare:?}");
        let held = go(&site, kind, &["--json"], commands);
        assert_eq!((held.0, &held.2), (bare.0, &bare.2), "{kind}, {name}: {held:?}");
        assert!(!held.1.contains("synconce"), "{kind}, {name}: {held:?}");
        let json: serde_json::Value = serde_json::from_str(&held.1).expect("JSON");
        assert!(json["calls"]["fsync"]["held"].as_u64() > Some(0), "{kind}, {name}: {held:?}");
    }
}

fn an_ext4_of_a_run_ends_as_without_a_hold(place: &Place) {
    table(place, FsKind::Ext4, &[&WAYS[..], &MORE].concat());
}

fn an_xfs_of_a_run_ends_as_without_a_hold(place: &Place) {
    table(place, FsKind::Xfs, &WAYS);
}

fn a_btrfs_of_a_run_ends_as_without_a_hold(place: &Place) {
    table(place, FsKind::Btrfs, &WAYS);
}
