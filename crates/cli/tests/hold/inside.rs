//! How a held directory differs from an ordinary one: the limits of overlays, and of the disk.

use crate::support::{HoldOnRig, configure, sh, with_hold};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, inotify};
use rustix::io::Errno;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_testkit::harness::{Place, finish, isolated};
use synconce_testkit::rig::{FsKind, Rig};

/// Names a file in `directory` that was opened without a name (open(2), O_TMPFILE).
fn name_a_file(directory: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY;
    let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, link, CWD, directory.join("named"), AtFlags::SYMLINK_FOLLOW)
}

/// Makes a character device with the number 0:0.
fn make_a_device(directory: &Path) -> rustix::io::Result<()> {
    let path = directory.join("device");
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR, 0)
}

#[test]
fn a_file_without_a_name_gets_one_in_a_held_directory() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let file = name_a_file(&fixture.directory());
        if kernel_is_at_least(6, 10) {
            file.unwrap();
        } else {
            assert_eq!(file, Err(Errno::OPNOTSUPP));
        }
        fixture.ok("stop");
        assert_eq!(fixture.directory().join("named").exists(), file.is_ok());
    });
}

#[test]
fn a_device_that_overlays_take_for_a_deleted_file_is_made_after_the_stop_only() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        assert_eq!(make_a_device(&fixture.directory()), Err(Errno::PERM));
        fixture.ok("stop");
        make_a_device(&fixture.directory()).unwrap();
    });
}

#[test]
fn a_held_directory_cannot_be_renamed_removed_or_frozen() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let (held, other) = (fixture.directory(), fixture.rig.path().join("other"));
        assert_eq!(rustix::fs::rename(&held, &other), Err(Errno::BUSY));
        assert_eq!(rustix::fs::rmdir(&held), Err(Errno::BUSY));
        let [held, disk] = [&held, fixture.rig.path()].map(|path| path.display().to_string());
        let frozen = finish(place.command("fsfreeze").args(["--freeze", &held]));
        assert!(frozen.stderr.ends_with("Operation not supported\n"), "{frozen:?}");
        sh(place, &format!("fsfreeze --freeze {disk}; fsfreeze --unfreeze {disk}"));
        fixture.ok("stop");
        rustix::fs::rename(held, other).unwrap();
    });
}

/// Returns the events that wait in `watches`, each with its name.
fn events(watches: impl AsFd) -> Vec<(inotify::ReadFlags, String)> {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watches, &mut space);
    let mut events = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().unwrap_or_default().to_string_lossy().into_owned();
        events.push((event.events(), name));
    }
    events
}

#[test]
fn a_watch_sees_what_happens_to_held_files_and_does_not_keep_the_hold() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let watches = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MODIFY;
        for path in [fixture.directory(), fixture.file()] {
            inotify::add_watch(&watches, path, flags).unwrap();
        }
        fs::write(fixture.directory().join("new"), "data").unwrap();
        fs::write(fixture.file(), "data").unwrap();
        let seen = events(&watches);
        for event in [
            (inotify::ReadFlags::CREATE, "new"),
            (inotify::ReadFlags::MODIFY, "new"),
            (inotify::ReadFlags::MODIFY, ""),
        ] {
            assert!(seen.contains(&(event.0, event.1.to_owned())), "{event:?}: {seen:?}");
        }
        fixture.ok("stop");
        let ended = events(&watches);
        assert!(ended.iter().any(|(event, _)| event.contains(inotify::ReadFlags::UNMOUNT)));
    });
}

/// Returns how many bytes a user can write to a file in `directory`, which belongs to that user.
fn fill(place: &Place, directory: &Path) -> u64 {
    let user = "setpriv --reuid 4321 --regid 4321 --clear-groups";
    let at = directory.display();
    let script = format!(
        "! {user} dd if=/dev/zero of={at}/fill bs=64k status=none conv=fsync 2>said
         grep -q 'No space\\|quota exceeded' said; stat --format %s {at}/fill; rm {at}/fill
         sync --file-system {at}"
    );
    sh(place, &script).trim().parse().expect("a size")
}

#[test]
fn a_quota_of_btrfs_limits_a_held_directory() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Btrfs).size(512 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "");
        let (point, held) = (fixture.rig.path().display(), fixture.rig.path().join("sub/db"));
        sh(
            place,
            &format!(
                "btrfs quota enable {point}; btrfs subvolume create {point}/sub
                 mkdir {point}/sub/db; chown 4321 {point}/sub/db
                 btrfs qgroup limit 4M {point}/sub"
            ),
        );
        configure(place, "t", "", &held);
        let limit = 4 << 20;
        assert!((1 << 20..=limit).contains(&fill(place, &held)));
        fixture.ok("start");
        assert!((1 << 20..=limit).contains(&fill(place, &held)));
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

