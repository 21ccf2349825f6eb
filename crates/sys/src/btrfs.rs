//! Subvolumes and snapshots of btrfs, by the ioctls of `linux/btrfs.h`.

use rustix::ioctl::{Getter, NoArg, Opcode, Setter, Updater, ioctl, opcode};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `BTRFS_IOCTL_MAGIC`.
const MAGIC: u8 = 0x94;
/// `BTRFS_SUPER_MAGIC` (linux/magic.h).
const SUPER_MAGIC: u64 = 0x9123_683E;
/// `BTRFS_FIRST_FREE_OBJECTID`: the inode number of every subvolume's root
/// (linux/btrfs_tree.h).
const SUBVOLUME_ROOT: u64 = 256;
/// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`: the inode number of the empty directory that a snapshot has
/// in the place of a subvolume. It is on no disk: its times are those at which the kernel made the
/// inode.
pub const EMPTY_DIRECTORY: u64 = 2;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 1 << 1;

/// `BTRFS_IOC_SUBVOL_CREATE`.
const CREATE: Opcode = opcode::write::<VolumeArguments>(MAGIC, 14);
/// `BTRFS_IOC_SNAP_DESTROY`.
const DESTROY: Opcode = opcode::write::<VolumeArguments>(MAGIC, 15);
/// `BTRFS_IOC_SNAP_CREATE_V2`.
const SNAPSHOT: Opcode = opcode::write::<Flagged>(MAGIC, 23);
/// `BTRFS_IOC_SYNC`.
const SYNC: Opcode = opcode::none(MAGIC, 8);
/// `BTRFS_IOC_SUBVOL_GETFLAGS`.
const GET_FLAGS: Opcode = opcode::read::<u64>(MAGIC, 25);
/// `BTRFS_IOC_SUBVOL_SETFLAGS`.
const SET_FLAGS: Opcode = opcode::write::<u64>(MAGIC, 26);
/// `BTRFS_IOC_GET_SUBVOL_INFO` (Linux 4.18).
const GET_INFORMATION: Opcode = opcode::read::<Information>(MAGIC, 60);
/// `BTRFS_IOC_GET_SUBVOL_ROOTREF` (Linux 4.18).
const GET_NESTED: Opcode = opcode::read_write::<Nested>(MAGIC, 61);
/// `BTRFS_IOC_INO_LOOKUP_USER` (Linux 4.18).
const LOOK_UP: Opcode = opcode::read_write::<LookUp>(MAGIC, 62);

/// `struct btrfs_ioctl_vol_args`, with `BTRFS_PATH_NAME_MAX` and its terminator.
#[repr(C)]
struct VolumeArguments {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`, with `BTRFS_SUBVOL_NAME_MAX` and its terminator.
#[repr(C)]
struct Flagged {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_get_subvol_info_args`.
#[repr(C)]
struct Information {
    /// The subvolume's id and name, the id of the parent, and the directory there.
    place: [u64; 35],
    generation: u64,
    flags: u64,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    received_uuid: [u8; 16],
    /// `ctransid`.
    last_change: u64,
    /// Three more transactions, four times, and reserved fields.
    rest: [u64; 19],
}

/// `struct btrfs_ioctl_get_subvol_rootref_args`.
#[repr(C)]
struct Nested {
    /// The lowest id to return. The kernel sets it to the first that is left.
    first: u64,
    /// The ids of the subvolumes, and of the directories that they are in.
    found: [[u64; 2]; 255],
    count: u8,
    align: [u8; 7],
}

/// `struct btrfs_ioctl_ino_lookup_user_args`.
#[repr(C)]
struct LookUp {
    directory: u64,
    subvolume: u64,
    name: [u8; 256],
    /// The path of the directory below the inode that was asked, with a slash at its end.
    path: [u8; 3824],
}

// The kernel's own assertions about these structures (fs/btrfs/ioctl.c, linux/btrfs.h).
const _: () = assert!(size_of::<VolumeArguments>() == 4096 && size_of::<Flagged>() == 4096);
const _: () = assert!(size_of::<Information>() == 504 && size_of::<Nested>() == 4096);
const _: () = assert!(size_of::<LookUp>() == 4096);

/// What btrfs keeps of a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// Its UUID, which no other subvolume has.
    pub uuid: [u8; 16],
    /// Whether the subvolume was made as a snapshot.
    pub is_snapshot: bool,
    /// The transaction that last changed an inode of the subvolume. Every change of a file or
    /// directory raises this number: written data at its write-back, all else at once. The replay
    /// of a log of fsync(2) after a crash does not raise the number.
    pub last_change: u64,
}

