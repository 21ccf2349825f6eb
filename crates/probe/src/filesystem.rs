//! The effect of a sync on each kind of file system.

/// The effect of one `syncfs` on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// On a disk: `syncfs` writes everything back. If `flushes` is false, `syncfs` does not
    /// flush the drive's cache, and an `fsync` must follow.
    Disk {
        /// Whether `syncfs` ends with a cache flush or a journal commit.
        flushes: bool,
    },
    /// Stacked on other file systems (overlay): `syncfs` reaches the upper file system, but
    /// does not report its errors; the upper file system must be synced separately.
    Stacked,
    /// On another machine, or on the host of this virtual machine: `syncfs` sends everything
    /// to the server and reports errors.
    Network,
    /// Served by a process (fuse(4)), which `syncfs` and sync(2) do not ask to make anything
    /// durable (Linux 6.18, `fuse_sync_fs` in fs/fuse/inode.c).
    Fuse {
        /// Whether the server keeps its data on the block device that is the mount's
        /// source (`fuseblk`).
        on_device: bool,
    },
    /// All others: memory, kernel interfaces, and types that are not listed.
    Other,
}

impl SyncKind {
    /// Returns the kind of the file system type `name` of mountinfo.
    ///
    /// Only types whose `syncfs` writes back every file are listed (Linux 6.18,
    /// `fs/*/super.c`). FAT, ext2 and others without a flush in `sync_fs` leave the data in
    /// the drive's cache.
    pub fn from_name(name: &str) -> Self {
        match name {
            "ext3" | "ext4" | "xfs" | "btrfs" | "f2fs" | "bcachefs" | "zfs" => {
                Self::Disk { flushes: true }
            }
            "ext2" | "vfat" | "msdos" | "exfat" | "ntfs3" | "jfs" | "nilfs2" | "reiserfs"
            | "udf" | "ubifs" | "hfs" | "hfsplus" => Self::Disk { flushes: false },
            "overlay" => Self::Stacked,
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "afs" | "coda"
            | "orangefs" | "lustre" | "vboxsf" => Self::Network,
            // Emulates files of /proc for containers, and stores nothing.
            "fuse.lxcfs" => Self::Other,
            // A subtype follows a dot: "fuse.sshfs", "fuseblk.ntfs".
            _ => match name.split('.').next() {
                Some("fuse") => Self::Fuse { on_device: false },
                Some("fuseblk") => Self::Fuse { on_device: true },
                _ => Self::Other,
            },
        }
    }

    /// Whether a supervisor holds sync calls on this kind: one `syncfs` does the work of all
    /// of them.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Disk { .. } | Self::Stacked)
    }
}

/// Whether the file system type `name` keeps everything in memory.
pub(crate) fn is_memory(name: &str) -> bool {
    matches!(name, "tmpfs" | "ramfs" | "rootfs" | "devtmpfs")
}

/// Whether nothing written to the file system type `name` is ever on a disk: memory, and the
/// kernel's own interfaces.
pub fn stores_nothing(name: &str) -> bool {
    const INTERFACES: [&str; 12] = [
        "proc",
        "sysfs",
        "cgroup",
        "cgroup2",
        "devpts",
        "debugfs",
        "tracefs",
        "securityfs",
        "configfs",
        "mqueue",
        "hugetlbfs",
        "fuse.lxcfs",
    ];
    is_memory(name) || INTERFACES.contains(&name)
}

/// Whether a file system keeps everything in memory, by its magic number:
/// `TMPFS_MAGIC` or `RAMFS_MAGIC` (`linux/magic.h`).
pub fn is_memory_magic(magic: u64) -> bool {
    matches!(magic, 0x0102_1994 | 0x8584_58F6)
}

/// Returns the type of a file system from the magic number of statfs(2) (`linux/magic.h` and
/// the file systems' own headers), or `None` for types that are not held. ext2 and ext3 have
/// ext4's number and are reported as ext4.
pub fn name_of_magic(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0xF2F5_2010 => "f2fs",
        0xCA45_1A4E => "bcachefs",
        0x2FC1_2FC1 => "zfs",
        0x4D44 => "vfat",
        0x2011_BAB0 => "exfat",
        0x7366_746E => "ntfs3",
        0x3153_464A => "jfs",
        0x3434 => "nilfs2",
        0x5265_4973 => "reiserfs",
        0x1501_3346 => "udf",
        0x2405_1905 => "ubifs",
        0x4244 => "hfs",
        0x482B => "hfsplus",
        0x794C_7630 => "overlay",
        _ => return None,
    })
}
