//! Properties of mounts.

use crate::support::{
    AttachedOverlay, all_opened, borrowed, directory, isolated, manifest, on_a_disk, on_every_disk,
    opened, path_of, sh,
};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use synconce_tree::overlay::{self, Features, XattrNamespace};

#[test]
fn a_clone_shows_its_base_and_keeps_what_is_written_from_it() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = directory(place.join("whole"));
            sh(&whole, "mkdir d && echo old >d/f && echo gone >g && ln d/f h");
            let before = manifest(&whole);
            let session = AttachedOverlay::begin(
                place,
                "one",
                std::slice::from_ref(&whole),
                Features::PRIVILEGED,
            );
            sh(&session.root, "echo new >d/f && rm g && mv d e");
            assert_eq!(fs::read_to_string(session.root.join("e/f")).unwrap(), "new\n");
            assert_eq!(fs::read_to_string(session.root.join("h")).unwrap(), "new\n", "a hard link");
            session.unmount();
            assert_eq!(before, manifest(&whole));
        });
    });
}

#[test]
fn a_mount_that_is_attached_nowhere_can_be_used_and_goes_with_its_descriptor() {
    isolated(|| {
        on_a_disk(|place| {
            let [whole, upper, work] =
                ["whole", "upper", "work"].map(|name| directory(place.join(name)));
            sh(&whole, "echo old >f");
            let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
            let before = mounts();
            let mount = overlay::writable(
                &[opened(&whole).as_fd()],
                opened(&upper).as_fd(),
                opened(&work).as_fd(),
                Features::PRIVILEGED,
            );
            let mount = mount.expect("a mount");
            fs::write(path_of(&mount).join("f"), "new").unwrap();
            assert_eq!(mounts(), before);
            drop(mount);
            assert_eq!(fs::read_to_string(upper.join("f")).unwrap(), "new");
        });
    });
}

/// The kernel mounts the overlay read-only if it cannot make a directory in the work directory, as
/// on a full disk, and says so only in its log.
#[test]
fn a_clone_that_could_not_be_written_to_is_not_mounted() {
    isolated(|| {
        on_a_disk(|place| {
            let [whole, upper, work] =
                ["whole", "upper", "work"].map(|name| directory(place.join(name)));
            let mount = || {
                overlay::writable(
                    &[opened(&whole).as_fd()],
                    opened(&upper).as_fd(),
                    opened(&work).as_fd(),
                    Features { volatile: false, index: false, ..Features::PRIVILEGED },
                )
            };
            // The second time, the directory `work` of the first mount is there.
            for _ in 0..2 {
                sh(&work, "chattr +i .");
                let refused = mount().expect_err("it could only be read");
                sh(&work, "chattr -i .");
                assert_eq!(refused.io().kind(), ErrorKind::PermissionDenied, "{refused}");
                drop(mount().expect("a mount"));
            }
            assert!(work.join("work").is_dir() && !work.join("probe").exists());
        });
    });
}

#[test]
fn the_root_of_a_clone_is_as_that_of_its_base() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = directory(place.join("whole"));
            sh(
                &whole,
                "chown 7:8 . && chmod 3751 . && setfattr -n user.a -v b . && \
                 setfattr -n trusted.c -v d . && setfacl -m u:9:rwx . && touch -d @1.5 .",
            );
            let session = AttachedOverlay::begin(
                place,
                "one",
                std::slice::from_ref(&whole),
                Features::PRIVILEGED,
            );
            let roots = [&whole, &session.root].map(|root| manifest(root).entries["."].clone());
            assert_eq!(roots[0], roots[1]);
            assert!(roots[0].xattrs.len() >= 3, "xfs shows its own of an ACL: {roots:?}");
            session.unmount();
        });
    });
}

#[test]
fn one_layer_and_several_are_read_only_alike() {
    isolated(|| {
        on_every_disk(|_, place| {
            let layers: Vec<_> = (0..3).map(|n| directory(place.join(n.to_string()))).collect();
            for (n, layer) in layers.iter().enumerate() {
                fs::write(layer.join("which"), n.to_string()).unwrap();
            }
            for count in 1..=3 {
                let lowers = all_opened(&layers[..count]);
                let mount = overlay::read_only(&borrowed(&lowers), XattrNamespace::Trusted)
                    .expect("a mount");
                let root = path_of(&mount);
                assert_eq!(fs::read_to_string(root.join("which")).unwrap(), "0");
                let error = fs::write(root.join("which"), "x").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
                let target = directory(place.join(format!("at-{count}")));
                mount.attach(opened(&target).as_fd()).expect("an attached mount");
                assert_eq!(fs::read_to_string(target.join("which")).unwrap(), "0");
                assert!(mount.attach(opened(&target).as_fd()).is_err(), "attached twice");
                sh(place, &format!("umount -l at-{count}"));
            }
        });
    });
}

