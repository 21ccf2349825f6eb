//! A tree with every attribute that a file can have.

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chownat,
    linkat, lsetxattr, makedev, mkdirat, mknodat, openat, symlinkat, utimensat,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// The path of a file with two holes and two short parts.
pub const SPARSE: &str = "every/sparse/holes";
/// The path of a file that is one hole.
pub const HOLE: &str = "every/sparse/hole";

/// Names that programs often handle wrongly; two of them are not UTF-8.
const NAMES: [&[u8]; 14] = [
    b"\xff\xfe",
    b"caf\xe9",
    "größe".as_bytes(),
    b"two\nlines",
    b"tab\there",
    b" spaces ",
    b"-rf",
    b"back\\slash",
    b"back\\377slash",
    b"*?[a]",
    b"'\"$(id)`",
    b"...",
    // In layers of images such a name marks a deleted file; here it is a file.
    b".wh.file",
    b".wh..wh..opq",
];

/// An access list that lets the user 1234 write: linux/posix_acl_xattr.h.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, !0), (2, 6, 1234), (4, 5, !0), (0x10, 7, !0), (0x20, 4, !0)];
    let entries = entries.iter().flat_map(|(tag, permissions, id)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

/// `cap_net_raw=ep` of version 2: linux/capability.h.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn attribute(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn file(path: &Path, mode: u32) {
    fs::write(path, path.as_os_str().as_bytes()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes the tree `every` in the root `root`.
pub fn make(root: &Path) {
    let every = root.join("every");
    for directory in ["links/below", "sparse", "attributes", "owners", "nodes", "modes", "names"] {
        fs::create_dir_all(every.join(directory)).unwrap();
    }
    links(&every.join("links"));
    sparse(&every.join("sparse"));
    attributes(&every.join("attributes"));
    owners(&every.join("owners"));
    nodes(&every.join("nodes"));
    modes(&every.join("modes"));
    for name in NAMES {
        file(&every.join("names").join(OsStr::from_bytes(name)), 0o644);
    }
    let longest = every.join("names").join("l".repeat(255));
    fs::create_dir(&longest).unwrap();
    file(&longest.join("x".repeat(255)), 0o600);
    fs::create_dir_all(every.join("empty/empty/empty")).unwrap();
    deep(&every);
    // Last: whatever is made in a directory changes its time.
    times(&every);
}

fn links(at: &Path) {
    file(&at.join("one"), 0o640);
    fs::hard_link(at.join("one"), at.join("two")).unwrap();
    fs::hard_link(at.join("one"), at.join("below/three")).unwrap();
    symlinkat("one", CWD, at.join("symlink")).unwrap();
    linkat(CWD, at.join("symlink"), CWD, at.join("below/symlink"), AtFlags::empty()).unwrap();
    mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o620), 0).unwrap();
    linkat(CWD, at.join("fifo"), CWD, at.join("below/fifo"), AtFlags::empty()).unwrap();
    symlinkat("../nowhere/at all", CWD, at.join("dangling")).unwrap();
    symlinkat("/etc/passwd", CWD, at.join("absolute")).unwrap();
    symlinkat(OsStr::from_bytes(b"\xff"), CWD, at.join("to-bytes")).unwrap();
    // The longest target that xfs accepts.
    symlinkat(OsStr::from_bytes(&[b't'; 1000]), CWD, at.join("to-far")).unwrap();
}

fn sparse(at: &Path) {
    let holes = File::create(at.join("holes")).unwrap();
    holes.set_len(64 << 20).unwrap();
    holes.write_all_at(b"begin", 1 << 20).unwrap();
    holes.write_all_at(b"end", (63 << 20) + 77).unwrap();
    File::create(at.join("hole")).unwrap().set_len(32 << 20).unwrap();
    let mut whole = File::create(at.join("whole")).unwrap();
    whole.write_all(&[0xa5; 200_000]).unwrap();
    File::create(at.join("nothing")).unwrap();
}

