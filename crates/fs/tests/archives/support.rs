//! Trees and archives for tests.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat,
    utimensat,
};
use synconce_durable::error::Error;
use synconce_fs::archive::{Packed, Unpacked, pack, unpack};
use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};
use tar::{EntryType, Header};
use tempfile::TempDir;

/// Makes a tree with one of everything that an archive can hold.
pub fn everything() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    fs::create_dir_all(root.join("etc/empty")).unwrap();
    fs::write(root.join("etc/passwd"), "root").unwrap();
    fs::write(root.join("etc/nothing"), "").unwrap();
    fs::write(root.join("block"), [b'b'; 512]).unwrap();
    fs::write(root.join("large"), vec![b'l'; 700_001]).unwrap();
    fs::hard_link(root.join("etc/passwd"), root.join("a-link")).unwrap();
    fs::hard_link(root.join("etc/passwd"), root.join("etc/z-link")).unwrap();
    symlink("passwd", root.join("etc/symlink")).unwrap();
    symlink("x".repeat(300), root.join("etc/long-symlink")).unwrap();
    fs::hard_link(root.join("etc/symlink"), root.join("linked-symlink")).unwrap();
    for (name, kind) in [("null", FileType::CharacterDevice), ("disk", FileType::BlockDevice)] {
        mknodat(CWD, root.join(name), kind, Mode::from(0o640), makedev(7, 300)).unwrap();
    }
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    names(root);
    holes(root);
    attributes(root);
    times(root);
    tree
}

fn names(root: &Path) {
    let name = |bytes: &[u8]| root.join(OsStr::from_bytes(bytes));
    fs::write(name(b"latin-\xe9"), "not UTF-8").unwrap();
    symlink(OsStr::from_bytes(b"to-\xff"), name(b"link-\xfe")).unwrap();
    fs::write(name("unicode-\u{e9}".as_bytes()), "UTF-8").unwrap();
    fs::write(name(b"new\nline = back\\slash"), "").unwrap();
    fs::create_dir(name(b"-directory ")).unwrap();
    // Names of more than a thousand bytes, and lengths around every limit of the header's
    // fields.
    let mut path = root.join("names");
    for length in [50, 100, 155, 250, 250, 250] {
        path.push("n".repeat(length));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("file"), length.to_string()).unwrap();
        symlink(path.strip_prefix(root).unwrap(), path.join("symlink")).unwrap();
    }
    fs::hard_link(path.join("file"), root.join("short-name-of-long")).unwrap();
}

fn holes(root: &Path) {
    fs::create_dir(root.join("sparse")).unwrap();
    let file = |name: &str, size: u64, pieces: &[u64]| {
        let file = File::create(root.join("sparse").join(name)).unwrap();
        file.set_len(size).unwrap();
        pieces.iter().for_each(|at| file.write_all_at(&[b'd'; 4096], *at).unwrap());
    };
    file("large", 16 << 20, &[1 << 20, 8 << 20]);
    file("end", (1 << 20) + 100, &[(1 << 20) - 3996]);
    file("start", 1 << 20, &[0]);
    file("all", 3_000_000, &[]);
    file("small-hole", 20_480, &[0, 16_384]);
    // More pieces than fit one of GNU's headers.
    let many: Vec<u64> = (0..60).map(|piece| piece << 18).collect();
    file("many", 60 << 18, &many);
    fs::create_dir(root.join("sparse").join("n".repeat(120))).unwrap();
    file(&format!("{0}/{0}", "n".repeat(120)), 1 << 20, &[1 << 18]);
}