/// Makes the empty subvolume `name` in the directory `dir`.
///
/// # Errors
/// `ENOTTY` when `dir` is not on btrfs; those of `mkdir(2)`.
pub fn create_subvolume(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let arguments = VolumeArguments { fd: 0, name: terminated(name)? };
    // SAFETY: the opcode takes a `btrfs_ioctl_vol_args`, which this is, and only reads it.
    unsafe { ioctl(dir, Setter::<CREATE, _>::new(arguments)) }?;
    Ok(())
}

/// Makes the writable snapshot `name` of the subvolume `source` in the directory `dir` of the same
/// file system. Subvolumes in `source` become empty directories in the snapshot.
///
/// # Errors
/// `EINVAL` if `source` is not the root of a subvolume, `EXDEV` if it is on another file
/// system, `EPERM` if another user owns the subvolume; those of mkdir(2).
pub fn snapshot(source: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let arguments = Flagged {
        fd: i64::from(source.as_raw_fd()),
        transaction: 0,
        flags: 0,
        unused: [0; 4],
        name: terminated(name)?,
    };
    // SAFETY: the opcode takes a `btrfs_ioctl_vol_args_v2`, which this is, and only reads it.
    unsafe { ioctl(dir, Setter::<SNAPSHOT, _>::new(arguments)) }?;
    Ok(())
}

/// Deletes the subvolume `name` of the directory `dir` with its content. The kernel frees the
/// space later. Without `CAP_SYS_ADMIN`, needs the mount option `user_subvol_rm_allowed`.
///
/// # Errors
/// `EINVAL` if `name` is not a subvolume, `ENOTEMPTY` if it contains another subvolume,
/// `EPERM` without permission, or if it is the default subvolume.
pub fn delete_subvolume(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let arguments = VolumeArguments { fd: 0, name: terminated(name)? };
    // SAFETY: the opcode takes a `btrfs_ioctl_vol_args`, which this is, and only reads it.
    unsafe { ioctl(dir, Setter::<DESTROY, _>::new(arguments)) }?;
    Ok(())
}

/// Makes a subvolume read-only.
///
/// # Errors
/// `EINVAL` if `subvolume` is not the root of a subvolume; `EPERM` if another user owns it.
pub fn make_read_only(subvolume: BorrowedFd<'_>) -> io::Result<()> {
    change_flags(subvolume, |flags| flags | READ_ONLY)
}

/// Makes a subvolume writable again.
///
/// # Errors
/// As for [`make_read_only`].
pub fn make_writable(subvolume: BorrowedFd<'_>) -> io::Result<()> {
    change_flags(subvolume, |flags| flags & !READ_ONLY)
}

fn change_flags(subvolume: BorrowedFd<'_>, change: impl Fn(u64) -> u64) -> io::Result<()> {
    let flags = flags(subvolume)?;
    let wanted = change(flags);
    if wanted == flags {
        return Ok(());
    }
    // SAFETY: the opcode reads one u64.
    unsafe { ioctl(subvolume, Setter::<SET_FLAGS, _>::new(wanted)) }?;
    Ok(())
}

/// Whether a subvolume is read-only.
///
/// # Errors
/// `EINVAL` if `subvolume` is not the root of a subvolume.
pub fn is_read_only(subvolume: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(flags(subvolume)? & READ_ONLY != 0)
}

fn flags(subvolume: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: the opcode writes one u64.
    Ok(unsafe { ioctl(subvolume, Getter::<GET_FLAGS, u64>::new()) }?)
}

/// Returns what btrfs keeps of the subvolume that `fd` is in. Needs no privilege.
///
/// # Errors
/// `ENOTTY` if the file system is not btrfs, or before Linux 4.18.
pub fn subvolume(fd: BorrowedFd<'_>) -> io::Result<Subvolume> {
    // SAFETY: the opcode writes a `btrfs_ioctl_get_subvol_info_args`, which this is.
    let information = unsafe { ioctl(fd, Getter::<GET_INFORMATION, Information>::new()) }?;
    let Information { uuid, parent_uuid, last_change, .. } = information;
    Ok(Subvolume { uuid, is_snapshot: parent_uuid != [0; 16], last_change })
}

/// Returns the paths, below `fd`, of the subvolumes in the subvolume with the root `fd`. Subvolumes
/// in these subvolumes are left out.
///
/// # Errors
/// `ENOTTY` if the file system is not btrfs, or before Linux 4.18; `EACCES` if the caller may not
/// enter the directory of one; `ENAMETOOLONG` if its path has more than 3,823 bytes.
pub fn nested(fd: BorrowedFd<'_>) -> io::Result<Vec<PathBuf>> {
    let mut asked = Nested { first: 0, found: [[0; 2]; 255], count: 0, align: [0; 7] };
    let mut paths = Vec::new();
    loop {
        let has_more = ask_nested(fd, &mut asked)?;
        for [subvolume, directory] in &asked.found[..usize::from(asked.count)] {
            paths.push(path_of(fd, *subvolume, *directory)?);
        }
        if !has_more {
            return Ok(paths);
        }
    }
}

