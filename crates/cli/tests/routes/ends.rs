//! Each way in which a mount ends: as without a run, nothing stays in use, and an image that is
//! copied afterwards is whole.

use crate::support::{Place, Run, SYNCONCE, isolated};
use std::fs;
use std::path::Path;
use synconce_testkit::process::Finished;

/// A way to write to a disk and to unmount it.
#[derive(Clone, Copy)]
struct UnmountWay {
    name: &'static str,
    /// Whether the disk is mounted before the run begins.
    is_before: bool,
    commands: &'static str,
}

/// Returns a way that begins with the mount.
const fn since(name: &'static str, commands: &'static str) -> UnmountWay {
    UnmountWay { name, is_before: false, commands }
}

/// Returns a way whose disk is mounted before the run begins.
const fn before(name: &'static str, commands: &'static str) -> UnmountWay {
    UnmountWay { name, is_before: true, commands }
}

/// Ways that every kind of disk goes.
const WAYS: [UnmountWay; 12] = [
    since("umount", "mount $device mnt; put data mnt/file; umount mnt"),
    since("umount, lazy", "mount $device mnt; put data mnt/file; umount -l mnt"),
    since(
        "umount, lazy, and a sync after it",
        "mount $device mnt; put data mnt/file; exec 3>mnt/late; umount -l mnt
         echo late >&3; sync /proc/self/fd/3; exec 3>&-",
    ),
    since("umount, expiring", "mount $device mnt; put data mnt/file; expire"),
    since(
        "the end of a namespace",
        "unshare -m sh -c 'mount $device mnt; echo data >mnt/file; sync mnt/file'",
    ),
    since(
        "a killed namespace",
        "unshare -m sh -c 'mount $device mnt; echo data >mnt/file; sync mnt/file; kill -9 $$'",
    ),
    since(
        "an overlay above it, twice on one upper directory",
        "mkdir low over; mount $device mnt; mkdir mnt/u mnt/w
         options=lowerdir=low,upperdir=mnt/u,workdir=mnt/w; export options
         unshare -m sh -c 'mount -t overlay o -o $options over; echo data >over/file; sync over/file'
         mount -t overlay o -o $options over; cat over/file; umount over
         cp mnt/u/file mnt/file; umount -l mnt",
    ),
    since(
        "frozen and copied",
        "mount $device mnt; put data mnt/file; fsfreeze -f mnt; cp --sparse=always image copy
         fsfreeze -u mnt; umount mnt",
    ),
    before("umount, lazy", "put data mnt/file; umount -l mnt"),
    before("umount, expiring", "put data mnt/file; expire"),
    before("fuser --kill", "put data mnt/file; fuser -s -k -m mnt; umount mnt"),
    before(
        "unmounted in a namespace that shares mounts",
        "put data mnt/file; unshare -m --propagation unchanged umount mnt",
    ),
];

/// Ways whose end does not depend on the kind of disk.
const MORE: [UnmountWay; 16] = [
    since("umount, forced", "mount $device mnt; put data mnt/file; umount -f mnt"),
    since(
        "a detached device",
        "mount $device mnt; put data mnt/file; losetup -d $device; umount mnt",
    ),
    since(
        "made and mounted again",
        "mount $device mnt; put old mnt/file; umount mnt; mkfs.ext4 -qF $device
         mount $device mnt; put data mnt/file; umount -l mnt",
    ),
    since(
        "moved",
        "mount --bind other other; mount --make-private other; mkdir other/at
         mount $device other/at; put data other/at/file; mkdir other/to
         mount --move other/at other/to; umount other/to; umount other",
    ),
    since(
        "covered",
        "mount $device mnt; put data mnt/file; mount --bind other mnt; umount -l mnt; umount -l mnt",
    ),
    since(
        "below a lazy umount",
        "mount -t tmpfs none other; mkdir other/at; mount $device other/at
         put data other/at/file; umount -l other",
    ),
    since(
        "read-only and copied",
        "mount $device mnt; put data mnt/file; mount -o remount,ro mnt
         cp --sparse=always image copy; umount mnt",
    ),
    since("fuser --kill", "mount $device mnt; put data mnt/file; fuser -s -k -m mnt; umount mnt"),
    since(
        "the root of a namespace",
        "unshare -m sh -c 'mount $device mnt; cd mnt; mkdir old; echo data >file; sync file
         pivot_root . old; cd /; /old/bin/umount -l /old' 2>/dev/null",
    ),
    since(
        "a device that the end of a lazy umount detaches",
        "losetup -d $device; mount -o loop image mnt; put data mnt/file; umount -l mnt",
    ),
    since(
        "a namespace that its process leaves",
        "unshare -m perl -e '
             open(my $before, q(<), q(/proc/) . getppid() . q(/ns/mnt)) or die $!;
             system(q(mount $device mnt; echo data >mnt/file; sync mnt/file)) == 0 or die;
             syscall($ENV{setns} + 0, fileno($before), 0) == 0 or die $!;
             chdir($ENV{PWD}) or die $!;
             until (system(q(losetup -d $device 2>/dev/null; losetup -n -O NAME -j image | grep -q .))) {
                 select(undef, undef, undef, 0.05); last if ++$tries == 200 }
             exec(q(cp --sparse=always image copy))'",
    ),
    since(
        "a namespace that a descriptor keeps",
        "unshare -m sh -c 'mount $device mnt; echo data >mnt/file; sync mnt/file; : >made
         until [ -e kept ]; do sleep 0.01; done' &
         until [ -e made ] || ! kill -0 $!; do sleep 0.01; done; exec 3</proc/$!/ns/mnt; : >kept; wait
         nsenter --mount=/proc/self/fd/3 cat \"$PWD/mnt/file\"; exec 3<&-",
    ),
    since(
        "a namespace that a bind mount keeps",
        "on_one_processor unshare -m sh -c ': >kept
         unshare --mount=kept sh -c \"mount $device mnt; echo data >mnt/file; sync mnt/file\"
         nsenter --mount=kept cat \"$PWD/mnt/file\"; umount kept'",
    ),
    before("umount, forced", "put data mnt/file; umount -f mnt"),
    before(
        "bound elsewhere",
        "mount --bind mnt other; put data other/file; umount mnt; umount other",
    ),
    before(
        "below a lazy umount",
        "mount --rbind . other; mount --make-rprivate other; umount mnt; put data other/mnt/file; umount -l other",
    ),
];

