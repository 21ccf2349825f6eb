//! The mounts of a process, from `/proc/PID/mountinfo` (proc(5)).

use crate::filesystem::{SyncKind, is_memory, is_memory_magic, name_of_magic};
use rustix::fs::{AtFlags, StatVfsMountFlags, Statx, StatxFlags};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// `STATX_MNT_ID_UNIQUE` (statx(2), Linux 6.8), which rustix does not name: an id that no later
/// mount gets. Older kernels return the id that later mounts may get again.
pub const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The source of a mount that no list shows.
pub const UNLISTED: &str = "unknown";

/// A device number, which identifies a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The major number; 0 for file systems without a block device of their own.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's id, unique among the existing mounts.
    pub id: u64,
    /// The id of the mount that this mount is attached to; `id` itself if unknown.
    pub parent: u64,
    /// The file system's device number. All subvolumes of a btrfs share it.
    pub device: DeviceId,
    /// The mounted part of the file system: `/`, or a directory or file in it.
    pub root: PathBuf,
    /// The mount point, as the reading process sees it.
    pub point: PathBuf,
    /// The file system's type.
    pub type_name: String,
    /// The source of the mount: a device, a network share, or any word.
    pub source: String,
    /// Whether this mount is writable.
    pub writable: bool,
    /// Whether the mount is in a peer group, or receives from one (shared or slave,
    /// mount_namespaces(7)).
    pub propagates: bool,
    /// The peer group of a shared mount. What is mounted on one peer is mounted on all, and
    /// unmounted from all.
    pub peer_group: Option<u64>,
    /// The options of this mount alone, comma separated: "rw,noatime".
    pub mount_options: String,
    /// The file system's own options, comma separated.
    pub options: String,
}

/// The end of the path of the work directory of the overlay that `synconce-oci` mounts as the root
/// of a build step.
pub const STEP_WORK: &str = "/synconce-step";

impl Mount {
    /// Returns what a sync does on this mount.
    pub fn kind(&self) -> SyncKind {
        SyncKind::from_name(&self.type_name)
    }

    /// Whether data written here are lost in a power failure: the file system is in memory, or
    /// it is an overlay whose upper directory is in memory.
    pub fn is_in_memory(&self) -> bool {
        let upper = self.option("upperdir").filter(|_| self.kind() == SyncKind::Stacked);
        let upper = upper.and_then(|upper| rustix::fs::statfs(&upper).ok());
        is_memory(&self.type_name)
            || upper.is_some_and(|upper| is_memory_magic(upper.f_type as u64))
    }

    /// Whether this is a volatile overlay. Linux 7.0 shows `fsync=volatile`.
    pub fn is_volatile(&self) -> bool {
        self.has_option("volatile") || self.has_option("fsync=volatile")
    }

    /// Whether `synconce-oci` has made this root of a build step volatile. It syncs the layer at
    /// the end of the step.
    pub fn is_volatile_step_root(&self) -> bool {
        self.option("workdir").is_some_and(|work| work.to_string_lossy().ends_with(STEP_WORK))
    }

    /// Returns the value of the file system option `name`, unescaped. Of an option that is set
    /// several times, returns the first value.
    pub fn option(&self, name: &str) -> Option<PathBuf> {
        self.options_named(name).next()
    }

    /// Returns the values of the file system option `name`, unescaped, in the order of
    /// mountinfo: an overlay can show one `lowerdir+` for each layer (Linux 6.7).
    pub fn options_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        let values = self.options.split(',');
        values.filter_map(move |option| option.strip_prefix(name)?.strip_prefix('=')).map(path)
    }

    /// Returns the options of the mount, and those of its file system that differ: both can have
    /// `rw`.
    pub fn all_options(&self) -> String {
        let own = self.mount_options.split(',');
        let is_new =
            |option: &&str| !option.is_empty() && own.clone().all(|known| known != *option);
        own.clone().chain(self.options.split(',').filter(is_new)).collect::<Vec<_>>().join(",")
    }

    /// Whether the file system option `name` is set.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Reads the mounts in the namespace of the process `pid` ("self" for this process,