/// Returns the path of the subvolume `subvolume`, which is in the directory `directory` below `fd`.
fn path_of(fd: BorrowedFd<'_>, subvolume: u64, directory: u64) -> io::Result<PathBuf> {
    let mut asked = LookUp { directory, subvolume, name: [0; 256], path: [0; 3824] };
    // SAFETY: the opcode reads and writes a `btrfs_ioctl_ino_lookup_user_args`, which this is.
    unsafe { ioctl(fd, Updater::<LOOK_UP, _>::new(&mut asked)) }?;
    let text = |bytes: &[u8]| {
        let text = CStr::from_bytes_until_nul(bytes).map_err(io::Error::other)?;
        Ok::<_, io::Error>(PathBuf::from(OsStr::from_bytes(text.to_bytes())))
    };
    Ok(text(&asked.path)?.join(text(&asked.name)?))
}

/// Whether other subvolumes are in the subvolume with the root `fd`. Needs no privilege.
///
/// # Errors
/// `ENOTTY` if the file system is not btrfs, or before Linux 4.18.
pub fn has_nested(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut asked = Nested { first: 0, found: [[0; 2]; 255], count: 0, align: [0; 7] };
    ask_nested(fd, &mut asked)?;
    Ok(asked.count > 0)
}

/// Fills `asked` with the next 255 subvolumes in that with the root `fd`. Returns whether there are
/// more.
fn ask_nested(fd: BorrowedFd<'_>, asked: &mut Nested) -> io::Result<bool> {
    // SAFETY: the opcode reads and writes a `btrfs_ioctl_get_subvol_rootref_args`, which this is.
    match unsafe { ioctl(fd, Updater::<GET_NESTED, _>::new(asked)) } {
        Err(rustix::io::Errno::OVERFLOW) => Ok(true),
        answer => Ok(answer.map(|()| false)?),
    }
}

/// Commits the file system of `fd`, and starts at once to free what was deleted, instead of
/// within half a minute: this ioctl wakes the cleaner thread, which syncfs(2) does not.
///
/// # Errors
/// `ENOTTY` if the file system is not btrfs; write-back errors.
pub fn sync(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the opcode takes no argument.
    unsafe { ioctl(fd, NoArg::<SYNC>::new()) }?;
    Ok(())
}

/// Whether `fd` is on btrfs.
///
/// # Errors
/// Those of `fstatfs(2)`.
pub fn is_btrfs(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // The width of the field differs between C libraries.
    Ok(rustix::fs::fstatfs(fd)?.f_type as u64 & 0xFFFF_FFFF == SUPER_MAGIC)
}

/// Whether `fd` is the root of a btrfs subvolume. The empty directory that replaces a
/// subvolume in a snapshot is no subvolume: its inode number is 2.
///
/// # Errors
/// Those of `fstatfs(2)` and `fstat(2)`.
pub fn is_subvolume(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(is_btrfs(fd)? && rustix::fs::fstat(fd)?.st_ino == SUBVOLUME_ROOT)
}

/// Returns `name` in an array of the kernel's size, terminated by a NUL.
fn terminated<const SIZE: usize>(name: &OsStr) -> io::Result<[u8; SIZE]> {
    let bytes = name.as_bytes();
    if bytes.len() >= SIZE {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    if bytes.is_empty() || bytes.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut array = [0; SIZE];
    array[..bytes.len()].copy_from_slice(bytes);
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_kernels_header() {
        // As printed by a C program with linux/btrfs.h, on x86-64 and arm64.
        let numbers: [u32; 5] = [CREATE, DESTROY, SNAPSHOT, GET_FLAGS, SET_FLAGS];
        assert_eq!(numbers, [0x5000_940e, 0x5000_940f, 0x5000_9417, 0x8008_9419, 0x4008_941a]);
        assert_eq!([GET_INFORMATION, GET_NESTED, LOOK_UP], [0x81f8_943c, 0xd000_943d, 0xd000_943e]);
    }

    #[test]
    fn a_name_that_leads_elsewhere_or_is_too_long_is_refused() {
        for name in ["", "a/b", "..\0"] {
            let error = terminated::<4040>(OsStr::new(name)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{name:?}");
        }
        let error = terminated::<4040>(OsStr::new(&"x".repeat(4040))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    }
}
