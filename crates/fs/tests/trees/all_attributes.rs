//! A tree with every attribute that a copy must keep.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat,
    utimensat,
};

/// Makes the tree in the new directory `root`.
pub fn make(root: &Path) {
    fs::create_dir(root).unwrap();
    contents(root);
    modes_and_owners(root);
    links(root);
    nodes(root);
    attributes(root);
    names(root);
    // From the leaves up, so that the times of directories are final.
    times(root);
}

fn contents(root: &Path) {
    for size in [0, 1, 4095, 4096, 100_000, 262_143, 262_144, 262_145, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|at: usize| (at * 7 / 3) as u8).collect();
        fs::write(root.join(format!("size-{size}")), bytes).unwrap();
    }
    let holes = fs::create_dir(root.join("holes")).map(|()| root.join("holes")).unwrap();
    for (name, data, size) in [
        ("all", &[][..], 5_000_000),
        ("begins", &[4_000_000][..], 4_000_010),
        ("middle", &[0, 3_000_000][..], 3_000_010),
        ("ends", &[0][..], 6_000_000),
        ("small", &[8192][..], 20_000),
    ] {
        let mut file = File::create(holes.join(name)).unwrap();
        for at in data {
            file.seek(SeekFrom::Start(*at)).unwrap();
            file.write_all(b"0123456789").unwrap();
        }
        file.set_len(size).unwrap();
        // Blocks and holes of the file are final only once they are on the disk.
        file.sync_all().unwrap();
    }
}

fn modes_and_owners(root: &Path) {
    for mode in [0o0, 0o444, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1644, 0o2644] {
        for (kind, owner) in [("ours", 0), ("theirs", 1234)] {
            let path = root.join(format!("mode-{mode:o}-{kind}"));
            fs::write(&path, "x").unwrap();
            lchown(&path, Some(owner), Some(owner * 2)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let path = root.join(format!("directory-{mode:o}-{kind}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("inside"), "y").unwrap();
            lchown(&path, Some(owner), Some(owner * 2)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

fn links(root: &Path) {
    fs::create_dir_all(root.join("links/deep/er")).unwrap();
    for (first, second) in [
        ("size-4096", "links/same"),
        ("links/same", "links/deep/same"),
        ("size-3000000", "links/large"),
        ("mode-4755-theirs", "links/deep/er/program"),
    ] {
        fs::hard_link(root.join(first), root.join(second)).unwrap();
    }
    symlink("../nowhere", root.join("links/dangling")).unwrap();
    // xfs's limit.
    symlink("x".repeat(1023), root.join("links/longest")).unwrap();
    lchown(root.join("links/dangling"), Some(7), Some(8)).unwrap();
    fs::hard_link(root.join("links/dangling"), root.join("links/deep/dangling")).unwrap();
}

fn nodes(root: &Path) {
    let node = |name: &str, kind, mode, device| {
        mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(mode), device).unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    node("null", FileType::CharacterDevice, 0o666, makedev(1, 3));
    node("whiteout", FileType::CharacterDevice, 0o000, makedev(0, 0));
    node("disk", FileType::BlockDevice, 0o660, makedev(259, 300));
    node("pipe", FileType::Fifo, 0o622, 0);
    lchown(root.join("disk"), Some(0), Some(6)).unwrap();
    fs::hard_link(root.join("pipe"), root.join("links/pipe")).unwrap();
    drop(UnixListener::bind(root.join("socket")).unwrap());
}

fn attributes(root: &Path) {
    let set = |name: &str, attribute: &str, value: &[u8]| {
        lsetxattr(root.join(name), attribute, value, XattrFlags::empty())
            .unwrap_or_else(|errno| panic!("{attribute} of {name}: {errno}"));
    };
    fs::create_dir(root.join("attributes")).unwrap();
    for name in ["file", "program", "listed"] {
        fs::write(root.join("attributes").join(name), name).unwrap();
    }
    set("attributes/file", "user.empty", b"");
    set("attributes/file", "user.large", &[7; 2000]);
    set("attributes/file", "trusted.bytes", &[0, 255, 128]);
    set("attributes", "user.directory", b"d");
    set("links/dangling", "trusted.link", b"l");
    set("null", "trusted.node", b"n");
    // cap_net_raw+ep (linux/capability.h: struct vfs_cap_data, revision 2).
    let capability = [0x0200_0001_u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
    lchown(root.join("attributes/program"), Some(33), Some(33)).unwrap();
    set("attributes/program", "security.capability", &capability);
    set("attributes/listed", "system.posix_acl_access", &list(0o6));
    set("attributes", "system.posix_acl_default", &list(0o7));
}

/// Returns an access list: owner rw, user 1000 `named`, group r, mask rwx, others none
/// (linux/posix_acl_xattr.h).
fn list(named: u16) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, rights, id) in
        [(1_u16, 6_u16, none), (2, named, 1000), (4, 4, none), (16, 7, none), (32, 0, none)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

fn names(root: &Path) {
    fs::create_dir(root.join("names")).unwrap();
    let longest = [b'n'; 255];
    for name in [&b"\xff\xfe\x80"[..], b" ", b"a\nb", b"\\", b"-rf", b"*", "ü".as_bytes(), &longest]
    {
        fs::write(root.join("names").join(OsStr::from_bytes(name)), name).unwrap();
    }
}

/// Gives everything a time of its own, to the nanosecond, some before 1970.
fn times(root: &Path) {
    let mut paths = vec![root.to_owned()];
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            let mut below: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            below.sort();
            paths.append(&mut below);
        }
        at += 1;
    }
    for (number, path) in paths.iter().enumerate().rev() {
        let number = i64::try_from(number).unwrap();
        // Times around the epoch, and recent ones.
        let second = if number % 5 == 0 { number - 100 } else { 1_700_000_000 + number };
        let time = |nanosecond| Timespec { tv_sec: second, tv_nsec: nanosecond };
        let times = Timestamps {
            last_access: time(111_111_111 + number),
            last_modification: time(999_999_999 - number),
        };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}