/// "thread-self" for the calling thread).
///
/// # Errors
/// Those of reading `/proc/PID/mountinfo`.
pub fn read(pid: &str) -> io::Result<Vec<Mount>> {
    Ok(of_bytes(&std::fs::read(Path::new("/proc").join(pid).join("mountinfo"))?))
}

/// Returns the mount that `path` is on by its name alone, without links: nothing is opened, because
/// a file server may hang.
pub fn above<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of several at one point, the last covers the others.
    above.max_by_key(|mount| mount.point.components().count())
}

/// Returns the device of the file system of `mount`, as in `st_dev`.
pub fn device(mount: &Mount) -> u64 {
    rustix::fs::makedev(mount.device.major, mount.device.minor)
}

/// Parses the content of a mountinfo file; skips malformed lines.
pub fn of_bytes(bytes: &[u8]) -> Vec<Mount> {
    parse(&text(bytes))
}

/// Returns the mounts of this process, including the mount of its root: in a chroot, mountinfo
/// omits that mount, because its mount point is outside.
///
/// # Errors
/// Those of reading `/proc/self/mountinfo`.
pub fn ours() -> io::Result<Vec<Mount>> {
    let mut mounts = read("self")?;
    for point in [Path::new("/"), Path::new(".")] {
        let is_listed = |(id, _)| mounts.iter().any(|known| known.id == id);
        if !look(point).is_some_and(is_listed) {
            mounts.extend(at(point));
        }
    }
    Ok(mounts)
}

/// Returns the mount at `path`, from the kernel's data about the file system. Returns `None`
/// if it is not on a disk, or cannot be examined.
pub fn at(path: &Path) -> Option<Mount> {
    let (id, device) = look(path)?;
    let system = rustix::fs::statfs(path).ok()?;
    let flags = rustix::fs::statvfs(path).ok()?.f_flag;
    Some(Mount {
        id,
        parent: id,
        device,
        root: PathBuf::from("/"),
        point: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        type_name: name_of_magic(system.f_type as u64)?.to_owned(),
        source: UNLISTED.to_owned(),
        propagates: false,
        peer_group: None,
        writable: !flags.contains(StatVfsMountFlags::RDONLY),
        mount_options: String::new(),
        options: String::new(),
    })
}

/// Returns the id of the mount that `path` is on, and the device of its file system. Sends no
/// request to a file server. The id may be reused later.
pub fn look(path: &Path) -> Option<(u64, DeviceId)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID).ok()?;
    let device = DeviceId { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
    Some((id_of(&stat)?, device))
}

/// Returns the id of the mount through which `file` was opened (statx(2), Linux 5.8). Sends no
/// request to a file server.
pub fn mount_id(file: impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    id_of(&rustix::fs::statx(file, "", flags, StatxFlags::MNT_ID).ok()?)
}

/// Returns the id of the mount through which `file` was opened. Works also on a disk that was shut
/// down, where statx(2) fails.
///
/// # Errors
/// Those of reading `/proc/self/fdinfo`.
pub fn id_in_fdinfo(file: impl AsFd) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the id of the mount in `stat`, if the kernel has given it.
pub fn id_of(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Parses the text of a mountinfo file; skips malformed lines.
pub fn parse(text: &str) -> Vec<Mount> {
    // lines() would remove a carriage return at the end of a name.
    text.split('\n').filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?.parse().ok()?;
    let parent = left.next()?.parse().ok()?;
    let (major, minor) = left.next()?.split_once(':')?;
    let root = path(left.next()?);
    let point = path(left.next()?);
    let mount_options = left.next()?.to_owned();
    let (mut propagates, mut peer_group) = (false, None);
    for field in left {
        let shared = field.strip_prefix("shared:");
        propagates |= shared.is_some() || field.starts_with("master:");
        peer_group = peer_group.or(shared.and_then(|group| group.parse().ok()));
    }
    let mut right = right.split(' ');
    let type_name = right.next()?.to_owned();
    let source = right.next()?.to_owned();
    let options = right.next().unwrap_or_default().to_owned();
    let read_write = |options: &str| options.split(',').any(|option| option == "rw");
    Some(Mount {
        id,
        parent,
        device: DeviceId { major: major.parse().ok()?, minor: minor.parse().ok()? },
        root,
        point,
        type_name,
        source,
        writable: read_write(&mount_options) && read_write(&options),
        propagates,
        peer_group,
        mount_options,
        options,
    })
}

/// Returns the text of a mountinfo file. A name may contain any byte. Bytes that are not UTF-8
/// are escaped as the kernel escapes a space, which loses no information.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        chunk.invalid().iter().for_each(|byte| text += &format!("\\{byte:03o}"));
    }
    text
}