/// Ways whose image is copied while a process has a file open on the unmounted disk. Only a
/// supervisor sees the unmount: in a sealed run the copy lacks what was synced.
const STILL_OPEN: [UnmountWay; 2] = [
    since(
        "umount, lazy, of an open file",
        "mount $device mnt; put data mnt/file; exec 3<mnt/file; umount -l mnt
         cp --sparse=always image copy; exec 3<&-",
    ),
    before(
        "umount, lazy, of an open file",
        "put data mnt/file; exec 3<mnt/file; umount -l mnt; cp --sparse=always image copy; exec 3<&-",
    ),
];

/// The names of the ways that each kind of file system supports in a sealed run: the last unmount,
/// the close of the last descriptor, a freeze, or the upper directory of an overlay writes it out.
/// The other ways differ in what sees the mounts. No file system takes part in that.
const WRITTEN_OUT: [&str; 6] = [
    "umount",
    "umount, lazy",
    "umount, lazy, and a sync after it",
    "the end of a namespace",
    "an overlay above it, twice on one upper directory",
    "frozen and copied",
];

/// Mounts that are no disk, each with the function that makes it at `other`.
const NO_DISKS: [UnmountWay; 3] = [
    since("tmpfs", "make() { mount -t tmpfs none other; }; each"),
    since(
        "overlay",
        "make() { mkdir -p mnt/u mnt/w
         mount -t overlay o -o lowerdir=low,upperdir=mnt/u,workdir=mnt/w other; }; each; cat mnt/u/file",
    ),
    since("FUSE", "make() { bindfs mnt other; }; each"),
];

/// Defines `each`, which calls `make` before each way to end such a mount, and then unmounts the
/// disk. A server of FUSE ends a moment after its mount.
const EACH: &str = r#"each() {
    mkdir -p low; mount $device mnt
    for end in 'umount other' 'umount -l other' 'umount -f other' \
        'mount --bind low other; umount -l other; umount -l other' \
        'exec 3>other/late; umount -l other; echo late >&3; sync /proc/self/fd/3; exec 3>&-'; do
        make && mountpoint -q other || { echo "no mount"; exit 9; }
        put data other/file; eval "$end"; echo "$? $(ls other)"
    done
    put data mnt/file; tries=0
    until umount mnt 2>/dev/null || [ $((tries += 1)) = 200 ]; do sleep 0.05; done
}
"#;

/// Makes the disk, with its loop device in the file `device`; mounts the disk if `$2` is 1. The
/// mounts are shared, as systemd makes them.
const SET_UP: &str = "mount --make-rshared / && truncate -s 320M image && mkfs.$1 -q image >/dev/null && \
    mkdir mnt other && losetup --find --show image >device && \
    { [ $2 = 0 ] || mount $(cat device) mnt; }";

/// Shows what is in the copied image.
const SHOW: &str = "mkdir shown && mount -o loop copy shown && \
    { tail -n +1 shown/file shown/late 2>/dev/null; umount shown; }; losetup --associated image";

/// Goes the way that its argument is.
const SCRIPT: &str = include_str!("ends.sh");

