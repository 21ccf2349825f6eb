//! A file system that was unmounted meanwhile is found, and a mount that was moved counts as
//! mounted.

use crate::support::{DATA, config, isolated, make_files, marker, sh};
use std::path::Path;
use synconce_hold::mounted::{file_system_of, file_systems_still_mounted};

#[test]
fn a_mount_counts_until_it_is_unmounted_wherever_it_is() {
    isolated(|| {
        sh(&format!("mkdir -p {DATA} /var/lib/moved; mount -t tmpfs d {DATA}"));
        make_files("old");
        let system = file_system_of(&Path::new(DATA).join("not/there")).unwrap();
        assert_eq!(system.point, Path::new(DATA));
        let marker = marker(&config("wipe", ""));
        assert_eq!(marker.file_systems, [system]);
        assert!(file_systems_still_mounted(&marker));
        sh(&format!("umount {DATA}; mount -t tmpfs d {DATA}"));
        assert!(!file_systems_still_mounted(&marker), "another one at the same place");
        sh(&format!("umount {DATA}"));
        assert!(!file_systems_still_mounted(&marker), "none");
    });
}

#[test]
fn a_disk_that_was_moved_counts() {
    isolated(|| {
        let rig = synconce_testkit::rig::Rig::builder().up().unwrap();
        let point = rig.path();
        let shown = point.display();
        sh(&format!("mkdir -p /var/lib/moved {DATA} {shown}/data"));
        let mut marker = marker(&config("wipe", ""));
        marker.file_systems = vec![file_system_of(&point.join("data")).unwrap()];
        assert_eq!(marker.file_systems[0].point, point);
        sh(&format!("mount --move {shown} /var/lib/moved"));
        assert!(file_systems_still_mounted(&marker), "moved");
        sh(&format!("mount --move /var/lib/moved {shown}"));
        assert!(file_systems_still_mounted(&marker), "moved back");
    });
}