/// The overlay has one device number for the files of all subvolumes. `find` and `du` then report a
/// subvolume as a loop, and in a copy by `rsync -H` files with hard links in two subvolumes become
/// one file.
#[test]
fn a_directory_with_a_subvolume_below_is_not_held_and_a_subvolume_is() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Btrfs).size(512 << 20).passthrough(false).up().unwrap();
        let held = rig.path().join("jobs");
        configure(place, "t", "", &held);
        let (fixture, at) = (HoldOnRig { place, rig }, held.display());
        sh(place, &format!("btrfs subvolume create {at}; mkdir -p {at}/a/b"));
        sh(place, &format!("btrfs subvolume create {at}/a/b/snapshots"));
        fixture.fails("start", &["/jobs/a/b/snapshots is a subvolume below", "directories of the"]);
        sh(place, &format!("btrfs subvolume delete {at}/a/b/snapshots"));
        fixture.ok("start");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

/// An overlay keeps the flags in an attribute of its own (`ovl_set_protattr`, Linux 5.15).
#[test]
fn a_flag_of_chattr_from_before_the_start_stays_and_a_later_one_goes_with_the_hold() {
    with_hold("", |place, fixture| {
        let at = fixture.directory();
        let chattr = |words: &str| {
            let script = format!("cd {}; chattr {words}", at.display());
            place.bare(&["sh", "-c", &script])
        };
        let is_kept = kernel_is_at_least(5, 15);
        for name in ["before", "later"] {
            fs::write(at.join(name), "").unwrap();
        }
        assert!(chattr("+i before").status.success());
        fixture.ok("start");
        let denied = chattr("-i before");
        assert_eq!(denied.stderr.contains("Operation not permitted"), is_kept, "{denied:?}");
        assert!(chattr("+i later").status.success());
        assert!(fs::remove_file(at.join("later")).is_err());
        fixture.ok("stop");
        if is_kept {
            fixture.fails("start", &["/later has the attribute trusted.overlay.protattr"]);
            fs::remove_file(at.join("later")).unwrap();
        }
        assert!(chattr("-i *").status.success());
    });
}

#[test]
fn a_remount_of_the_disk_changes_whether_it_is_writable_and_no_other_option_of_the_overlay() {
    with_hold("", |place, fixture| {
        let [at, disk] =
            [&fixture.directory(), fixture.rig.path()].map(|it| it.display().to_string());
        let runs = || place.bare(&["sh", "-c", &format!("{at}/script")]).status.code();
        sh(place, &format!("printf '#!/bin/sh\\n' >{at}/script; chmod +x {at}/script"));
        fixture.ok("start");
        // The guard has the held file open.
        let busy = place.bare(&["mount", "-o", "remount,ro", &disk]);
        assert!(busy.stderr.contains("busy"), "{busy:?}");
        fixture.ok("stop");
        configure(place, "t", "", &fixture.directory());
        fixture.ok("start");
        sh(place, &format!("mount -o remount,ro,noexec {disk}"));
        assert_eq!(runs(), Some(0));
        let written = fs::write(fixture.directory().join("new"), "").unwrap_err();
        assert_eq!(written.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        sh(place, &format!("mount -o remount,rw,noexec {disk}"));
        fs::write(fixture.directory().join("new"), "").unwrap();
        fixture.ok("stop");
        assert_eq!(runs(), Some(126));
        fixture.ok("start");
        assert_eq!(runs(), Some(126));
        fixture.ok("stop");
    });
}

#[test]
fn an_overlay_follows_no_link_where_its_disk_follows_none() {
    isolated(|place| {
        let builder = Rig::builder().size(128 << 20).mount_options("nosymfollow");
        let fixture = HoldOnRig::on(place, builder.passthrough(false).up().unwrap(), "");
        let link = fixture.directory().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        let open = || rustix::fs::open(&link, OFlags::RDONLY, Mode::empty()).map(drop);
        assert_eq!(open(), Err(Errno::LOOP));
        if kernel_is_at_least(5, 14) {
            fixture.ok("start");
            assert_eq!(open(), Err(Errno::LOOP));
            fixture.ok("stop");
        } else {
            fixture.fails("start", &["cannot mount a volatile overlay"]);
        }
        fixture.rig.down().unwrap();
    });
}

#[test]
fn the_blocks_that_ext4_reserves_for_root_do_not_limit_a_held_directory() {
    with_hold("", |place, fixture| {
        let (held, device) = (fixture.directory(), fixture.rig.device().display());
        sh(place, &format!("chown 4321 {}; tune2fs -m 40 {device}", held.display()));
        let limited = fill(place, &held);
        fixture.ok("start");
        let unlimited = fill(place, &held);
        fixture.ok("stop");
        assert!(unlimited > limited + (32 << 20), "{limited} and {unlimited}");
        // The limit is back after the stop.
        assert!(fill(place, &held) < limited + (1 << 20));
    });
}
