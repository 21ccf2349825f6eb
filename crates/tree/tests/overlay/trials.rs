//! Results of trial mounts.

use crate::support::{directory, isolated, on_every_disk, opened};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use synconce_tree::overlay::{Features, trial};

#[test]
fn root_gets_everything_on_every_disk_and_nothing_is_left() {
    isolated(|| {
        on_every_disk(|fs, place| {
            let found = trial(opened(place).as_fd()).unwrap_or_else(|why| panic!("{fs}: {why}"));
            assert_eq!(found, Features::PRIVILEGED, "{fs}");
            let left: Vec<_> = fs::read_dir(place)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .filter(|name| name != "lost+found")
                .collect();
            assert!(left.is_empty(), "{left:?}");
        });
    });
}

#[test]
fn an_overlay_and_a_file_system_of_the_kernel_are_refused_with_a_reason() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = directory(place.join("whole"));
            let session =
                crate::support::AttachedOverlay::begin(place, "s", &[whole], Features::PRIVILEGED);
            let reason = trial(opened(&session.root).as_fd()).expect_err("an overlay on one");
            let reason = reason.to_string();
            assert!(reason.contains("cannot mount an overlay"), "{reason}");
            println!("{reason}");
            session.unmount();
        });
        let reason = trial(opened(Path::new("/proc")).as_fd()).expect_err("an overlay in /proc");
        assert!(reason.to_string().starts_with("cannot "), "{reason}");
    });
}