/// Goes a way in the directory `here`: `run` has the words before the command.
fn go(
    place: &Place,
    here: &Path,
    kind: &str,
    way: &UnmountWay,
    run: &[&str],
) -> (Finished, String) {
    let is_before = ["0", "1"][usize::from(way.is_before)];
    let set_up = place.bare(here, &["sh", "-c", SET_UP, "sh", kind, is_before]);
    assert!(set_up.status.success(), "{set_up:?}");
    let inside = format!(
        "device=$(cat device) umount2={} setns={} && export device umount2 setns && \
         exec sh -c \"$0\" sh \"$1\"",
        libc::SYS_umount2,
        libc::SYS_setns
    );
    let script = format!("{EACH}{SCRIPT}");
    let words = [run, &["sh", "-c", &inside, &script, way.commands]].concat();
    let gone = place.bare(here, &words);
    (gone, place.bare(here, &["sh", "-c", SHOW]).stdout)
}

/// Goes `ways` on a disk of `kind`, bare and in a run with `options`.
fn table(place: &Place, kind: &str, ways: &[UnmountWay], options: &[&str]) {
    let mut wrong = Vec::new();
    for (number, way) in ways.iter().enumerate() {
        let bare_directory = place.directory(&format!("bare-{kind}-{number}"));
        let (bare, expected) = go(place, &bare_directory, kind, way, &[]);
        let is_made = expected.contains("data") && !bare.stdout.contains("no mount");
        assert!(is_made, "{kind}, {}: {bare:?} {expected}", way.name);
        let held_directory = place.directory(&format!("held-{kind}-{number}"));
        let run = [&[SYNCONCE, "run", "--stats", "--json"], options, &["--"]].concat();
        let (held, shown) = go(place, &held_directory, kind, way, &run);
        let same = (&bare.stdout, bare.status, &expected) == (&held.stdout, held.status, &shown);
        if !same {
            wrong.push(format!("{}: {bare:?} {expected}\n-- held --\n{held:?} {shown}", way.name));
            continue;
        }
        if options.is_empty() {
            let run = Run::from_finished(held);
            assert!(run.counts("fsync")[0] > 0, "{}: nothing was held", way.name);
            assert!(!run.notices().contains("synconce"), "{}: {}", way.name, run.notices());
        }
        // The log of an XFS takes 64 MiB: the images of all ways fill the disk of a small machine.
        for directory in [bare_directory, held_directory] {
            fs::remove_dir_all(&directory).expect("a directory in which nothing is mounted");
        }
    }
    assert!(wrong.is_empty(), "{kind} {options:?}\n{}", wrong.join("\n\n"));
}

/// Returns the ways of [`WRITTEN_OUT`].
fn written_out() -> Vec<UnmountWay> {
    let ways = WRITTEN_OUT.iter().flat_map(|name| WAYS.iter().filter(|way| way.name == *name));
    ways.copied().collect()
}

#[test]
fn an_ext4_ends_as_without_a_run() {
    isolated(|place| table(place, "ext4", &WAYS, &[]));
}

#[test]
fn an_ext4_ends_in_rare_ways_as_without_a_run() {
    isolated(|place| table(place, "ext4", &MORE, &[]));
}

#[test]
fn an_xfs_ends_as_without_a_run() {
    isolated(|place| table(place, "xfs", &WAYS, &[]));
}

#[test]
fn a_btrfs_ends_as_without_a_run() {
    isolated(|place| table(place, "btrfs", &WAYS, &[]));
}

#[test]
fn a_disk_of_a_sealed_run_ends_as_without_a_run() {
    isolated(|place| table(place, "ext4", &WAYS, &["--sealed"]));
}

#[test]
fn a_disk_of_a_sealed_run_ends_in_rare_ways_as_without_a_run() {
    isolated(|place| table(place, "ext4", &MORE, &["--sealed"]));
}

#[test]
fn an_xfs_of_a_sealed_run_ends_as_without_a_run() {
    isolated(|place| table(place, "xfs", &written_out(), &["--sealed"]));
}

#[test]
fn a_btrfs_of_a_sealed_run_ends_as_without_a_run() {
    isolated(|place| table(place, "btrfs", &written_out(), &["--sealed"]));
}

#[test]
fn an_xfs_ends_in_rare_ways_as_without_a_run() {
    isolated(|place| table(place, "xfs", &MORE, &[]));
}

#[test]
fn a_btrfs_ends_in_rare_ways_as_without_a_run() {
    isolated(|place| table(place, "btrfs", &MORE, &[]));
}

#[test]
fn a_disk_with_an_open_file_is_written_out_by_its_lazy_umount() {
    isolated(|place| {
        for kind in ["ext4", "xfs", "btrfs"] {
            table(place, kind, &STILL_OPEN, &[]);
        }
    });
}

#[test]
fn mounts_that_are_no_disk_end_as_without_a_run() {
    isolated(|place| table(place, "ext4", &NO_DISKS, &[]));
}

#[test]
fn mounts_that_are_no_disk_end_as_without_a_sealed_run() {
    isolated(|place| table(place, "ext4", &NO_DISKS, &["--sealed"]));
}
