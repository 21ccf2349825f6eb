//! Subvolumes and snapshots.

use crate::support::{directory, isolated, on_every_disk, opened};
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use synconce_sys::btrfs;
use synconce_testkit::rig::{FsKind, Rig};

/// Opens for reading, because the ioctls do not accept `O_PATH`.
fn readable(path: &Path) -> OwnedFd {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("opened")
}

#[test]
fn a_snapshot_is_a_copy_that_can_be_read_only_and_is_deleted_whole() {
    isolated(|| {
        let rig = Rig::builder().fs(FsKind::Btrfs).up().expect("a rig");
        let (place, name) = (rig.path(), OsStr::new);
        let dir = readable(place);
        btrfs::create_subvolume(dir.as_fd(), name("base")).expect("a subvolume");
        let base = place.join("base");
        fs::write(base.join("f"), "old").unwrap();
        let source = readable(&base);
        assert!(btrfs::is_subvolume(source.as_fd()).unwrap());
        assert!(btrfs::is_subvolume(opened(&base).as_fd()).unwrap(), "O_PATH is enough for that");
        btrfs::create_subvolume(source.as_fd(), name("inner")).expect("a subvolume in it");

        btrfs::snapshot(source.as_fd(), dir.as_fd(), name("clone")).expect("a snapshot");
        let clone = place.join("clone");
        fs::write(clone.join("f"), "new").unwrap();
        assert_eq!(fs::read_to_string(base.join("f")).unwrap(), "old");
        assert!(!btrfs::is_subvolume(opened(&clone.join("inner")).as_fd()).unwrap());

        let written = readable(&clone);
        assert!(!btrfs::is_read_only(written.as_fd()).unwrap());
        btrfs::make_read_only(written.as_fd()).expect("a read-only subvolume");
        let error = fs::write(clone.join("f"), "newer").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        btrfs::make_writable(written.as_fd()).expect("a writable subvolume");
        fs::write(clone.join("f"), "newer").unwrap();

        btrfs::snapshot(source.as_fd(), dir.as_fd(), name("frozen")).expect("a snapshot");
        let frozen = readable(&place.join("frozen"));
        btrfs::make_read_only(frozen.as_fd()).expect("a read-only subvolume");
        assert!(btrfs::is_read_only(frozen.as_fd()).unwrap());
        for gone in ["clone", "frozen"] {
            btrfs::delete_subvolume(dir.as_fd(), name(gone)).expect("a deleted subvolume");
            assert!(!place.join(gone).exists());
        }
        let error = btrfs::delete_subvolume(dir.as_fd(), name("base")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        assert_eq!(fs::read_to_string(base.join("f")).unwrap(), "old");
    });
}

#[test]
fn what_is_no_subvolume_is_known_and_refused() {
    isolated(|| {
        on_every_disk(|kind, place| {
            directory(place.join("plain"));
            let (dir, plain) = (readable(place), readable(&place.join("plain")));
            assert!(!btrfs::is_subvolume(plain.as_fd()).unwrap());
            assert_eq!(btrfs::is_subvolume(dir.as_fd()).unwrap(), kind == FsKind::Btrfs);
            let made = btrfs::create_subvolume(dir.as_fd(), OsStr::new("new"));
            assert_eq!(made.is_ok(), kind == FsKind::Btrfs, "{made:?}");
            btrfs::snapshot(plain.as_fd(), dir.as_fd(), OsStr::new("s")).unwrap_err();
            btrfs::delete_subvolume(dir.as_fd(), OsStr::new("plain")).unwrap_err();
            assert!(place.join("plain").exists());
        });
    });
}