#[test]
fn a_root_has_devices_and_set_id_programs_and_no_access_times() {
    isolated(|| {
        on_a_disk(|place| {
            let whole = directory(place.join("whole"));
            sh(&whole, "mknod null c 1 3 && cp /usr/bin/id . && chown 7:7 id && chmod 6755 id");
            let session = AttachedOverlay::begin(place, "one", &[whole], Features::PRIVILEGED);
            sh(&session.root, "echo x >null && [ \"$(./id -ru)\" = 0 ] && ./id | grep -q 'euid=7'");
            let line = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let line = line.lines().find(|line| line.contains("one-root")).unwrap().to_owned();
            assert!(line.contains("noatime") && !line.contains("nodev"), "{line}");
            assert!(line.contains("upperdir=") && !line.contains("/proc/"), "real paths: {line}");
            session.unmount();
        });
    });
}

#[test]
fn names_that_options_would_take_apart_and_very_long_ones_are_mounted() {
    isolated(|| {
        on_a_disk(|place| {
            for name in ["a:b,c\\d e", "ü\n\\134", &"n".repeat(255)] {
                let place = directory(place.join(name));
                let layers = ["one:1", "two\\,"].map(|name| directory(place.join(name)));
                fs::write(layers[1].join("f"), "two").unwrap();
                let session = AttachedOverlay::begin(&place, "s", &layers, Features::PRIVILEGED);
                assert_eq!(fs::read_to_string(session.root.join("f")).unwrap(), "two");
                fs::write(session.root.join("g"), "g").unwrap();
                assert!(session.upper.join("g").exists());
                session.unmount();
            }
        });
    });
}

#[test]
fn a_hundred_layers_are_mounted() {
    isolated(|| {
        on_a_disk(|place| {
            let layers: Vec<_> = (0..100).map(|n| directory(place.join(n.to_string()))).collect();
            fs::write(layers[99].join("lowest"), "").unwrap();
            let session = AttachedOverlay::begin(place, "s", &layers, Features::PRIVILEGED);
            assert!(session.root.join("lowest").exists());
            session.unmount();
        });
    });
}

fn again(place: &Path, whole: &Path) -> Result<overlay::DetachedMount, String> {
    let [upper, work] = ["s-upper", "s-work"].map(|name| opened(&place.join(name)));
    let whole = opened(whole);
    overlay::writable(&[whole.as_fd()], upper.as_fd(), work.as_fd(), Features::PRIVILEGED)
        .map_err(|error| error.to_string())
}

#[test]
fn a_volatile_upper_is_guarded_until_the_guard_is_cleared() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = directory(place.join("whole"));
            let session = AttachedOverlay::begin(
                place,
                "s",
                std::slice::from_ref(&whole),
                Features::PRIVILEGED,
            );
            fs::write(session.root.join("f"), "kept").unwrap();
            let work = session.work.clone();
            session.unmount();
            let refused = again(place, &whole).unwrap_err();
            assert!(refused.contains("s-upper"), "{refused}");
            overlay::clear_guard(opened(&work).as_fd()).expect("a cleared guard");
            overlay::clear_guard(opened(&work).as_fd()).expect("there is none");
            let mount = again(place, &whole).expect("a mount");
            assert_eq!(fs::read_to_string(path_of(&mount).join("f")).unwrap(), "kept");
        });
    });
}

#[test]
fn an_error_names_the_directory_and_the_errno_of_the_kernel() {
    isolated(|| {
        on_a_disk(|place| {
            let [upper, work] = ["upper", "work"].map(|name| directory(place.join(name)));
            let memory = opened(Path::new("/dev/shm"));
            let features = Features { user_xattr: true, redirect_dir: true, ..Features::default() };
            for (work, features) in [(&memory, Features::PRIVILEGED), (&opened(&work), features)] {
                let refused = overlay::writable(
                    &[memory.as_fd()],
                    opened(&upper).as_fd(),
                    work.as_fd(),
                    features,
                );
                let error = refused.expect_err("no mount").to_string();
                println!("{error}");
                assert!(error.starts_with("cannot mount an overlay with the upper directory /"));
                assert!(error.ends_with("Invalid argument"), "{error}");
            }
        });
    });
}

#[test]
fn inode_numbers_stay_when_a_file_is_written_to() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = directory(place.join("whole"));
            sh(&whole, "echo old >f && mkdir d");
            let session = AttachedOverlay::begin(place, "s", &[whole], Features::PRIVILEGED);
            let numbers =
                || ["f", "d"].map(|name| fs::metadata(session.root.join(name)).unwrap().ino());
            let before = numbers();
            sh(&session.root, "echo new >f && chmod 700 d");
            assert_eq!(before, numbers());
            let mode = fs::metadata(session.root.join("d")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            session.unmount();
        });
    });
}
