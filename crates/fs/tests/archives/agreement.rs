//! Archives agree with GNU tar's, in both directions.

use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{
    self, Hostile, assert_same, everything, gnu_pack, gnu_unpack, gnu_unpack_with, packed,
    packed_in, unpacked, unpacked_in,
};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use synconce_fs::Progress;
use synconce_fs::archive::{open, pack, unpack, unpack_from};

#[test]
fn what_gnu_tar_packs_is_unpacked_as_gnu_tar_does() {
    let tree = everything();
    for flags in [
        &["--format=pax", "--xattrs", "--xattrs-include=*"][..],
        &["--format=pax", "--xattrs", "--xattrs-include=*", "--acls"],
        &["--format=pax", "--sparse", "--sparse-version=0.0"],
        &["--format=pax", "--sparse", "--sparse-version=0.1"],
        &["--format=pax", "--sparse", "--sparse-version=1.0", "--xattrs"],
        &["--format=gnu"],
        &["--format=gnu", "--sparse"],
    ] {
        let archive = gnu_pack(tree.path(), flags);
        // With --acls, GNU tar clears the access lists of files for which the archive has none
        // in GNU tar's own form.
        let asked: Vec<&str> = flags.iter().copied().filter(|flag| *flag == "--acls").collect();
        let (ours, theirs) = (unpacked(&archive), gnu_unpack_with(&archive, &asked));
        assert_same(theirs.path(), ours.path(), &format!("{flags:?}"));
        if flags.contains(&"--sparse") {
            let blocks = fs::metadata(ours.path().join("sparse/large")).unwrap().blocks();
            assert!(blocks * 512 < 1 << 20, "{flags:?}: {blocks} blocks");
        }
    }
}

#[test]
fn acls_as_text_alone_are_unpacked() {
    let tree = everything();
    let archive = gnu_pack(tree.path(), &["--format=pax", "--acls", "--numeric-owner"]);
    let (ours, theirs) = (unpacked(&archive), gnu_unpack(&archive));
    assert_same(theirs.path(), ours.path(), "--acls");
}

#[test]
fn an_acl_of_a_name_is_left_out_and_named_unless_its_number_is_known() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), "").unwrap();
    support::run("setfacl", &["-m", "u:daemon:rwx", tree.path().join("file").to_str().unwrap()]);
    let archive = gnu_pack(tree.path(), &["--format=pax", "--acls"]);
    let target = tempfile::tempdir().unwrap();
    let report = unpacked_in(target.path(), &archive).unwrap();
    let why = "an access control list, whose entry user:daemon:rwx has no number";
    assert_eq!(report.left_out.named, [("file".into(), why.to_owned())]);
    let archive = gnu_pack(tree.path(), &["--acls", "--xattrs", "--xattrs-include=*"]);
    assert_same(tree.path(), unpacked(&archive).path(), "by number too");
}

#[test]
fn what_is_packed_gnu_tar_unpacks_as_it_was() {
    let tree = everything();
    let (archive, report) = packed(tree.path());
    assert_eq!(report.left_out.count, 0, "{report:?}");
    let theirs = gnu_unpack_with(&archive, &[]);
    assert_same(tree.path(), theirs.path(), "unpacked by GNU tar without --acls");
    let theirs = gnu_unpack(&archive);
    assert_same(tree.path(), theirs.path(), "unpacked by GNU tar");
    let blocks = fs::metadata(theirs.path().join("sparse/large")).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
}

#[test]
fn what_is_packed_is_unpacked_as_it_was_and_packs_to_the_same_bytes() {
    let tree = everything();
    let (archive, first) = packed(tree.path());
    let again = unpacked(&archive);
    assert_same(tree.path(), again.path(), "unpacked");
    let (repacked, second) = packed(again.path());
    assert_eq!(first, second);
    assert!(archive == repacked, "the two archives differ");
}