fn attributes(at: &Path) {
    for name in ["user", "access", "capability", "trusted", "many"] {
        file(&at.join(name), 0o644);
    }
    attribute(&at.join("user"), "user.text", b"value");
    attribute(&at.join("user"), "user.empty", b"");
    attribute(&at.join("user"), "user.bytes", b"\x00\xff\n=\"");
    attribute(&at.join("user"), "user.large", &[7; 1500]);
    attribute(&at.join("trusted"), "trusted.text", b"value");
    for number in 0..30 {
        attribute(&at.join("many"), &format!("user.number-{number}"), b"some value");
    }
    attribute(&at.join("access"), "system.posix_acl_access", &acl());
    attribute(&at.join("capability"), "security.capability", &capability());
    let inherited = at.join("inherited");
    fs::create_dir(&inherited).unwrap();
    attribute(&inherited, "system.posix_acl_default", &acl());
    attribute(&inherited, "user.of-directory", b"value");
    file(&inherited.join("below"), 0o640);
}

fn owners(at: &Path) {
    for (name, user, group) in
        [("user", 1000, 1001), ("large", 4_000_000_000, 65_534), ("group", 0, 50)]
    {
        file(&at.join(name), 0o644);
        let owner = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        chownat(CWD, at.join(name), owner.0, owner.1, AtFlags::empty()).unwrap();
        let link = at.join(format!("{name}-link"));
        symlinkat(name, CWD, &link).unwrap();
        chownat(CWD, &link, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn nodes(at: &Path) {
    let nodes = [
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("large", FileType::CharacterDevice, makedev(511, 200_000)),
        ("disk", FileType::BlockDevice, makedev(259, 77)),
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
    ];
    for (name, kind, device) in nodes {
        mknodat(CWD, at.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
        let owner = (Some(Uid::from_raw(5)), Some(Gid::from_raw(6)));
        chownat(CWD, at.join(name), owner.0, owner.1, AtFlags::empty()).unwrap();
    }
}

fn modes(at: &Path) {
    for mode in [0o000, 0o001, 0o200, 0o444, 0o777, 0o1644, 0o2755, 0o4755, 0o6711, 0o7777] {
        file(&at.join(format!("file-{mode:o}")), mode);
        let directory = at.join(format!("directory-{mode:o}"));
        fs::create_dir(&directory).unwrap();
        file(&directory.join("below"), 0o600);
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Makes a path of 6,000 bytes: the kernel accepts 4,096 at once.
fn deep(every: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut directory: OwnedFd = openat(CWD, every, flags, Mode::empty()).unwrap();
    for level in 0..30 {
        let name = format!("{level:-<200}");
        mkdirat(&directory, &name, Mode::from_raw_mode(0o755)).unwrap();
        directory = openat(&directory, &name, flags, Mode::empty()).unwrap();
    }
    let create = OFlags::WRONLY | OFlags::CREATE;
    let mut bottom = File::from(openat(&directory, "bottom", create, 0o600.into()).unwrap());
    bottom.write_all(b"so deep\n").unwrap();
    linkat(&directory, "bottom", CWD, every.join("from-the-bottom"), AtFlags::empty()).unwrap();
}

fn times(every: &Path) {
    let set = |path: &Path, seconds, nanos| {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let both = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &both, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    set(&every.join("owners/user"), 1_000_000_000, 123_456_789);
    set(&every.join("owners/large"), 0, 1);
    set(&every.join("owners/group"), -86_400, 999_999_999);
    // After the range of 32 bits.
    set(&every.join("owners/user-link"), 3_000_000_000, 5);
    set(&every.join("nodes/fifo"), 1_234_567_890, 42);
    set(&every.join("nodes/null"), 1_234_567_890, 43);
    for directory in ["owners", "nodes", "empty/empty", "modes/directory-0", "empty", ""] {
        set(&every.join(directory), 1_111_111_111, 222_222_222);
    }
}
