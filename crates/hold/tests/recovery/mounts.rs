//! A hold detects that a file system was unmounted meanwhile. Moving a mount is no unmount.

use crate::support::{DATA, config, isolated, make_files, marker, sh};
use std::path::Path;
use synconce_hold::error::Unclean;
use synconce_hold::file_system::FileSystem;
use synconce_hold::mounted::were_mounted;
use synconce_hold::record::HoldRecord;
use synconce_hold::unclean::unclean;

#[test]
fn a_mount_counts_until_it_is_unmounted_wherever_it_is() {
    isolated(|| {
        sh(&format!("mkdir -p {DATA} /var/lib/moved; mount -t tmpfs d {DATA}"));
        make_files("old");
        let system = FileSystem::of(&Path::new(DATA).join("not/there")).unwrap();
        assert_eq!(system.point, Path::new(DATA));
        let marker = marker(&config("wipe", ""));
        assert_eq!(marker.file_systems, [system]);
        assert_eq!(were_mounted(&marker), Some(true));
        sh(&format!("umount {DATA}; mount -t tmpfs d {DATA}"));
        assert_eq!(were_mounted(&marker), None, "another one at the same place");
        sh(&format!("umount {DATA}"));
        assert_eq!(were_mounted(&marker), None, "none");
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
        marker.file_systems = vec![FileSystem::of(&point.join("data")).unwrap()];
        assert_eq!(marker.file_systems[0].point, point);
        let without = FileSystem { super_block: None, ..marker.file_systems[0].clone() };
        let old = HoldRecord { file_systems: vec![without], ..marker.clone() };
        for script in [
            format!("mount --move {shown} /var/lib/moved"),
            format!("mount --move /var/lib/moved {shown}"),
        ] {
            sh(&script);
            assert_eq!(were_mounted(&marker), Some(true), "{script}");
            assert_eq!(were_mounted(&old), Some(true), "{script}");
        }
        // Only the super block shows that another mount kept the file system mounted.
        sh(&format!("mount --bind {shown} /var/lib/moved; umount {shown}"));
        assert_eq!((were_mounted(&marker), were_mounted(&old)), (Some(true), None));
        let device = sh("findmnt --noheadings --output SOURCE /var/lib/moved");
        sh(&format!("umount /var/lib/moved; mount {} {shown}", device.trim()));
        assert_eq!((were_mounted(&marker), were_mounted(&old)), (Some(false), None));
    });
}

#[test]
fn a_write_may_be_lost_if_the_state_directory_cannot_be_looked_at() {
    isolated(|| {
        make_files("old");
        let marker = marker(&config("wipe", ""));
        marker.write().unwrap();
        assert!(unclean(&marker).is_none());
        // A link to itself makes statx(2) fail, as on a file system that was shut down.
        sh("mv /var/lib/synconce /var/lib/moved; ln -s synconce /var/lib/synconce");
        assert!(matches!(unclean(&marker), Some(Unclean::WriteBack)));
        sh("rm /var/lib/synconce");
        assert!(unclean(&marker).is_none());
    });
}