#[test]
fn a_file_of_a_tebibyte_with_one_page_is_a_small_member() {
    let tree = tempfile::tempdir().unwrap();
    let file = File::create(tree.path().join("huge")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"here", 3 << 30).unwrap();
    let (archive, _) = packed(tree.path());
    assert!(archive.len() < 1 << 20, "{} bytes", archive.len());
    for unpacked in [gnu_unpack(&archive), unpacked(&archive)] {
        let file = File::open(unpacked.path().join("huge")).unwrap();
        let mut piece = [0; 6];
        file.read_exact_at(&mut piece, (3 << 30) - 1).unwrap();
        assert_eq!((file.metadata().unwrap().len(), &piece), (1 << 40, b"\0here\0"));
    }
}

#[test]
fn a_tree_of_five_thousand_levels_is_packed_and_unpacked() {
    const LEVELS: usize = 1500;
    let tree = tempfile::tempdir().unwrap();
    let mut dir = rustix::fs::open(tree.path(), OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        mkdirat(&dir, "deep", Mode::RWXU).unwrap();
        // An entry to visit on the way back.
        drop(openat(&dir, "z", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
        dir = openat(&dir, "deep", OFlags::PATH, Mode::empty()).unwrap();
    }
    let (archive, report) = packed(tree.path());
    assert_eq!(report.entries, 2 * LEVELS as u64 + 1);
    let again = unpacked(&archive);
    let (repacked, _) = packed(again.path());
    assert!(archive == repacked, "the two archives differ");
    for tree in [tree, again] {
        // Too deep for the standard library's removal.
        let status = std::process::Command::new("rm").arg("-rf").arg(tree.path()).status();
        assert!(status.unwrap().success());
    }
}

#[test]
fn sockets_and_mounts_are_named_and_left_out() {
    let tree = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(tree.path().join("socket")).unwrap());
    let (archive, report) = packed(tree.path());
    assert_eq!(report.left_out.count, 1);
    assert_eq!(report.left_out.named, [("socket".into(), "a socket".to_owned())]);
    assert!(fs::read_dir(unpacked(&archive).path()).unwrap().next().is_none());
    // On every Linux, other file systems are mounted below /dev.
    let dev = File::open("/dev").unwrap();
    let report = pack(dev.as_fd(), io::sink(), &()).unwrap();
    let mounts = report.left_out.named.iter().filter(|(_, what)| what == "what is mounted here");
    assert!(mounts.count() > 0, "{report:?}");
}

#[test]
fn a_name_of_any_bytes_is_kept() {
    let tree = tempfile::tempdir().unwrap();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        let name = std::ffi::OsStr::from_bytes(&[byte][..]).to_owned();
        fs::write(tree.path().join(&name), [byte]).unwrap();
        let mut link = b"link-".to_vec();
        link.push(byte);
        symlink(name, tree.path().join(std::ffi::OsStr::from_bytes(&link))).unwrap();
    }
    let (archive, _) = packed(tree.path());
    assert_same(tree.path(), unpacked(&archive).path(), "unpacked");
    assert_same(tree.path(), gnu_unpack(&archive).path(), "unpacked by GNU tar");
}

#[test]
fn compressed_archives_are_known_by_their_first_bytes() {
    let tree = everything();
    let (archive, _) = packed(tree.path());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("archive");
    for program in ["cat", "gzip", "xz", "zstd", "bzip2", "lz4"] {
        let compressed = support::through(program, &archive);
        fs::write(&file, &compressed).unwrap();
        let target = tempfile::tempdir().unwrap();
        let fd = File::open(target.path()).unwrap();
        let source = open(&file, &()).unwrap();
        unpack_from(source, fd.as_fd(), &()).unwrap();
        assert_same(tree.path(), target.path(), program);
        if program == "cat" {
            continue;
        }
        // The second cut leaves a complete tar, but the compressed file is damaged.
        for cut in [compressed.len() / 2, compressed.len() - 3] {
            fs::write(&file, &compressed[..cut]).unwrap();
            let target = tempfile::tempdir().unwrap();
            let fd = File::open(target.path()).unwrap();
            let source = open(&file, &()).unwrap();
            let result = unpack_from(source, fd.as_fd(), &());
            let why = result.unwrap_err().to_string();
            assert!(why.starts_with("cannot decompress"), "{program}: {why}");
            assert!(why.contains(&format!("{program} ended with exit code")), "{why}");
        }
    }
}

