//! Chroots, user namespaces, mounts that come and go.

use crate::builds::{Build, dynamic, ways};
use crate::support::{Place, agree, isolated};
use std::fs;
use std::path::Path;

/// Ways that need nothing but their directory.
const PLAIN: [&str; 7] =
    ["sync-file", "msync-good", "openat-raw", "openat2", "open-link", "rwf-write", "aio-alone"];

/// Asserts that all calls were held except those of the ways in `passed`.
fn assert_plain_held_but(passed: &[&str], run: &crate::support::Run) {
    let programs = run.programs();
    for (way, calls) in PLAIN.iter().zip([2, 3, 1, 2, 3, 4, 4]) {
        let counts = if passed.contains(way) { [0, calls, 0] } else { [calls, 0, 0] };
        assert_eq!(programs.get(way), Some(&counts), "{way}");
    }
}

fn assert_plain_held(run: &crate::support::Run) {
    assert_plain_held_but(&[], run);
}

/// Ways that pass on a file system that was pinned late: the kernel itself reports errors of a
/// mapping and of aio there.
const LATE: [&str; 2] = ["msync-good", "aio-alone"];

#[test]
fn a_chroot_with_nothing_but_a_static_program_is_held() {
    isolated(|place: &Place| {
        let program = ways(Build::Static);
        let roots = ["bare", "held"].map(|name| place.directory(name));
        for root in &roots {
            fs::copy(&program, root.join("ways")).expect("the program in the root");
        }
        let [bare, held] = roots.each_ref().map(|root| {
            let root = root.to_str().unwrap();
            [&["chroot", root, "/ways"], &PLAIN[..]].concat()
        });
        let bare = place.bare(Path::new("/"), &bare);
        let run = place.held(Path::new("/"), &["--no-commit"], &held);
        agree(&bare, &run.finished);
        assert_plain_held(&run);
    });
}

/// In the chroot `/target` is in memory; outside `/target` is a directory of the disk.
#[test]
fn links_in_a_chroot_are_followed_from_its_own_root() {
    isolated(|place: &Place| {
        let program = ways(Build::Static);
        let program = program.to_str().unwrap();
        let script = format!(
            "mkdir -p root/target root/link && cp {program} root/ways && \
             mount -t tmpfs none root/target && ln -sfn /target root/link/away && \
             ln -sfn ../../../../../../../../target root/link/up && \
             for link in away up; do chroot root /ways as $link link/$link/new; done; \
             chroot root /ways as disk link/new; umount root/target"
        );
        fs::create_dir_all("/target").expect("a directory beside the chroot");
        let here = place.directory("here");
        let run = place.held(&here, &["--no-commit"], &["sh", "-c", &script]);
        let _ = fs::remove_dir("/target");
        let flags: Vec<_> =
            run.finished.stdout.lines().filter(|line| line.contains("flags")).collect();
        assert_eq!(flags.len(), 3, "{:?}", run.finished);
        assert!(flags[0].starts_with("away") && flags[0].ends_with("disk-sync=1"), "{flags:?}");
        assert!(flags[1].starts_with("up") && flags[1].ends_with("disk-sync=1"), "{flags:?}");
        assert!(flags[2].starts_with("disk") && flags[2].ends_with("disk-sync=0"), "{flags:?}");
        let programs = run.programs();
        assert_eq!(programs.get("away"), Some(&[0, 2, 0]), "an absolute link into memory");
        assert_eq!(programs.get("up"), Some(&[0, 2, 0]), "a link past the root, into memory");
        assert_eq!(programs.get("disk"), Some(&[2, 0, 0]), "a file on the disk");
    });
}

#[test]
fn a_user_namespace_is_held() {
    isolated(|place: &Place| {
        let program = dynamic();
        let words = [&["unshare", "-Ur", &program], &PLAIN[..]].concat();
        assert_plain_held(&place.twice(&["--no-commit"], &words));
    });
}

#[test]
fn an_empty_environment_is_held() {
    isolated(|place: &Place| {
        let program = dynamic();
        let words = [&["env", "-i", &program], &PLAIN[..]].concat();
        assert_plain_held(&place.twice(&["--no-commit"], &words));
    });
}

/// `losetup -d` of a device in use succeeds and detaches the device at its last close, so the
/// script waits for that. It asks by the image: a free device may be another test's at once, and
/// another's losetup may have it open.
const LOOP: &str = r#"
    truncate -s 32M image && mkfs.ext4 -q image && mkdir -p mounted || exit 1
    device=$(losetup -f --show image) && mount "$device" mounted || exit 1
    (cd mounted && "$@") || exit 1
    umount mounted && echo unmounted
    losetup -d "$device" && echo detached
    while losetup -j image | grep -q .; do :; done; echo free
"#;

#[test]
fn a_disk_that_is_mounted_inside_is_held_and_let_go_at_once() {
    isolated(|place: &Place| {
        let program = dynamic();
        let inside = [&["unshare", "-m", "sh", "-c", LOOP, "sh", &program], &PLAIN[..]].concat();
        let run = place.twice(&[], &inside);
        assert_plain_held_but(&LATE, &run);
        assert!(run.finished.stdout.ends_with("unmounted\ndetached\nfree\n"));
        // Without a mount namespace: here the supervisor sees the mount.
        let outside = [&["sh", "-c", LOOP, "sh", &program], &PLAIN[..]].concat();
        fs::remove_dir_all(place.path("bare")).unwrap();
        fs::remove_dir_all(place.path("held")).unwrap();
        assert_plain_held_but(&LATE, &place.twice(&[], &outside));
    });
}

#[test]
fn a_disk_that_was_there_before_can_be_unmounted_inside() {
    isolated(|place: &Place| {
        let (program, here) = (dynamic(), place.directory("here"));
        let before = "truncate -s 32M image && mkfs.ext4 -q image && mkdir -p mounted && \
                      losetup -f --show image >device && mount $(cat device) mounted";
        let made = place.bare(&here, &["sh", "-c", before]);
        assert!(made.status.success(), "{}", made.stderr);
        let inside = format!(
            "(cd mounted && {program} sync-file open-libc) && umount mounted && \
             losetup -d $(cat device) && \
             while losetup -j image | grep -q .; do :; done && echo free"
        );
        let run = place.held(&here, &[], &["sh", "-c", &inside]);
        assert!(run.finished.status.success(), "{:?}", run.finished);
        assert!(run.finished.stdout.ends_with("free\n"), "{}", run.finished.stdout);
        assert_eq!(run.programs().get("sync-file"), Some(&[2, 0, 0]));
        // It was committed when it was unmounted.
        let mounted = here.join("mounted");
        let times = run.committed.iter().filter(|point| Path::new(point) == mounted).count();
        assert_eq!(times, 1, "{:?}", run.committed);
    });
}

#[test]
fn an_umount_that_fails_costs_no_file_system_its_commit() {
    isolated(|place: &Place| {
        let run = place.twice(&[], &[&dynamic(), "umount", "sync-file"]);
        assert!(run.finished.stdout.contains("errno 22 (Invalid argument)"));
        let roots = run.committed.iter().filter(|point| *point == "/").count();
        assert_eq!(roots, 1, "{:?}", run.committed);
    });
}