/// Decodes the octal escapes (`\040`) of mountinfo.
fn path(escaped: &str) -> PathBuf {
    let bytes = escaped.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const TEXT: &str = "\
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
37 35 0:25 / /with\\040space ro,relatime - btrfs /dev/sdb rw,subvol=/\n\
38 35 0:40 / /o rw shared:7 master:1 - overlay overlay rw,lowerdir=/l,upperdir=/u\\0541,workdir=/w,volatile\n\
nonsense\n";

    #[test]
    fn an_option_of_both_the_mount_and_its_file_system_is_shown_once() {
        for (line, options) in [
            ("/ / rw,relatime shared:1 - ext4 /dev/vda rw,discard", "rw,relatime,discard"),
            // A read-only mount of a file system that others write to.
            ("/ / ro,noatime - ext4 /dev/vda rw", "ro,noatime,rw"),
        ] {
            assert_eq!(parse(&format!("27 1 254:0 {line}\n"))[0].all_options(), options);
        }
    }

    #[test]
    fn a_mount_is_read_with_its_optional_fields_left_out() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 3);
        assert_eq!([mounts[0].id, mounts[0].parent], [36, 35]);
        assert_eq!(mounts[0].device, DeviceId { major: 98, minor: 0 });
        assert_eq!(mounts[0].point, Path::new("/mnt2"));
        assert_eq!(mounts[0].mount_options, "rw,noatime");
        assert_eq!(mounts[0].options, "rw,errors=continue");
        assert_eq!(mounts[0].kind(), SyncKind::Disk { flushes: true });
        assert!(mounts[0].writable);
        assert!(mounts[0].propagates && !mounts[1].propagates);
        assert_eq!((mounts[0].peer_group, mounts[2].peer_group), (None, Some(7)));
    }

    #[test]
    fn a_read_only_mount_of_a_writable_file_system_is_not_writable() {
        let mounts = parse(TEXT);
        assert!(!mounts[1].writable);
        assert_eq!(mounts[1].point, Path::new("/with space"));
    }

    #[test]
    fn options_of_an_overlay_are_found_and_unescaped() {
        let overlay = &parse(TEXT)[2];
        assert_eq!(overlay.option("upperdir"), Some(PathBuf::from("/u,1")));
        assert!(overlay.has_option("volatile"));
        assert_eq!(overlay.option("upper"), None);
        assert_eq!(overlay.kind(), SyncKind::Stacked);
    }

    #[test]
    fn an_option_that_is_set_several_times_has_several_values() {
        let text = "38 35 0:40 / /o rw - overlay overlay ro,lowerdir+=/l\\0401,lowerdir+=/l2";
        let overlay = &parse(text)[0];
        let layers: Vec<_> = overlay.options_named("lowerdir+").collect();
        assert_eq!(layers, [PathBuf::from("/l 1"), PathBuf::from("/l2")]);
        assert_eq!(overlay.option("lowerdir+"), Some(PathBuf::from("/l 1")));
        assert_eq!(overlay.option("lowerdir"), None);
    }

    #[test]
    fn a_mount_point_that_is_not_utf8_is_read_like_any_other() {
        let mounts = parse(&text(b"37 35 0:25 / /m\xe9\\040\xff rw - ext4 /dev/\xe9 rw"));
        assert_eq!(mounts[0].point, Path::new(std::ffi::OsStr::from_bytes(b"/m\xe9 \xff")));
        assert_eq!(mounts[0].source, "/dev/\\351");
    }

    #[test]
    fn memory_and_networks_are_never_held() {
        for name in ["tmpfs", "proc", "nfs4", "fuse", "fuse.sshfs", "9p", "cifs", "ramfs"] {
            assert!(!SyncKind::from_name(name).is_held(), "{name}");
        }
    }
}