#[test]
fn a_named_pipe_is_read_like_standard_input() {
    let tree = everything();
    let archive = support::through("gzip", &packed(tree.path()).0);
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let target = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, &archive).unwrap());
        let fd = File::open(target.path()).unwrap();
        let source = open(&pipe, &()).unwrap();
        unpack_from(source, fd.as_fd(), &()).unwrap();
    });
    assert_same(tree.path(), target.path(), "by a pipe");
}

#[test]
fn a_closed_pipe_and_a_full_disk_are_errors() {
    let tree = everything();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let why = packed_in(tree.path(), writer).unwrap_err().to_string();
    assert_eq!(why, "cannot write the archive: Broken pipe");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let why = packed_in(tree.path(), full).unwrap_err().to_string();
    assert_eq!(why, "cannot write the archive: No space left on device");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    struct Changing<'a>(&'a Path, fn(&Path));
    impl Write for Changing<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            (self.1)(self.0);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let changes: [fn(&Path); 3] = [
        |path| File::options().append(true).open(path).unwrap().write_all(b"more").unwrap(),
        |path| File::options().write(true).open(path).unwrap().set_len(5).unwrap(),
        |path| File::options().write(true).open(path).unwrap().write_all(b"same size").unwrap(),
    ];
    for change in changes {
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join("file");
        // More than one write.
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        File::open(&file).unwrap().set_modified(long_ago).unwrap();
        let why = packed_in(tree.path(), Changing(&file, change)).unwrap_err().to_string();
        assert_eq!(why, "cannot pack file: it changed while it was read");
    }
}

#[test]
fn a_cancelled_unpack_or_pack_ends() {
    struct Cancelled;
    impl Progress for Cancelled {
        fn add(&self, _: u64, _: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    let tree = everything();
    let fd = File::open(tree.path()).unwrap();
    let result = pack(fd.as_fd(), io::sink(), &Cancelled);
    assert_eq!(result.unwrap_err().io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
    let (archive, _) = packed(tree.path());
    let target = tempfile::tempdir().unwrap();
    let fd = File::open(target.path()).unwrap();
    let result = unpack(&archive[..], fd.as_fd(), &Cancelled);
    assert_eq!(result.unwrap_err().io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
}

#[test]
fn an_unpack_is_cancelled_in_zeros_behind_the_archive_that_do_not_end() {
    struct Later(AtomicU32);
    impl Progress for Later {
        fn add(&self, _: u64, _: u64) {}
        fn cancelled(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) > 100
        }
    }
    let target = tempfile::tempdir().unwrap();
    let fd = File::open(target.path()).unwrap();
    let later = Later(AtomicU32::new(0));
    let source = open(Path::new("/dev/zero"), &later).unwrap();
    let result = unpack_from(source, fd.as_fd(), &later);
    assert_eq!(result.unwrap_err().io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
}

#[test]
fn what_is_made_inherits_no_list_of_the_directory_it_is_made_in() {
    let outer = tempfile::tempdir().unwrap();
    support::run("setfacl", &["-d", "-m", "u:7:rwx", outer.path().to_str().unwrap()]);
    let target = outer.path().join("target");
    fs::create_dir(&target).unwrap();
    let mut tree = Hostile::default();
    tree.directory("d");
    tree.file("d/file", "content");
    let plain = tree.unpacked();
    unpacked_in(&target, &tree.archive()).unwrap();
    let file = |target: &Path| {
        let names = &mut [0_u8; 1024][..];
        let length = rustix::fs::listxattr(target.join("d/file"), names);
        (length, fs::metadata(target.join("d/file")).unwrap().permissions().mode())
    };
    assert_eq!(file(&target), file(&plain));
}