fn attributes(root: &Path) {
    let mode = |path: &str, mode| {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    let set = |path: &str, name: &str, value: &[u8]| {
        lsetxattr(root.join(path), name, value, XattrFlags::empty()).unwrap();
    };
    fs::write(root.join("set-id"), "s").unwrap();
    chown(root.join("set-id"), Some(7), Some(8)).unwrap();
    mode("set-id", 0o6755);
    mode("etc/nothing", 0o000);
    fs::create_dir(root.join("sticky")).unwrap();
    mode("sticky", 0o3777);
    fs::create_dir(root.join("shut")).unwrap();
    fs::write(root.join("shut/file"), "").unwrap();
    mode("shut", 0o000);
    chown(root.join("etc"), Some(3_000_000), Some(4_000_000_000)).unwrap();
    lchown(root.join("etc/symlink"), Some(9), Some(10)).unwrap();
    fs::write(root.join("capable"), "c").unwrap();
    chown(root.join("capable"), Some(7), Some(8)).unwrap();
    // cap_net_raw=ep, in libcap's encoding.
    set("capable", "security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    set("etc/passwd", "user.binary", b"a\n\0\xff=12 b=c\n");
    set("etc/passwd", "user.a=b%c", b"name");
    set("etc/passwd", "user.empty", b"");
    set("etc/passwd", "trusted.synconce", b"t");
    set("etc/symlink", "trusted.link", b"l");
    set("sparse/large", "user.sparse", b"s");
    set("null", "trusted.device", b"d");
    set("etc", "user.directory", &[b'v'; 1000]);
    fs::write(root.join("listed"), "").unwrap();
    fs::create_dir(root.join("lists")).unwrap();
    run(
        "setfacl",
        &["-m", "u:70007:r-x,g:70008:rwx,m::r--", root.join("listed").to_str().unwrap()],
    );
    run("setfacl", &["-m", "u:70009:rwx", root.join("lists").to_str().unwrap()]);
    run("setfacl", &["-d", "-m", "u:70009:rwx", root.join("lists").to_str().unwrap()]);
    fs::write(root.join("lists/inherits"), "").unwrap();
}

/// Gives every file a time of its own; directories last.
fn times(root: &Path) {
    let mut paths = vec![root.to_owned()];
    let mut seen = 0;
    while seen < paths.len() {
        let path = paths[seen].clone();
        seen += 1;
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    paths[1..].sort();
    for (number, path) in paths.iter().enumerate() {
        let number = number as i64;
        let mtime = match number % 4 {
            0 => Timespec { tv_sec: 1_000_000_000 + number, tv_nsec: 0 },
            1 => Timespec { tv_sec: 1_600_000_000 + number, tv_nsec: 123_456_789 },
            2 => Timespec { tv_sec: -number, tv_nsec: 500_000_000 },
            _ => Timespec { tv_sec: 9_000_000_000 + number, tv_nsec: 10 },
        };
        let times = Timestamps { last_access: mtime, last_modification: mtime };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Asserts that two trees are the same, times included.
pub fn assert_same(expected: &Path, found: &Path, what: &str) {
    let manifest = |path| Manifest::with(path, &ManifestOptions::default().mtimes()).unwrap();
    let differences = diff(&manifest(expected), &manifest(found));
    let notice: Vec<String> = differences.iter().take(20).map(ToString::to_string).collect();
    assert!(notice.is_empty(), "{what}: {notice:#?}");
}

pub fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the output of `program -c` (or `cat`) for `input`.
pub fn through(program: &str, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    if program != "cat" {
        command.arg("-c");
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut output = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    });
    assert!(child.wait().unwrap().success());
    output
}

/// Returns GNU tar's archive of a tree.
pub fn gnu_pack(tree: &Path, flags: &[&str]) -> Vec<u8> {
    let mut command = Command::new("tar");
    // Sorted by name, because links need the same first name in both trees.
    command.args(["-c", "--sort=name", "--numeric-owner"]).args(flags).arg("-C").arg(tree).arg(".");
    let output = command.env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Unpacks an archive with GNU tar.
pub fn gnu_unpack(archive: &[u8]) -> TempDir {
    gnu_unpack_with(archive, &["--acls"])
}

pub fn gnu_unpack_with(archive: &[u8], flags: &[&str]) -> TempDir {
    let target = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), archive).unwrap();
    let mut command = Command::new("tar");
    command.args(["-xp", "--numeric-owner", "--xattrs", "--xattrs-include=*"]).args(flags);
    command.arg("-C").arg(target.path()).arg("-f").arg(file.path()).env("LC_ALL", "C");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target
}

/// Unpacks an archive with [`unpack`].
pub fn unpacked(archive: &[u8]) -> TempDir {
    let target = tempfile::tempdir().unwrap();
    let report = unpacked_in(target.path(), archive).unwrap();
    assert_eq!(report.left_out.count, 0, "{report:?}");
    target
}

pub fn unpacked_in(target: &Path, archive: &[u8]) -> Result<Unpacked, Error> {
    let fd = File::open(target).unwrap();
    unpack(archive, fd.as_fd(), &())
}

/// Returns the error for an archive that must be refused.
pub fn refused(archive: &[u8]) -> String {
    unpacked_in(tempfile::tempdir().unwrap().path(), archive).unwrap_err().to_string()
}

pub fn packed(tree: &Path) -> (Vec<u8>, Packed) {
    let mut archive = Vec::new();
    let report = packed_in(tree, &mut archive).unwrap();
    (archive, report)
}

pub fn packed_in(tree: &Path, output: impl Write) -> Result<Packed, Error> {
    let fd = File::open(tree).unwrap();
    pack(fd.as_fd(), output, &())
}

/// An archive that no well-behaved program writes, and a directory to unpack it in, beside a
/// canary file.
pub struct Hostile {
    dir: TempDir,
    members: Vec<u8>,
}

impl Default for Hostile {
    fn default() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("canary"), "alive").unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        Self { dir, members: Vec::new() }
    }
}

impl Hostile {
    pub fn canary(&self) -> PathBuf {
        self.dir.path().join("canary")
    }

    fn member(&mut self, name: &str, kind: EntryType, mode: u32, target: &str, content: &[u8]) {
        let mut header = Header::new_gnu();
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        header.set_cksum();
        self.members.extend_from_slice(header.as_bytes());
        self.members.extend_from_slice(content);
        self.members.resize(self.members.len().next_multiple_of(512), 0);
    }

    pub fn file(&mut self, name: &str, content: &str) {
        self.member(name, EntryType::Regular, 0o644, "", content.as_bytes());
    }

    pub fn directory(&mut self, name: &str) {
        self.directory_with_mode(name, 0o755);
    }

    pub fn directory_with_mode(&mut self, name: &str, mode: u32) {
        self.member(name, EntryType::Directory, mode, "", b"");
    }

    pub fn symlink(&mut self, name: &str, target: &str) {
        self.member(name, EntryType::Symlink, 0o777, target, b"");
    }

    pub fn link(&mut self, name: &str, target: &str) {
        self.member(name, EntryType::Link, 0o644, target, b"");
    }

    pub fn device(&mut self, name: &str) {
        self.member(name, EntryType::Char, 0o600, "", b"");
    }

    pub fn archive(&self) -> Vec<u8> {
        [&self.members[..], &[0; 1024]].concat()
    }

    fn unpack(&self) -> Result<Unpacked, Error> {
        let result = unpacked_in(&self.dir.path().join("target"), &self.archive());
        let beside: Vec<_> = fs::read_dir(self.dir.path()).unwrap().collect();
        assert_eq!(beside.len(), 2, "{beside:?}");
        assert_eq!(fs::read(self.canary()).unwrap(), b"alive");
        assert_eq!(fs::metadata(self.canary()).unwrap().permissions().mode() & 0o7777, 0o644);
        result
    }

    /// Returns the target after unpacking.
    pub fn unpacked(&self) -> PathBuf {
        self.unpack().unwrap();
        self.dir.path().join("target")
    }

    pub fn refused(&self) -> String {
        self.unpack().unwrap_err().to_string()
    }

    /// Asserts that nothing outside the target changes, whether the archive is unpacked or
    /// refused.
    pub fn any(&self) {
        let _ = self.unpack();
    }
}

/// Makes an archive of one file of four bytes, with these records before its header.
pub fn pax_file(name: &str, records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions(records.iter().copied()).unwrap();
    let mut header = Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(4);
    header.set_cksum();
    builder.append(&header, &b"four"[..]).unwrap();
    builder.into_inner().unwrap()
}
